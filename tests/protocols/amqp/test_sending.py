"""Deliveries that go out: one frame, many frames, windows that stall them, settling in both directions."""

from __future__ import annotations

import pytest

from protocols.amqp.composite import decode_composite
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.dispositions import disposition_frame
from protocols.amqp.errors import INVALID_FIELD
from protocols.amqp.events import Attached, Credit, Dispositions, Event, SessionFailed, Skipped, Transfers, WindowOpened
from protocols.amqp.frames import AMQP_HEADER, frame
from protocols.amqp.limits import Limits
from protocols.amqp.link import EVENTS_MAX, FRAMES_MAX, LOOKED_MAX
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    DeliveryState,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Outcome,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import HALF, MASK
from protocols.amqp.types import Described, ULong
from tests.protocols.amqp.deliveries import told, transfer
from tests.protocols.amqp.peer import (
    FIRST_ID,
    Pair,
    attach,
    begun,
    consuming,
    drain,
    frames,
    of,
    only,
    opened,
    receive,
    receiving_server,
    sending_server,
    server_with_session,
    session_of,
)

SMALL = Limits(frame_bytes_max=512)


def with_credit(credit: int, limits: Limits | None = None) -> tuple[Pair, Receiver, Sender]:
    """A client that has given credit to the server."""
    pair, receiver, sender = consuming(limits or Limits(), limits or Limits())
    receiver.send_credit(credit)
    only(pair.to_server(), Credit)
    return pair, receiver, sender


def delivered(events: list[Event]) -> list[bytes]:
    """The payloads of all deliveries."""
    return [payload for event in of(events, Transfers) for payload in event.payloads]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages() -> None:
    pair, receiver, sender = with_credit(100)
    payloads = [b"x" * size for size in range(50)]
    assert sender.send(payloads, payloads) == 0
    assert sender.send([b"again"], ["context"], settled=True) == 50
    assert (sender.credit, sender.delivery_count, sender.session.next_delivery_id) == (49, 51, 51)
    assert sender.session.outgoing.count == 50
    events = pair.to_client()
    assert delivered(events) == [*payloads, b"again"]
    last = events[-1]
    assert isinstance(last, Transfers)
    assert (last.ids, last.tags, last.settled) == ([50], [b"\0\0\0\x32"], True)
    assert (receiver.credit, receiver.delivery_count, receiver.session.incoming.count) == (49, 51, 50)


@pytest.mark.parametrize("state", [None, Accepted(), TransactionalState(b"txn", None)])
@pytest.mark.parametrize("settled", [False, True])
def test_states_of_deliveries(state: DeliveryState | None, settled: bool) -> None:
    pair, _, sender = with_credit(100)
    for at in range(3):
        sender.send([b"%d" % at], [at], settled=settled, state=state)
    sender.send([b"x"], [None], settled=not settled)
    *same, other = of(pair.to_client(), Transfers)
    assert {(event.settled, event.state is None, event.state == state) for event in same} == {
        (settled, state is None, True)
    }
    assert (other.settled, other.state) == (not settled, None)


def test_handles_and_channels_of_every_size() -> None:
    pair = opened()
    sessions = [begun(pair) for _ in range(3)]
    mine, _ = sessions[2]
    for at in range(300):
        answer = attach(pair, mine.new_receiver(f"link {at}"))
    assert isinstance(answer, Sender)
    link = mine.links[-1]
    assert isinstance(link, Receiver)
    assert (answer.handle, answer.session.channel) == (299, 2)
    link.send_credit(5)
    pair.to_server()
    answer.send([b"a", b"b"], [1, 2])
    event = of(pair.to_client(), Transfers)[0]
    assert event.link is link


def test_no_more_than_there_is_room_for() -> None:
    _, _, sender = with_credit(2)
    for payloads in ([b"x"] * 3, []):
        with pytest.raises(AssertionError):
            sender.send(payloads, payloads)
    with pytest.raises(AssertionError):
        sender.send([b"x"], [])


