"""What happens to a delivery that comes back (the table is ActiveMQ Artemis's).

Whoever gives messages back says two things: which of them count as failed deliveries, and whether the redelivery delay
applies.

    event                                        counts as failed     delay
    rollback, NACK, modified as failed (AMQP)    all                  yes
    released, or modified otherwise (AMQP)       none                 yes
    clean close of the consumer                  none                 no
    connection lost or client disconnected       the oldest           yes
    heart-beats ceased, connection lost (AMQP)   all                  no

Then, message by message: as many failures as the settings allow, and it is dead; else it waits for its delay, or goes
back to the head of the queue at once.  The count is journalled before anything else can happen to the message, unless
strict mode journalled that very count before the delivery left.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine import arrival, dead_letter
from broker.engine.consumer import Consumer
from broker.engine.core import Core
from broker.engine.message import Message
from broker.engine.queue import DeliveryState, Queue
from broker.engine.removal import remove
from broker.engine.router import Router
from store import record
from store.record import DeadLetterReason, RemovalReason


@dataclass(frozen=True, slots=True)
class Return:
    """How deliveries come back: how many of the oldest count as failed (-1: all), whether the delay applies."""

    failed: int
    delayed: bool
    text: str


ROLLBACK = Return(-1, True, "the transaction was rolled back")
RELEASED = Return(0, True, "released by the consumer")
CLOSED = Return(0, False, "the consumer was closed")
DISCONNECTED = Return(1, True, "the connection ended")
SILENT = Return(-1, False, "the client fell silent")
LOST = Return(-1, False, "the connection was lost")


def rejected(text: str) -> Return:
    """A delivery that its consumer refused, with what it said."""
    return Return(-1, True, text or "rejected by the consumer")


def give_back(
    core: Core, router: Router, queue: Queue, messages: list[Message], how: Return, consumer: Consumer | None
) -> None:
    """Put deliveries back on their queue, or bury those that have failed too often.

    `messages` are in the order of delivery and no longer with the consumer; they still count as delivering.  A queue
    that keeps its messages has them still: what a consumer says of them changes nothing.
    """
    if not _return(core, queue, messages):
        return
    failed = messages if how.failed < 0 else messages[: how.failed]
    for message in failed:
        state = queue.states.get(message.id)
        if state is None:
            state = queue.states[message.id] = DeliveryState(0, core.now)
        state.count += 1
        state.text = how.text
    limit = queue.address.settings.max_delivery_attempts
    dead: list[Message] = []
    alive = messages
    if limit > 0 and queue.states and queue.address.settings.dead_letter_address != queue.address.name:
        dead = [m for m in messages if queue.delivery_count(m.id) >= limit]
        if dead:
            alive = [m for m in messages if queue.delivery_count(m.id) < limit]
    staying = _bury(core, router, queue, dead, how.text, consumer)
    _journal_counts(core, queue, alive + staying, {m.id for m in failed})
    arrival.keep_for_later(core, queue, staying)
    requeue(core, queue, alive, delayed=how.delayed)


def leave(core: Core, router: Router, consumer: Consumer, messages: list[Message], how: Return) -> None:
    """A consumer has left its queue with these deliveries, in their order; the last ones wait for the journal."""
    reached = max(len(messages) - consumer.held, 0)
    if reached < len(messages):
        withdraw(core, consumer.queue, messages[reached:])
    if reached:
        give_back(core, router, consumer.queue, messages[:reached], how, consumer)


def withdraw(core: Core, queue: Queue, messages: list[Message]) -> None:
    """Deliveries that waited for the journal, and will not leave for their consumer: nothing has happened to them."""
    if _return(core, queue, messages):
        _journal_counts(core, queue, messages, set())
        requeue(core, queue, messages, delayed=False)


def _return(core: Core, queue: Queue, messages: list[Message]) -> bool:
    """Deliveries are out no longer; whether they have to be put back on their queue."""
    if queue.keeps:
        return False
    queue.delivering -= len(messages)
    if queue.deleted:
        remove(core, queue, messages, RemovalReason.DELETED)
        return False
    return True


def _bury(
    core: Core, router: Router, queue: Queue, dead: list[Message], text: str, consumer: Consumer | None
) -> list[Message]:
    staying: list[Message] = []
    for message in dead:
        count = queue.delivery_count(message.id)
        who = f", last by {consumer.describe}" if consumer else ""
        staying += dead_letter.bury(
            core,
            router,
            queue,
            [message],
            reason=DeadLetterReason.MAX_DELIVERIES,
            text=f"delivered {count} times without success{who}: {text}",
            consumer=consumer,
        )
    return staying


def reject(
    core: Core,
    router: Router,
    queue: Queue,
    messages: list[Message],
    text: str,
    consumer: Consumer | None,
    reason: DeadLetterReason = DeadLetterReason.REJECTED,
) -> None:
    """Dead-letter deliveries at once, whatever their count: the consumer wants no redelivery, or can take none."""
    if queue.keeps:
        return
    queue.delivering -= len(messages)
    if queue.deleted:
        remove(core, queue, messages, RemovalReason.DELETED)
        return
    for message in messages:
        state = queue.states.setdefault(message.id, DeliveryState(0, core.now))
        state.count += 1
    if reason is DeadLetterReason.REJECTED:
        what = f"rejected by {consumer.describe}" if consumer else "rejected"
    else:
        what = f"cannot be sent to {consumer.describe}" if consumer else "cannot be sent"
    staying = dead_letter.bury(
        core,
        router,
        queue,
        messages,
        reason=reason,
        text=f"{what}: {text}" if text else what,
        consumer=consumer,
    )
    _journal_counts(core, queue, staying, {m.id for m in staying})
    requeue(core, queue, staying, delayed=True)


def requeue(core: Core, queue: Queue, messages: list[Message], *, delayed: bool) -> None:
    """Back to the head of the queue, now or after the redelivery delay of each message's count."""
    core.dirty[queue] = None
    settings = queue.address.settings
    if queue.kind is not None:
        messages = queue.kind.returned(core, messages)
    if not delayed or settings.redelivery_delay <= 0:
        if queue.kind is not None:
            messages = queue.kind.fitting(core, messages)
        if messages:
            queue.put_back(messages)
            arrival.watch(core, queue, messages)
        return
    by_due: dict[int, list[int]] = {}
    for message in messages:
        delay = settings.delay_before_redelivery(queue.delivery_count(message.id), core.random)
        due = core.now + delay
        arrival.schedule(core, queue, message, due)
        if message.segment and queue.durable:
            by_due.setdefault(due, []).append(message.id)
            core.journal.space.refer(core.journal.segment, message.segment)
    for due, ids in by_due.items():
        core.journal.mention(queue.id)
        core.journal.add(record.scheduled(queue.id, due, ids))


