"""Dead letters: what becomes of a message that cannot be delivered, or whose time is over.

    dead letter   too many failed deliveries, or rejected outright: to the dead-letter address of the queue's address
    expired       to the expiry address of the message's own address
    killed        dead, and there is no dead-letter address: removed, logged, recorded
    no route      no queue took it (`send-to-dla-on-no-route`): to the dead-letter address of the address it was sent to

Addresses may lead in a circle.  A message that died or expired `move.HOPS_MAX` times without an operator moving it dies
for that reason (`link-hops`) when it expires again, and stays where it is when it fails again.

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
        if message.facts.address == name or (
            reason is not DeadLetterReason.LINK_HOPS and move.hops(message) >= move.HOPS_MAX
        ):
            staying.append(message)  # dead-letter addresses that lead in a circle: it is on one
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
        _note(core, "MESSAGE_DEAD_LETTERED", queue, message, target.name, reason.word, text)
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


def bury_unrouted(core: Core, router: Router, address: Address, queue: Queue | None, message: Message) -> bool:
    """Dead-letter a message that no queue of its address took; `queue`: the one that it was sent to, if it named one.

    Within the entry of its send.  False: nothing was done, no dead-letter address keeps it.
    """
    settings = address.settings
    name = settings.dead_letter_address
    if not name or name == address.name:
        return False
    reason = DeadLetterReason.NO_ROUTE
    text = f"no queue of address {address.name} took it"
    target = _target(router, name, message, automatic=settings.auto_create_dead_letter_resources, expiry=False)
    annotations = move.annotate(
        message, queue, reason=reason.word, text=text, now=core.now, attempts=0, client="", remote=""
    )
    copy = move.copy_to(core, router, target, message, annotations)
    if copy is None:
        return False
    if copy.segment:
        _record_death(core, None, message, copy.id, reason, text, None)
    _note(core, "MESSAGE_DEAD_LETTERED", None, message, target.name, reason.word, text)
    core.report("message.no_route", message=message.id, address=address.name, target=target.name)
    return True


def _kill(
    core: Core, queue: Queue, message: Message, reason: DeadLetterReason, text: str, consumer: Consumer | None
) -> None:
    queue.counters.killed += 1
    _record_death(core, queue, message, 0, reason, text, consumer)
    _note(core, "MESSAGE_DEAD_LETTERED", queue, message, "", reason.word, text)
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
    queue: Queue | None,
    message: Message,
    new_id: int,
    reason: DeadLetterReason,
    text: str,
    consumer: Consumer | None,
) -> None:
    """`queue` None: it was on none."""
    state = None
    if queue is not None:
        if not (message.segment and queue.durable):
            return
        state = queue.states.get(message.id)
        core.journal.mention(queue.id)
    core.journal.add(
        record.dead_lettered(
            queue_id=queue.id if queue is not None else 0,
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
        text = f"expired on {queue.name}, noticed {core.now - message.facts.expiration} ms later"
        if queue.keeper is not None:
            queue.keeper.expired(message)
        elif name and name not in (queue.address.name, message.facts.address):
            if move.hops(message) >= move.HOPS_MAX:
                staying += _end_circle(core, router, queue, message)
                continue
            target = _target(router, name, message, automatic=home.settings.auto_create_expiry_resources, expiry=True)
            annotations = move.annotate(
                message,
                queue,
                reason=DeadLetterReason.EXPIRED.word,
                text=text,
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
        target_name = name or "" if new_id else ""
        _note(core, "MESSAGE_EXPIRED", queue, message, target_name, DeadLetterReason.EXPIRED.word, text)
        remove(core, queue, [message], RemovalReason.EXPIRED)
    return staying


def _end_circle(core: Core, router: Router, queue: Queue, message: Message) -> list[Message]:
    """A message expires from address to address: it dies, once; if it comes from its dead-letter address, for good."""
    hops = move.hops(message)
    text = f"moved {hops} times, at last expired on {queue.name}: expiry addresses lead in a circle"
    reason = DeadLetterReason.LINK_HOPS
    name = queue.address.settings.dead_letter_address
    if hops == move.HOPS_MAX and name not in (None, "", queue.address.name, message.facts.address):
        return bury(core, router, queue, [message], reason=reason, text=text, consumer=None)
    _kill(core, queue, message, reason, text, None)
    return []


def _note(core: Core, type: str, queue: Queue | None, message: Message, target: str, reason: str, text: str) -> None:
    """Notifications tell of it, but not of what happens to themselves."""
    home = queue.address.name if queue is not None else message.facts.address
    if core.notes.listening and home != NOTIFICATIONS:
        note: Note = {
            "_AMQ_Address": message.facts.address,
            "_AMQ_RoutingName": queue.name if queue is not None else "",
            "_AMQ_Message_ID": message.id,
            "_AMQ_DL_REASON": reason,
            "_AMQ_DL_TEXT": move.clean_text(text),
            "_AMQ_DL_ATTEMPTS": queue.delivery_count(message.id) if queue is not None else 0,
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