def test_room_is_kept_for_the_oldest_id() -> None:
    pair, _, sender = with_credit(100)
    sender.send([b"x"], ["stuck"])
    session = sender.session
    session.next_delivery_id = HALF - 2
    assert sender.room == 2
    sender.send([b"x"] * 2, ["a", "b"])
    assert sender.room == 0
    session.send_disposition(SENDER, 0, 0)
    assert sender.room == 97
    assert pair.server.sessions == [session]


@pytest.mark.parametrize("limit", [None, 0, 5])
def test_the_size_of_messages_that_the_receiver_takes(limit: int | None) -> None:
    codec, _ = server_with_session()
    raw = frames(Attach("l", 0, RECEIVER, max_message_size=limit))
    link = only(receive(codec, raw), Attached).link
    assert isinstance(link, Sender)
    assert link.message_bytes_max == (limit or None)
    assert Sender(link.session, "other").message_bytes_max is None


# -- many frames -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 470, 485, 486, 487, 500, 512, 970, 5000])
@pytest.mark.parametrize("state", [None, TransactionalState(b"txn")])
def test_a_message_in_many_frames(size: int, state: DeliveryState | None) -> None:
    pair, receiver, sender = with_credit(10, SMALL)
    payload = bytes(at % 251 for at in range(size))
    sender.send([b"before", payload, b"after"], [1, 2, 3], state=state)
    raw = pair.server.data_to_send()
    at = 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 4])
        assert length <= 512
        at += length
    events = receive(pair.client, raw)
    assert delivered(events) == [b"before", payload, b"after"]
    assert {event.state == state for event in of(events, Transfers)} == {True}
    assert receiver.session.next_incoming_id == sender.session.next_outgoing_id
    assert (sender.credit, receiver.credit) == (7, 7)


# -- windows -----------------------------------------------------------------------------------------------------------


def windowed(window: int) -> tuple[AmqpConnection, Sender]:
    """A server with much credit, whose peer takes few frames, each of up to 512 bytes."""
    codec = AmqpConnection(container_id="server")
    receive(codec, AMQP_HEADER + frames(Open("c", None, 512)))
    codec.send_open()
    session = receive(codec, frames(Begin(None, FIRST_ID, window, 9)))[0].session  # type: ignore[attr-defined]
    session.send_begin()
    link = of(receive(codec, frames(Attach("l", 0, RECEIVER), Flow(0, window, 0, 9, 0, 0, 1000))), Attached)[0].link
    link.send_attach()
    codec.data_to_send()
    assert isinstance(link, Sender)
    return codec, link


def test_the_peers_window() -> None:
    codec, link = windowed(5)
    assert link.room == 5
    link.send([b"x"] * 3, [1, 2, 3])
    assert link.room == 2
    receive(codec, frames(Flow(1, 5, 0, 9)))  # sent when it had seen one
    assert link.room == 3
    receive(codec, frames(Flow(1, 1, 0, 9)))  # fewer than are on the way
    assert link.room == 0
    assert receive(codec, frames(Flow(3, 4, 0, 9))) == [WindowOpened(link.session)]
    assert link.room == 4
    receive(codec, frames(Flow(None, 10, 0, 9)))  # it has not seen our BEGIN
    assert link.room == 7
    receive(codec, frames(Flow(50, 10, 0, 9)))  # it claims to have seen what was not sent
    assert link.room == 10
    assert receive(codec, frames(Flow(3, MASK, 0, 9))) == []
    assert link.room == 1000 - 3


