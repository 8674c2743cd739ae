"""Moves a message: to a dead-letter address, an expiry address, or wherever an operator wants it.

A move is one step in the journal: the new message, its routing, the removal of the old one and the reason, all in the
open entry (promise P2).  The new message is a record of its own: new identity, own body, no expiration but what the
target address imposes (AMQ-6059 shows what happens otherwise).

A move never loses the message.  If no queue at the target accepts it (a durable message: no durable queue), the broker
creates a durable anycast queue with the target's name and reports it.  If even that queue cannot accept the message, or
the journal has no room, the move is refused and the caller leaves the message where it is.  At a full target moved
messages wait on disk (`room`); the move is refused only if one of its queues cannot do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.engine.filter import Filter
from broker.engine.model import annotation
from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.errors import DiskFull
from broker.engine.model.message import (
    ACTUAL_EXPIRY,
    DL_ATTEMPTS,
    DL_CLIENT,
    DL_CLIENT_ADDRESS,
    DL_COUNT,
    DL_FIRST_ADDRESS,
    DL_FIRST_MESSAGE_ID,
    DL_FIRST_QUEUE,
    DL_FIRST_REASON,
    DL_FIRST_TIME,
    DL_HOPS,
    DL_LINK,
    DL_ORIG_CLIENT,
    DL_ORIG_EXPIRATION,
    DL_ORIG_TIMESTAMP,
    DL_ORIG_USER,
    DL_REASON,
    DL_REMOTE_ADDRESS,
    DL_REMOTE_BROKER,
    DL_TEXT,
    DL_TIME,
    ORIG_ADDRESS,
    ORIG_MESSAGE_ID,
    ORIG_QUEUE,
    ORIG_ROUTING_TYPE,
    Annotations,
    Message,
    RoutingType,
)
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.bindings import Targets
from broker.engine.queues.death import Death
from broker.engine.queues.matches import Matches
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove, report_no_room
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from broker.engine.queues.steps import Steps
from store.record import RemovalReason

#: Bytes by which a copy may exceed its message and its annotations: those of the move, with two names, and its records.
COPY_OVERHEAD_BYTES: Final = 4096

#: Successive moves by death or expiry after which a message is assumed to go round in a circle: no intended chain of
#: addresses is so long, and a circle of expiry addresses without a delay makes that many moves in a second.
HOPS_MAX: Final = 100

#: What a move costs (`queues.steps`): the copy with its annotations, and the records.
MOVE_COST: Final = 90


def hops(message: Message) -> int:
    """How often a message that had died or expired did so again, since an operator last moved it."""
    return int((message.header.annotations or {}).get(DL_HOPS, 0))


def origin(message: Message, queue: str) -> Annotations:
    """A moved message's annotations, with its origin added; `queue`: the queue's name, empty for none."""
    header = message.header
    annotations = dict(header.annotations or {})
    annotations[ORIG_ADDRESS] = header.address
    annotations[ORIG_QUEUE] = queue
    if not queue:
        del annotations[ORIG_QUEUE]
    annotations[ORIG_MESSAGE_ID] = message.id
    annotations.pop(ORIG_ROUTING_TYPE, None)  # of an earlier origin
    if header.routing_type is not None:
        annotations[ORIG_ROUTING_TYPE] = int(header.routing_type)
    annotations.pop(ACTUAL_EXPIRY, None)
    return annotations


def annotate(message: Message, queue: Queue | None, death: Death, now: int) -> Annotations:
    """The annotations of a dead or expired message: origin, sender, reason, text, attempts, consumer, first origin."""
    header, consumer, reason = message.header, death.consumer, death.reason.word
    link = consumer.link if consumer else None
    annotations = origin(message, queue.name if queue else "")
    annotations[DL_REASON] = reason
    annotations[DL_TEXT] = death.text
    annotations[DL_TIME] = now
    annotations[DL_ATTEMPTS] = queue.delivery_count(message.id) if queue else 0
    count = annotations.get(DL_COUNT, 0)
    annotations[DL_COUNT] = int(count) + 1
    if count:
        annotations[DL_HOPS] = hops(message) + 1
    known: tuple[tuple[str, str | int], ...] = (
        (DL_CLIENT, consumer.client_id if consumer else ""),
        (DL_CLIENT_ADDRESS, consumer.remote if consumer else ""),
        (DL_LINK, link.link if link else ""),
        (DL_REMOTE_ADDRESS, link.address if link else ""),
        (DL_REMOTE_BROKER, link.broker if link else ""),
        (DL_ORIG_USER, header.user),
        (DL_ORIG_CLIENT, header.origin),
        (DL_ORIG_TIMESTAMP, header.timestamp),
        (DL_ORIG_EXPIRATION, header.expiration),
    )
    for name, value in known:
        annotations.pop(name, None)
        if value:
            annotations[name] = value
    if DL_FIRST_ADDRESS not in annotations:
        annotations[DL_FIRST_ADDRESS] = header.address
        annotations[DL_FIRST_QUEUE] = queue.name if queue else ""
        annotations[DL_FIRST_MESSAGE_ID] = message.id
        annotations[DL_FIRST_REASON] = reason
        annotations[DL_FIRST_TIME] = now
    return annotations


def bytes_noted(messages: Iterable[Message]) -> int:
    """The bytes of annotations in the journal that copies of these messages take over."""
    return sum([len(annotation.encode(m.header.annotations)) for m in messages if m.header.annotations])


def copy_of(
    state: State, target: Address, message: Message, annotations: Annotations, *, scheduled: int = 0
) -> Message:
    """An independent copy for `target`, on no queue yet."""
    header = message.header.copy(target.name, annotations)
    header.scheduled = scheduled
    target.receive(header, 0, state.now)
    return Message.of(header, message.head, message.body)


def keepers(targets: Targets, copy: Message, steps: Steps) -> Targets | None:
    """The targets that a moved message may enter.  Of the anycast ones, only one of which gets it, those that are
    durable if it is.  None if no queue would keep it.  Spends what the filters cost.
    """
    durable = copy.header.durable
    anycast, multicast = arrival.takers(copy.header, targets)
    anycast = [queue for queue in anycast if queue.durable or not durable]
    found = Matches(copy)
    keeps = any((queue.durable or not durable) and queue.accepts(copy, found) for queue in anycast + multicast)
    steps.spend(found.cost)
    return (anycast, multicast) if keeps else None


def keeps(state: State, name: str, message: Message) -> bool:
    """Whether the address of that name, created if missing, would keep a copy of a message (`place_at`)."""
    target = state.addresses.get(name)
    if target is None:
        return True
    copy = copy_of(state, target, message, origin(message, ""))
    targets = keepers(state.bindings.targets(target), copy, state.steps)
    if targets is not None:
        return state.room.admit_moved(target, targets) is not Admission.BLOCK
    queue = state.queues.get(name)
    return queue is None or (queue.address is target and keepers(([queue], []), copy, state.steps) is not None)


@dataclass(slots=True, eq=False)
class Destination:
    """Where messages go: their new address, the queues they may enter, and their new routing type."""

    address: Address
    targets: Targets
    routing_type: RoutingType | None


@dataclass(slots=True, eq=False)
class Placed:
    """A message, the copy that replaces it, and the queues of an address that keep the copy."""

    message: Message
    copy: Message
    address: Address
    targets: Targets


def place(
    state: State,
    destination: Destination,
    message: Message,
    annotations: Annotations,
    *,
    scheduled: int = 0,
    edit: Edit = UNCHANGED,
) -> Placed | None:
    """A message placed where an operator wants it, perhaps edited; None if no queue there would keep it."""
    copy = copy_of(state, destination.address, message, annotations, scheduled=scheduled)
    copy.header.routing_type = destination.routing_type
    if edit:
        copy = edit.applied(copy)
    targets = keepers(destination.targets, copy, state.steps)
    return None if targets is None else Placed(message, copy, destination.address, targets)


def place_at(state: State, target: Address, message: Message, annotations: Annotations) -> Placed | None:
    """A message placed on an address, with a queue created for it if needed, and room reserved in the journal.

    None: the original must stay.
    """
    copy = copy_of(state, target, message, annotations)
    targets = keepers(state.bindings.targets(target), copy, state.steps) or _keep(state, target, message, copy)
    if targets is None:
        return None
    if state.room.admit_moved(target, targets) is Admission.BLOCK:
        state.report("move.address_full", address=target.name, message=message.id)
        return None
    try:
        if copy.header.durable:
            noted = len(annotation.encode(annotations))  # in the copy, and much of it in the record of the death
            arrival.reserve_bytes(state, copy.size - copy.header_bytes + 2 * noted, essential=True)
    except DiskFull:
        report_no_room(state, message.id, address=target.name)
        return None
    return Placed(message, copy, target, targets)


def move(
    state: State,
    queue: Queue,
    run: Sequence[Placed],
    reason: RemovalReason,
    also_record: Callable[[Message, Message], None] | None = None,
) -> None:
    """Move messages of a queue, already taken out of its containers: the only way from queue to queue.

    The copies, what `also_record` records of each message and its copy, and the removal of the originals are in one
    journal entry, for which there must be room (promise P2).
    """
    entry = state.journal.ticket
    bring(state, run, also_record)
    remove(state, queue, [placed.message for placed in run], reason)
    assert state.journal.ticket == entry, "a move is one journal entry"


def bring(state: State, run: Iterable[Placed], also_record: Callable[[Message, Message], None] | None = None) -> None:
    """Put copies of messages that are on no queue in their places.  There must be room in the journal."""
    for placed in run:
        admission = state.room.admit_moved(placed.address, placed.targets)
        arrival.enter_moved(state, placed.address, placed.copy, placed.targets, admission)
        state.steps.spend(MOVE_COST)
        if also_record is not None:
            also_record(placed.message, placed.copy)


def _keep(state: State, target: Address, message: Message, copy: Message) -> Targets | None:
    """A durable anycast queue with the target's name, beside the multicast queues that get the copy anyway."""
    queue = state.queues.get(target.name)
    if queue is None:
        queue = create_queue(state, target, target.name, RoutingType.ANYCAST)
        state.report("move.queue_created", address=target.name, queue=queue.name)
    if queue.address is target and keepers(([queue], []), copy, state.steps) is not None:
        return [queue], state.bindings.targets(target)[1]
    state.report("move.no_queue", address=target.name, message=message.id)
    return None


def create_queue(
    state: State, target: Address, name: str, routing_type: RoutingType, filter: Filter | None = None
) -> Queue:
    """Create a queue that keeps its messages even without consumers.  Raises InvalidName, AlreadyInUse."""
    attributes = replace(state.registry.attributes(target, name), purge_on_no_consumers=False)
    return state.registry.create_queue(
        target, name, routing_type, durable=True, filter=filter, auto_created=True, attributes=attributes
    )
