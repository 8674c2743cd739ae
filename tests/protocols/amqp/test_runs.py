"""Runs of deliveries, in the encodings of real clients; what ends them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_ALLOWED, TRANSFER_LIMIT_EXCEEDED
from protocols.amqp.events import Began, Event, LinkFailed, SessionFailed, Transfers
from protocols.amqp.frames import frame
from protocols.amqp.limits import Limits
from protocols.amqp.link import EVENTS_MAX
from protocols.amqp.performatives import RECEIVER, SENDER, Begin, Detach, Disposition, TransactionalState, Transfer
from protocols.amqp.receiver import Receiver
from protocols.amqp.serial import add
from protocols.amqp.transfer_batch import RUN_MAX
from tests.protocols.amqp.deliveries import told, transfer
from tests.protocols.amqp.peer import FIRST_ID, another_receiver, frames, of, only, receive, receiving_server

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
    "no format": (False, "wide", lambda n: n.to_bytes(2), b""),
    "tags of any length": (False, "wide", lambda n: bytes(n * 7 % 31) + n.to_bytes(2), b"\x43"),
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
    assert [id for event in transfers for id in event.ids] == list(range(700))
    settled = tail[1:2] == b"\x41"
    assert {event.settled for event in transfers} == {settled}
    assert link.credit == 100_000 - 700
    assert link.delivery_count == 700
    assert link.session.next_incoming_delivery == 700
    assert link.session.incoming.count == (0 if settled else 700)
    if not reads and client != "tags of any length":
        assert len(transfers) < 12  # runs, not messages


@pytest.mark.parametrize("messages", [RUN_MAX, RUN_MAX + 1, 3 * RUN_MAX])
def test_a_run_has_an_end(messages: int) -> None:
    wide_list, ids, tag_of, tail = CLIENTS["Qpid JMS"]
    raw = b"".join(
        encoded(at, tag_of(at), b"x", wide_list=wide_list, ids=ids, tail=tail) for at in range(300, 300 + messages)
    )
    codec, link = client_link()
    link.session.next_incoming_delivery = 300
    codec.receive_data(raw)
    found = []
    while events := codec.events():
        found.append(sum([len(event.ids) for event in of(events, Transfers)]))
    assert codec.error is None
    assert sum(found) == messages
    assert max(found) <= RUN_MAX + EVENTS_MAX, "the first ones may be no run yet"
    assert len(found) == -(-messages // (RUN_MAX + 1))


def two_links(credit: int = 1000, limits: Limits | None = None) -> tuple[AmqpConnection, Receiver, Receiver]:
    """The same with another link, whose handle is 7; the order of the two does not matter."""
    codec, link = receiving_server() if limits is None else receiving_server(limits)
    link.send_credit(100_000)
    other = another_receiver(codec, 7, credit)
    link.order, other.order = "a", "b"
    codec.data_to_send()
    return codec, link, other


def in_turns(count: int, first: int = 1000, **fields: object) -> bytes:
    """Transfers that alternate between two links."""
    bodies = [Transfer(7 * (at % 2), add(first, at), b"%04d" % (add(first, at) % 10_000), 0) for at in range(count)]
    for body in bodies:
        for name, value in fields.items():
            setattr(body, name, value)
    return b"".join(frame(0, body.encode() + b"%d" % at) for at, body in enumerate(bodies))


@pytest.mark.parametrize("first", [1000, 0xFFFF_FFF0])
@pytest.mark.parametrize("settled", [False, True])
def test_runs_on_several_links(first: int, settled: bool) -> None:
    codec, link, other = two_links()
    events = of(receive(codec, in_turns(500, first, settled=settled)), Transfers)
    assert len(events) < 10  # the first frame of each link and width of id is learned from, the others are one run
    for number, its in enumerate((link, other)):
        mine = [event for event in events if event.link is its]
        assert [id for event in mine for id in event.ids] == [add(first, at) for at in range(number, 500, 2)]
        assert [payload for event in mine for payload in event.payloads] == [b"%d" % at for at in range(number, 500, 2)]
        assert [tag for event in mine for tag in event.tags] == [
            b"%04d" % (add(first, at) % 10_000) for at in range(number, 500, 2)
        ]
        assert its.delivery_count == 250
        held = [run for run in link.session.incoming.look(first, 500) if run.owner is its]
        assert [tag for run in held for tag in run.contexts] == ([] if settled else [t for e in mine for t in e.tags])
    assert link.session.incoming.count == (0 if settled else 500)
    assert link.session.next_incoming_delivery == add(first, 500)
    link.session.send_disposition(True, first, add(first, 499))
    assert link.session.incoming.count == 0


def test_the_credit_of_one_of_several_links_is_kept() -> None:
    codec, link, other = two_links(credit=10)
    events = receive(codec, in_turns(40))
    [failed] = of(events, LinkFailed)
    assert (failed.link, failed.error.condition) == (other, TRANSFER_LIMIT_EXCEEDED)
    counts = {its: sum(len(e.ids) for e in of(events, Transfers) if e.link is its) for its in (link, other)}
    assert counts == {link: 20, other: 10}
    assert link.credit == 100_000 - 20


def test_runs_of_links_end_where_settling_or_the_state_changes() -> None:
    codec, link, _ = two_links()
    state = TransactionalState(b"1")
    kinds: list[dict[str, object]] = [{}, {"settled": True}, {"state": state}, {}]
    receive(codec, b"".join(in_turns(2, 1000 + 2 * at, **kind) for at, kind in enumerate(kinds)))  # learned
    raw = b"".join(in_turns(10, 1008 + 10 * at, **kind) for at, kind in enumerate(kinds))
    mine = [event for event in of(receive(codec, raw), Transfers) if event.link is link]
    assert [id for event in mine for id in event.ids] == list(range(1008, 1048, 2))
    told = [(event.settled, event.state) for event in mine for _ in event.ids]
    assert told == [(False, None)] * 5 + [(True, None)] * 5 + [(False, state)] * 5 + [(False, None)] * 5
    assert link.session.incoming.count == 6 + 30


def test_a_run_has_the_deliveries_of_one_session() -> None:
    codec, link = client_link()
    begun = only(receive(codec, frames(Begin(None, 0, 2048, 5), channel=1)), Began).session
    begun.send_begin()
    other = another_receiver(codec, 0, 100, channel=1)
    raw = [frame(at % 2, Transfer(0, 1000 + at - (at > 1), b"%d" % at, 0).encode()) for at in range(4)]
    receive(codec, raw[0] + raw[1])  # learned: 1000 and 1001
    assert [event.ids for event in of(receive(codec, raw[2] + raw[3]), Transfers)] == [[1001], [1002]]
    assert [its.session.next_incoming_delivery for its in (link, other)] == [1002, 1003]
    assert [its.session.incoming.count for its in (link, other)] == [2, 2]


@pytest.mark.parametrize("size", [0, 7, 8, 20])
def test_a_frame_of_a_run_that_is_shorter_than_its_transfer(size: int) -> None:
    codec, _ = client_link()
    receive(codec, in_turns(1))
    whole = frame(0, Transfer(0, 1001, b"1001", 0).encode())
    assert size < len(whole)
    assert receive(codec, size.to_bytes(4) + whole[4:]) == []
    assert codec.error is not None


def test_a_frame_of_a_run_that_is_too_large() -> None:
    codec, link = receiving_server(Limits(message_bytes_max=100))
    sizes = (1, 100, 101)
    raw = [frame(0, Transfer(0, 1000 + at, b"%d" % at, 0).encode() + bytes(size)) for at, size in enumerate(sizes)]
    events = receive(codec, b"".join(raw))
    assert [payload for _, _, payload in told(events)] == [bytes(1), bytes(100)]
    [failed] = of(events, LinkFailed)
    assert (failed.link, failed.error.condition) == (link, MESSAGE_SIZE_EXCEEDED)


@pytest.mark.parametrize("orders", [("a", "a"), ("a", None), (None, "a"), (None, None)])
def test_links_whose_messages_keep_their_places_among_each_other(orders: tuple[str | None, str | None]) -> None:
    codec, link, other = two_links()
    link.order, other.order = orders
    for first in (1000, 1020):  # in the second read each transfer has a known shape
        events = of(receive(codec, in_turns(20, first)), Transfers)
        expected = [((link, other)[at % 2], [first + at]) for at in range(20)]
        assert [(event.link, event.ids) for event in events] == expected


def test_a_link_of_another_order_runs_on_beside_those_that_take_turns() -> None:
    """Of three links, two share an order: each change between them ends the run, the third one's do not."""
    codec, link, other = two_links()
    third = another_receiver(codec, 8, 1000)
    other.order, third.order = "a", "b"
    handles = [0, 8, 0, 8, 7, 8, 7, 8, 0, 8]
    for first in (1000, 1010):
        raw = [
            frame(0, Transfer(handle, first + at, b"%d" % (first + at), 0).encode())
            for at, handle in enumerate(handles)
        ]
        events = of(receive(codec, b"".join(raw)), Transfers)
    told = [(event.link, [id - 1010 for id in event.ids]) for event in events]
    assert told == [(link, [0, 2]), (third, [1, 3]), (other, [4, 6]), (third, [5, 7]), (link, [8]), (third, [9])]


