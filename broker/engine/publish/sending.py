"""Publishes a run of messages to an address that does more than route, or refuses duplicates.

These are the steps, in this order:

    refused       duplicates, which were accepted before
    noted         the time of arrival (`enable-ingress-timestamp`)
    diverted      by an exclusive divert: the message does not reach the address's queues
    routed        to the queues
    diverted      copies, by the other diverts
    dead          messages that no queue accepted (`send-to-dla-on-no-route`)

All of this is one journal entry: room for everything that may come of the run is reserved before anything is done, so
that a crash leaves the message with all of its copies, or nothing (promise P2).
"""

from __future__ import annotations

from itertools import groupby

from broker.engine.model.errors import DuplicateMessage, EngineError
from broker.engine.model.message import (
    INGRESS_TIMESTAMP,
    ORIG_ROUTING_TYPE,
    Message,
    RoutingType,
    recharge_headers,
    size_of,
)
from broker.engine.moves import dead_letter, move
from broker.engine.publish.send import Send
from broker.engine.queues import arrival, duplicates
from broker.engine.queues.address import Address
from broker.engine.queues.diverts import AddressExtras, Divert
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from broker.engine.routing import destinations

#: A divert's copy of a message: the divert, the forwarding address, the routing type there, the copy.
Forward = tuple[Divert, Address, RoutingType | None, Message]


def publish(state: State, send: Send, messages: list[Message], admission: Admission) -> int:
    """Accept messages of a send, all or none; returns how many reached a queue, directly or by a divert.

    The `admission` is what `Room` says of them.  A duplicate counts as if it had.

    Raises AddressFull, DiskFull, NoQueue.
    """
    address = send.address
    ids: list[tuple[Message, bytes]] = []
    fresh = messages
    if send.link_ids is not None or address.settings.id_cache_size > 0:
        fresh, ids, _ = state.duplicates.split(address, messages, send.link_ids)
    routed = _publish_fresh(state, send, fresh, ids, admission) if fresh else 0
    known = len(messages) - len(fresh)
    if known:
        if state.pending.held is not None:
            state.pending.held.depend()
        state.duplicates.refused += known
        state.report("message.duplicate", address=address.name, messages=known)
    return routed + known


def _publish_fresh(
    state: State, send: Send, messages: list[Message], ids: list[tuple[Message, bytes]], admission: Admission
) -> int:
    """Publish messages that are not duplicates, and store their duplicate ids, in one entry."""
    if state.atomic:
        return _perform(state, send, messages, ids, admission)
    if admission is Admission.FAIL:
        raise state.room.refusal(send.address)
    _check_forwards(state, send.address)
    check_routed(state, send, messages)
    if messages[0].header.durable:
        arrival.reserve_bytes(state, needed(state, send.address, messages), essential=False)
    state.atomic = True
    try:
        return _perform(state, send, messages, ids, admission)
    finally:
        state.atomic = False


def check(state: State, address: Address) -> None:
    """Raises AddressFull if the address, or one that its diverts lead to, is full and refuses messages."""
    state.room.check(address)
    _check_forwards(state, address)


def _check_forwards(state: State, address: Address) -> None:
    extras = state.diverts.extras(address)
    if extras is not None:
        for name in extras.reach:
            forward = state.addresses.get(name)
            if forward is not None:
                state.room.check(forward, sent_to=address)


def check_routed(state: State, send: Send, messages: list[Message]) -> None:
    """Raises NoQueue for messages of a send meant for a queue if none accepts them, here or by an exclusive divert.

    Those that the address would dead-letter (`send-to-dla-on-no-route`) are not refused.
    """
    if not send.needs_queue:
        return
    address = send.address
    targets = state.candidates(address, send.queue, send.routing_type)
    queues = targets[0] + targets[1]
    if any([each.accepts_all for each in queues]):
        return
    extras = state.diverts.extras(address)
    left = [message for message in messages if not any([each.accepts(message) for each in queues])]
    if extras is not None and extras.exclusive and send.queue is None:
        left = [message for message in left if not _diverted(state, message, extras)]
    if extras is not None and extras.no_route:
        left = [message for message in left if not dead_letter.keeps(state, address.settings, address.name, message)]
    if left and not arrival.may_lose(address, targets):
        raise arrival.no_queue(address, targets, left)