def test_a_message_larger_than_the_window_waits_in_part() -> None:
    codec, link = windowed(2)
    session = link.session
    payload = bytes(at % 251 for at in range(2000))
    link.send([payload, b"small"], ["large", "small"])
    first = codec.data_to_send()
    assert first.count(b"\x00\x53\x14") == 2
    assert (link.room, len(session.waiting)) == (0, 4)
    assert (link.stalled, link.delivery_count) == (1, 2)
    assert receive(codec, frames(Flow(2, 2, 0, 9, 0, 0, 1000, echo=True))) == [Credit(link)]
    second = codec.data_to_send()
    assert second.count(b"\x00\x53\x14") == 2
    assert receive(codec, frames(Flow(4, 2, 0, 9))) == []  # all of it is used at once
    third = codec.data_to_send()
    assert link.room == link.stalled == 0
    assert receive(codec, frames(Flow(6, 2, 0, 9))) == [WindowOpened(session)]
    assert link.room == 2
    pair, _, _ = with_credit(10)
    events = receive(pair.client, first + second + third)
    assert delivered(events) == [payload, b"small"]


def test_our_state_is_what_is_out() -> None:
    codec, link = windowed(2)
    link.send([b"x" * 2000, b"small"], [1, 2])
    codec.data_to_send()
    assert (link.delivery_count, link.credit) == (2, 998)
    assert (link.flow().delivery_count, link.flow().link_credit) == (1, 999)
    link.send_drained()
    assert codec.data_to_send() == b""
    receive(codec, frames(Flow(2, 9, 0, 9)))
    assert (link.delivery_count, link.credit) == (1000, 0)
    sent = codec.data_to_send()
    assert sent.count(b"\x00\x53\x13") == 1
    assert sent.index(b"\x00\x53\x13") > sent.index(b"small")


def test_waiting_transfers_are_forgotten_with_their_link() -> None:
    codec, link = windowed(1)
    link.send([b"x" * 2000], ["large"])
    link.send_detach()
    codec.data_to_send()
    assert not link.session.waiting
    receive(codec, frames(Flow(1, 9, 0, 9)))
    assert codec.data_to_send() == b""
    codec, link = windowed(1)
    link.send([b"x" * 2000], ["large"])
    session_of(link).send_end()
    assert not link.session.waiting


# -- outcomes of ours --------------------------------------------------------------------------------------------------

STATES = [
    Accepted(),
    Released(),
    Rejected(Error("amqp:not-found", "gone")),
    Modified(True, False, {"a": 1}),
    TransactionalState(b"t", Accepted()),
    Received(1, 2),
    Described(ULong(0x999), []),
    None,
]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("settled", [True, False])
def test_outcomes(state: DeliveryState | None, settled: bool) -> None:
    pair, receiver, sender = with_credit(10)
    sender.send([b"x"] * 4, list("abcd"))
    pair.to_client()
    receiver.session.send_disposition(RECEIVER, 1, 2, settled=settled, state=state)
    tells = settled or isinstance(state, Outcome | TransactionalState)  # others are not final
    assert pair.to_server() == ([Dispositions(sender, 1, ["b", "c"], state, settled)] if tells else [])
    assert sender.session.outgoing.count == (2 if settled else 4)
    assert receiver.session.incoming.count == (2 if settled else 4)
    receiver.session.send_disposition(RECEIVER, 0, 3, state=Accepted())
    ranges = [("a", 0), ("d", 3)] if settled else [("abcd", 0)]
    assert pair.to_server() == [Dispositions(sender, first, list(names), Accepted(), True) for names, first in ranges]


@pytest.mark.parametrize("state", STATES)
def test_the_bytes_of_a_disposition(state: DeliveryState | None) -> None:
    for first, last, settled in (0, 0, True), (5, 300, False), (MASK, 0, True):
        raw = disposition_frame(3, RECEIVER, first, last, settled=settled, state=state)
        body = Disposition(RECEIVER, first, None if first == last else last, settled, state)
        assert decode_composite(raw, 8) == (body, len(raw))
        assert raw[4:8] == b"\2\0\0\3"


