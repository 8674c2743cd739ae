"""What becomes of a run of messages that is sent to an address: `plan` asks everything, once; `commit` does it.

Most addresses only route.  A run to such a one goes straight to the queues that its plan names, if none of its messages
has a duplicate id (`duplicates`).  What else an address may do with messages is planned in this order:

    refused       duplicates, which were accepted before
    noted         the time of arrival (`enable-ingress-timestamp`)
    diverted      by an exclusive divert: the message does not reach the address's queues
    routed        to the queues
    diverted      copies, by the other diverts
    dead          messages that no queue accepts (`send-to-dla-on-no-route`)

What becomes of a divert's copy at its address is a plan within the plan.  Nothing of a plan is done, and no message has
an id, before it is committed; only the addresses that diverts lead to are created if they are missing.  All of it is
one journal entry: room for everything that may come of the run is reserved first, so that a crash leaves the message
with all of its copies, or nothing (promise P2).

A straight plan changes no binding and remembers no id.  So several of them can be made before the first is committed;
any other plan holds only until the next commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from broker.engine.model.errors import DuplicateMessage, EngineError, NoQueue
from broker.engine.model.message import (
    INGRESS_TIMESTAMP,
    NEW,
    ORIG_MESSAGE_ID,
    ORIG_ROUTING_TYPE,
    Message,
    RoutingType,
    recharge_headers,
    size_of,
)
from broker.engine.moves import dead_letter, move
from broker.engine.publish.send import Send
from broker.engine.queues import arrival, duplicates
from broker.engine.queues.address import Address, Producer
from broker.engine.queues.arrival import Group
from broker.engine.queues.bindings import Targets
from broker.engine.queues.diverts import AddressExtras, Divert
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Admission
from broker.engine.queues.rules.queue_rules import NO_RULES
from broker.engine.queues.state import State
from broker.engine.routing import destinations

_NONE: Final[list[Message]] = []


class Plan:
    """What becomes of messages at an address: those of a send, or a divert's copy.

    `messages` enter the queues of `groups`, except those `left` over, which no queue accepts: they are unroutable, or
    dead with `no_route`.  The others of the send are `diverted` exclusively; are `duplicates`; or are `lost`: meant for
    a queue, and none accepts them.  `copied` are the diverts that only copy.  `ids` are to be remembered.  `straight`:
    there is nothing but messages, groups, and what is left or lost.  `turn`: whose it was of the address's anycast
    queues before.
    """

    __slots__ = (
        "address",
        "copied",
        "diverted",
        "duplicates",
        "extras",
        "groups",
        "ids",
        "left",
        "lost",
        "messages",
        "nbytes",
        "queue",
        "straight",
        "targets",
        "turn",
    )

    def __init__(
        self,
        address: Address,
        queue: Queue | None,
        messages: list[Message],
        targets: Targets,
        groups: list[Group],
        turn: int,
    ) -> None:
        self.address = address
        self.queue = queue
        self.messages = messages
        self.nbytes = -1
        self.targets = targets
        self.groups = groups
        self.turn = turn
        self.left = _NONE
        self.lost = _NONE
        self.straight = True
        self.extras: AddressExtras | None = None
        self.diverted: list[Diverted] = []
        self.copied: list[Diverted] = []
        self.duplicates = 0
        self.ids: list[tuple[Message, bytes]] = []

    @property
    def reaches_queue(self) -> bool:
        """Whether any message, or a copy, enters a queue."""
        return bool(self.groups) or any([copy.reaches_queue for copy in self.copies()])

    @property
    def no_queue(self) -> NoQueue:
        """The error for the lost messages."""
        return arrival.no_queue(self.address, self.targets, self.lost)

    def copies(self) -> Iterator[Plan]:
        """The plans of all copies of its messages, but not those of copies of these."""
        return chain.from_iterable([each.copies for each in chain(self.diverted, self.copied)])

    def discard(self) -> None:
        """Note that it will not be committed, nor anything that was planned after it."""
        self.address.turn = self.turn
        for copy in reversed(list(self.copies())):
            copy.discard()

    def bytes_needed(self) -> int:
        """The most bytes of journal that its messages and their copies may need."""
        messages = [*self.messages, *[each.message for each in self.diverted]]
        if not (messages and messages[0].header.durable):
            return 0
        size, extras = self.nbytes if self.nbytes >= 0 and not self.diverted else size_of(messages), self.extras
        if extras is None:
            return size
        return size + extras.copies * (size + move.COPY_OVERHEAD_BYTES * len(messages))


class Diverted:
    """A message that a divert takes, and the plans of its copies, one for each forwarding address that there is."""

    __slots__ = ("copies", "divert", "message")

    def __init__(self, divert: Divert, message: Message, copies: list[Plan]) -> None:
        self.divert = divert
        self.message = message
        self.copies = copies


# -- planning ----------------------------------------------------------------------------------------------------------


def plan(state: State, send: Send, messages: list[Message], nbytes: int = -1, *, checks: bool = False) -> Plan:
    """The plan for messages of a send, of `nbytes` if that is known.

    `checks`: it is not to be committed, but shows what would be refused; it neither notes the time of arrival, which
    changes sizes, nor has the copies of diverts that only copy.

    Raises AddressFull if an address that diverts lead to refuses messages.
    """
    if is_straight(state, send, messages):
        return plan_straight(state, send, messages, nbytes)
    return _plan_all(state, send, messages, checks=checks)


def is_straight(state: State, send: Send, messages: Sequence[Message]) -> bool:
    """Whether the address only routes these messages."""
    if send.link_ids is not None or state.diverts.extras(send.address) is not None:
        return False
    return not duplicates.may_have_ids(messages)


def plan_straight(state: State, send: Send, messages: list[Message], nbytes: int) -> Plan:
    """The plan for messages of a send that the address only routes."""
    address = send.address
    targets = state.bindings.candidates(address, send.queue, send.routing_type)
    turn = address.turn
    groups = arrival.route(state.steps, messages, *arrival.takers(messages[0].header, targets), address)
    made = Plan(address, send.queue, messages, targets, groups, turn)
    made.nbytes = nbytes
    if _count(groups) < len(messages):
        _leave(state, made, send)
    return made


def plan_drop(send: Send, messages: list[Message]) -> Plan:
    """The plan for messages of a send that the address only routes, and now drops."""
    return Plan(send.address, send.queue, messages, ([], []), [], send.address.turn)


def _count(groups: list[Group]) -> int:
    count = 0
    for _, run in groups:
        count += len(run)
    return count


def _leave(state: State, made: Plan, send: Send | None) -> None:
    """Find the messages that no queue accepts; of a send that needs a queue they are lost.

    Those that the address would dead-letter (`send-to-dla-on-no-route`) are not.
    """
    left = made.left = arrival.left(made.messages, made.groups)
    address = made.address
    if send is None or not send.needs_queue or arrival.may_lose(address, made.targets):
        return
    lost = set(left)
    if made.extras is not None and made.extras.no_route:
        settings, name = address.settings, address.name
        lost = {message for message in left if not dead_letter.keeps(state, settings, name, message)}
    if lost:
        made.lost = [message for message in left if message in lost]
        made.left = [message for message in left if message not in lost]
        made.messages = [message for message in made.messages if message not in lost]
        made.nbytes = -1


def _plan_all(state: State, send: Send, messages: list[Message], *, checks: bool) -> Plan:
    """The plan for messages of a send to an address that does more than route, or refuses duplicates."""
    address, fresh = send.address, messages
    ids: list[tuple[Message, bytes]] = []
    if send.link_ids is not None or address.settings.id_cache_size > 0:
        fresh, ids, _ = state.duplicates.split(address, messages, send.link_ids)
    extras = state.diverts.extras(address)
    if fresh and not state.atomic:
        _check_forwards(state, address)
    targets = state.bindings.candidates(address, send.queue, send.routing_type)
    made = Plan(address, send.queue, fresh, targets, [], address.turn)
    if extras is not None:
        made.extras = extras
        if extras.ingress and not checks and send.queue is None:
            _note_arrival(state, fresh)
    _fill(state, made, send, None, copies=not checks)
    made.straight = False
    made.ids = ids
    made.duplicates = len(messages) - len(fresh)
    return made


def _check_forwards(state: State, address: Address) -> None:
    extras = state.diverts.extras(address)
    if extras is not None:
        for name in extras.reach:
            forward = state.addresses.get(name)
            if forward is not None:
                state.room.check(forward, sent_to=address)


def _fill(state: State, made: Plan, send: Send | None, passed: set[str] | None, *, copies: bool = True) -> None:
    """Plan what becomes of messages at an address, those of a `send` or a copy; diverts take none that names a queue.

    `passed`: the diverts that have taken the message that was sent, or a copy of it, if they may form a circle.
    """
    address, extras = made.address, made.extras
    met: dict[Message, set[str] | None] = {}
    if extras is not None and made.queue is None:
        for message in made.messages:
            met[message] = set[str]() if extras.circle and send is not None else passed
        for message in made.messages if extras.exclusive else ():
            taken = _divert_exclusively(state, message, extras, met[message])
            if taken is not None:
                made.diverted.append(taken)
                del met[message]
        if made.diverted:
            made.messages = list(met)
    messages = made.messages
    if messages:
        made.groups = arrival.route(state.steps, messages, *arrival.takers(messages[0].header, made.targets), address)
        if _count(made.groups) < len(messages):
            _leave(state, made, send)
    if extras is not None and extras.others and copies:
        for message in made.messages if met else ():
            made.copied += _copy_by_others(state, message, extras, met[message])


def _note_arrival(state: State, messages: list[Message]) -> None:
    """Annotate messages with the time of their arrival."""
    for header in {id(message.header): message.header for message in messages}.values():  # one for each group
        header.annotations = (header.annotations or {}) | {INGRESS_TIMESTAMP: state.now}
    recharge_headers(messages)


def _divert_exclusively(
    state: State, message: Message, extras: AddressExtras, passed: set[str] | None
) -> Diverted | None:
    """Let the first exclusive divert that leads it to a queue take a message; None: there is none."""
    for divert in extras.exclusive:
        if (passed is not None and divert.name in passed) or not divert.takes(message):
            continue
        if passed is not None:
            passed.add(divert.name)  # also if it leads nowhere: nor does it later, when more are passed
        taken = Diverted(divert, message, _plan_copies(state, divert, message, passed))
        if any([copy.reaches_queue for copy in taken.copies]):
            return taken
        for copy in reversed(taken.copies):
            copy.discard()
    return None


def _copy_by_others(state: State, message: Message, extras: AddressExtras, passed: set[str] | None) -> list[Diverted]:
    """What the diverts that only copy make of a message: first each takes it, then their copies may be diverted."""
    taking = [
        divert for divert in extras.others if (passed is None or divert.name not in passed) and divert.takes(message)
    ]
    if passed is not None:
        passed.update([divert.name for divert in taking])
    return [Diverted(divert, message, _plan_copies(state, divert, message, passed)) for divert in taking]


def _plan_copies(state: State, divert: Divert, message: Message, passed: set[str] | None) -> list[Plan]:
    """A plan for the copy of a message for each forwarding address of a divert."""
    wanted = divert.routing_type(message)
    plans = []
    for name in divert.forwarding:
        try:
            forward = state.addresses[name] if divert.internal else destinations.destination(state, name, wanted)[0]
        except EngineError as refusal:
            state.report("divert.no_address", divert=divert.name, address=name, error=str(refusal))
            continue
        copy = _copy(state, divert, forward, wanted, message)
        targets = state.bindings.candidates(forward, None, wanted)
        if copy.header.address != forward.name:  # it waits there for another broker
            home, extras = state.addresses[copy.header.address], None
        else:
            home, extras = forward, state.diverts.extras(forward)
        made = Plan(home, None, [copy], targets, [], home.turn)
        if extras is not None:
            made.extras = extras
            if extras.ingress:
                _note_arrival(state, made.messages)
        _fill(state, made, None, passed)
        plans.append(made)
    return plans


def _copy(state: State, divert: Divert, forward: Address, wanted: RoutingType | None, message: Message) -> Message:
    original = message.header
    head = message.head
    if divert.add or divert.remove:
        head = original.format.edited(head, divert.remove, divert.add)
    transmits = bool(state.registry.transmission) and any(
        [queue.name in state.registry.transmission for queue in state.bindings.queues(forward)]
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


# -- committing --------------------------------------------------------------------------------------------------------


def commit(state: State, send: Send, made: Plan, admission: Admission, producer: Producer | None = None) -> int:
    """Do what is planned for messages of a send, all or nothing; the lost ones are not accepted.

    The `admission` is what `Room` says of the messages.  Returns how many reached a queue, directly or by a divert; a
    duplicate counts as if it had.  Raises DiskFull, before anything changed.
    """
    if made.lost:
        recharge_headers(made.messages)  # of which a lost one may have counted what they share
    if not made.straight:
        return _commit_all(state, made, admission)
    messages = made.messages
    if not messages:
        return 0
    if messages[0].header.durable and not state.atomic and admission is not Admission.DROP:
        if made.nbytes < 0:
            made.nbytes = size_of(messages)
        arrival.reserve_bytes(state, made.nbytes, essential=False)
    if state.pending.held is not None and not state.atomic and _may_overtake(state, send, made.targets, producer):
        with state.pending.overtake():
            return _enter(state, made, admission)
    return _enter(state, made, admission)


def _may_overtake(state: State, send: Send, targets: Targets, producer: Producer | None) -> bool:
    """Whether messages of a send may be recorded before the held entry (`held_entry`)."""
    held, header = state.pending.held, send.messages[0].header
    if held is None or producer is None or not header.durable or header.attempts != NEW or send.is_joined:
        return False
    if not held.sends_may_overtake(state.journal, producer.transport):
        return False
    return all([queue.rules is NO_RULES and held.is_older(queue) for queue in chain(*targets)])


def _commit_all(state: State, made: Plan, admission: Admission) -> int:
    routed = 0
    if made.messages or made.diverted:
        if state.atomic:
            routed = _perform(state, made, admission)
        else:
            arrival.reserve_bytes(state, made.bytes_needed(), essential=False)
            state.atomic = True
            try:
                routed = _perform(state, made, admission)
            finally:
                state.atomic = False
    if made.duplicates:
        if state.pending.held is not None:
            state.pending.held.depend()
        state.duplicates.refused += made.duplicates
        state.report("message.duplicate", address=made.address.name, messages=made.duplicates)
    return routed + made.duplicates


def _perform(state: State, made: Plan, admission: Admission) -> int:
    """Do everything that is planned for messages of a send, within one entry; returns how many reached a queue."""
    routed = _perform_at(state, made, admission)
    accepted = [(message, id) for message, id in made.ids if message.id]  # not those that a full address dropped
    if accepted and not made.address.passing:
        state.duplicates.remember(made.address, accepted)
    return routed


def _perform_at(state: State, made: Plan, admission: Admission | None) -> int:
    """The same at one address, and at those that its diverts lead to; None: of a copy, which enters whole."""
    routed = 0
    for each in made.diverted:
        arrival.assign_ids(state, [each.message])
        _divert(each)
        routed += len(each.copies)
    if made.messages:
        routed += _enter(state, made, admission or state.room.admit_whole(made.address, made.messages))
    copied = made.copied if made.messages and made.messages[0].id else []  # none if a full address dropped them
    for each in copied:
        _divert(each)
    for each in chain(made.diverted, copied):
        for copy in each.copies:
            _perform_at(state, copy, None)
    return routed


def _divert(each: Diverted) -> None:
    """Count what a divert takes; its copies refer to the message, which has an id now."""
    each.divert.taken += 1
    message = each.message
    for copy in each.copies:
        for copied in chain(copy.messages, [further.message for further in copy.diverted]):
            if copied.header is not message.header:
                annotations = copied.header.annotations
                assert annotations is not None, "they say where it comes from"
                annotations[ORIG_MESSAGE_ID] = message.id
                recharge_headers([copied])


def _enter(state: State, made: Plan, admission: Admission) -> int:
    """Let the planned messages enter their queues, as the address admits them; returns how many do."""
    address, messages, left = made.address, made.messages, made.left
    if admission is Admission.DROP:
        arrival.drop(state, address, messages)
        return 0
    page = state.room.goes_to_disk(address, admission)
    routed = arrival.enter(state, address, messages, made.groups, nbytes=made.nbytes, page=page)
    if left:
        if made.extras is not None and made.extras.no_route:
            _send_to_dla(state, address, made.queue, left)
        else:
            arrival.unroutable(state, address, left)
    return routed


def _send_to_dla(state: State, address: Address, queue: Queue | None, messages: list[Message]) -> None:
    """Dead-letter messages that no queue accepted; without a dead-letter address they are unroutable."""
    for message in messages:
        if not dead_letter.send_unrouted_to_dla(state, address, queue, message):
            arrival.unroutable(state, address, [message])
