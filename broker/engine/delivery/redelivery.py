"""Handles deliveries returned to their queue (the table is ActiveMQ Artemis's).

A return of messages determines three things: which of them count as failed deliveries, which are `redelivered` from
now on, and whether the redelivery delay applies.  The flag is not the count: of the messages prefetched by a consumer
that crashes, any may have been processed, but only one made it crash, and the others must not die for that.

    event                                        counts as failed     redelivered     delay
    rollback, NACK, modified as failed (AMQP)    all                  all             yes, unless they stay
    released, or modified otherwise (AMQP)       none                 none            yes
    clean close of the consumer                  none                 none            no
    a Bartleby's link ends, for any reason       none                 none            no; or reserved (`reservations`)
    a link's reservation is released             none                 all             no
    the broker ends it: stop, operator, rights   none                 all             no
    client disconnected, silent, or lost         the oldest           all             yes
    the same of an MQTT session                  the oldest of all    all             no, those that stay are sent again
    connection lost (AMQP)                       all                  all             no

A delivery that was never sent to the consumer is withdrawn: nothing has happened to it.

Many deliveries are returned in steps (`queues.settling`), in which nothing overtakes them.

Then each message that has failed as often as the settings allow is dead; any other waits for its delay, or goes back to
the head of the queue at once.  The count is journalled before anything else can happen to the message, unless strict
mode journalled that very count before the delivery was sent.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Annotations, Message
from broker.engine.moves import dead_letter
from broker.engine.queues import arrival
from broker.engine.queues.death import Death
from broker.engine.queues.paging import depage, rows, upkeep
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import DELIVERED, Consumer, Queue, Reservation
from broker.engine.queues.removal import remove, take_reserved
from broker.engine.queues.settling import FAILED, REJECTED, RETURNED, is_long, settle_in_steps
from broker.engine.queues.state import State
from store.counted import counted
from store.record import DeadLetterReason, RemovalReason


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """How deliveries are returned: how many of the oldest count as failed (-1: all), whether the delay applies.

    Those that failed are `redelivered`; with `left` (they were sent) so are all the others.  With `excluded` their
    consumer does not get them again.  The `notes` are added to their annotations, except for messages that are on
    other queues too.
    """

    failed: int
    delayed: bool
    text: str
    left: bool = False
    excluded: bool = False
    notes: Annotations | None = None


ROLLBACK = DeliveryOutcome(-1, True, "the transaction was rolled back")
RELEASED = DeliveryOutcome(0, True, "released by the consumer")
CLOSED = DeliveryOutcome(0, False, "the consumer was closed")
INTERRUPTED = DeliveryOutcome(0, False, "the broker ended the delivery", left=True)
DISCONNECTED = DeliveryOutcome(1, True, "the connection ended", left=True)
SILENT = DeliveryOutcome(1, True, "the client fell silent", left=True)
SLOW = DeliveryOutcome(1, True, "the consumer was too slow", left=True)
LOST = DeliveryOutcome(-1, False, "the connection was lost")


#: How many scheduled messages become ready together, and what one costs (`queues.steps`).
DUE_TOGETHER: Final = 256
DUE_COST: Final = 2

#: The reasons of messages that cannot be sent as they are, whoever finds that out; for others the receiver is named.
_UNSENDABLE: Final = frozenset({DeadLetterReason.TOO_LARGE, DeadLetterReason.DECODE_ERROR, DeadLetterReason.LINK_HOPS})


def rejected(text: str) -> DeliveryOutcome:
    """The outcome of deliveries that their consumer refused, with its reason."""
    return DeliveryOutcome(-1, True, text or "rejected by the consumer")


def give_back(state: State, queue: Queue, messages: list[Message], how: DeliveryOutcome, consumer: Consumer) -> None:
    """Put deliveries back on their queue, or dead-letter those that have failed too often.

    `messages` are in the order of delivery and no longer with the consumer; they still count as delivering.  No effect
    on a non-destructive queue, which still has them, except that with `excluded` their consumer gets them no more.
    """
    if how.excluded and not consumer.closed:
        for message in messages:
            exclude(consumer, message.id)
    pace = FAILED if how.failed < 0 else RETURNED
    if is_long(state, messages, pace) and not queue.non_destructive:
        _give_back_in_steps(state, queue, messages, how, consumer)
    else:
        _give_back(state, queue, messages, how, consumer)


def _give_back_in_steps(
    state: State, queue: Queue, messages: list[Message], how: DeliveryOutcome, consumer: Consumer
) -> None:
    oldest = {message.id for message in messages[: max(how.failed, 0)]}
    forgotten = queue.forgets

    def settle(some: list[Message]) -> None:
        if forgotten and queue.attributes.rules and not queue.deleted:  # although a consumer may have come since
            queue.delivering -= len(some)
            remove(state, queue, some, RemovalReason.PURGED)
            return
        failed = how.failed if how.failed < 0 else len([message for message in some if message.id in oldest])
        _give_back(state, queue, some, replace(how, failed=failed), consumer)

    pace = FAILED if how.failed < 0 else RETURNED
    settle_in_steps(state, queue, messages, settle, pace, consumer.sink.transport)


def _give_back(state: State, queue: Queue, messages: list[Message], how: DeliveryOutcome, consumer: Consumer) -> None:
    if not _return(state, queue, messages):
        return
    states = queue.states
    ids = [message.id for message in messages]
    queue.acquired.update(dict.fromkeys(ids))
    failed = set(ids) if how.failed < 0 else set(ids[: how.failed])
    flagged = set(ids).difference(states) if how.left else set()
    states.update(dict.fromkeys(flagged, DELIVERED))
    _fail(state, queue, failed)
    if state.tracer is not None:
        state.tracer.returned(queue, messages, failed, how.text, consumer)
    alive = messages
    # Of messages that had no state yet, only those that have failed now have a count.
    tried = messages[: len(failed)] if len(flagged) == len(ids) else messages if states else []
    dead = [message for message in tried if is_spent(state, queue, message)]
    if dead:
        spent = set(dead)
        alive = [message for message in messages if message not in spent]
    if how.notes:
        _annotate(state, alive, how.notes, bounded=True)
        _annotate(state, dead, how.notes, bounded=False)  # they leave, and their dead letters keep them
    staying = _send_to_dla(state, queue, dead, how.text, consumer)
    _journal_counts(state, queue, alive + staying, failed, flagged)
    arrival.hold_for_retry(state, queue, staying)
    requeue(state, queue, alive, delayed=how.delayed)


def _annotate(state: State, messages: list[Message], notes: Annotations, *, bounded: bool) -> None:
    for message in messages:
        if message.refs == 1:
            state.room.annotate(message, notes, bounded=bounded)


def is_spent(state: State, queue: Queue, message: Message, more: int = 0) -> bool:
    """Whether a message has, after `more` of them, reached its limit of failed deliveries, and may be dead-lettered."""
    count = queue.delivery_count(message.id) + more
    settings = dead_letter.settings_of(state, queue, message)
    limit = settings.max_delivery_attempts
    return 0 < limit <= count and settings.dead_letter_address != queue.address.name


def count_failure(state: State, queue: Queue, messages: list[Message]) -> None:
    """Count a failed delivery of messages that stay with their consumer.

    Its transaction was rolled back, or its client's connection was lost while the session goes on: without the count, a
    message that always fails would come again for ever.
    """
    if not queue.non_destructive:
        failed = {message.id for message in messages}
        _fail(state, queue, failed)
        _journal_counts(state, queue, messages, failed)


def leave(state: State, consumer: Consumer, deliveries: dict[int, Message], how: DeliveryOutcome) -> None:
    """Return the deliveries of a consumer that was detached, in their order; the last `held` ones await the journal."""
    queue, reached = consumer.queue, max(len(deliveries) - consumer.held, 0)
    left = list(deliveries.values())
    if reached < len(left):
        withdraw(state, queue, left[reached:])
        left = left[:reached]
    if consumer.reservation is not None:
        consumer.reservation.keep([message for message in left if message.id in queue.reserved])
        left = [message for message in left if message.id not in queue.reserved]
    if left:
        give_back(state, queue, left, how, consumer)


def withdraw(state: State, queue: Queue, messages: list[Message]) -> None:
    """Put back deliveries that awaited the journal and were never sent: nothing has happened to them.

    Those that were about to be sent to a link again had been sent to it before: they stay reserved for it.
    """
    if queue.reserved:
        messages = _keep_earlier(queue, messages)
    if is_long(state, messages, RETURNED) and not queue.non_destructive:
        settle_in_steps(state, queue, messages, partial(_withdraw, state, queue), RETURNED, None)
    else:
        _withdraw(state, queue, messages)


def _withdraw(state: State, queue: Queue, messages: list[Message]) -> None:
    if _return(state, queue, messages):
        _journal_counts(state, queue, messages)
        requeue(state, queue, messages, delayed=False)


def _keep_earlier(queue: Queue, messages: list[Message]) -> list[Message]:
    """Keep those deliveries that were sent to their link before in their reservations; returns the others."""
    others: list[Message] = []
    kept: dict[Reservation, list[Message]] = {}
    for message in messages:
        reservation = queue.reserved.get(message.id)
        if reservation is not None and reservation.has_left(message.id):
            kept.setdefault(reservation, []).append(message)
        else:
            others.append(message)
    for reservation, its in kept.items():
        reservation.keep(its)
    return others


def postpone(state: State, queue: Queue, messages: list[Message], ms: int) -> None:
    """Return deliveries that could not be made through no fault of message or consumer; ready again after `ms`."""
    if not _return(state, queue, messages):
        return
    _journal_counts(state, queue, messages)
    for message in arrival.returned(state, queue, messages):
        arrival.schedule(state, queue, message, state.now + ms)


def _return(state: State, queue: Queue, messages: list[Message]) -> bool:
    """End deliveries; returns whether they have to be put back on their queue."""
    if queue.non_destructive:
        return False
    queue.delivering -= len(messages)
    assert queue.delivering >= 0, "they were with a consumer"
    if queue.deleted:
        remove(state, queue, messages, RemovalReason.DELETED)
        return False
    if queue.reserved:
        for reservation, reserved in take_reserved(queue, messages).items():
            reservation.returned(reserved)
    return True


def _fail(state: State, queue: Queue, ids: Set[int]) -> None:
    """Count one more failed delivery of each of these messages."""
    states = queue.states
    once = DELIVERED.failed(state.now)
    for id in ids:
        tried = states.get(id, DELIVERED)
        states[id] = tried.failed(state.now) if tried.count else once


def _send_to_dla(state: State, queue: Queue, dead: list[Message], text: str, consumer: Consumer) -> list[Message]:
    staying: list[Message] = []
    for message in dead:
        count = queue.delivery_count(message.id)
        why = f"delivered {counted(count, 'time')} without success, last by {consumer.describe}: {text}"
        death = Death(DeadLetterReason.MAX_DELIVERIES, why, consumer)
        staying += dead_letter.send_to_dla(state, queue, [message], death)
    return staying


def reject(
    state: State,
    queue: Queue,
    messages: list[Message],
    text: str,
    consumer: Consumer,
    reason: DeadLetterReason = DeadLetterReason.REJECTED,
) -> None:
    """Dead-letter deliveries at once, whatever their count: the consumer wants no redelivery, or cannot receive them.

    Those that cannot become dead letters stay on the queue, for other consumers than this one.
    """
    if queue.non_destructive:
        return
    settle = partial(_reject, state, queue, text=text, consumer=consumer, reason=reason)
    if is_long(state, messages, REJECTED):
        settle_in_steps(state, queue, messages, settle, REJECTED, consumer.sink.transport)
    else:
        settle(messages)


def _reject(
    state: State,
    queue: Queue,
    messages: list[Message],
    text: str,
    consumer: Consumer,
    reason: DeadLetterReason,
) -> None:
    queue.delivering -= len(messages)
    if queue.deleted:
        remove(state, queue, messages, RemovalReason.DELETED)
        return
    _fail(state, queue, {message.id for message in messages})
    what = f"{'cannot be sent to' if reason in _UNSENDABLE else 'rejected by'} {consumer.describe}"
    death = Death(reason, f"{what}: {text}" if text else what, consumer)
    staying = dead_letter.send_to_dla(state, queue, messages, death)
    if queue.reserved:
        for reservation, reserved in take_reserved(queue, staying).items():
            reservation.returned(reserved)
    _journal_counts(state, queue, staying, {m.id for m in staying})
    if not consumer.closed:
        for message in staying:
            exclude(consumer, message.id)
    requeue(state, queue, staying, delayed=True)


def exclude(consumer: Consumer, id: int) -> None:
    """Never deliver this message to this consumer again, as long as it is attached."""
    if consumer.excluded is None:
        consumer.queue.backlog.restrict(consumer.id, consumer.exclude_some())
    assert consumer.excluded is not None
    consumer.queue.acquired[id] = None
    consumer.excluded.add(id, consumer.queue.acquired)


def requeue(state: State, queue: Queue, messages: list[Message], *, delayed: bool) -> None:
    """Put messages back at the head of the queue, now or after the redelivery delay for each message's count."""
    state.dirty[queue] = None
    settings = queue.address.settings
    messages = arrival.returned(state, queue, messages)
    if not delayed or settings.redelivery_delay <= 0:
        messages = arrival.fitting(state, queue, messages)
        if messages:
            queue.backlog.put_back(messages)
            state.schedule.watch(queue, messages)
        return
    by_due: dict[int, list[int]] = {}
    for message in messages:
        delay = settings.delay_before_redelivery(queue.delivery_count(message.id), state.random)
        due = state.now + delay
        arrival.schedule(state, queue, message, due)
        if message.segment and queue.durable:
            by_due.setdefault(due, []).append(message.id)
            state.journal.refer(message.segment)
    state.ledger.scheduled(queue, by_due)


