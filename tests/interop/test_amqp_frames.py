"""AMQP frames that are legal and rare, or wrong, made without the product's codec.  Part and section are OASIS's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.amqp_wire import (
    NULL,
    STYLES,
    WireClient,
    binary,
    boolean,
    composite,
    described,
    discharge,
    listed,
    mapped,
    message,
    section,
    split,
    string,
    symbol,
    uint,
    ulong,
)
from tests.support.daemon import DaemonProcess, running

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


def test_a_list_of_brokers_too_long_for_a_small_frame_is_left_out(tmp_path: Path) -> None:
    """2.7.1: 512 bytes is the least that a peer must take, and its OPEN is all that the broker has to answer with."""
    hosts = [f"broker-{number}.{'messaging.' * 6}example:5672" for number in range(4)]
    with running(tmp_path, f"[broker]\nfailover-hosts = {hosts}\n") as broker:
        with WireClient(broker.ports["amqp"]) as client:
            assert len(client.open["properties"]["failover-server-list"]) == 4
        with WireClient(broker.ports["amqp"], max_frame_size=512) as client:
            assert client.open["properties"]["product"] == "bartleby"
            client.begin()
            client.sender("queue://q")


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


def test_a_declare_that_cannot_be_rejected(broker: DaemonProcess, client: WireClient) -> None:
    """4.2: without the outcome rejected in its source, the coordinator's link must end."""
    client.coordinator(8, name="c", source=composite("source", outcomes=("amqp:accepted:list",)))
    for id in range(100):
        client.declare(id, 8)
    client.transfer(100, section(0x77, composite("declare")), 8)
    assert client.next("detach").condition == "amqp:resource-limit-exceeded"
    assert client.declare(101), "the transactions of the other link are gone with it"


def test_requests_that_are_sent_settled(broker: DaemonProcess, client: WireClient) -> None:
    """4.2: the coordinator should detach, since the client could not learn its transaction's id."""
    client.transfer(0, section(0x77, composite("declare")), 9, settled=True)
    assert client.next("detach").condition == "amqp:not-allowed"


# -- sessions and links ------------------------------------------------------------------------------------------------


def test_a_session_behind_the_end_of_the_only_one(broker: DaemonProcess) -> None:
    """2.7.1, channel-max 0: there is one channel, which is free for the peer's next BEGIN once it has sent END."""
    with WireClient(broker.ports["amqp"], channel_max=0) as client:
        fields = {"next_outgoing_id": 0, "incoming_window": 9, "outgoing_window": 9}
        begin, end = client.made("begin", **fields), client.made("end")
        client.raw(begin + end + begin + end + begin)
        for _ in range(2):
            assert (client.next("begin").channel, client.next("end").channel) == (0, 0)
        assert client.next("begin").channel == 0
        client.sender("queue://one-channel")
        client.transfer(0, message("1"))
        assert client.outcome(0) == "accepted"


def test_draining_a_link_whose_unsettled_map_is_incomplete(broker: DaemonProcess, client: WireClient) -> None:
    """2.7.3: it may get nothing new, so all its credit is used up at once."""
    client.sender("queue://incomplete")
    client.transfer(0, message("1"))
    client.outcome(0)
    client.receiver("queue://incomplete", unsettled=mapped({binary(b"t"): NULL}), incomplete_unsettled=True)
    client.credit(5, drain=True)
    drained = client.next("flow")
    assert (drained["link-credit"], drained["delivery-count"], drained["drain"]) == (0, 5, True)
    client.send("detach", handle=1)
    client.next("detach")
    client.receiver("queue://incomplete", credit=1)
    assert len(client.received(1)) == 1


# -- messages ----------------------------------------------------------------------------------------------------------