def test_receiver_settling_second() -> None:
    """Exactly once: the receiver's outcome, the sender's settlement, and nothing more is known (2.6.12)."""
    pair, receiver, sender = with_credit(10)
    sender.send([b"x"] * 3, list("abc"))
    pair.to_client()
    receiver.session.send_disposition(RECEIVER, 0, 2, settled=False, state=Accepted())
    [told] = pair.to_server()
    assert told == Dispositions(sender, 0, ["a", "b", "c"], Accepted(), False)
    sender.session.send_disposition(SENDER, 0, 2, state=Accepted())
    assert sender.session.outgoing.count == 0
    tags: list[object] = [bytes([0, 0, 0, at]) for at in range(3)]
    assert pair.to_client() == [Dispositions(receiver, 0, tags, Accepted(), True)]
    assert receiver.session.incoming.count == 0


# -- outcomes of the peer's --------------------------------------------------------------------------------------------


def server_that_sent(count: int) -> tuple[AmqpConnection, Sender]:
    """A server with `count` unsettled deliveries, which stand for their numbers."""
    codec, link = sending_server()
    receive(codec, frames(Flow(0, 5000, 0, 9, 0, 0, count)))
    link.send([b"x"] * count, list(range(count)))
    codec.data_to_send()
    return codec, link


def encoded(first: bytes, last: bytes, tail: bytes, *, wide: bool) -> bytes:
    """A disposition of a receiver, as some client encodes it."""
    fields = b"\x41" + first + last + tail
    count = 4 + bool(last)
    if wide:
        listed = b"\xd0" + (len(fields) + 4).to_bytes(4) + count.to_bytes(4) + fields
    else:
        listed = b"\xc0%c%c" % (len(fields) + 1, count) + fields
    return frame(0, b"\x00\x53\x15" + listed)


def small(number: int) -> bytes:
    """A uint as clients write it."""
    return encode_uint(number) if number else b"\x43"


def encode_uint(number: int) -> bytes:
    """... but 0."""
    return b"\x52%c" % number if number < 256 else b"\x70" + number.to_bytes(4)