def _journal_counts(
    state: State,
    queue: Queue,
    messages: list[Message],
    failed: Set[int] = frozenset(),
    flagged: Set[int] = frozenset(),
) -> None:
    """Write the counts that the journal does not have yet; in strict mode it may have counted one too many.

    `failed`: the messages that have failed now; `flagged`: those that are `redelivered` from now on.
    """
    if not queue.durable or not (failed or flagged or queue.journalled):
        return
    stored = [message for message in messages if message.segment]
    news = failed | flagged
    if queue.journalled:
        known = queue.journalled.intersection([message.id for message in stored])
        queue.journalled.difference_update(known)
        news = (news - known) | (known - failed)
    recorded = [message for message in stored if message.id in news]
    for segment in {message.segment for message in recorded}:
        state.journal.refer(segment)
    state.ledger.counts(queue, recorded)


def release_due(state: State) -> bool:
    """Make scheduled messages ready whose time has come, as far as the budget goes; True if there may be more.

    They take their place by id, like messages put back: one that waited for redelivery goes to the head, and one that a
    producer scheduled may overtake messages with higher ids that were ready before it.
    """
    while state.steps.left > 0:
        due = state.schedule.scheduled.pop_due(state.now, DUE_TOGETHER)
        state.steps.spend(DUE_COST * len(due))
        by_queue: dict[Queue, list[Message]] = {}
        for queue, message in due:
            del queue.scheduled[message.id]
            by_queue.setdefault(queue, []).append(message)
        for queue, messages in by_queue.items():
            messages = arrival.due(state, queue, messages)
            queue.backlog.put_back(messages)
            state.schedule.watch(queue, messages)
            state.dirty[queue] = None
        if len(due) < DUE_TOGETHER:
            return False
    return True


