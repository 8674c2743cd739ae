"""Dead letters: what happens to a message that cannot be delivered.

    dead letter   too many failed deliveries, or rejected outright: to the dead-letter address of the queue's address
    killed        dead, and there is no dead-letter address: removed, logged, recorded
    no route      no queue took it (`send-to-dla-on-no-route`): to the dead-letter address of the address it was sent to
    put disabled  the same, because all queues that it might have entered are disabled

Addresses may form a circle.  A message that died or expired `move.HOPS_MAX` times without an operator moving it stays
where it is when it fails again (`expiry` has the rest of the rule).

A queue on its own dead-letter address never dead-letters onto itself, nor does a queue on a wildcard address a message
that was sent to that address: the message stays (`send_to_dla` returns it).
Messages on a transmission queue, waiting for another broker, still belong to the address that they were sent to: its
settings apply to them, not those of the queue's address.
Automatic resources are created for the message's own address, so that their filter accepts this very message.
"""

from __future__ import annotations

from functools import partial

from broker.engine.filter import compile_filter
from broker.engine.model.errors import InvalidName
from broker.engine.model.message import ORIG_ADDRESS, Message
from broker.engine.model.notes import NOTIFICATIONS, Note
from broker.engine.model.settings import AddressSettings
from broker.engine.moves import move
from broker.engine.queues.address import Address
from broker.engine.queues.death import Death
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import has_room, remove, report_no_room
from broker.engine.queues.state import State
from store.record import DEAD_LETTERED_BYTES, REMOVAL_BYTES, DeadLetterReason, RemovalReason


def send_to_dla(state: State, queue: Queue, messages: list[Message], death: Death) -> list[Message]:
    """Dead-letter messages already taken out of the queue's containers.  Returns those that must stay on the queue."""
    staying: list[Message] = []
    for message in messages:
        settings = settings_of(state, queue, message)
        name = settings.dead_letter_address
        if name == queue.address.name:
            staying.append(message)
            continue
        if not name:
            if not kill(state, queue, message, death):
                staying.append(message)
            continue
        if message.header.address == name or (
            death.reason is not DeadLetterReason.LINK_HOPS and move.hops(message) >= move.HOPS_MAX
        ):
            staying.append(message)  # the dead-letter addresses form a circle
            continue
        target = target_of(state, name, message, automatic=settings.auto_create_dead_letter_resources, expiry=False)
        placed = move.place_at(state, target, message, move.annotate(message, queue, death, state.now))
        if placed is None:
            staying.append(message)
            continue
        note(state, "MESSAGE_DEAD_LETTERED", queue, message, target.name, death)
        state.report(
            "message.dead_lettered",
            message=message.id,
            queue=queue.name,
            address=target.name,
            reason=death.reason.word,
            attempts=queue.delivery_count(message.id),
        )
        move.move(state, queue, [placed], RemovalReason.DEAD_LETTERED, partial(_record_death, state, queue, death))
    return staying


def settings_of(state: State, queue: Queue, message: Message) -> AddressSettings:
    """The settings that decide what happens to a dead message of a queue."""
    if queue.name in state.registry.transmission:
        return state.registry.settings(message.header.address)
    return queue.address.settings


def keeps(state: State, settings: AddressSettings, home: str, message: Message) -> bool:
    """Whether the dead-letter address of these settings would keep a message that is on the address `home`."""
    name = settings.dead_letter_address
    source = message.header.address
    if not name or name in (home, source):
        return False
    if settings.auto_create_dead_letter_resources and _queue_name(state, source, expiry=False) not in state.queues:
        return True  # that queue will be created
    return move.keeps(state, name, message)


def send_unrouted_to_dla(state: State, address: Address, queue: Queue | None, message: Message) -> bool:
    """Dead-letter a message that no queue of its address accepted; `queue`: the queue it was sent to by full name.

    This happens within the entry of its send.  False: nothing was done, as no dead-letter address would keep it.
    """
    settings = address.settings
    name = settings.dead_letter_address
    if not name or name == address.name:
        return False
    death = _why_unrouted(state, address, queue)
    target = target_of(state, name, message, automatic=settings.auto_create_dead_letter_resources, expiry=False)
    placed = move.place_at(state, target, message, move.annotate(message, queue, death, state.now))
    if placed is None:
        return False
    move.bring(state, [placed], partial(_record_death, state, None, death))
    note(state, "MESSAGE_DEAD_LETTERED", None, message, target.name, death)
    state.report("message.no_route", message=message.id, address=address.name, target=target.name)
    return True


