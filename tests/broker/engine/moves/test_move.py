"""Moving a message: an independent copy, in one journal entry with the removal, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.moves import move
from broker.engine.moves.transfer import MessageRange
from broker.engine.queues import arrival
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.death import TEXT_BYTES_MAX, Death, clean_text
from broker.engine.queues.queue import Consumer
from broker.engine.queues.state import State
from broker.sessions.stomp.format import StompFormat
from store.record import DeadLetterReason
from tests.broker.engine.engine_harness import Bench, Taker, entries_with, fill
from tests.broker.engine.queues.parts import queue
from tests.simulation.world import check_counters, small
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def annotated(
    message: Message, reason: DeadLetterReason, now: int, consumer: Consumer | None = None
) -> dict[str, str | int]:
    return move.annotate(message, queue(), Death(reason, "t", consumer), now)


def test_the_last_origin_is_overwritten_and_the_first_is_kept() -> None:
    first = Message(MessageHeader("a", StompFormat(), expiration=77, routing_type=ANYCAST), b"", b"")
    first.id = 5
    clerk = Consumer(1, queue(), Taker(), ack_mode=AckMode.AUTO, window=-1, client_id="c", remote="r")
    once = annotated(first, DeadLetterReason.REJECTED, 9, clerk)
    second = Message(MessageHeader("b", StompFormat(), annotations={**once, "_AMQ_ACTUAL_EXPIRY": 3}), b"", b"")
    second.id = 6
    twice = annotated(second, DeadLetterReason.EXPIRED, 10)
    assert (once["_AMQ_DL_COUNT"], once["_AMQ_DL_CLIENT"], once["_AMQ_DL_CLIENT_ADDRESS"]) == (1, "c", "r")
    assert twice["_AMQ_DL_COUNT"] == 2
    assert (twice["_AMQ_ORIG_ADDRESS"], twice["_AMQ_ORIG_MESSAGE_ID"], twice["_AMQ_DL_REASON"]) == ("b", 6, "expired")
    assert (twice["_AMQ_DL_FIRST_ADDRESS"], twice["_AMQ_DL_FIRST_MESSAGE_ID"]) == ("a", 5)
    assert (twice["_AMQ_DL_FIRST_REASON"], twice["_AMQ_DL_FIRST_TIME"]) == ("rejected", 9)
    for stale in ("_AMQ_DL_CLIENT", "_AMQ_DL_CLIENT_ADDRESS", "_AMQ_DL_ORIG_EXPIRATION", "_AMQ_ACTUAL_EXPIRY"):
        assert stale not in twice
    assert once["_AMQ_DL_ORIG_EXPIRATION"] == 77
    assert second.header.annotations is not None
    assert "_AMQ_ACTUAL_EXPIRY" in second.header.annotations, "the original is not touched"


@given(st.text(max_size=3000))
def test_a_text_is_printable_and_short(text: str) -> None:
    cleaned = clean_text(text)
    assert len(cleaned.encode()) <= TEXT_BYTES_MAX
    assert cleaned.isprintable()
    if text.isprintable() and len(text.encode()) <= TEXT_BYTES_MAX:
        assert cleaned == text


def test_a_dead_letter_and_an_expiry_are_one_entry_each() -> None:
    bench = Bench(segment_bytes=1 << 20)
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    bench.nack(taker, message, requeue=False)
    bench.sent("b", b"2", expiration=bench.broker.now + 1)
    bench.broker.advance(1)
    moves = entries_with(bench, "DEAD_LETTERED", "EXPIRED")
    assert len(moves) == 2
    for inside in moves:
        assert "MESSAGE" in inside
        assert "REMOVED" in inside


@pytest.mark.parametrize(
    ("lasting", "expected"), [(True, ([b"1", b"3"], [b"2", b"4"])), (False, ([b"1", b"2", b"3", b"4"], []))]
)
def test_several_queues_on_the_target_take_turns_but_those_that_would_forget_a_message(
    lasting: bool, expected: tuple[list[bytes], list[bytes]]
) -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 1, "dead-letter-address": "dead"})
    bench.declare("d1", "dead")
    bench.declare("d2", "dead", durable=lasting)
    messages = bench.sent("a", b"1", b"2", b"3", b"4")
    bench.nack(bench.take("a"), *messages)
    assert (bench.bodies("d1"), bench.bodies("d2")) == expected


@pytest.mark.parametrize("routing_type", RoutingType)
def test_a_durable_message_stays_if_the_queue_of_the_targets_name_would_forget_it(routing_type: RoutingType) -> None:
    bench = Bench({"match": "*", "max-delivery-attempts": 1, "dead-letter-address": "dead", "expiry-address": "dead"})
    bench.declare("dead", routing_type=routing_type, durable=False)
    failed, late = bench.sent("a", b"1") + bench.sent("b", b"2", expiration=bench.broker.now + 10)
    bench.nack(bench.take("a"), failed)
    assert not bench.engine.messages.may_die(bench.queue("a"), failed)
    bench.broker.advance(10)
    assert (bench.bodies("a"), bench.bodies("b"), bench.bodies("dead")) == ([b"1"], [b"2"], [])
    assert [told["message"] for told in bench.broker.reported("move.no_queue")] == [failed.id, late.id]
    bench.sent("b", b"3", durable=False, expiration=bench.broker.now - 1)
    assert bench.bodies("dead") == [b"3"]


def test_a_message_that_is_not_durable_may_go_to_a_queue_that_is_not() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 1, "dead-letter-address": "dead"})
    watcher = bench.take("dead", MULTICAST)
    (message,) = bench.sent("a", b"1", durable=False)
    bench.nack(bench.take("a"), message)
    assert watcher.take() == [b"1"]
    assert "dead" not in bench.engine.queues


def test_a_message_that_is_not_durable_is_not_moved_to_clients_that_are_away() -> None:
    """Their queues take only durable ones."""
    bench = Bench({"match": "q", "dead-letter-address": "D"})
    bench.take("D", MULTICAST, durable_name="away")
    bench.queue("away").durable_only = True
    bench.sent("q", b"1", b"2", durable=False)
    refused = bench.enter().messages.move(bench.queue("q"), "D", MessageRange(most=1)).refused
    assert refused == {"no-queue": 1}
    taker = bench.take("q")
    for message in list(taker.taken):
        bench.nack(taker, message, requeue=False)
    assert sorted(bench.bodies("D")) == [b"1", b"2"]
    check_counters(bench.broker)


def test_without_room_on_the_disk_the_message_stays_and_is_moved_later() -> None:
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=100 << 10)))
    count = 12
    for n in range(count):
        bench.sent("a", b"%d" % n * 500, expiration=bench.broker.now + 1000)
    ballast = fill(bench, "b")
    bench.broker.advance(1000)
    assert bench.broker.failure is None
    assert bench.broker.reported("move.disk_full")
    moved = len(bench.bodies("ExpiryQueue"))
    assert 0 < moved < count
    assert moved + len(bench.bodies("a")) == count
    taker = bench.take("b")
    bench.ack(taker, *ballast)
    bench.broker.advance(20_000)
    assert (len(bench.bodies("ExpiryQueue")), bench.bodies("a")) == (count, [])
    again = bench.restart()
    assert (len(again.bodies("ExpiryQueue")), again.bodies("a")) == (count, [])


def test_a_move_over_two_entries_is_a_defect(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is called within a move and asks for room could end the entry; then nothing of it may stay."""
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    enter = arrival.enter_moved

    def sealing(state: State, *args: Any) -> None:
        enter(state, *args)
        state.journal.commit()

    monkeypatch.setattr(arrival, "enter_moved", sealing)
    with pytest.raises(AssertionError, match="one journal entry"):
        bench.enter().consumers.reject(taker.consumer, message.id)