def release_paged(state: State) -> bool:
    """Make scheduled messages on disk ready, as far as the budget goes; True if more may be due."""
    while state.steps.left > 0:
        due = state.schedule.paged_scheduled.pop_due(state.now, 1)
        if not due:
            return False
        queue, chunk = due[0]
        chunk.watched = 0
        if queue.deleted:  # all of it leaves
            continue
        late = chunk.late(state.now)[:DUE_TOGETHER]
        state.steps.spend(depage.READ_COST * len(late) + 1)
        try:
            _release_rows(state, queue, chunk, late)
            again = chunk.next_due()
        except NotReadable as error:
            state.report("paging.failed", queue=queue.name, error=str(error))
            again = state.now + RETRY_MS
        state.schedule.hold_chunk(queue, chunk, again)
    return True


def _release_rows(state: State, queue: Queue, chunk: Chunk, late: list[int]) -> None:
    """Make rows of scheduled messages ready: in memory while it has room, else behind all others on disk.

    Raises NotReadable.
    """
    tail = queue.tail
    assert tail is not None, "it has a chunk"
    state.dirty[queue] = None
    if queue.forgets:
        upkeep.clear_rows(state, queue, chunk, late, RemovalReason.PURGED)
        return
    if chunk.kept or depage.has_room_for(state, queue, chunk, late):
        messages = rows.claim(state, queue, chunk, rows.read(state, queue, chunk, late))
        depage.make_ready(state, queue, arrival.due(state, queue, messages), chunk)
        return
    expirations = chunk.expirations
    for row in late:
        expiration = 0 if expirations is None else expirations[row]
        place = chunk.segments[row], chunk.offsets[row], chunk.sizes[row]
        state.schedule.watch_chunk(queue, tail.add(chunk.priority, chunk.ids[row], *place, expiration), expiration)
    tail.drop(chunk, late)
