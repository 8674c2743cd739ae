"""A queue: what it lets in, what it counts, and its backlog."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from broker.engine.filter import compile_filter
from broker.engine.model.message import Message, MessageHeader
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.queue import SCHEDULED_GONE_MAX, Consumer, DeliveryState, Queue
from broker.engine.queues.steps import Steps
from broker.sessions.stomp.format import StompFormat
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Taker
from tests.broker.engine.queues.parts import ids, message, queue

if TYPE_CHECKING:
    from _collections_abc import dict_values


def consumer(on: Queue, id: int, *, even: bool = False) -> Consumer:
    predicate = (lambda m: m.id % 2 == 0) if even else None
    return Consumer(id, on, Taker(), ack_mode=AckMode.INDIVIDUAL, window=-1, predicate=predicate)


def test_messages_that_a_queue_accepts() -> None:
    red = Message(MessageHeader("a", StompFormat(), origin="c1"), b"colour:red\n", b"")
    blue = Message(MessageHeader("a", StompFormat(), origin="c2"), b"colour:blue\n", b"")
    everybody = queue()
    assert everybody.accepts_all
    assert everybody.accepts(red)
    reds = queue(filter=compile_filter("colour = 'red'"))
    assert not reds.accepts_all
    assert (reds.accepts(red), reds.accepts(blue)) == (True, False)
    others = queue(no_local="c1")
    assert not others.accepts_all
    assert (others.accepts(red), others.accepts(blue)) == (False, True)


def test_every_place_counts() -> None:
    made = queue()
    made.backlog.append([message(1), message(2)], 4)
    made.landing = 1
    made.scheduled[4] = (99, message(4))
    made.delivering = 2
    assert (made.ready, made.message_count) == (2, 6)


def test_the_backlog_stays_with_the_first_selector_and_the_last() -> None:
    """Whoever subscribes, nothing is done with the messages that wait."""
    made, steps = queue(), Steps()
    made.backlog.append([message(n) for n in range(1, 5)], 4)
    backlog = made.backlog
    plain, choosy = consumer(made, 1), consumer(made, 2, even=True)
    made.attach(plain)
    made.attach(choosy)
    assert [made.backlog.is_choosy(each.id) for each in (plain, choosy)] == [False, True]
    assert made.ready == 4
    taken = made.backlog.pop_for(choosy.id, steps)
    assert taken is not None
    assert taken.id == 2
    third = consumer(made, 3)
    made.attach(third)
    made.detach(choosy, 77)
    made.backlog.put_back([taken])
    assert ids(list(made.backlog)) == [1, 2, 3, 4]
    assert made.backlog is backlog
    made.detach(plain, 78)
    made.detach(third, 79)
    assert made.unused_since == 79
    assert made.used


def test_discard_and_clear_on_both_kinds() -> None:
    for choosy in (False, True):
        made = queue()
        messages = [message(n) for n in range(1, 5)]
        made.backlog.append(messages, 4)
        if choosy:
            made.attach(consumer(made, 1, even=True))
        made.backlog.discard(messages[1])
        made.expiring = 3
        assert ids(made.clear()) == [1, 3, 4]
        assert (made.ready, made.expiring) == (0, 0)


def test_delivery_counts() -> None:
    made = queue()
    made.states[5] = DeliveryState(3)
    assert (made.delivery_count(5), made.delivery_count(6)) == (3, 0)


def test_each_way_out_is_counted_on_its_own_queue() -> None:
    made, other = queue(), queue()
    made.counters.added = 200
    for reason in RemovalReason:
        made.count_left(reason, reason)
        made.count_left(reason, 10)
    assert made.left == [0, *[10 + reason for reason in RemovalReason]]
    assert made.counts["added"] == 200
    assert made.counts["acknowledged"] == 10 + RemovalReason.CONSUMED
    assert made.counts["evicted"] == 10 + RemovalReason.EVICTED
    assert set(other.counts.values()) == {0}


class Watched(dict[int, tuple[int, Message]]):
    """Scheduled messages, and how many of them were looked at."""

    looked = 0

    def __iter__(self) -> Iterator[int]:
        self.looked += len(self)
        return super().__iter__()

    def values(self) -> dict_values[int, tuple[int, Message]]:
        self.looked += len(self)
        return super().values()

    def get(self, key: int, default: Any = None) -> Any:
        self.looked += 1
        return super().get(key, default)


def test_a_move_step_by_step_looks_at_each_scheduled_message_a_few_times() -> None:
    made = queue()
    made.scheduled = watched = Watched()
    for id in range(1, 1001):
        made.hold(message(id), 99)
    seen, after = list[int](), 0
    while run := made.between(after, 2000, 10):
        seen += ids(run)
        after = run[-1].id
        for each in run:
            del watched[each.id]
    assert seen == [*range(1, 1001)]
    assert watched.looked <= 3000


@pytest.mark.parametrize("seed", range(3))
def test_between_finds_the_scheduled_as_they_come_and_go(seed: int) -> None:
    random = Random(seed)
    made, ready = queue(), {id for id in range(1, 3000) if id % 7 == 0}
    made.backlog.append([message(id) for id in sorted(ready)], 4)
    for _ in range(3000):
        id = random.randrange(1, 3000)
        if random.random() < 0.6:
            if id not in ready:
                made.hold(message(id), random.randrange(99))
        else:
            made.scheduled.pop(id, None)
        if random.random() < 0.2:
            after, most = random.randrange(3000), random.randrange(1, 50)
            below = after + random.randrange(1, 200)
            there = sorted([each for each in (ready | made.scheduled.keys()) if after < each < below])
            assert ids(made.between(after, below, most)) == there[:most]


def test_the_ids_of_scheduled_messages_are_forgotten_with_them() -> None:
    made = queue()
    made.hold(message(1), 99)
    made.between(0, 9, 9)
    for id in range(2, 3 * SCHEDULED_GONE_MAX):
        made.hold(message(id), 99)
        del made.scheduled[id]
        assert len(made.scheduled_ids or ()) <= SCHEDULED_GONE_MAX + 5
    assert ids(made.between(0, 1 << 62, 9)) == [1]