def test_frames_of_several_shapes_are_one_run_of_their_link() -> None:
    """The length of tags and ids is part of a shape, and changes on the way."""
    codec, link, _ = two_links()
    lengths = [1, 2] * 20
    raw = [
        frame(0, Transfer(0, 1000 + at, b"%02d" % at + b"t" * size, 0).encode() + b"x")
        for at, size in enumerate(lengths)
    ]
    receive(codec, raw[0] + raw[1])
    [event] = of(receive(codec, b"".join(raw[2:])), Transfers)
    assert event.ids == list(range(1002, 1040))
    assert [tag.count(b"t") for tag in event.tags] == lengths[2:]
    assert event.link is link


def test_runs_of_links_end_with_the_room_for_unsettled_deliveries() -> None:
    codec, link, _ = two_links(limits=Limits(unsettled_max=20))
    assert sum(len(event.ids) for event in of(receive(codec, in_turns(20)), Transfers)) == 20
    [failed] = receive(codec, in_turns(2, 1020))
    assert isinstance(failed, SessionFailed)
    assert link.session.incoming.count == 20


def test_many_shapes_are_not_kept() -> None:
    codec, _ = client_link()
    raw = b"".join(
        [
            frame(0, Transfer(0, 1000 + at, b"%03d" % at, 0, state=TransactionalState(bytes(at))).encode())
            for at in range(600)
        ]
    )
    assert sum(len(event.tags) for event in of(receive(codec, raw), Transfers)) == 600
    assert 0 < len(codec._channels._shapes) <= 256


