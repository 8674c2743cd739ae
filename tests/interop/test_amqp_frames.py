"""AMQP frames that are legal and rare, or wrong, made without the product's codec.  Part and section are OASIS's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.amqp_wire import WireClient, composite, described, mapped, message, string, symbol
from tests.support.daemon import DaemonProcess

SELECTOR: Final = "apache.org:selector-filter:string"


@contextmanager
def others_go_on(broker: DaemonProcess) -> Iterator[None]:
    """Check that a client that was there before is served afterwards as it was, and gets its message once."""
    with WireClient(broker.ports["amqp"], container="innocent") as innocent:
        innocent.begin()
        innocent.sender("queue://innocent")
        innocent.receiver("queue://innocent", credit=2)
        yield
        innocent.transfer(0, message("still here"))
        assert innocent.outcome(0) == "accepted"
        [got] = innocent.received(1)
        assert got.endswith(message("still here")[-13:])
        innocent.send("disposition", role=True, first=0, settled=True, state=composite("accepted"))
        innocent.credit(0, delivery_count=1, drain=True, echo=True)
        assert innocent.next("flow")["link-credit"] == 0
        assert not innocent.all("transfer")


# -- answers that the peer cannot take ---------------------------------------------------------------------------------


def test_an_answer_larger_than_the_peers_frames_leaves_no_consumer(broker: DaemonProcess) -> None:
    """2.4.1 and 2.7.1: a frame above the peer's max-frame-size must not be sent, so such a link cannot be answered."""
    selector = described(symbol(SELECTOR), string(f"a = '{'x' * 900}'"))
    source = composite(
        "source",
        address="topic://narrow-frames",
        durable=2,
        filter=mapped({symbol("f"): selector}),
        capabilities=("topic",),
    )
    with others_go_on(broker), WireClient(broker.ports["amqp"], container="narrow", max_frame_size=512) as client:
        client.begin()
        client.begin(1)
        client.send("attach", name="sub", handle=0, role=True, source=source, target=composite("target"))
        assert client.next("end").condition == "amqp:frame-size-too-small"
        client.sender("queue://narrow-frames", channel=1)  # the session next to it
        assert broker.queue("narrow.sub")["consumers"] == 0
    broker.await_log("condition=amqp:frame-size-too-small")
    with WireClient(broker.ports["amqp"], container="narrow") as client:
        client.begin()
        assert client.receiver("topic://narrow-frames", name="sub", source=source)["source"] is not None
