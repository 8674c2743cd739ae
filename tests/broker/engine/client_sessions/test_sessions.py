"""Stored sessions: what a crash, a restart and the trimming of segments leave of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.engine.client_sessions import sessions
from broker.engine.client_sessions.endings import Ending
from broker.engine.client_sessions.in_flight import ENDED_MAX
from broker.engine.client_sessions.stored_session import Sent, StoredSession
from broker.engine.delivery.redelivery import RELEASED, rejected
from broker.engine.model.errors import AlreadyInUse, DiskFull
from broker.engine.model.message import Message, RoutingType
from broker.engine.queues.queue import Consumer
from store import decode, record
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Taker, Waiting
from tests.simulation.world import check_accounts, check_counters, journal_records, reasons
from tests.support.bodies import body_of

MULTICAST = RoutingType.MULTICAST
SEGMENT = 8 << 10


class Sending(Taker):
    """A session's sink: numbers what it is handed and has it recorded."""

    def __init__(self, bench: Bench, session: StoredSession) -> None:
        super().__init__()
        self.bench = bench
        self.session = session
        self.next_id = 1
        self.sent: dict[int, Message] = {}
        self.waiting = Waiting()
        self.numbers: list[int] = []
        session.current = lambda: [(id, self.consumer.queue, m) for id, m in self.sent.items()]

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        super().deliver(consumer, messages)
        ids = list(range(self.next_id, self.next_id + len(messages)))
        self.next_id += len(messages)
        self.sent.update(zip(ids, messages, strict=True))
        sessions = self.bench.engine.sessions
        self.numbers.append(sessions.in_flight.sending(self.session, consumer.queue, messages, ids, self.waiting))


def opened(bench: Bench, name: str = "c1", **definition: object) -> StoredSession:
    session = bench.enter().sessions.open(name, definition)
    bench.run()
    return session


def subscribed(bench: Bench, session: StoredSession, address: str = "t.a", queue: str = "q") -> Sending:
    sending = bench.attach(Sending(bench, session), address, MULTICAST, durable_name=queue)
    bench.run()
    return sending


def found(bench: Bench, name: str = "c1") -> StoredSession:
    session = bench.engine.sessions.get(name)
    assert session is not None
    return session


def inflight(session: StoredSession) -> dict[int, bytes]:
    return {id: body_of(message) for id, (_, message) in session.inflight.items()}


def test_a_definition_is_what_was_recorded_last(bench: Bench) -> None:
    session = opened(bench, expiry=60, subscriptions={"a/#": 1})
    opened(bench, "c2")
    with pytest.raises(AlreadyInUse, match="c1"):
        bench.enter().sessions.open("c1", {})
    bench.enter().sessions.change(session, {"expiry": 5, "name": "\u00fc"})
    bench.run()
    for crash in (True, False):
        bench = bench.restart(crash=crash)
        assert [s.name for s in bench.engine.sessions.all()] == ["c1", "c2"]
        assert found(bench).definition == {"expiry": 5, "name": "\u00fc"}
        assert found(bench).id == session.id


def test_parts_of_a_session_are_recorded_one_by_one(bench: Bench) -> None:
    session = opened(bench)
    sessions = bench.enter().sessions
    for key, qos in (("a", 1), ("b", 2), ("a", 0)):
        sessions.put(session, key, {"qos": qos})
    position = bench.broker.parts.journal.position
    sessions.put(session, "b", {"qos": 2})
    sessions.remove(session, "c")
    assert bench.broker.parts.journal.position == position, "what is not new is not written"
    bench.run()
    for crash in (True, False):
        bench = bench.restart(crash=crash)
        assert {key: part for key, (_, part) in found(bench).parts.items()} == {"a": {"qos": 0}, "b": {"qos": 2}}
    session = found(bench)
    bench.enter().sessions.remove(session, "a")
    bench.engine.sessions.put(session, "a", {"again": True})
    bench.run()
    bench = bench.restart()
    assert found(bench).parts["a"][1] == {"again": True}
    bench.enter().sessions.drop(found(bench))
    bench.run()
    bench = bench.restart()
    assert opened(bench).parts == {}


def test_parts_outlive_the_segments_that_they_were_in() -> None:
    """Also when the session itself is repeated later than they are."""
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench)
    bench.enter().sessions.put(session, "a", {"qos": 1})
    bench.run()
    for round in range(6):
        bench.enter().sessions.put(session, "b", {"qos": round})
        if round == 3:
            bench.engine.sessions.change(session, {"round": round})
        for _ in range(30):
            bench.sent("t.x::fill", b"x" * 400)
        bench.purge("fill")
    assert min(bench.broker.parts.journal.space.segments) > 1, "the first segment is gone"
    bench = bench.restart()
    assert {key: part for key, (_, part) in found(bench).parts.items()} == {"a": {"qos": 1}, "b": {"qos": 5}}