def _why_unrouted(state: State, address: Address, queue: Queue | None) -> Death:
    """Why no queue accepted a message that was sent to an address, or to this queue of it."""
    anycast, multicast = state.bindings.targets(address)
    queues = [queue] if queue is not None else anycast + multicast
    if queues and not any(each.attributes.enabled for each in queues):
        why = f"queue {queues[0].name} of address {address.name} is disabled"
        return Death(DeadLetterReason.PUT_DISABLED, why)
    return Death(DeadLetterReason.NO_ROUTE, f"no queue of address {address.name} took it")


def kill(state: State, queue: Queue, message: Message, death: Death) -> bool:
    """Remove a dead message that has no dead-letter address, by name; False if the journal has no room for that."""
    consumer = death.consumer
    texts = [death.text, message.header.address, message.header.user]
    texts += [consumer.client_id, consumer.remote] if consumer is not None else []
    need = REMOVAL_BYTES + DEAD_LETTERED_BYTES + len("".join(texts).encode())
    if message.segment and not has_room(state, queue, need):
        report_no_room(state, message.id, queue=queue.name)
        return False
    _record_death(state, queue, death, message, None)
    note(state, "MESSAGE_DEAD_LETTERED", queue, message, "", death)
    state.report(
        "message.killed",
        message=message.id,
        queue=queue.name,
        reason=death.reason.word,
        attempts=queue.delivery_count(message.id),
    )
    remove(state, queue, [message], RemovalReason.KILLED)
    return True


def _record_death(state: State, queue: Queue | None, death: Death, message: Message, copy: Message | None) -> None:
    """Record the death of a message that was placed elsewhere or, without a copy, killed; `queue`: None if on none."""
    if state.tracer is not None:
        state.tracer.died(message, copy, queue, death)
    state.ledger.dead_lettered(queue, message, copy, death)


def note(state: State, type: str, queue: Queue | None, message: Message, target: str, death: Death) -> None:
    """Note a death for the notifications, except the death of a notification."""
    home = queue.address.name if queue is not None else message.header.address
    if state.notes.listening and home != NOTIFICATIONS:
        properties: Note = {
            "_AMQ_Address": message.header.address,
            "_AMQ_RoutingName": queue.name if queue is not None else "",
            "_AMQ_Message_ID": message.id,
            "_AMQ_DL_REASON": death.reason.word,
            "_AMQ_DL_TEXT": death.text,
            "_AMQ_DL_ATTEMPTS": queue.delivery_count(message.id) if queue is not None else 0,
            "_AMQ_DL_ADDRESS": target,
            "_AMQ_User": message.header.user,
        }
        state.notes.add(type, properties)


def target_of(state: State, name: str, message: Message, *, automatic: bool, expiry: bool) -> Address:
    """The dead-letter or expiry address, created if missing, with a queue for the message's address if `automatic`."""
    target = state.registry.ensure_address(name)
    if automatic and message.header.address != name:
        ensure_queue(state, target, message.header.address, expiry=expiry)
    return target


def ensure_queue(state: State, target: Address, source: str, *, expiry: bool) -> None:
    """Create the queue on a dead-letter or expiry address for messages of `source`, unless it exists."""
    name = _queue_name(state, source, expiry=expiry)
    if name in state.queues:
        return
    literal = source.replace("'", "''")
    filter = compile_filter(f"{ORIG_ADDRESS} = '{literal}'")
    try:
        move.create_queue(state, target, name, target.settings.default_queue_routing_type, filter)
    except InvalidName as invalid:
        state.report("move.queue_refused", queue=name, error=str(invalid))


def _queue_name(state: State, source: str, *, expiry: bool) -> str:
    settings = state.registry.settings(source)
    if expiry:
        return f"{settings.expiry_queue_prefix}{source}{settings.expiry_queue_suffix}"
    return f"{settings.dead_letter_queue_prefix}{source}{settings.dead_letter_queue_suffix}"
