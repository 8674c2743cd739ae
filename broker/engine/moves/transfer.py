"""Operators' moves of a queue's messages: back to where they died (retry), elsewhere (move), or removed (discard).

Each message is moved like a dead letter: the copy, its routing and the removal (by name: moved) are in one journal
entry, and a message that cannot be moved stays as it is.  One of these words says why it stays:

    no-origin     retry: its annotations do not say where it came from
    no-queue      no queue would keep it: its own was deleted and may not be created again, or is not durable, or a
                  filter refuses it
    onto-itself   retry: it came from this very queue
    disk-full     the journal has no room
    address-full  their destination is full, and one of its queues cannot have messages on disk only
    denied        reply: its sender may not send there
    gone          it was named and is not on the queue (any more)
    delivering    it was named and a consumer holds it

Retry goes to the queue that the message came from, not to its address: other subscribers of a topic had their copy
already.  A deleted queue is created again if it was anycast, the settings allow it, and no other queues would share the
address's messages with it; a subscription is not, as no client would consume it.  Only a message that no queue had
accepted (`no-route`) goes to its address, as if it were sent again.  A moved message keeps its history, and its origin
is that of its last move: its queue and id before it.

A queue may be long, so one call is a step, with one journal entry: it looks at a limited number of messages, oldest
first, and returns how far it came.  The next step continues there, in another tick, so that other clients wait for one
step at most.  Messages that arrived after the first step are left alone, else those that die again would go round for
ever.  Messages that consumers hold are not looked at.

A step is to `choose` its messages, and then to `send` or `send_back` or `take_away` them.  The rules for dead letters
(`dead_letter_rules`) do the same with messages of their own choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from broker.engine.filter import Filter
from broker.engine.model import names
from broker.engine.model.access import Access
from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.errors import Denied, DiskFull, EngineError, NotFound, OntoItself
from broker.engine.model.message import (
    DL_FIRST_ADDRESS,
    DL_FIRST_QUEUE,
    DL_HOPS,
    DL_RETRIES,
    DL_RULE,
    ORIG_ADDRESS,
    ORIG_QUEUE,
    ORIG_ROUTING_TYPE,
    Annotations,
    Message,
    PropertyView,
    ReplyTo,
    RoutingType,
    size_of,
)
from broker.engine.model.permissions import Permission
from broker.engine.moves import move
from broker.engine.moves.dead_letter_groups import DeadLetterGroup
from broker.engine.moves.move import Destination, Placed
from broker.engine.queues import arrival, reading
from broker.engine.queues.address import Address
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import in_steps, removal_bytes, remove
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from broker.engine.routing import destinations
from store.record import RemovalReason

#: Bytes that one step moves beyond the first message.
MOVED_BYTES_MAX: Final = 1 << 20

NO_ORIGIN: Final = "no-origin"
NO_QUEUE: Final = "no-queue"
ONTO_ITSELF: Final = "onto-itself"
DISK_FULL: Final = "disk-full"
ADDRESS_FULL: Final = "address-full"
DENIED: Final = "denied"
GONE: Final = "gone"
HELD: Final = "delivering"


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Which messages of a queue a step moves: some `ids`, or those that match a filter and a group of dead letters.

    `after` and `below` are ids, both excluded: the previous step's `last` and `below`; 0 in the first step.
    A step looks at `move_step_max` messages, and moves at most `most` of those selected, 0: all.
    """

    filter: Filter | None = None
    after: int = 0
    below: int = 0
    group: DeadLetterGroup | None = None
    most: int = 0
    ids: tuple[int, ...] = ()