def unusual(number: int, **change: bytes) -> bytes:
    """A transfer with a part of it in a legal encoding that no client uses."""
    part = {"doff": b"\2", "extended": b"", "descriptor": b"\x53\x14", "id": b"\x70" + number.to_bytes(4)} | change
    tag = change.get("tag", b"\xa0\2") + number.to_bytes(2)
    fields = b"\x43" + part["id"] + tag + b"\x43"
    body = b"\0" + part["descriptor"] + b"\xc0%c\4" % (len(fields) + 1) + fields + b"payload"
    rest = part["doff"] + b"\0\0\0" + part["extended"] + body
    return (4 + len(rest)).to_bytes(4) + rest


@pytest.mark.parametrize(
    "change",
    [
        {"descriptor": b"\x80\0\0\0\0\0\0\0\x14"},
        {"descriptor": b"\xa3\x12amqp:transfer:list"},
        {"tag": b"\xb0\0\0\0\2"},
        {"doff": b"\3", "extended": b"\0\x53\x14\xc0"},
        {"doff": b"\4", "extended": b"\0\x53\x14\xd0\xff\xff\xff\xff"},
    ],
)
def test_encodings_that_are_no_shape(change: dict[str, bytes]) -> None:
    codec, _ = client_link()
    raw = b"".join([unusual(at, **change) for at in range(500, 510)])
    events = of(receive(codec, raw), Transfers)
    assert [(event.ids, event.tags, event.payloads) for event in events] == [
        ([at], [at.to_bytes(2)], [b"payload"]) for at in range(500, 510)
    ]
    assert codec._channels._shapes == {}