def test_a_dropped_session_is_gone_and_a_new_one_is_another(bench: Bench) -> None:
    session = opened(bench)
    bench.enter().sessions.packet_ids.received(session, [7])
    bench.engine.sessions.drop(session)
    assert bench.engine.sessions.get("c1") is None
    again = bench.engine.sessions.open("c1", {"new": True})
    bench.run()
    assert again.id != session.id
    bench = bench.restart()
    assert (found(bench).id, found(bench).definition, found(bench).received) == (again.id, {"new": True}, {})


def test_nothing_counts_before_it_is_durable() -> None:
    bench = Bench(lazy_disk=True)
    bench.enter().sessions.open("c1", {})
    bench.run()
    bench = bench.restart()
    assert bench.engine.sessions.all() == []


def test_messages_in_flight_are_under_their_packet_ids_again(bench: Bench) -> None:
    session = opened(bench)
    taker = subscribed(bench, session)
    bench.sent("t.a", b"1", b"2", b"3", routing_type=MULTICAST)
    assert len(taker.numbers) == 1
    assert taker.waiting.told[-1:] == taker.numbers
    bench.ack(taker, taker.taken[1])
    bench = bench.restart()
    session = found(bench)
    assert inflight(session) == {1: b"1", 3: b"3"}
    assert bench.places("q") == {b"1": "ready", b"3": "ready"}

    taker = subscribed(bench, session)  # it gets them as new ones, unless it takes them over first
    bench = bench.restart()
    session = found(bench)
    sink = bench.attach(Taker(), "t.a", MULTICAST, durable_name="q")
    messages = [message for _, message in session.inflight.values()]
    assert bench.engine.consumers.take(sink.consumer, messages) == messages
    bench.run()
    assert sink.taken == []
    assert bench.places("q") == {b"1": "delivering", b"3": "delivering"}
    check_counters(bench.broker)
    bench.ack(sink, *messages)
    bench = bench.restart()
    assert inflight(found(bench)) == {}
    check_accounts(bench.broker)


def test_take_leaves_what_is_not_ready(bench: Bench) -> None:
    session = opened(bench)
    other = subscribed(bench, session)
    sent = bench.sent("t.a", b"1", b"2", routing_type=MULTICAST)
    sink = bench.attach(Taker(), "t.a", MULTICAST, durable_name="q", shared=True)
    assert bench.engine.consumers.take(sink.consumer, sent) == []
    bench.close(other, RELEASED)
    assert bench.bodies("q") == [b"1", b"2"]


def test_sending_waits_for_the_disk() -> None:
    bench = Bench(lazy_disk=True)
    session = opened(bench)
    taker = subscribed(bench, session)
    bench.broker.step()
    bench.sent("t.a", b"1", routing_type=MULTICAST)
    bench.broker.step()  # the message is durable, and handed to the sink
    assert [m.body for m in taker.taken] == [b"1"]
    assert taker.waiting.told == []
    bench.broker.step()
    assert taker.waiting.told == taker.numbers


def test_changes_that_the_journal_does_not_have_wait_for_nothing(bench: Bench) -> None:
    session = opened(bench)
    taker = bench.attach(Sending(bench, session), "t.a", MULTICAST)
    bench.sent("t.a", b"1", routing_type=MULTICAST)
    assert taker.numbers == [0]
    durable = subscribed(bench, session)
    bench.sent("t.a", b"2", routing_type=MULTICAST, durable=False)
    assert durable.numbers == [0]
    assert not [r for r in journal_records(bench.broker) if isinstance(r, decode.Inflight)]


def test_of_a_mixed_run_only_what_is_stored_is_recorded(bench: Bench) -> None:
    session = opened(bench)
    stored = bench.sent("t.a::q", b"1")
    queue = bench.queue("q")
    passing = Message(bench.header("t.a", durable=False), b"", b"2")
    number = bench.enter().sessions.in_flight.sending(session, queue, [passing, *stored], [8, 9], Waiting())
    assert number
    bench.run()
    (record,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.Inflight)]
    assert (record.ids, record.packet_ids) == ((stored[0].id,), (9,))


