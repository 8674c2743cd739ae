"""Runs of deliveries, in the encodings of real clients; what ends them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    INVALID_FIELD,
    TRANSFER_LIMIT_EXCEEDED,
)
from protocols.amqp.events import Attached, Event, LinkFailed, SessionFailed, Transfers
from protocols.amqp.frames import frame
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    SENDER,
    Attach,
    Detach,
    Disposition,
    TransactionalState,
    Transfer,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.serial import add
from tests.protocols.amqp.deliveries import told, transfer
from tests.protocols.amqp.peer import (
    FIRST_ID,
    frames,
    of,
    only,
    receive,
    receiving_server,
)

UINT: dict[str, Callable[[int], bytes]] = {
    "small": lambda n: b"\x52%c" % n if n else b"\x43",
    "wide": lambda n: b"\x70" + n.to_bytes(4),
}


def encoded(number: int, tag: bytes, payload: bytes, *, wide_list: bool, ids: str, tail: bytes) -> bytes:
    """A transfer as some client encodes it; ids count from 0."""
    handle = UINT["small"](0)
    delivery_id = UINT["wide" if ids == "wide" or number > 255 else "small"](number)
    fields = handle + delivery_id + b"\xa0%c" % len(tag) + tag + tail
    count = 3 + len([None for _ in range(len(tail))])
    if wide_list:
        listed = b"\xd0" + (len(fields) + 4).to_bytes(4) + count.to_bytes(4) + fields
    else:
        listed = b"\xc0%c%c" % (len(fields) + 1, count) + fields
    return frame(0, b"\x00\x53\x14" + listed + payload)


#: Lists, ids, tags and what follows the tag, as clients have them: message-format 0, settled, more ...
CLIENTS: dict[str, tuple[bool, str, Callable[[int], bytes], bytes]] = {
    "proton": (False, "small", lambda n: b"%d" % n, b"\x43\x42"),
    "proton settled": (False, "small", lambda n: b"%d" % n, b"\x43\x41"),
    "rhea": (False, "small", lambda n: b"%d" % n, b"\x43\x42\x42"),
    "Qpid JMS": (False, "small", lambda n: n.to_bytes(1 if n < 256 else 2), b"\x43\x42\x40\x40\x40\x40\x40\x41"),
    "go-amqp": (True, "small", lambda n: n.to_bytes(8), b"\x43"),
    ".NET": (False, "wide", lambda n: n.to_bytes(4), b"\x43\x42"),
    "no format": (False, "wide", lambda n: b"", b""),
    "tags of any length": (False, "wide", lambda n: bytes(n * 7 % 33), b"\x43"),
}


def client_link() -> tuple[AmqpConnection, Receiver]:
    """A server that reads ids from 0 on, with much credit."""
    codec, link = receiving_server()
    link.send_credit(100_000)
    codec.data_to_send()
    return codec, link


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("reads", [0, 50, 1000])
def test_runs_in_the_encodings_of_clients(client: str, reads: int) -> None:
    wide_list, ids, tag_of, tail = CLIENTS[client]
    random = Random(f"{client} {reads}")
    payloads = [random.randbytes(random.choice([0, 1, 100, 300])) for _ in range(700)]
    raw = b"".join(
        encoded(at, tag_of(at), payload, wide_list=wide_list, ids=ids, tail=tail) for at, payload in enumerate(payloads)
    )
    codec, link = client_link()
    events: list[Event] = []
    for at in range(0, len(raw), reads or len(raw)):
        events += receive(codec, raw[at : at + (reads or len(raw))])
    transfers = of(events, Transfers)
    assert [payload for event in transfers for payload in event.payloads] == payloads
    assert [tag for event in transfers for tag in event.tags] == [tag_of(at) for at in range(700)]
    assert [event.first for event in transfers] == [
        sum(len(before.tags) for before in transfers[:at]) for at in range(len(transfers))
    ]
    settled = tail[1:2] == b"\x41"
    assert {event.settled for event in transfers} == {settled}
    assert {event.message_format for event in transfers} == {0}
    assert link.credit == 100_000 - 700
    assert link.delivery_count == 700
    assert link.session.next_incoming_delivery == 700
    assert link.session.incoming.count == (0 if settled else 700)
    if not reads and client != "tags of any length":
        assert len(transfers) < 12  # runs, not messages


def test_runs_on_several_links() -> None:
    codec, link = client_link()
    raw = frames(Attach("other", 7, SENDER, initial_delivery_count=0))
    other = only(receive(codec, raw), Attached).link
    assert isinstance(other, Receiver)
    other.send_attach()
    other.send_credit(1000)
    raw = b"".join(
        frame(0, Transfer(7 * (at % 2), 1000 + at, b"%04d" % at, 0).encode() + b"%d" % at) for at in range(500)
    )
    events = of(receive(codec, raw), Transfers)
    assert [event.payloads for event in events] == [[b"%d" % at] for at in range(500)]
    assert [event.link for event in events] == [link, other] * 250
    assert (link.delivery_count, other.delivery_count) == (250, 250)


def test_many_shapes_are_not_kept() -> None:
    codec, _ = client_link()
    raw = b"".join(
        [frame(0, Transfer(0, 1000 + at, b"t", 0, state=TransactionalState(bytes(at))).encode()) for at in range(600)]
    )
    assert sum(len(event.tags) for event in of(receive(codec, raw), Transfers)) == 600
    assert 0 < len(codec._shapes) <= 256


def unusual(number: int, **change: bytes) -> bytes:
    """A transfer with a part of it in a legal encoding that no client uses."""
    part = {"doff": b"\2", "extended": b"", "descriptor": b"\x53\x14", "id": b"\x70" + number.to_bytes(4)} | change
    tag = change.get("tag", b"\xa0\1t")
    fields = b"\x43" + part["id"] + tag + b"\x43"
    body = b"\0" + part["descriptor"] + b"\xc0%c\4" % (len(fields) + 1) + fields + b"payload"
    rest = part["doff"] + b"\0\0\0" + part["extended"] + body
    return (4 + len(rest)).to_bytes(4) + rest


@pytest.mark.parametrize(
    "change",
    [
        {"descriptor": b"\x80\0\0\0\0\0\0\0\x14"},
        {"descriptor": b"\xa3\x12amqp:transfer:list"},
        {"tag": b"\xb0\0\0\0\1t"},
        {"doff": b"\3", "extended": b"\0\x53\x14\xc0"},
        {"doff": b"\4", "extended": b"\0\x53\x14\xd0\xff\xff\xff\xff"},
    ],
)
def test_encodings_that_are_no_shape(change: dict[str, bytes]) -> None:
    codec, _ = client_link()
    raw = b"".join([unusual(at, **change) for at in range(500, 510)])
    events = of(receive(codec, raw), Transfers)
    assert [(event.first, event.tags, event.payloads) for event in events] == [
        (at, [b"t"], [b"payload"]) for at in range(500, 510)
    ]
    assert codec._shapes == {}


def test_the_id_0_is_no_shape() -> None:
    codec, _ = client_link()
    assert only(receive(codec, unusual(0, id=b"\x43")), Transfers).first == 0
    assert codec._shapes == {}
    assert only(receive(codec, unusual(1)), Transfers).first == 1
    assert len(codec._shapes) == 1


def test_a_transactions_state_is_part_of_the_shape() -> None:
    codec, _ = client_link()
    states = [None, TransactionalState(b"1"), TransactionalState(b"2")]
    raw = b"".join(frame(0, Transfer(0, 1000 + at, b"t", 0, state=states[at // 10]).encode()) for at in range(30))
    events = of(receive(codec, raw), Transfers)
    assert [(event.state, sum(len(e.tags) for e in events if e.state == event.state)) for event in events[::2]] == [
        (state, 10) for state in states
    ]


def test_a_run_ends_with_the_credit() -> None:
    codec, link = receiving_server()
    raw = b"".join([transfer(at) for at in range(101)])
    events = receive(codec, raw)
    assert len(told(events)) == 100
    failed = events[-1]
    assert isinstance(failed, LinkFailed)
    assert failed.error.condition == TRANSFER_LIMIT_EXCEEDED
    assert failed.error.description == "transfer: the link 'link' has no credit."
    assert link.credit == 0
    link.send_detach(error=failed.error)
    assert receive(codec, transfer(102)) == []


def test_a_run_longer_than_the_window() -> None:
    codec, link = receiving_server(Limits(incoming_window=10))
    assert len(told(receive(codec, b"".join([transfer(at) for at in range(35)])))) == 35
    assert codec.data_to_send().count(b"\x00\x53\x13") == 3
    assert link.session.incoming_window == 5


def test_the_window_is_filled_up_when_half_is_used() -> None:
    codec, link = receiving_server(Limits(incoming_window=10))
    link.send_credit(100)
    codec.data_to_send()
    receive(codec, b"".join([transfer(at) for at in range(5)]))
    assert codec.data_to_send() == b""
    receive(codec, transfer(5))
    assert link.session.incoming_window == 10
    assert codec.data_to_send().count(b"\x00\x53\x13") == 1


def test_a_run_ends_with_another_id() -> None:
    codec, _ = receiving_server()
    events = receive(codec, b"".join([transfer(0), transfer(1), transfer(1)]))
    assert len(told(events)) == 2
    failed = events[-1]
    assert isinstance(failed, SessionFailed)
    assert failed.error.condition == INVALID_FIELD
    assert failed.error.description == "transfer: the next delivery-id is 0, not 4294967295."


def test_a_run_ends_with_detach() -> None:
    codec, link = receiving_server()
    raw = transfer(0) + transfer(1) + frames(Detach(0, True)) + transfer(2)
    events = receive(codec, raw)
    assert [type(event).__name__ for event in events] == ["Transfers", "Transfers", "Detached", "SessionFailed"]
    assert link.session.incoming.count == 2


def test_a_run_and_other_frames_between() -> None:
    codec, _ = receiving_server()
    raw = b"".join([transfer(at) + b"\0\0\0\x08\2\0\0\0" + frames(Disposition(SENDER, 5)) for at in range(10)])
    assert len(told(receive(codec, raw))) == 10


def test_ids_wrap_around() -> None:
    codec, link = receiving_server()
    raw = b"".join([frame(0, Transfer(0, add(FIRST_ID, at), b"t", 0).encode() + b"x") for at in range(20)])
    wide = b"".join(
        [encoded(add(FIRST_ID, at), b"t", b"x", wide_list=False, ids="wide", tail=b"\x43") for at in range(20)]
    )
    for stream in raw, wide:
        codec, link = receiving_server()
        assert [number for number, _, _ in told(receive(codec, stream))] == list(range(20))
        assert link.session.next_incoming_delivery == 18