TAILS = {
    "settled": b"\x41\x00\x53\x24\x45",
    "list8": b"\x41\x00\x53\x24\xc0\x01\x00",
    "not settled": b"\x42\x00\x53\x24\x45",
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("last", ["null", "the same", "far"])
def test_runs_of_dispositions(tail: str, wide: bool, last: str) -> None:
    codec, link = server_that_sent(600)
    step = 3 if last == "far" else 1
    pieces = []
    for first in range(0, 600, step):
        end = {"null": b"\x40", "the same": small(first), "far": small(first + step - 1)}[last]
        pieces.append(encoded(small(first), end, TAILS[tail], wide=wide))
    events = of(receive(codec, b"".join(pieces)), Dispositions)
    assert [context for event in events for context in event.contexts] == list(range(600))
    assert {event.settled for event in events} == {tail != "not settled"}
    assert {event.state == Accepted() for event in events} == {True}
    assert len(events) < 10
    assert link.session.outgoing.count == (600 if tail == "not settled" else 0)


def test_dispositions_without_order() -> None:
    codec, link = server_that_sent(600)
    order = [*range(300, 600, 2), *range(301, 600, 2), *range(300)]
    raw = b"".join([encoded(b"\x70" + at.to_bytes(4), b"\x40", TAILS["settled"], wide=False) for at in order])
    events = of(receive(codec, raw), Dispositions)
    assert [context for event in events for context in event.contexts] == order
    assert link.session.outgoing.count == 0


@pytest.mark.parametrize(
    "change",
    [{"descriptor": b"\x80\0\0\0\0\0\0\0\x15"}, {"doff": b"\3", "extended": b"\0\x53\x15\xc0"}, {"role": b"\x56\1"}],
)
def test_unusual_encodings_of_dispositions(change: dict[str, bytes]) -> None:
    codec, _ = server_that_sent(300)
    part = {"doff": b"\2", "extended": b"", "descriptor": b"\x53\x15", "role": b"\x41"} | change
    raw = b""
    for number in range(256, 300):
        fields = part["role"] + small(number) + b"\x40" + TAILS["settled"]
        body = b"\0" + part["descriptor"] + b"\xc0%c\5" % (len(fields) + 1) + fields
        rest = part["doff"] + b"\0\0\0" + part["extended"] + body
        raw += (4 + len(rest)).to_bytes(4) + rest
    events = of(receive(codec, raw), Dispositions)
    assert [context for event in events for context in event.contexts] == list(range(256, 300))
    assert (len(events) <= 2) == ("role" in change)


def test_dispositions_without_last() -> None:
    codec, _ = server_that_sent(300)
    raw = b"".join([frames(Disposition(RECEIVER, at, settled=True)) for at in range(256, 300)])
    events = of(receive(codec, raw), Dispositions)
    assert [context for event in events for context in event.contexts] == list(range(256, 300))


def test_dispositions_of_several_links() -> None:
    codec, link = server_that_sent(3)
    other = of(receive(codec, frames(Attach("o", 1, RECEIVER), Flow(0, 99, 0, 9, 1, 0, 9))), Attached)[0].link
    assert isinstance(other, Sender)
    other.send_attach()
    other.send([b"x", b"y"], ["x", "y"])
    link.credit = 5
    link.send([b"z"], [3])
    events = receive(codec, frames(Disposition(RECEIVER, 1, 5, True, Released())))
    assert events == [
        Dispositions(link, 1, [1, 2], Released(), True),
        Dispositions(other, 3, ["x", "y"], Released(), True),
        Dispositions(link, 5, [3], Released(), True),
    ]


def test_a_disposition_of_deliveries_with_holes_is_handled_in_portions() -> None:
    codec, link = server_that_sent(2000)
    receive(codec, frames(*[Disposition(RECEIVER, at, at, True, Accepted()) for at in range(1, 2000, 2)]))
    codec.receive_data(frames(*[Disposition(RECEIVER, at, 1999, False, Released()) for at in (2, 4, 6)]))
    largest, order = 0, []
    while events := codec.events():
        largest = max(largest, len(events))
        order += [event.first for event in of(events, Dispositions)]
        for event in of(events, Dispositions):
            link.session.outgoing.blank(event.first, len(event.contexts))
    assert largest < 2 * EVENTS_MAX
    assert order == list(range(2, 2000, 2))  # once


def test_dispositions_that_change_nothing_are_handled_some_at_a_time() -> None:
    codec, link = server_that_sent(100)
    link.session.outgoing.blank(0, 100)
    codec.receive_data(frames(*[Disposition(RECEIVER, 0, 99, False, Modified(at % 2 == 0)) for at in range(1000)]))
    calls = 0
    while events := codec.events():
        assert events == [Skipped()]
        calls += 1
    assert calls == 1000 // LOOKED_MAX


@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(frame(0, b""), id="heartbeats"),
        pytest.param(frames(Flow(0, 9, 0, 9)), id="flows"),
        pytest.param(frames(Flow(0, 9, 0, 9, echo=True)), id="answered flows"),
    ],
)
def test_frames_that_nobody_is_told_of_are_read_some_at_a_time(silent: bytes) -> None:
    codec, _ = server_that_sent(1)
    drain(codec)
    codec.receive_data(silent * 10 * FRAMES_MAX)
    calls = 0
    while events := codec.events():
        assert events == [Skipped()]
        calls += 1
    assert calls == 10


def test_parts_of_a_message_are_read_some_at_a_time() -> None:
    codec, _ = receiving_server()
    codec.receive_data(transfer(0, b"x", more=True) * 10 * FRAMES_MAX + transfer(0, b"y"))
    calls = 0
    while (events := codec.events()) == [Skipped()]:
        calls += 1
    assert calls == 10
    assert [content for _, _, content in told(events)] == [b"x" * 10 * FRAMES_MAX + b"y"]