def test_messages_that_returned_to_their_queue_are_not_in_flight(bench: Bench) -> None:
    session = opened(bench)
    taker = subscribed(bench, session)
    bench.sent("t.a", b"1", b"2", routing_type=MULTICAST)
    first = taker.taken[0]
    engine = bench.enter()
    taker.consumer.paused = True
    engine.sessions.in_flight.returned(session, [first], [1])
    engine.consumers.give_back(taker.consumer, first.id, rejected("no"))
    bench.run()
    bench = bench.restart()
    assert inflight(found(bench)) == {2: b"2"}
    assert bench.queue("q").delivery_count(first.id) == 1


def test_the_last_record_about_a_packet_id_or_a_message_holds(bench: Bench) -> None:
    one, two = opened(bench), opened(bench, "c2")
    a, b, c = bench.sent("t.a::q", b"a", b"b", b"c")
    sessions, queue = bench.enter().sessions, bench.queue("q")
    sessions.in_flight.sending(one, queue, [a, b], [1, 2], Waiting())
    sessions.in_flight.sending(two, queue, [a], [7], Waiting())  # shared: without a word from the first
    sessions.in_flight.sending(one, queue, [c], [2], Waiting())
    sessions.in_flight.sending(one, queue, [b], [2], Waiting())
    bench.run()
    bench = bench.restart()
    assert inflight(found(bench)) == {2: b"b"}
    assert inflight(found(bench, "c2")) == {7: b"a"}


def test_a_released_message_is_consumed_even_if_the_crash_came_before_its_removal(bench: Bench) -> None:
    session = opened(bench)
    taker = subscribed(bench, session)
    bench.sent("t.a", b"1", b"2", routing_type=MULTICAST)
    bench.enter().sessions.packet_ids.released(session, [1])  # and no acknowledgement
    bench.run()
    bench = bench.restart()
    session = found(bench)
    assert list(session.released) == [1]
    assert inflight(session) == {2: b"2"}
    assert bench.bodies("q") == [b"2"]
    assert reasons(check_accounts(bench.broker)["q"]) == {RemovalReason.CONSUMED: 1}
    check_counters(bench.broker)
    bench.enter().sessions.packet_ids.completed(session, [1], sent=True)
    bench.run()
    bench = bench.restart()
    assert found(bench).released == {}
    assert taker.taken


def test_packet_ids_owed_in_both_directions(bench: Bench) -> None:
    session = opened(bench)
    sessions = bench.enter().sessions
    sessions.packet_ids.received(session, [5, 65_535])
    sessions.packet_ids.released(session, [5])
    sessions.packet_ids.completed(session, [5, 6], sent=False)
    sessions.packet_ids.completed(session, [6], sent=True)  # never owed: nothing is written
    bench.run()
    assert len([r for r in journal_records(bench.broker) if isinstance(r, decode.Packets)]) == 3
    bench = bench.restart()
    assert list(found(bench).received) == [65_535]
    assert list(found(bench).released) == [5]


def test_an_id_recorded_again_is_held_once() -> None:
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench)
    space = bench.engine.journal.space
    for _ in range(2):
        bench.enter().sessions.packet_ids.received(session, [5])
        bench.run()
        _fill(bench, SEGMENT)
    assert sum(space.live(s) for s in space.segments) == 1
    bench = bench.restart()
    assert list(found(bench).received) == [5]
    bench.enter().sessions.packet_ids.completed(found(bench), [5], sent=False)
    bench.run()
    assert found(bench.restart()).received == {}