#: What a transfer, or the second frame of a message, must not be: its fields, and the condition of the DETACH.
WRONG: Final[dict[str, tuple[list[dict[str, Any]], str]]] = {
    "a message in another format": (
        [{"delivery_id": 0, "delivery_tag": b"t", "message_format": 0x80013700}],
        "amqp:not-implemented",
    ),
    "another tag in its second frame": (
        [{"delivery_id": 0, "delivery_tag": b"t", "more": True}, {"delivery_tag": b"u"}],
        "amqp:invalid-field",
    ),
    "a message without a tag": ([{"delivery_id": 0}], "amqp:invalid-field"),
    "a tag of 33 bytes": ([{"delivery_id": 0, "delivery_tag": bytes(33)}], "amqp:invalid-field"),
    "settled and then not": (
        [{"delivery_id": 0, "delivery_tag": b"t", "more": True, "settled": True}, {"settled": False}],
        "amqp:invalid-field",
    ),
    "settled by the receiver second, on a link where it is first": (
        [{"delivery_id": 0, "delivery_tag": b"t", "rcv_settle_mode": 1}],
        "amqp:invalid-field",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_transfer_ends_its_link(broker: DaemonProcess, client: WireClient, wrong: str) -> None:
    """2.7.5, and 2.8.11 for formats: what is behind one that is unknown, the broker could neither check nor convert."""
    frames, condition = WRONG[wrong]
    client.sender("queue://wrong-frames", 0)
    client.sender("queue://right-frames", 1)
    halves = split(message("1"), [5] * (len(frames) - 1))
    for half, fields in zip(halves, frames, strict=True):
        client.send("transfer", half, handle=0, **fields)
    client.transfer(1, message("2"), 1)
    assert client.next("detach").condition == condition
    assert client.outcome(1) == "accepted"
    assert broker.queue("wrong-frames")["messages"] == 0
    broker.await_log(f"condition={condition}")


#: Sections in rare encodings, with what goes out as it came in: of the annotations only what is not addressed to us.
_PROPERTIES: Final = listed(string("id"), binary(b"me"), NULL, string("subject", wide=True), wide=True)
BARE: Final = {
    "properties with a long descriptor": described(ulong(0x73, wide=True), _PROPERTIES) + section(0x77, string("x")),
    "properties named by a symbol": described(symbol("amqp:properties:list"), _PROPERTIES) + section(0x77, NULL),
    "everything named by symbols": described(symbol("amqp:properties:list"), listed(ulong(7), wide=True))
    + described(symbol("amqp:application-properties:map", wide=True), mapped({string("a"): boolean(1, wide=True)}))
    + described(symbol("amqp:data:binary"), binary(b"x", wide=True)) * 2
    + described(symbol("amqp:footer:map"), mapped({symbol("x-f"): uint(5, wide=True)}, wide=True)),
    "described values nobody knows": section(0x77, described(symbol("a:b"), listed(described(ulong(1 << 40), NULL)))),
    "sequences": section(0x76, listed()) + section(0x76, listed(uint(0), uint(0, wide=True), wide=True)),
    "a footer only": section(0x78, mapped({symbol("x-sum"): binary(b"\1\2", wide=True)})),
    "nothing": b"",
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", BARE)
def test_a_bare_message_goes_out_as_it_came_in(broker: DaemonProcess, name: str, style: str) -> None:
    """Part 3, 3.2: from the properties on, nothing changes.  The frames around it are in each encoding."""
    header = described(symbol("amqp:header:list"), listed(boolean(1, wide=True), wide=True))
    payload = header + section(0x71, mapped({symbol("x-d"): NULL}, wide=True)) + BARE[name]
    with WireClient(broker.ports["amqp"], STYLES[style], max_frame_size=512) as client:
        client.begin()
        client.sender("queue://bare")
        parts = [payload[at : at + 1] for at in range(len(payload))]
        for at, part in enumerate(parts):
            client.transfer(0 if at == 0 else None, part, tag=b"t" if at == 0 else None, more=at + 1 < len(parts))
        assert client.outcome(0) == "accepted"
        client.receiver("queue://bare", credit=1)
        [got] = client.received(1)
        assert got[got.index(b"\x00\x53\x70") + 5 + got[4] :] == BARE[name]
        client.send("disposition", role=True, first=0, settled=True, state=client.style.composite("accepted"))
        client.send("close")
        client.next("close")
    assert broker.queue("bare")["messages"] == 0