def test_a_session_that_ends_has_no_more_portions() -> None:
    codec, link = server_that_sent(2000)
    receive(codec, frames(*[Disposition(RECEIVER, at, at, True, Accepted()) for at in range(1, 2000, 2)]))
    codec.receive_data(frames(Disposition(RECEIVER, 0, 1999, False, Released()), End()))
    assert codec.events()
    session_of(link).send_end()
    assert not of(drain(codec), Dispositions)


def test_settled_deliveries_are_skipped() -> None:
    codec, link = server_that_sent(10)
    assert receive(codec, frames(Disposition(RECEIVER, MASK - 50, MASK, True, Accepted()))) == []
    events = receive(codec, frames(Disposition(RECEIVER, MASK, 0, True, Accepted())))
    assert events == [Dispositions(link, 0, [0], Accepted(), True)]
    events = receive(codec, frames(Disposition(RECEIVER, MASK, 3, True, Accepted())))
    assert events == [Dispositions(link, 1, [1, 2, 3], Accepted(), True)]
    assert receive(codec, frames(Disposition(RECEIVER, 0, 3, True, Accepted()))) == []
    assert receive(codec, frames(Disposition(SENDER, 0, 9, True, Accepted()))) == []
    events = receive(codec, frames(Disposition(RECEIVER, 2, HALF, True, Accepted())))
    assert events == [Dispositions(link, 4, list(range(4, 10)), Accepted(), True)]


@pytest.mark.parametrize("run", [False, True])
def test_reversed_ranges(run: bool) -> None:
    before = frames(Disposition(RECEIVER, 300, 301, True, Accepted())) if run else b""
    for first, last in ((302, 301), (0, HALF), (HALF, 0)):
        codec, link = server_that_sent(10)
        error = only(
            receive(codec, before + frames(Disposition(RECEIVER, first, last, True, Accepted()))), SessionFailed
        )
        assert error.error.condition == INVALID_FIELD
        assert error.error.description == f"disposition: the range from {first} to {last} is reversed."
        assert link.session.failed


def test_ranges_that_would_go_around_the_circle() -> None:
    codec, link = server_that_sent(10)
    step = HALF - 1
    ranges = [(at * step & MASK, (at * step + step - 1) & MASK) for at in range(1, 5)]
    raw = b"".join(
        [encoded(b"\x70" + a.to_bytes(4), b"\x70" + b.to_bytes(4), TAILS["settled"], wide=False) for a, b in ranges]
    )
    events = of(receive(codec, raw), Dispositions)
    assert [context for event in events for context in event.contexts] == list(range(10))
    assert link.session.outgoing.count == 0


def test_dispositions_after_the_end() -> None:
    codec, link = server_that_sent(3)
    raw = frames(Disposition(RECEIVER, 0, None, True, Accepted()))
    assert len(receive(codec, raw)) == 1
    session_of(link).send_end()
    assert receive(codec, raw) == []
    codec.data_to_send()
    link.session.send_disposition(SENDER, 1, 1)
    assert codec.data_to_send() == b""


def test_deliveries_are_forgotten_with_their_link() -> None:
    codec, link = server_that_sent(3)
    link.send_detach()
    assert link.session.outgoing.count == 0
    assert receive(codec, frames(Disposition(RECEIVER, 0, 2, True, Accepted()))) == []
    codec, receiver = receiving_server()
    receiver.session.incoming.add(receiver, FIRST_ID, [b"t"])
    receiver.send_detach()
    assert receiver.session.incoming.count == 0


def test_a_receiver_that_does_not_know_all_its_deliveries_gets_no_new_ones() -> None:
    codec, _ = server_with_session()
    raw = frames(Attach("l", 0, RECEIVER, unsettled={b"t": None}, incomplete_unsettled=True), Flow(0, 9, 0, 9, 0, 0, 5))
    link = of(receive(codec, raw), Attached)[0].link
    assert isinstance(link, Sender)
    link.send_attach()
    assert (link.credit, link.room) == (5, 0)
