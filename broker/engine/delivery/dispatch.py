"""Dispatches messages to consumers once a tick, in runs.

A queue is served when something about it changed: messages, credit, consumers.  Each consumer that has credit and is
not paused gets a run; several take turns, message by message.  A run is bounded in count and bytes, and all of them by
the budget of the tick.  A queue that still has messages to deliver, or to match with selectors, is served again in the
next tick, behind those that this one did not reach, but half of the budget is for queues that have just got a few.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from broker.engine.delivery import closing, redelivery
from broker.engine.model.message import Message
from broker.engine.moves import expiry
from broker.engine.moves.move import MOVE_COST
from broker.engine.queues import arrival, consumer_rules, displacing
from broker.engine.queues.paging import depage
from broker.engine.queues.pending import Held
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.rules.queue_rules import NO_RULES
from broker.engine.queues.state import State

#: The most messages that one queue delivers in a tick: enough that the tick's fixed costs vanish, few enough that it
#: stays well under 20 ms.
RUN_MESSAGES_MAX: Final = 2048

#: The same for all queues that have something to deliver, so that none waits long for those before it; but each may
#: deliver a few.
ROUND_MESSAGES_MAX: Final = 16_384
RUN_MESSAGES_MIN: Final = 64

#: A queue with so few messages does not wait for those that have waited since earlier ticks.
FEW_MESSAGES: Final = 8

#: How many of them, and how many bytes, a session gets before the budget is looked at: what it spends on them is not
#: known yet.  It may have to convert each one, and a small one may take a millisecond.
RUN_PART: Final = 128
PART_BYTES: Final = 64 << 10

#: Then it gets as many as the budget allows at the cost of those, but no more than so many times as many.
PART_GROWTH: Final = 4

#: So few bytes say nothing about the cost of others.
MEASURED_BYTES: Final = 2 << 10

#: The most bytes that one queue delivers to one consumer in a tick, beyond one message: the consumer's connection may
#: have to buffer them.
RUN_BYTES_MAX: Final = 1 << 20

#: How long expired messages that a delivery meets wait while the disk is busy, in ms.
DISK_RETRY_MS: Final = 100

#: What serving a queue costs, and each delivery, which its session encodes.
SERVE_COST: Final = 5
DELIVER_COST: Final = 2

#: How many of its consumers are asked for their credit in a microsecond, and put in order.
ASKED_FOR_A_MICROSECOND: Final = 4


def dispatch(state: State) -> None:
    """Serve the queues that have changed in this tick and those that wait, as far as the budget goes.

    Thousands of queues may wait, with thousands of messages each.  A queue that has just changed, and has few, does not
    wait until each of them has had its turn: half of the budget is for such ones.  Half of that is for those of this
    tick; those that it does not reach wait in a line of their own, which has the other half.  No queue is looked at
    before its turn.
    """
    if not (state.dirty or state.unreached or state.dirty_later):
        return
    steps = state.steps
    steps.ensure(steps.deliveries_min)
    changed, state.dirty = state.dirty, {}
    unreached, state.unreached = state.unreached, {}
    waiting, state.dirty_later = state.dirty_later, {}
    left = steps.left
    _serve_few(state, changed, waiting, left - left // 4)
    if unreached:
        _serve_few(state, unreached, waiting, left // 2)
    unreached.update(changed)
    while steps.left > 0 and (waiting or unreached or state.dirty):
        if not (waiting or unreached):
            unreached, state.dirty = state.dirty, {}
        most = max(min(RUN_MESSAGES_MAX, ROUND_MESSAGES_MAX // (len(waiting) + len(unreached))), RUN_MESSAGES_MIN)
        _serve_each(state, waiting, most)
        _serve_each(state, unreached, most)
    state.unreached = unreached
    waiting.update(state.dirty_later)
    state.dirty_later = waiting


def _serve_few(state: State, changed: dict[Queue, None], waiting: dict[Queue, None], left: int) -> None:
    """Serve the queues that have changed and have few messages, until only so much of the budget is left.

    Those that have many are added to those that wait.
    """
    steps, done = state.steps, []
    for queue in changed:
        if steps.left <= left:
            break
        done.append(queue)
        if queue.ready > FEW_MESSAGES:
            waiting[queue] = None
        elif queue not in waiting:
            steps.spend(SERVE_COST)
            _serve(state, queue, FEW_MESSAGES)
    for queue in done:
        del changed[queue]


def _serve_each(state: State, queues: dict[Queue, None], most: int) -> None:
    """Serve queues in order, and remove them, as far as the budget goes."""
    done = []
    for queue in queues:
        if not state.steps.spend(SERVE_COST):
            break
        _serve(state, queue, most)
        done.append(queue)
    for queue in done:
        del queues[queue]


def _serve(state: State, queue: Queue, most: int) -> None:
    if state.unchecked and state.is_unchecked(queue):
        return  # it is served once they are
    if queue.reservations and not queue.stopped:
        _resume(state, queue)
    waits = queue.stopped or queue.returning  # what returns goes before all that is ready
    if queue.consumers and (queue.ready or queue.tail is not None) and not waits:
        if len(queue.consumers) >= ASKED_FOR_A_MICROSECOND:
            state.steps.spend(len(queue.consumers) // ASKED_FOR_A_MICROSECOND)
        if queue.rules is NO_RULES:
            takers = [c for c in queue.consumers if c.credit > 0 and not c.paused]
        else:
            takers = consumer_rules.takers(state, queue)
        served = takers if queue.tail is None else depage.refill(state, queue, takers)
        more = False
        for group in _by_priority(served):
            more = _serve_group(state, queue, group, most)
            if more or not queue.ready:
                break
        if (more or state.steps.left <= 0) and queue.ready:
            state.dirty_later[queue] = None
        if queue.tail is not None and depage.more(state, queue, takers):
            state.dirty_later[queue] = None
    if queue.rules is not NO_RULES:
        displacing.cut(state, queue)
    if queue.drop_oldest and queue.messages_max >= 0:
        displacing.displace(state, queue)


def _resume(state: State, queue: Queue) -> None:
    """Deliver the messages reserved for links that are attached again, before any others."""
    for reservation in queue.reservations:
        stand_in, consumer = reservation.stand_in, reservation.whole
        if not stand_in.unacked or consumer is None or consumer.credit <= 0 or consumer.paused:
            continue
        run = _first(stand_in, *consumer.room())
        stand_in.settle([message.id for message in run])
        state.steps.spend(DELIVER_COST * len(run))
        consumer.take(run)
        state.totals.count_delivered(queue, len(run), len(run))
        _hand_over(state, queue, consumer, run)
        if stand_in.unacked and consumer.credit > 0:
            state.dirty_later[queue] = None


def _first(consumer: Consumer, count: int, size: int) -> list[Message]:
    """The oldest of a consumer's deliveries, as many as a run may have; the last one may exceed the bytes."""
    run: list[Message] = []
    size = min(size, RUN_BYTES_MAX)
    for message in islice(consumer.unacked.values(), min(count, RUN_MESSAGES_MAX)):
        run.append(message)
        size -= message.size
        if size <= 0:
            break
    return run