def _journal_counts(core: Core, queue: Queue, messages: list[Message], failed: set[int]) -> None:
    """Write the counts that the journal does not have yet; in strict mode it may have one too many."""
    by_count: dict[int, list[int]] = {}
    journalled = queue.journalled
    for message in messages:
        if not (message.segment and queue.durable):
            continue
        if (message.id in failed) != (message.id in journalled):
            by_count.setdefault(queue.delivery_count(message.id), []).append(message.id)
            core.journal.space.refer(core.journal.segment, message.segment)
        journalled.discard(message.id)
    for count, ids in by_count.items():
        core.journal.mention(queue.id)
        core.journal.add(record.counts(queue.id, count, ids))


def release_due(core: Core, limit: int) -> bool:
    """Scheduled messages whose time has come become ready, at most `limit`; True when there may be more.

    A message that waited for redelivery goes to the head, like one that is given back; a message that a producer
    scheduled is younger than everything that became ready before it only by identity, and takes that place too.
    """
    due = core.schedule.pop_due(core.now, limit)
    by_queue: dict[Queue, list[Message]] = {}
    for queue, message in due:
        del queue.scheduled[message.id]
        by_queue.setdefault(queue, []).append(message)
    for queue, messages in by_queue.items():
        if queue.kind is not None:
            messages = queue.kind.due(core, messages)
        queue.put_back(messages)
        arrival.watch(core, queue, messages)
        core.dirty[queue] = None
    return len(due) == limit
