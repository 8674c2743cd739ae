"""AMQP frames that are legal and rare, or wrong, made without the product's codec.  Part and section are OASIS's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.amqp_wire import (
    WireClient,
    binary,
    composite,
    described,
    discharge,
    mapped,
    message,
    section,
    string,
    symbol,
)
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


# -- transactions ------------------------------------------------------------------------------------------------------


def part_of(txn: bytes, outcome: bytes | None = None) -> bytes:
    """The state of a message, or of an outcome, in a transaction."""
    return composite("transactional-state", txn_id=txn, outcome=outcome)


@pytest.fixture
def client(broker: DaemonProcess) -> Iterator[WireClient]:
    """A client with a session, and a link to the coordinator with the handle 9."""
    with others_go_on(broker), WireClient(broker.ports["amqp"]) as made:
        made.begin()
        made.coordinator()
        yield made


def test_a_link_that_fails_rolls_its_transaction_back(broker: DaemonProcess, client: WireClient) -> None:
    """4.4.4: what the resource cannot process must not be left out of a successful discharge."""
    client.sender("queue://tx-fails")
    txn = client.declare(0)
    client.transfer(1, message("1"), state=part_of(txn))
    client.transfer(2, message("2"), tag=bytes(33), state=part_of(txn))
    client.discharge(3, txn)
    assert client.next("detach").condition == "amqp:invalid-field"
    assert client.outcome(3) == "amqp:transaction:rollback"
    assert broker.queue("tx-fails")["messages"] == 0


def test_a_session_that_fails_rolls_its_transactions_back(broker: DaemonProcess, client: WireClient) -> None:
    client.begin(1)
    client.sender("queue://tx-session", channel=1)
    client.sender("queue://tx-session-2", 1)
    txn = client.declare(0)
    client.send("transfer", message("1"), channel=1, handle=7, delivery_id=0, delivery_tag=b"t", state=part_of(txn))
    client.transfer(1, message("2"), 1, state=part_of(txn))
    client.discharge(2, txn)
    assert client.next("end").condition == "amqp:session:unattached-handle"
    assert client.outcome(2) == "amqp:transaction:rollback"
    txn = client.declare(3)
    client.send("transfer", message("3"), channel=1, handle=0, delivery_id=1, delivery_tag=b"t", state=part_of(txn))
    client.discharge(4, txn)
    assert client.outcome(4) == "amqp:transaction:rollback"
    assert broker.queue("tx-session-2")["messages"] == 0


@pytest.mark.parametrize("more", [False, True])
def test_a_deleted_address_rolls_back_what_was_on_its_way_to_it(
    broker: DaemonProcess, client: WireClient, more: bool
) -> None:
    """A message that crosses our DETACH is lost, perhaps with its first half sent before: so is its transaction."""
    client.sender(f"queue://tx-deleted-{more}")
    client.sender("queue://tx-kept", 1)
    txn = client.declare(0)
    client.transfer(1, b"\0", state=part_of(txn), more=True) if more else None
    client.transfer(1 + more, message("2"), 1, state=part_of(txn))
    client.outcome(1 + more)
    broker.delete(f"addresses/tx-deleted-{more}?force=true")
    assert client.next("detach").condition == "amqp:resource-deleted"
    client.transfer(1 if more else 2, message("1"), state=None if more else part_of(txn))
    client.discharge(3, txn)
    assert client.outcome(3) == "amqp:transaction:rollback"
    assert broker.queue("tx-kept")["messages"] == 0


@pytest.mark.parametrize("at_once", [False, True])
def test_an_outcome_behind_its_links_end_rolls_back(broker: DaemonProcess, client: WireClient, at_once: bool) -> None:
    """The message went back with its link, so the commit would let it be processed twice."""
    name = f"tx-late-{at_once}"
    client.sender(f"queue://{name}")
    client.transfer(0, message("1"))
    client.outcome(0)
    client.receiver(f"queue://{name}", credit=1)
    client.received(1)
    txn = client.declare(1)
    frames = [
        client.made("detach", handle=1, closed=True),
        client.made("disposition", role=True, first=0, settled=True, state=part_of(txn, composite("accepted"))),
    ]
    client.raw(b"".join(frames) if at_once else frames[0])
    if not at_once:
        client.next("detach")
        client.raw(frames[1])
    client.discharge(2, txn)
    assert client.outcome(2) == "amqp:transaction:rollback"
    assert broker.queue(name)["messages"] == 1


@pytest.mark.parametrize("at_once", [False, True])
def test_a_discharge_between_the_frames_of_a_message(broker: DaemonProcess, client: WireClient, at_once: bool) -> None:
    """4.4.1: the control link must be terminated with transaction-rollback."""
    client.sender("queue://tx-partial")
    txn = client.declare(0)
    client.transfer(1, message("1"), state=part_of(txn))
    assert client.outcome(1) == "accepted"
    frames = [
        client.made(
            "transfer", message("2")[:9], handle=0, delivery_id=2, delivery_tag=b"t", more=True, state=part_of(txn)
        ),
        client.made("transfer", discharge(txn), handle=9, delivery_id=3, delivery_tag=b"t"),
        client.made("transfer", message("2")[9:], handle=0, state=part_of(txn)),
    ]
    client.raw(b"".join(frames if at_once else frames[:2]))
    assert (ended := client.next("detach")).condition == "amqp:transaction:rollback"
    assert ended["closed"]
    if not at_once:
        client.raw(frames[2])
    assert client.next("detach").condition == "amqp:transaction:unknown-id"
    assert broker.queue("tx-partial")["messages"] == 0


def test_a_rollback_between_the_frames_of_a_message(broker: DaemonProcess, client: WireClient) -> None:
    """4.3: a discharge with fail must always be possible.  An aborted message does not count (2.7.5)."""
    client.sender("queue://tx-aborted")
    txn = client.declare(0)
    client.transfer(1, b"\0", more=True, state=part_of(txn))
    client.discharge(2, txn, fail=True)
    assert client.outcome(2) == "accepted"
    client.transfer(None, tag=None, aborted=True)
    txn = client.declare(3)
    client.transfer(4, b"\0", more=True, state=part_of(txn))
    client.transfer(None, tag=None, aborted=True, state=part_of(txn))
    client.transfer(5, message("1"), state=part_of(txn))
    client.discharge(6, txn)
    assert client.outcome(6) == "accepted"
    assert broker.queue("tx-aborted")["messages"] == 1


def test_messages_are_not_acquired_in_a_transaction(broker: DaemonProcess, client: WireClient) -> None:
    """4.4.3: a link that does not support it must be terminated with not-implemented."""
    client.sender("queue://tx-acquire")
    client.transfer(0, message("1"))
    client.outcome(0)
    client.receiver("queue://tx-acquire")
    client.credit(1, properties=mapped({symbol("txn-id"): binary(client.declare(1))}))
    assert client.next("detach").condition == "amqp:not-implemented"
    assert not client.all("transfer")
    assert broker.queue("tx-acquire")["delivering"] == 0


def test_requests_that_are_sent_settled(broker: DaemonProcess, client: WireClient) -> None:
    """4.2: the coordinator should detach, since the client could not learn its transaction's id."""
    client.transfer(0, section(0x77, composite("declare")), 9, settled=True)
    assert client.next("detach").condition == "amqp:not-allowed"