def _by_priority(takers: list[Consumer]) -> list[list[Consumer]]:
    """Consumers grouped by priority, highest first: the others get what these cannot accept."""
    priorities = {consumer.priority for consumer in takers}
    if len(priorities) < 2:
        return [takers] if takers else []
    return [[c for c in takers if c.priority == priority] for priority in sorted(priorities, reverse=True)]


def _serve_group(state: State, queue: Queue, takers: list[Consumer], most: int) -> bool:
    """Serve consumers of one priority `most` messages.  True if they got something and some still have credit."""
    consumer = takers[0]
    if len(takers) > 1 or queue.backlog.is_choosy(consumer.id):
        return _serve_in_turns(state, queue, takers, most)
    steps, part = state.steps, _Part(state, queue)
    given, bytes_left = 0, RUN_BYTES_MAX
    while given < most and bytes_left > 0:
        count, size = consumer.room()
        run, nbytes = queue.backlog.pop_run(min(count, part.count, most - given), min(size, bytes_left, part.nbytes))
        if not run:
            break
        given += len(run)
        bytes_left -= nbytes
        _deliver(state, queue, consumer, run)
        part.follow(len(run), nbytes)
        if consumer.credit <= 0 or consumer.paused or not queue.ready or steps.left <= 0:
            break
    return given > 0 and consumer.credit > 0