def _fill(bench: Bench, nbytes: int) -> None:
    """Let messages come and go that need so many bytes of the journal."""
    bench.sent("fill", *[b"x" * 200] * (nbytes // 200))
    bench.purge("fill")


@pytest.mark.parametrize("segments", [2, 30])
def test_trimming_keeps_what_is_owed_and_nothing_more(segments: int) -> None:
    """With few segments nothing is copied forward, with many everything is."""
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench, about="x" * 50)
    taker = subscribed(bench, session)
    bench.sent("t.a", b"stays", b"goes", routing_type=MULTICAST)
    bench.enter().sessions.packet_ids.received(session, [1, 2])
    bench.engine.sessions.packet_ids.released(session, [3, 4])
    bench.run()
    for _ in range(segments):
        _fill(bench, SEGMENT)
        bench.broker.advance(1000)
    bench.ack(taker, taker.taken[1])
    del taker.sent[2]
    bench.enter().sessions.packet_ids.completed(session, [2], sent=False)
    bench.engine.sessions.packet_ids.completed(session, [4], sent=True)
    bench.run()
    for _ in range(segments):
        _fill(bench, SEGMENT)
        bench.broker.advance(1000)
    assert len(bench.engine.journal.space.segments) < 16
    for crash in (True, False):
        bench = bench.restart(crash=crash)
        session = found(bench)
        assert (list(session.received), list(session.released)) == ([1], [3])
        assert inflight(session) == {1: b"stays"}
        assert session.definition == {"about": "x" * 50}


def test_in_a_repaired_journal_a_session_may_be_lost(bench: Bench) -> None:
    (message,) = bench.sent("t.a::q", b"stays")
    journal = bench.enter().journal
    for data in (
        record.inflight(99, bench.queue("q").id, [message.id], [1]),
        record.released(99, [2]),
        record.received(99, [3]),
        record.completed(99, [2], sent=True),
        record.session_deleted(99, {"name": "lost"}),
    ):
        journal.add(data)
    bench.run()
    bench = bench.restart()
    assert bench.engine.sessions.all() == []
    assert bench.bodies("q") == [b"stays"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("what", ["sent", "returned", "received", "released"])
def test_a_segment_stays_as_long_as_what_it_speaks_about(what: str, restarts: bool) -> None:
    """A record in a later segment about something in an older one, which stays; what is alive in the later one goes."""
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench)
    (message,) = bench.sent("t.a::q", b"stays")
    sessions, queue = bench.enter().sessions, bench.queue("q")
    if what == "returned":
        sessions.in_flight.sending(session, queue, [message], [1], Waiting())
    elif what == "received":
        sessions.packet_ids.received(session, [1])
    elif what == "released":
        sessions.packet_ids.released(session, [1])
    bench.run()
    _fill(bench, 2 * SEGMENT)
    sessions = bench.enter().sessions
    if what == "sent":
        sessions.in_flight.sending(session, queue, [message], [1], Waiting())
    elif what == "returned":
        sessions.in_flight.returned(session, [message], [1])
    else:
        sessions.packet_ids.completed(session, [1], sent=what == "released")
    bench.run()
    older = bench.engine.journal.segment
    if restarts:
        bench = bench.restart()
    _fill(bench, 2 * SEGMENT)
    assert older in bench.engine.journal.space.segments
    assert (older + 1) not in bench.engine.journal.space.segments
    bench = bench.restart()
    session = found(bench)
    assert inflight(session) == ({1: b"stays"} if what == "sent" else {})
    assert session.received == session.released == {}
    assert bench.bodies("q") == [b"stays"]


def test_messages_in_flight_before_they_were_copied_forward_are_not_in_flight() -> None:
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench)
    (message,) = bench.sent("t.a::q", b"old")
    _fill(bench, 2 * SEGMENT)
    bench.sent("t.b::r", b"keeps the segment that says it was sent")
    queue = bench.queue("q")
    bench.enter().sessions.in_flight.sending(session, queue, [message], [1], Waiting())
    bench.run()
    sent_in = bench.engine.journal.segment
    _fill(bench, 2 * SEGMENT)
    bench.enter().sessions.in_flight.returned(session, [message], [1])
    bench.run()
    returned_in = bench.engine.journal.segment
    session.current = lambda: []
    space = bench.engine.journal.space
    while returned_in in space.segments:
        _fill(bench, SEGMENT)
        bench.broker.advance(20)
    assert sent_in in space.segments
    bench = bench.restart()
    assert inflight(found(bench)) == {}
    assert bench.bodies("q") == [b"old"]


def test_a_session_that_went_does_not_come_back_when_segments_go() -> None:
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench)
    opened(bench, "stays")
    bench.enter().sessions.packet_ids.received(session, [1])
    bench.run()
    _fill(bench, 2 * SEGMENT)
    bench.enter().sessions.drop(session)
    bench.run()
    for _ in range(20):
        _fill(bench, SEGMENT)
        bench.broker.advance(1000)
        assert len(bench.engine.journal.space.segments) < 16
    bench = bench.restart()
    assert [s.name for s in bench.engine.sessions.all()] == ["stays"]


def test_a_full_disk_refuses_new_sessions_and_nothing_else() -> None:
    bench = Bench(segment_bytes=SEGMENT)
    session = opened(bench)
    bench.broker.files.capacity = bench.broker.files.used()
    names = [f"n{n}" for n in range(20)]
    with pytest.raises(DiskFull, match="session"):
        list(map(lambda name: opened(bench, name, subscriptions="x" * SEGMENT), names))
    bench.run()
    bench.enter().sessions.change(session, {"new": 1})
    bench.engine.sessions.packet_ids.received(session, [1])
    bench.engine.sessions.packet_ids.completed(session, [1], sent=False)
    bench.engine.sessions.drop(session)
    bench.run()
    assert bench.engine.sessions.get("c1") is None


