"""Dead letters: what becomes of a message that cannot be delivered, or whose time is over.

    dead letter   too many failed deliveries, or rejected outright: to the dead-letter address of the queue's address
    expired       to the expiry address of the message's own address
    killed        dead, and there is no dead-letter address: removed, logged, recorded

A queue on its own dead-letter address never dead-letters onto itself, nor does a queue on a wildcard address a message
that came to that address: the message stays (`bury` returns it).
Resources made automatically are made for the message's own address, so that their filter takes the very message.
"""

from __future__ import annotations

from broker.engine import arrival, letters, move
from broker.engine.address import Address
from broker.engine.consumer import Consumer
from broker.engine.core import Core
from broker.engine.message import ACTUAL_EXPIRY, Message
from broker.engine.notes import NOTIFICATIONS, Note
from broker.engine.queue import Queue
from broker.engine.removal import remove
from broker.engine.router import Router
from store import record
from store.record import DeadLetterReason, RemovalReason


def bury(
    core: Core,
    router: Router,
    queue: Queue,
    messages: list[Message],
    *,
    reason: DeadLetterReason,
    text: str,
    consumer: Consumer | None,
) -> list[Message]:
    """Dead-letter messages that are in no container any more.  Returns those that have to stay on the queue."""
    settings = queue.address.settings
    name = settings.dead_letter_address
    if name == queue.address.name:
        return messages
    staying: list[Message] = []
    for message in messages:
        if not name:
            _kill(core, queue, message, reason, text, consumer)
            continue
        if message.facts.address == name:
            staying.append(message)
            continue
        target = _target(router, name, message, automatic=settings.auto_create_dead_letter_resources, expiry=False)
        attempts = queue.delivery_count(message.id)
        annotations = move.annotate(
            message,
            queue,
            reason=reason.word,
            text=text,
            now=core.now,
            attempts=attempts,
            client=consumer.client_id if consumer else "",
            remote=consumer.remote if consumer else "",
        )
        copy = move.copy_to(core, router, target, message, annotations)
        if copy is None:
            staying.append(message)
            continue
        queue.counters.dead_lettered += 1
        _record_death(core, queue, message, copy.id, reason, text, consumer)
        _note(core, "MESSAGE_DEAD_LETTERED", queue, message, target.name, reason.word)
        core.report(
            "message.dead_lettered",
            message=message.id,
            queue=queue.name,
            address=target.name,
            reason=reason.word,
            attempts=attempts,
        )
        remove(core, queue, [message], RemovalReason.DEAD_LETTERED)
    return staying


def _kill(
    core: Core, queue: Queue, message: Message, reason: DeadLetterReason, text: str, consumer: Consumer | None
) -> None:
    queue.counters.killed += 1
    _record_death(core, queue, message, 0, reason, text, consumer)
    _note(core, "MESSAGE_DEAD_LETTERED", queue, message, "", reason.word)
    core.report(
        "message.killed",
        message=message.id,
        queue=queue.name,
        reason=reason.word,
        attempts=queue.delivery_count(message.id),
    )
    remove(core, queue, [message], RemovalReason.KILLED)


def _record_death(
    core: Core,
    queue: Queue,
    message: Message,
    new_id: int,
    reason: DeadLetterReason,
    text: str,
    consumer: Consumer | None,
) -> None:
    if not (message.segment and queue.durable):
        return
    state = queue.states.get(message.id)
    core.journal.mention(queue.id)
    core.journal.add(
        record.dead_lettered(
            queue_id=queue.id,
            old_id=message.id,
            new_id=new_id,
            enqueued=message.facts.timestamp,
            first_failure=state.first_failure if state else 0,
            attempts=state.count if state else 0,
            reason=reason,
            address=message.facts.address,
            text=move.clean_text(text),
            client=consumer.client_id if consumer else "",
            remote=consumer.remote if consumer else "",
            user=message.facts.user,
        )
    )


def expire(core: Core, router: Router, queue: Queue, messages: list[Message]) -> list[Message]:
    """Expire messages that are in no container any more.  Returns those that have to stay on the queue.

    On the expiry address itself there is nowhere to go: the message is removed, by name like any other.
    """
    staying: list[Message] = []
    for message in messages:
        home = core.addresses.get(message.facts.address, queue.address)
        name = home.settings.expiry_address
        new_id = 0
        if queue.keeper is not None:
            queue.keeper.expired(message)
        elif name and name not in (queue.address.name, message.facts.address):
            target = _target(router, name, message, automatic=home.settings.auto_create_expiry_resources, expiry=True)
            late = core.now - message.facts.expiration
            annotations = move.annotate(
                message,
                queue,
                reason=DeadLetterReason.EXPIRED.word,
                text=f"expired on {queue.name}, noticed {late} ms later",
                now=core.now,
                attempts=queue.delivery_count(message.id),
                client="",
                remote="",
            )
            annotations[ACTUAL_EXPIRY] = core.now
            copy = move.copy_to(core, router, target, message, annotations)
            if copy is None:
                staying.append(message)
                continue
            new_id = copy.id
        elif "expiry" not in queue.address.warned:
            queue.address.warned |= {"expiry"}
            core.report("message.expired_unkept", queue=queue.name, message=message.id)
        queue.counters.expired += 1
        _record_expiry(core, queue, message, new_id)
        _note(core, "MESSAGE_EXPIRED", queue, message, name or "" if new_id else "", DeadLetterReason.EXPIRED.word)
        remove(core, queue, [message], RemovalReason.EXPIRED)
    return staying


def _note(core: Core, type: str, queue: Queue, message: Message, target: str, reason: str) -> None:
    """Notifications tell of it, but not of what happens to themselves."""
    if core.notes.listening and queue.address.name != NOTIFICATIONS:
        note: Note = {
            "_AMQ_Address": message.facts.address,
            "_AMQ_RoutingName": queue.name,
            "_AMQ_Message_ID": message.id,
            "_AMQ_DL_REASON": reason,
            "_AMQ_DL_ATTEMPTS": queue.delivery_count(message.id),
            "_AMQ_DL_ADDRESS": target,
            "_AMQ_User": message.facts.user,
        }
        core.notes.add(type, note)


def _record_expiry(core: Core, queue: Queue, message: Message, new_id: int) -> None:
    if not (message.segment and queue.durable):
        return
    core.journal.mention(queue.id)
    core.journal.add(
        record.expired(
            queue_id=queue.id,
            old_id=message.id,
            new_id=new_id,
            enqueued=message.facts.timestamp,
            expiration=message.facts.expiration,
            attempts=queue.delivery_count(message.id),
            source=message.facts.expiry_source,
            consumers=len(queue.consumers),
            address=message.facts.address,
        )
    )


def _target(router: Router, name: str, message: Message, *, automatic: bool, expiry: bool) -> Address:
    """The dead-letter or expiry address, made if need be, with the queue for the message's address if automatic."""
    target = router.ensure_address(name)
    if automatic and message.facts.address != name:
        letters.ensure_queue(router, target, message.facts.address, expiry=expiry)
    return target


def expire_due(core: Core, router: Router, limit: int) -> bool:
    """Expire what is due, at most `limit` messages; True when there may be more."""
    due = core.expiries.pop_due(core.now, limit)
    by_queue: dict[Queue, list[Message]] = {}
    for queue, message in due:
        queue.discard(message)
        queue.expiring -= 1
        by_queue.setdefault(queue, []).append(message)
    for queue, messages in by_queue.items():
        arrival.keep_for_later(core, queue, expire(core, router, queue, messages))
    return len(due) == limit