class _Part:
    """How many messages, and how many bytes, may be delivered before the budget is looked at again.

    If some have expired that the tick had no budget for, or nobody looks for them, all may be such: then each may have
    to be moved.
    """

    __slots__ = ("_cost", "_expiring", "_left", "_steps", "count", "nbytes")

    def __init__(self, state: State, queue: Queue) -> None:
        due = state.schedule.expiries.next_due() if queue.expiring > 0 else None
        self._expiring = queue.expiring > 0
        self._cost = DELIVER_COST if due is None or due > state.now else MOVE_COST
        self._steps = state.steps
        self._left = state.steps.measure()
        self.count, self.nbytes = min(RUN_PART, max(self._left // self._cost, 1)), PART_BYTES

    def follow(self, count: int, nbytes: int) -> None:
        """Look at the budget after a delivery."""
        left = self._steps.measure()
        spent, self._left = max(self._left - left, 1), left
        if self._cost > DELIVER_COST:
            self.count = min(RUN_PART, max(left // self._cost, 1))
        if nbytes >= MEASURED_BYTES and not self._expiring:  # one that has expired costs much more than others
            self.count = min(max(left * count // spent, 1), PART_GROWTH * self.count)
            self.nbytes = min(max(left * nbytes // spent, 1), PART_GROWTH * self.nbytes)


class _Hand:
    """The run that one of several consumers gets in this round."""

    __slots__ = ("_bytes", "_count", "consumer", "run")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.run: list[Message] = []
        self._count, size = consumer.room()
        self._bytes = min(size, RUN_BYTES_MAX)

    def give(self, message: Message) -> bool:
        """Add a message; returns whether there is room for another."""
        self.run.append(message)
        self._count -= 1
        self._bytes -= message.size
        return self._count > 0 and self._bytes > 0


def _serve_in_turns(state: State, queue: Queue, takers: list[Consumer], most: int) -> bool:
    """Serve several consumers `most` messages, in parts.  True if they got something and some still have credit."""
    steps, part = state.steps, _Part(state, queue)
    given, bytes_left = 0, RUN_BYTES_MAX
    while True:
        asked, most_bytes = min(most - given, part.count), min(bytes_left, part.nbytes)
        count, nbytes = _serve_in_turn(state, queue, takers, asked, most_bytes)
        given += count
        bytes_left -= nbytes
        part.follow(count, nbytes)
        takers = [consumer for consumer in takers if consumer.credit > 0 and not consumer.paused]
        done = (count < asked and nbytes < most_bytes) or given >= most or bytes_left <= 0
        if done or not takers or not queue.ready or steps.left <= 0:
            return given > 0 and bool(takers)


def _serve_in_turn(state: State, queue: Queue, takers: list[Consumer], most: int, most_bytes: int) -> tuple[int, int]:
    """Serve consumers `most` messages, one message each in turn, with selectors each from its own view of the queue.

    Returns how many messages they got, and of how many bytes.
    """
    first = queue.next_consumer % len(takers)
    rest = iter(takers[first:] + takers[:first])  # those that have not had a turn: there may be thousands
    hands: list[_Hand] = []
    open_hands: list[_Hand] = []
    given = nbytes = at = 0
    backlog, steps = queue.backlog, state.steps
    choosy = any([backlog.is_choosy(consumer.id) for consumer in takers])
    while given < most and nbytes < most_bytes:
        if at == len(open_hands):
            if (consumer := next(rest, None)) is not None:
                hands.append(_Hand(consumer))
                open_hands.append(hands[-1])
            elif open_hands:
                at = 0
            else:
                break
        message = backlog.pop_for(open_hands[at].consumer.id, steps) if choosy else backlog.pop()
        if message is None:
            if not choosy or steps.left <= 0:
                break
            del open_hands[at]
            continue
        given += 1
        nbytes += message.size
        if open_hands[at].give(message):
            at += 1
        else:
            del open_hands[at]
    queue.next_consumer += 1 if choosy else given
    for hand in hands:
        _deliver(state, queue, hand.consumer, hand.run)
    return given, nbytes


def _deliver(state: State, queue: Queue, consumer: Consumer, run: list[Message]) -> None:
    if queue.non_destructive:
        _show(state, queue, consumer, run)
        return
    expiring = queue.expiring > 0
    if expiring:
        run = _drop_expired(state, queue, run)
    if not run:
        return
    state.steps.spend(DELIVER_COST * len(run))
    consumer.take(run)
    queue.delivering += len(run)
    state.totals.count_delivered(queue, len(run), sum(m.id in queue.states for m in run) if queue.states else 0)
    if queue.rules is not NO_RULES:
        queue.rules.delivered(run)
        run = consumer_rules.mark_first(queue, run)
    journalled = queue.strict and _journal_delivery(state, queue, consumer, run)
    if consumer.reservation is not None and consumer.reservation.delivered(run):
        journalled = True
    _hand_over(state, queue, consumer, run, wait=journalled, expiring=expiring)


def _hand_over(
    state: State, queue: Queue, consumer: Consumer, run: list[Message], *, wait: bool = False, expiring: bool = False
) -> None:
    """Pass a consumer's deliveries to its sink: now, or (`wait`) once this tick's journal entries are durable.

    They also wait if the messages may not be durable themselves yet (the queue's mode or its consumer has just
    changed), and behind others that wait, which they must not overtake.
    """
    ahead = queue.ahead and not queue.strict and state.pending.is_under_way(queue.ahead)
    if wait or consumer.held or (ahead and not consumer.sink.journals_deliveries(consumer)):
        consumer.held += len(run)
        state.pending.work.held.append((consumer, run, expiring))
    else:
        _give(state, consumer, run)


def _give(state: State, consumer: Consumer, run: list[Message]) -> None:
    """Pass messages to their consumer's sink; if it fails, they stay its consumer's until its connection is closed."""
    if state.pending.held is not None:
        state.pending.held.absorb(state.journal)  # the sink's connection does not wait for deliveries of others
    try:
        consumer.sink.deliver(consumer, run)
    except BaseException as error:
        state.blame(consumer.sink.transport, error)
    else:
        if state.tracer is not None:
            state.tracer.delivered(consumer, run)


def release(state: State, held: Held) -> None:
    """Pass deliveries that are durable now to the consumer's sink, if they are still its own and have not expired."""
    consumer, run, expiring = held
    if consumer in state.unchecked:
        closing.recheck(state, consumer, consumer.access)
    if consumer.closed or consumer in state.closing:
        return
    consumer.held -= len(run)
    unacked = consumer.unacked
    run = [m for m in run if m.id in unacked]
    late = [m.id for m in run if 0 < m.header.expiration <= state.now] if expiring else []
    if late:
        redelivery.withdraw(state, consumer.queue, consumer.take_back(late))
        run = [m for m in run if m.id in unacked]
    if run:
        _give(state, consumer, run)


def take(state: State, consumer: Consumer, messages: list[Message]) -> list[Message]:
    """Make ready messages the consumer's deliveries without passing them to its sink; returns those."""
    queue = consumer.queue
    taken = [message for message in messages if queue.backlog.holds(message)]
    consumer.take(taken)
    if queue.non_destructive:
        return taken
    state.schedule.unwatch(queue, taken)
    for message in taken:
        queue.backlog.discard(message)
    queue.delivering += len(taken)
    queue.rules.delivered(taken)
    return taken


def _show(state: State, queue: Queue, consumer: Consumer, run: list[Message]) -> None:
    """Deliver messages of a non-destructive queue, which keeps them.

    One that has expired may be in the runs of several consumers; it expires with the first.
    """
    now = state.now
    late = [m for m in run if 0 < m.header.expiration <= now]
    if late:
        expired = state.schedule.unwatch(queue, late)
        for message in expired:
            queue.backlog.discard(message)
        _expire(state, queue, expired)
        run = [m for m in run if not 0 < m.header.expiration <= now]
    if run:
        state.steps.spend(DELIVER_COST * len(run))
        consumer.take(run)
        state.totals.count_delivered(queue, len(run))
        _hand_over(state, queue, consumer, run)


def _journal_delivery(state: State, queue: Queue, consumer: Consumer, run: list[Message]) -> bool:
    """Strict mode: journal the delivery before its first byte is sent.  False if none of its messages is stored."""
    stored = [m.id for m in run if m.segment]
    if not stored:
        return False
    state.ledger.delivering(queue, consumer, stored)
    segment = 0
    for message in run:
        if message.segment != segment:
            segment = message.segment
            if segment:
                state.journal.refer(segment)
    queue.journalled.update(stored)
    return True


def _drop_expired(state: State, queue: Queue, run: list[Message]) -> list[Message]:
    """Expire the messages of a run that have reached their expiry time; returns the others."""
    state.schedule.unwatch(queue, run)
    now = state.now
    expired = [m for m in run if 0 < m.header.expiration <= now]
    if not expired:
        return run
    _expire(state, queue, expired)
    return [m for m in run if not 0 < m.header.expiration <= now]


def _expire(state: State, queue: Queue, expired: list[Message]) -> None:
    """Expire messages taken out of the queue's containers; while the disk is busy, they stay for later."""
    if state.pending.disk_is_busy and not state.pending.disk_has_announced:
        return arrival.hold_for_retry(state, queue, expired, DISK_RETRY_MS)
    arrival.hold_for_retry(state, queue, expiry.expire(state, queue, expired))
    state.pending.disk_has_announced = False