#: The annotations of a message that leaves a queue (by name) for a destination.
Annotate = Callable[[Message, str, Destination], Annotations]


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How messages are moved.

    `first_origin`: retry goes to the queue where they died first, instead of last.  `dry_run`: move nothing, but count
    what would be moved.  `annotate`: makes their annotations, None: those of an operator's move.
    """

    first_origin: bool = False
    edit: Edit = UNCHANGED
    dry_run: bool = False
    annotate: Annotate | None = None


AS_THEY_ARE: Final = MoveOptions()


#: Where a message came from: address, queue (empty: none took it), routing type.
_Origin = tuple[str, str, int | None]

#: A message, its destination or the reason why it stays, and the destination's name.
Wanted = tuple[Message, Destination | str, str]


@dataclass(slots=True)
class MoveResult:
    """The result of one step: how many were moved, and refused by reason, how far it looked, and whether that was all.

    `looked_at`: how many messages; `targets`: how many were moved to each queue or address.
    """

    below: int
    last: int
    complete: bool
    moved: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    looked_at: int = 0
    targets: dict[str, int] = field(default_factory=dict)


# -- which messages ----------------------------------------------------------------------------------------------------


def choose(state: State, queue: Queue, selection: MessageRange, extra: int = 0) -> tuple[MoveResult, list[Message]]:
    """A step, and the messages that it is to move; each may grow by `extra` bytes.  Raises NotReadable."""
    queue.check_public()
    if selection.ids:
        return _named(state, queue, selection.ids, extra)
    below = selection.below or state.journal.allocate_ids(1)  # larger than that of any message so far
    looked_at, complete = next_between(state, queue, selection.after, below, extra)
    filter, group = selection.filter, selection.group
    run = looked_at
    if group is not None:
        run = [message for message in run if group.has(queue, message)]
    if filter is not None:
        run = [message for message in run if filter.matches(PropertyView(message))]
    if 0 < selection.most < len(run):  # those behind the last one are left to the next step
        run, complete = run[: selection.most], False
        looked_at = [message for message in looked_at if message.id <= run[-1].id]
    last = max(below - 1, 0) if complete else looked_at[-1].id
    return MoveResult(below, last, complete, looked_at=len(looked_at)), run


def next_between(state: State, queue: Queue, after: int, below: int, extra: int = 0) -> tuple[list[Message], bool]:
    """The waiting messages between two ids, as many as one step may move, and whether these are all.

    Raises NotReadable.
    """
    most = state.limits.move_step_max
    run = upkeep.between(state, queue, after, below, most)
    complete = len(run) < most
    return run, not _shorten(run, extra) and complete


def _shorten(run: list[Message], extra: int) -> bool:
    """Shorten a run to what one step may move, if each grows by `extra` bytes; returns whether any were cut."""
    nbytes = 0
    for at, message in enumerate(run):
        nbytes += message.size + extra
        if at and nbytes > MOVED_BYTES_MAX:
            del run[at:]
            return True
    return False


def _named(state: State, queue: Queue, ids: tuple[int, ...], extra: int) -> tuple[MoveResult, list[Message]]:
    found = upkeep.chosen(state, queue, ids)
    run = list(found.values())
    complete = not _shorten(run, extra)
    if not complete:  # those named behind the last one are left to the next step
        ids = ids[: ids.index(next(islice(found, len(run), None)))]
    step = MoveResult(0, ids[-1], complete, looked_at=len(ids))
    for id in ids:
        if id not in found:
            held = any(id in deliveries for deliveries in reading.deliveries(queue))
            _count(step, HELD if held else GONE, "")
    return step, run


def _count(step: MoveResult, refused: str, target: str) -> None:
    if refused:
        step.refused[refused] = step.refused.get(refused, 0) + 1
    else:
        step.moved += 1
        step.targets[target] = step.targets.get(target, 0) + 1


# -- where they go -----------------------------------------------------------------------------------------------------


def _origin_of(message: Message, *, first: bool) -> _Origin | None:
    """Where a message came from last, or died first: address, queue and routing type; None: unknown."""
    notes = message.header.annotations or {}
    address, name, type = notes.get(ORIG_ADDRESS), notes.get(ORIG_QUEUE, ""), notes.get(ORIG_ROUTING_TYPE)
    if first and DL_FIRST_ADDRESS in notes:
        last = (address, name)
        address, name = notes[DL_FIRST_ADDRESS], notes.get(DL_FIRST_QUEUE, "")
        if (address, name) != last:  # the routing type is that of the last origin
            type = None
    if not isinstance(address, str) or not isinstance(name, str):
        return None
    return address, name, type if isinstance(type, int) else None


def home(
    state: State, queue: Queue | None, address: str, name: str, type: int | None, *, create: bool = True
) -> Destination | str:
    """The destination that a message (of `queue`) came from, or why it cannot go back there.

    Without a name no queue had accepted it, and it goes to its address as if it were sent again.
    Not `create`: creates nothing; empty: unknown until it is created.
    """
    refused = _why_not_home(state, queue, address, name, type)
    if refused:
        return refused
    routing_type = None if type is None else RoutingType(type)
    there, known = state.addresses.get(address), state.queues.get(name)
    if create and known is None:
        target = f"{address}{names.FQQN_SEPARATOR}{name}" if name else address
        try:
            there, known = destinations.destination(state, target, RoutingType.ANYCAST if name else routing_type)
        except EngineError as error:
            return DISK_FULL if isinstance(error, DiskFull) else NO_QUEUE
        if known is not None and not _reaches(state, address, known):
            return NO_QUEUE
    if create and name:
        there = state.registry.ensure_address(address)  # the queue may be on another one, with a wildcard
    if there is None or (name and known is None):
        return ""
    targets = state.bindings.candidates(there, known, None if name else routing_type)
    return Destination(there, targets, routing_type) if create or any(targets) else ""


def _why_not_home(state: State, queue: Queue | None, address: str, name: str, type: int | None) -> str:
    """Why a message (of `queue`) cannot go back to a queue; empty if it can, as far as is known beforehand."""
    if not name:
        return ONTO_ITSELF if queue is not None and state.bindings.reaches(address, queue) else ""
    known = state.queues.get(name)
    if known is None:
        if name == address:
            return "" if type in (None, RoutingType.ANYCAST) else NO_QUEUE
        # Else it was a subscription, or a divert, or would take messages away from the address's other queues.
        found = state.addresses.get(address)
        shares = found is not None and any(
            each.routing_type is RoutingType.ANYCAST for each in state.bindings.queues(found)
        )
        return NO_QUEUE if type != RoutingType.ANYCAST or shares or name in state.diverts.by_name else ""
    if known is queue:
        return ONTO_ITSELF
    return "" if _reaches(state, address, known) else NO_QUEUE  # another queue has the name now


def _reaches(state: State, address: str, queue: Queue) -> bool:
    """Whether messages of an address reach a queue, or may have reached it on their way to another broker."""
    return queue.name in state.registry.transmission or state.bindings.reaches(address, queue)


def destination(state: State, target: str, queue: Queue | None = None, *, create: bool = True) -> Destination | str:
    """Where an operator wants messages (of `queue`) to go: an address, or one queue by its name or FQQN.

    Not `create`: creates nothing; empty: unknown until it is created.
    Raises NotFound, InvalidName, RoutingTypeMismatch, OntoItself.
    """
    address_name, queue_name = _elsewhere(state, target, queue)
    address, named = state.addresses.get(address_name), state.queues.get(queue_name or "")
    waits = _transmission_queue(state, address_name) if queue_name is None else None
    if waits is not None and (create or address is not None):
        return _over_link(state, address_name, waits)
    if create or named is not None:  # for a queue that exists nothing is created
        known = address is not None if queue_name is None else named is not None
        target = address_name if queue_name is None else f"{address_name}{names.FQQN_SEPARATOR}{queue_name}"
        address, named = destinations.destination(state, target, None if known else RoutingType.ANYCAST)
    elif address is None or not address.sendable:
        names.check_sendable(address_name, state.syntax)
    if address is not None and (named is not None or queue_name is None):
        targets = state.bindings.candidates(address, named, None)
        if any(targets):
            return Destination(address, targets, None)
    if create:
        raise NotFound(f"address {address_name} has no queue that would keep the messages")
    return ""


def _elsewhere(state: State, target: str, queue: Queue | None) -> tuple[str, str | None]:
    """The address and perhaps the queue that a target names.  Raises InvalidName, OntoItself."""
    address_name, queue_name = names.split_fqqn(target)
    if queue_name is None and target not in state.addresses and target in state.queues:
        address_name, queue_name = state.queues[target].address.name, target
    if queue is not None and (
        state.bindings.reaches(address_name, queue) or _transmission_queue(state, address_name) is queue
        if queue_name is None
        else state.queues.get(queue_name) is queue
    ):
        raise OntoItself(f"moving messages of queue {queue.name} to {target} would move them onto itself")
    return address_name, queue_name


def _transmission_queue(state: State, address: str) -> Queue | None:
    """Where messages to an address wait for another broker; None: it does not stand for a remote queue."""
    if not state.registry.transmission:
        return None
    for divert in state.diverts.of(address):
        there = state.addresses.get(divert.forwarding[0])
        if divert.exclusive and divert.filter is None and there is not None:
            for queue in state.bindings.queues(there):
                if queue.name in state.registry.transmission:
                    return queue
    return None


def _over_link(state: State, address: str, waits: Queue) -> Destination:
    """A remote queue: its messages keep its address on the queue where they wait, which says where they go."""
    there = state.registry.ensure_address(address)
    return Destination(there, state.bindings.candidates(there, waits, None), None)


# -- the move ----------------------------------------------------------------------------------------------------------


def annotations_for(message: Message, queue: str, destination: Destination) -> Annotations:
    """The annotations of a message that an operator moves; `queue`: the name of the queue that it leaves."""
    annotations = moved_from(message, queue, destination)
    for name in (DL_HOPS, DL_RETRIES, DL_RULE):  # these counts start again
        annotations.pop(name, None)
    return annotations


def moved_from(message: Message, queue: str, destination: Destination) -> Annotations:
    """The annotations of a moved message: its origin, beside all that was noted before."""
    annotations = move.origin(message, queue)
    if destination.routing_type is not None:  # the message itself has it again
        annotations.pop(ORIG_ROUTING_TYPE, None)
    return annotations


def send_back(
    state: State, queue: Queue, run: list[Message], step: MoveResult, options: MoveOptions = AS_THEY_ARE
) -> list[Message]:
    """Move waiting messages back to where they came from, counting them in `step`; returns those that stay."""
    found: dict[_Origin, Destination | str] = {}
    wanted: list[Wanted] = []
    for message in run:
        origin = _origin_of(message, first=options.first_origin)
        if origin is None:
            wanted.append((message, NO_ORIGIN, ""))
            continue
        if origin not in found:
            found[origin] = home(state, queue, *origin, create=not options.dry_run)
        address, name, _ = origin
        wanted.append((message, found[origin], name or address))
    return send(state, queue, step, wanted, options)


def send_to_reply(
    state: State,
    queue: Queue,
    run: list[Message],
    step: MoveResult,
    options: MoveOptions,
    sender: Callable[[Message], Access],
) -> list[Message]:
    """Send waiting messages to the addresses that they name for answers; counts and returns as `send_back`.

    `sender`: the permissions of a message's sender, which count: whoever names an address must not reach more by that
    than by sending there.
    """
    found: dict[tuple[str, str, ReplyTo], Destination | str] = {}
    wanted: list[Wanted] = []
    for message in run:
        reply_to, access = message.reply_to, sender(message)
        key = (access.user, access.client_id, reply_to)
        if key not in found:
            found[key] = _answered(state, queue, *reply_to, access)
        wanted.append((message, found[key], reply_to[0]))
    return send(state, queue, step, wanted, options)


def _answered(state: State, queue: Queue, name: str, type: RoutingType | None, access: Access) -> Destination | str:
    """The queues that would get an answer sent with these permissions, or why a message of `queue` cannot go there."""
    try:
        address_name, queue_name = _elsewhere(state, name, queue)
        if not access.might(Permission.SEND, address_name, queue_name or ""):  # its denial would be reported again
            return DENIED
        waits = _transmission_queue(state, address_name) if queue_name is None else None
        if waits is not None:
            return _over_link(state, address_name, waits)
        if type is None and address_name not in state.addresses:
            type = RoutingType.ANYCAST
        there, named = destinations.destination(state, name, type, access=access)
    except OntoItself:
        return ONTO_ITSELF
    except EngineError as error:
        return DENIED if isinstance(error, Denied) else DISK_FULL if isinstance(error, DiskFull) else NO_QUEUE
    return Destination(there, state.bindings.candidates(there, named, type), type)


def take_away(state: State, queue: Queue, run: list[Message], step: MoveResult, reason: RemovalReason) -> list[Message]:
    """Remove waiting messages by name, counting them in `step`; returns those for which the journal has no room."""
    for some in in_steps(state, queue, run, removal_bytes):
        for message in some:
            _take_out(state, queue, message)
        remove(state, queue, list(some), reason)
        step.moved += len(some)
    staying = run[step.moved :]
    if staying:
        step.refused[DISK_FULL] = len(staying)
    return staying


def send(state: State, queue: Queue, step: MoveResult, wanted: list[Wanted], options: MoveOptions) -> list[Message]:
    """Move messages to their destinations, within one journal entry if there is room; count why others stay."""
    if options.dry_run:
        for message, where, target in wanted:
            refused = where if isinstance(where, str) else ""
            if isinstance(where, Destination) and _placed(state, queue, message, where, options) is None:
                refused = NO_QUEUE
            _count(step, refused, target)
        return []
    if not _has_room(state, [message for message, _, _ in wanted if message.header.durable], options.edit):
        if len(wanted) > 1:
            half = len(wanted) // 2
            staying = send(state, queue, step, wanted[:half], options)
            return staying + send(state, queue, step, wanted[half:], options)
        wanted = [(message, DISK_FULL, target) for message, _, target in wanted]
    moving: list[Placed] = []
    staying = []
    coming: dict[Address, tuple[int, int]] = {}  # messages and bytes of `moving`
    for message, where, target in wanted:
        refused = where if isinstance(where, str) else ""
        if isinstance(where, Destination):
            placed = _placed(state, queue, message, where, options)
            count, nbytes = coming.get(where.address, (0, 0))
            if placed is None:
                refused = NO_QUEUE
            elif state.room.admit_moved(where.address, placed.targets, count, nbytes) is Admission.BLOCK:
                refused = ADDRESS_FULL
            else:
                coming[where.address] = count + 1, nbytes + placed.copy.size
                _take_out(state, queue, message)
                moving.append(placed)
        if refused:
            staying.append(message)
        _count(step, refused, target)
    if moving:
        move.move(state, queue, moving, RemovalReason.MOVED)
    return staying


def _placed(state: State, queue: Queue, message: Message, where: Destination, options: MoveOptions) -> Placed | None:
    annotations = (options.annotate or annotations_for)(message, queue.name, where)
    return move.place(state, where, message, annotations, scheduled=message.header.scheduled, edit=options.edit)


def _has_room(state: State, durable: list[Message], edit: Edit) -> bool:
    """Whether copies of these messages fit into one journal entry, and the journal has room for them."""
    need = size_of(durable) + move.COPY_OVERHEAD_BYTES * (len(durable) - 1)
    need += edit.extra_bytes * len(durable) + move.bytes_noted(durable)
    if len(durable) > 1 and need > state.journal.reserved_bytes:
        return False
    try:
        if durable:
            arrival.reserve_bytes(state, need, essential=True)
    except DiskFull:
        return False
    return True


def _take_out(state: State, queue: Queue, message: Message) -> None:
    if not upkeep.take(state, queue, message):
        arrival.take_out(state, queue, message)