def _diverted(state: State, message: Message, extras: AddressExtras) -> bool:
    """Whether an exclusive divert leads a message to a queue."""
    for divert in extras.exclusive:
        if divert.takes(message):
            copies = _copies(state, divert, message)
            if _leads(state, copies, {divert.name}):
                return True
    return False


def needed(state: State, address: Address, messages: list[Message]) -> int:
    """The most bytes of journal that these messages and their copies may need."""
    size = size_of(messages)
    extras = state.diverts.extras(address)
    if extras is None:
        return size
    return size + extras.copies * (size + move.COPY_OVERHEAD_BYTES * len(messages))


def check_new(state: State, send: Send, seen: set[tuple[int, bytes]]) -> None:
    """For a commit: raises DuplicateMessage if a message was accepted before, or is in it twice (`seen`)."""
    address = send.address
    if address.settings.id_cache_size <= 0 or not duplicates.may_have_ids(send.messages):
        return
    linked = send.link_ids or {}
    for message in send.messages:
        id = duplicates.id_of(message)
        if id is None or message in linked:
            continue
        if state.duplicates.known(address, id) or (address.id, id) in seen:
            state.duplicates.refused += 1
            raise DuplicateMessage(f"a message with this duplicate id was accepted on address {address.name} before")
        seen.add((address.id, id))


def _perform(
    state: State, send: Send, messages: list[Message], ids: list[tuple[Message, bytes]], admission: Admission
) -> int:
    """Do everything that the address does with messages, within one entry; returns how many reached a queue."""
    address, extras = send.address, state.diverts.extras(send.address)
    if extras is None or send.queue is not None:
        targets = state.candidates(address, send.queue, send.routing_type)
        unrouted: list[Message] | None = [] if extras is not None and extras.no_route else None
        needed = unrouted is None and send.needs_queue
        routed = arrival.publish(state, address, messages, targets, admission, needs_queue=needed, unrouted=unrouted)
        _send_to_dla(state, address, send.queue, unrouted or [])
    else:
        routed = 0
        for alike in [[message] for message in messages] if extras.circle else [messages]:
            passed = set[str]() if extras.circle else None
            routed += _handle(state, address, send.routing_type, alike, extras, passed, admission)
    accepted = [(message, id) for message, id in ids if message.id]  # not those that a full address dropped
    if accepted and not address.passing:
        state.duplicates.remember(address, accepted)
    return routed


def _handle(
    state: State,
    address: Address,
    routing_type: RoutingType | None,
    messages: list[Message],
    extras: AddressExtras,
    passed: set[str] | None,
    admission: Admission,
) -> int:
    """Route messages sent to an address; returns how many reached a queue.

    `passed`: the diverts that have taken the message that was sent, or a copy of it; None: they form no circle.
    """
    if extras.ingress:
        for header in {id(message.header): message.header for message in messages}.values():  # one for each group
            header.annotations = (header.annotations or {}) | {INGRESS_TIMESTAMP: state.now}
        recharge_headers(messages)
    forwards: list[Forward] = []
    for divert in extras.exclusive:
        if messages and (passed is None or divert.name not in passed):
            messages = _take(state, divert, messages, forwards, passed)
    routed = len(forwards)
    unrouted: list[Message] | None = [] if extras.no_route else None
    if messages:
        targets = state.candidates(address, None, routing_type)
        routed += arrival.publish(state, address, messages, targets, admission, unrouted=unrouted)
        if not messages[0].id:
            messages = []  # dropped: the address is full
    for divert in extras.others:
        if passed is None or divert.name not in passed:
            for message in messages:
                if divert.takes(message):
                    divert.taken += 1
                    forwards += _copies(state, divert, message)
                    if passed is not None:
                        passed.add(divert.name)
    _send_to_dla(state, address, None, unrouted or [])
    for _, run in groupby(forwards, _together):
        alike = list(run)
        divert, forward, wanted, _ = alike[0]
        _forward(state, forward, wanted, [copy for _, _, _, copy in alike], passed)
    return routed


