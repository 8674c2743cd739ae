"""Giving messages to consumers: runs, not single messages, once a tick.

A queue is looked at when something about it changed: messages, credit, consumers.  Each consumer that wants messages
and can take them gets a run; several take turns, message by message.  A run is bounded in count and bytes, so that one
queue cannot hold up the others; a queue with more to give is looked at again in the next tick.
"""

from __future__ import annotations

from typing import Final

from broker.engine import arrival, dead_letter
from broker.engine.consumer import Consumer
from broker.engine.core import Core
from broker.engine.message import Message
from broker.engine.queue import Queue
from broker.engine.router import Router
from store import record

#: Messages that one queue hands out in a tick.  Large enough that a tick's fixed costs vanish, small enough that it
#: stays well under 20 ms.
RUN_MESSAGES_MAX: Final = 2048

#: Bytes that one queue hands to one consumer in a tick: what the consumer's connection then buffers at most, beyond
#: one message.
RUN_BYTES_MAX: Final = 1 << 20


def dispatch(core: Core, router: Router) -> None:
    """Serve every queue that changed in this tick."""
    while core.dirty:
        dirty, core.dirty = core.dirty, {}
        for queue in dirty:
            _serve(core, router, queue)


def _serve(core: Core, router: Router, queue: Queue) -> None:
    if not queue.consumers or not queue.ready:
        return
    takers = [c for c in queue.consumers if c.credit > 0 and not c.paused]
    if not takers:
        return
    if queue.selective is not None:
        more = _serve_selective(core, router, queue, takers)
    elif len(takers) == 1:
        consumer = takers[0]
        run = queue.backlog.pop_run(RUN_MESSAGES_MAX, min(consumer.credit, RUN_BYTES_MAX))
        _deliver(core, router, queue, consumer, run)
        more = consumer.credit > 0
    else:
        more = _serve_in_turn(core, router, queue, takers)
    if more and queue.ready:
        core.dirty_later[queue] = None


def _serve_in_turn(core: Core, router: Router, queue: Queue, takers: list[Consumer]) -> bool:
    """Several consumers, one message each in turn.  True when somebody could take more."""
    turn = queue.next_consumer % len(takers)
    takers = takers[turn:] + takers[:turn]
    runs: dict[Consumer, list[Message]] = {consumer: [] for consumer in takers}
    room = {consumer: min(consumer.credit, RUN_BYTES_MAX) for consumer in takers}
    given = at = 0
    pop = queue.backlog.pop
    while takers and given < RUN_MESSAGES_MAX:
        message = pop()
        if message is None:
            break
        at %= len(takers)
        consumer = takers[at]
        runs[consumer].append(message)
        given += 1
        room[consumer] -= message.size
        if room[consumer] <= 0:
            del takers[at]
        else:
            at += 1
    queue.next_consumer += given
    for consumer, run in runs.items():
        _deliver(core, router, queue, consumer, run)
    return any(consumer.credit > 0 for consumer in runs)


def _serve_selective(core: Core, router: Router, queue: Queue, takers: list[Consumer]) -> bool:
    """Consumers with selectors, one message each in turn, each from its own view."""
    assert queue.selective is not None
    turn = queue.next_consumer % len(takers)
    takers = takers[turn:] + takers[:turn]
    runs: dict[Consumer, list[Message]] = {consumer: [] for consumer in takers}
    room = {consumer: min(consumer.credit, RUN_BYTES_MAX) for consumer in takers}
    given = at = 0
    while takers and given < RUN_MESSAGES_MAX:
        at %= len(takers)
        consumer = takers[at]
        message = queue.selective.pop_for(consumer.id)
        if message is None:
            del takers[at]
            continue
        runs[consumer].append(message)
        given += 1
        room[consumer] -= message.size
        if room[consumer] <= 0:
            del takers[at]
        else:
            at += 1
    queue.next_consumer += 1
    for consumer, run in runs.items():
        _deliver(core, router, queue, consumer, run)
    return given > 0 and any(consumer.credit > 0 for consumer in runs)


def _deliver(core: Core, router: Router, queue: Queue, consumer: Consumer, run: list[Message]) -> None:
    if queue.expiring:
        run = _drop_expired(core, router, queue, run)
    if not run:
        return
    consumer.take(run)
    queue.delivering += len(run)
    queue.counters.delivered += len(run)
    if queue.states:
        queue.counters.redelivered += sum(m.id in queue.states for m in run)
    if queue.durable and queue.address.settings.strict:
        stored = [m.id for m in run if m.segment]
        if stored or consumer.held:  # what need not wait must not overtake what does
            _journal_delivery(core, queue, consumer, run, stored)
            return
    consumer.sink.deliver(consumer, run)


def _journal_delivery(
    core: Core, queue: Queue, consumer: Consumer, run: list[Message], stored: list[int]
) -> None:
    """Strict mode: the delivery is in the journal before its first byte leaves."""
    journal = core.journal
    if stored:
        journal.mention(queue.id)
        journal.add(record.delivering(queue.id, consumer.id, stored))
    here, last = journal.segment, 0
    for message in run:
        if message.segment != last:
            last = message.segment
            if last:
                journal.space.refer(here, last)
    queue.journalled.update(stored)
    consumer.held += len(run)
    core.work.held.append((consumer, run))


def _drop_expired(core: Core, router: Router, queue: Queue, run: list[Message]) -> list[Message]:
    """The messages of a run whose time is not over; the others expire."""
    arrival.unwatch(core, queue, run)
    now = core.now
    expired = [m for m in run if 0 < m.facts.expiration <= now]
    if not expired:
        return run
    arrival.keep_for_later(core, queue, dead_letter.expire(core, router, queue, expired))
    return [m for m in run if not 0 < m.facts.expiration <= now]