def test_messages_in_flight_are_looked_through_once_a_slice_of_copies() -> None:
    """Not once for each message that was published alone: with many in flight that would take minutes."""
    bench = Bench(segment_bytes=SEGMENT)
    sending = subscribed(bench, opened(bench))
    for number in range(20):
        bench.sent("t.a", b"%d" % number, routing_type=MULTICAST)
    bench.sent("t.x::fill", *[b"x" * 400] * (SEGMENT // 400))
    asked: list[int] = []
    everything = sending.session.current

    def current() -> Iterable[Sent]:
        asked.append(1)
        return everything()

    sending.session.current = current
    copied = bench.enter().cleaner.whole(1)
    bench.run()
    assert copied >= 20
    assert len(asked) <= 2
    bench = bench.restart()
    assert inflight(found(bench)) == {number + 1: b"%d" % number for number in range(20)}


def test_senders_from_a_shared_queue_are_forgotten_with_their_session(bench: Bench) -> None:
    bench.sent("t.a::q", b"1")
    queue = bench.queue("q")
    message = bench.only("q")
    for n in range(5 * ENDED_MAX):
        session = opened(bench, f"c{n}")
        bench.enter().sessions.in_flight.sending(session, queue, [message], [1], Waiting())
        bench.engine.sessions.drop(session)
        bench.run()
    assert len(bench.engine.sessions.in_flight._senders[queue]) <= ENDED_MAX + 1
    bench.enter().delete_queue(queue)
    assert queue not in bench.engine.sessions.in_flight._senders


# -- queues with rules -------------------------------------------------------------------------------------------------


def sending_to(bench: Bench, credit: int, *bodies: bytes, **more: bytes) -> Sending:
    """A session that takes so many of these messages, one after the other."""
    sending = bench.attach(Sending(bench, opened(bench)), "t.a", MULTICAST, durable_name="q", counted=True)
    bench.grant(sending, credit)
    for body in bodies:
        bench.sent("t.a", body, routing_type=MULTICAST, **more)
    return sending


def in_flight(bench: Bench) -> list[bytes]:
    """What is in flight to the session, by its packet ids, as far as the queue still has it."""
    session, queue = found(bench), bench.queue("q")
    taker = bench.attach(Taker(), "t.a::q", counted=True)
    kept = bench.engine.consumers.take(taker.consumer, [m for at, m in session.inflight.values() if at is queue])
    bench.run()
    return [body_of(message) for message in kept]


def test_a_ring_evicts_nothing_in_flight_after_a_restart() -> None:
    bench = Bench({"match": "t.a", "default-ring-size": 2})
    sending = sending_to(bench, 2, b"1", b"2", b"3", b"4")
    assert sending.take() == [b"1", b"2"]
    bench = bench.restart()
    assert sorted(bench.bodies("q")) == [b"1", b"2", b"3", b"4"]
    assert in_flight(bench) == [b"1", b"2"]
    bench.sent("t.a", b"5", routing_type=MULTICAST)
    assert bench.places("q") == {b"1": "delivering", b"2": "delivering", b"4": "ready", b"5": "ready"}
    bench.check()


def test_a_value_in_flight_is_not_replaced_after_a_restart() -> None:
    bench = Bench({"match": "t.a", "default-last-value-key": "k"})
    sending_to(bench, 1, b"1", b"2", b"3", head=b"k:v\n")
    assert bench.places("q") == {b"1": "delivering", b"3": "ready"}
    bench = bench.restart()
    assert in_flight(bench) == [b"1"]
    assert bench.places("q") == {b"1": "delivering", b"3": "ready"}
    bench.sent("t.a", b"4", head=b"k:v\n", routing_type=MULTICAST)
    assert bench.places("q") == {b"1": "delivering", b"4": "ready"}
    bench.check()


def test_a_message_that_a_client_had_leaves_once_though_a_ring_is_too_long() -> None:
    """The power goes after RELEASED and before the removal; then the ring is cut."""
    bench = Bench({"match": "t.a", "default-ring-size": 1})
    sending = sending_to(bench, 1, b"1", b"2")
    bench.enter().sessions.packet_ids.released(sending.session, [1])
    bench.run()
    bench = bench.restart()
    assert bench.bodies("q") == [b"2"]
    bench.check()


def test_the_theory_names_every_ending() -> None:
    """The table at the top of `sessions` says what is done here for each one of the table of endings."""
    source = Path(sessions.__file__).with_name("sessions.py").read_text(encoding="utf-8")  # compiled ones have no text
    events = source.partition('"""')[2].partition('"""')[0].partition("What is done here")[2]
    assert [ending.name for ending in Ending if ending.name not in events] == []