def _together(forward: Forward) -> tuple[str, str, RoutingType | None, int]:
    """The key by which copies are grouped into runs."""
    divert, address, wanted, copy = forward
    return divert.name, address.name, wanted, id(copy.header)


def _take(
    state: State,
    divert: Divert,
    messages: list[Message],
    forwards: list[Forward],
    passed: set[str] | None,
) -> list[Message]:
    """Apply an exclusive divert; returns the messages that it leaves to others."""
    left: list[Message] = []
    for message in messages:
        if divert.takes(message):
            message.id = state.journal.allocate_ids(1)  # its copies refer to it
            copies = _copies(state, divert, message)
            if _leads(state, copies, {*(passed or ()), divert.name}):
                divert.taken += 1
                if passed is not None:
                    passed.add(divert.name)
                forwards += copies
                continue
            message.id = 0
        left.append(message)
    return left


def _copies(state: State, divert: Divert, message: Message) -> list[Forward]:
    """A copy of a message, which has its id, for each forwarding address."""
    wanted = divert.routing_type(message)
    copies = []
    for name in divert.forwarding:
        try:
            forward = state.addresses[name] if divert.internal else destinations.destination(state, name, wanted)[0]
        except EngineError as refusal:
            state.report("divert.no_address", divert=divert.name, address=name, error=str(refusal))
            continue
        copies.append((divert, forward, wanted, _copy(state, divert, forward, wanted, message)))
    return copies


def _copy(state: State, divert: Divert, forward: Address, wanted: RoutingType | None, message: Message) -> Message:
    original = message.header
    head = message.head
    if divert.add or divert.remove:
        head = original.format.edited(head, divert.remove, divert.add)
    transmits = bool(state.transmission) and any(
        [queue.name in state.transmission for queue in state.bindings.queues(forward)]
    )
    if transmits and original.address in state.addresses:
        return Message.of(original, head, message.body)  # it waits there for another broker, unchanged
    annotations = move.origin(message, divert.name)
    annotations.pop(ORIG_ROUTING_TYPE, None)  # that of a queue, which a retry would make again: this is a divert's name
    header = original.copy(forward.name, annotations)
    forward.receive(header, original.expiration, state.now)
    header.scheduled = original.scheduled
    header.routing_type = wanted
    header.attempts = original.attempts
    return Message.of(header, head, message.body)


def _leads(state: State, copies: list[Forward], passed: set[str]) -> bool:
    """Whether one of these copies reaches a queue, perhaps by diverts that are not `passed` yet; each is tried once."""
    for _, forward, wanted, copy in copies:
        anycast, multicast = arrival.takers(copy.header, state.candidates(forward, None, wanted))
        if any(queue.accepts(copy) for queue in anycast + multicast):
            return True
        extras = state.diverts.extras(forward)
        if extras is None:
            continue
        for divert in extras.exclusive + extras.others:
            if divert.name not in passed and divert.takes(copy):
                passed.add(divert.name)
                if _leads(state, _copies(state, divert, copy), passed):
                    return True
    return False


def _forward(
    state: State, forward: Address, wanted: RoutingType | None, copies: list[Message], passed: set[str] | None
) -> None:
    extras = state.diverts.extras(forward)
    name = copies[0].header.address
    address = forward if name == forward.name else state.addresses[name]
    admission = state.room.admit_whole(address, copies)  # in the entry of what they are copied from
    if extras is None or address is not forward:
        arrival.publish(state, address, copies, state.candidates(forward, None, wanted), admission)
    else:
        _handle(state, forward, wanted, copies, extras, passed, admission)


def _send_to_dla(state: State, address: Address, queue: Queue | None, messages: list[Message]) -> None:
    """Dead-letter messages that no queue accepted; without a dead-letter address they are unroutable."""
    for message in messages:
        if not dead_letter.send_unrouted_to_dla(state, address, queue, message):
            arrival.unroutable(state, address, [message])