def test_the_id_0_is_no_shape() -> None:
    codec, _ = client_link()
    assert only(receive(codec, unusual(0, id=b"\x43")), Transfers).ids == [0]
    assert codec._channels._shapes == {}
    assert only(receive(codec, unusual(1)), Transfers).ids == [1]
    assert len(codec._channels._shapes) == 1


def test_a_transactions_state_is_part_of_the_shape() -> None:
    codec, _ = client_link()
    states = [None, TransactionalState(b"1"), TransactionalState(b"2")]
    raw = b"".join(
        frame(0, Transfer(0, 1000 + at, b"%02d" % at, 0, state=states[at // 10]).encode()) for at in range(30)
    )
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
    raw = b"".join([frame(0, Transfer(0, add(FIRST_ID, at), b"%02d" % at, 0).encode() + b"x") for at in range(20)])
    wide = b"".join(
        [encoded(add(FIRST_ID, at), b"%02d" % at, b"x", wide_list=False, ids="wide", tail=b"\x43") for at in range(20)]
    )
    for stream in raw, wide:
        codec, link = receiving_server()
        assert [number for number, _, _ in told(receive(codec, stream))] == list(range(20))
        assert link.session.next_incoming_delivery == 18


@pytest.mark.parametrize("apart", [1, 2, 300])
@pytest.mark.parametrize("known", [False, True], ids=["decoded", "in a run"])
def test_an_unsettled_delivery_keeps_its_tag_to_itself(apart: int, known: bool) -> None:
    """Two deliveries of one tag could not be told apart when they are settled or resumed (part 2, 2.6.12)."""
    codec, link = client_link()
    if known:
        receive(codec, frame(0, Transfer(0, 999, b"999", 0).encode()))
    first = 1000
    tags = [b"%03d" % at for at in range(apart)]
    raw = [frame(0, Transfer(0, first + at, tag, 0).encode()) for at, tag in enumerate([*tags, tags[0]])]
    events = receive(codec, b"".join(raw))
    assert [tag for event in of(events, Transfers) for tag in event.tags] == tags
    [failed] = of(events, LinkFailed)
    assert (failed.link, failed.error.condition) == (link, NOT_ALLOWED)
    assert failed.error.description == "transfer: an unsettled delivery has the delivery-tag 303030 already."


@pytest.mark.parametrize("role", [RECEIVER, SENDER], ids=["we settle", "the peer settles"])
def test_a_settled_delivery_frees_its_tag(role: bool) -> None:
    codec, link = client_link()
    for first in range(1000, 1050, 10):
        raw = [frame(0, Transfer(0, first + at, b"%d" % at, 0).encode()) for at in range(10)]
        assert sum(len(event.ids) for event in of(receive(codec, b"".join(raw)), Transfers)) == 10
        assert len(link.tags) == 10
        if role is RECEIVER:
            link.session.send_disposition(RECEIVER, first, first + 9)
        else:
            receive(codec, frames(Disposition(SENDER, first, first + 9, settled=True)))
        assert link.tags == set()


def test_tags_of_settled_and_aborted_deliveries_and_of_other_links() -> None:
    codec, link, other = two_links()
    deliveries: list[dict[str, object]] = [{"settled": True}, {"settled": True}, {"aborted": True}, {}]
    raw = [frame(0, Transfer(0, 1000 + at, b"t", 0, **each).encode()) for at, each in enumerate(deliveries)]  # type: ignore[arg-type]
    raw.append(frame(0, Transfer(7, 1004, b"t", 0).encode()))
    events = receive(codec, b"".join(raw))
    assert [id for event in of(events, Transfers) for id in event.ids] == [1000, 1001, 1003, 1004]
    assert of(events, LinkFailed) == []
    assert (link.tags, other.tags) == ({b"t"}, {b"t"})
