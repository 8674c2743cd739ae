"""Publishing: the only way in for messages from clients, wills, operators and the broker itself.

The messages of one read are grouped into sends, one for each destination, which is found first.  Each queue gets its
messages in order of arrival, whatever their destinations.  There are three ways to ensure that, the cheapest first:

    a send at a time     no queue gets messages of two sends that overlap (with `stop`: and none may be refused)
    together             otherwise, if all can be routed at once (`publish_multi`)
    in turn              else: a send is split where a message of another one comes between

The result lists the refused messages; the others are accepted.  With `stop`, for a protocol whose client counts up to
the first refusal, nothing that arrived after that one is accepted.

A run to an address that only routes takes a short path if no message has a duplicate id (`duplicates`): it goes to the
queues at once.  What else an address may do with messages is in `sending`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from typing import Final

from broker.engine.model.access import Access
from broker.engine.model.attributes import NO_ATTRIBUTES, RequestedAttributes
from broker.engine.model.errors import AddressFull, DiskFull, EngineError, NoQueue
from broker.engine.model.message import NEW, Message, RoutingType, recharge_headers, size_of
from broker.engine.model.permissions import Permission
from broker.engine.publish import publish_multi, sending
from broker.engine.publish.send import PublishResult, Refusal, Send
from broker.engine.queues import arrival, duplicates
from broker.engine.queues.address import Address, AttachedSender, Producer
from broker.engine.queues.bindings import Targets
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from broker.engine.queues.tracer import Tracer
from broker.engine.queues.uncommitted import Uncommitted
from broker.engine.routing import destinations

#: By these a full address accepts no more messages.
_NO_MORE: Final = frozenset((Admission.FAIL, Admission.DROP))
_OK: Final = Admission.OK

#: Some messages of a send, to be published in their turn.
Part = tuple[Send, list[Message]]


class Producers:
    """The verbs of clients that send."""

    def __init__(self, state: State) -> None:
        self._state = state

    def publish(
        self,
        sends: Sequence[Send],
        arrived: Sequence[Message] | None = None,
        *,
        producer: Producer | None = None,
        stop: bool = False,
    ) -> PublishResult:
        """Accept the messages of these sends; `arrived` are all of them in order of arrival, None for a single send.

        Refused messages do not hold up the rest, except with `stop`.
        """
        state = self._state
        refused = [send for send in sends if not _find(state, send)]
        state.begin()
        messages = sends[0].messages if arrived is None else arrived
        result = publish(state, sends, messages, producer=producer, stop=stop, refused=refused)
        if result.refusals:
            undo(state, sends)
        return result

    def find(self, send: Send) -> None:
        """Find the destination of a send before it is published.  Raises the errors of `destination`."""
        if not _find(self._state, send):
            assert send.refusal is not None, "why there is none"
            raise send.refusal

    def give_up(self, sends: Iterable[Send]) -> None:
        """Note that sends, which were found, will not be published: what was created for them is deleted."""
        undo(self._state, sends)

    def may_refuse(self, sends: Sequence[Send]) -> bool:
        """Whether any message of these sends could be refused if they were published now; looks at no message."""
        return not self._state.journal.has_spare or any([_may_refuse(self._state, send) for send in sends])

    @contextmanager
    def together(self, send: Send, more: int, *, essential: bool) -> Iterator[None]:
        """Publish a send, which is found, in one journal entry with other changes, which need at most `more` bytes.

        `essential`: they may use the room for removals.  Raises AddressFull, DiskFull, NoQueue before anything changed.
        """
        state = self._state
        sending.check(state, send.address)
        sending.check_routed(state, send, send.messages)
        need = more + (sending.needed(state, send.address, send.messages) if send.header.durable else 0)
        arrival.reserve_bytes(state, need, essential=essential)
        state.atomic = True
        try:
            yield
        finally:
            state.atomic = False

    def reach(self, name: str) -> int:
        """How many queues a message to an address of that name may enter; the address need not exist."""
        state = self._state
        address = state.addresses.get(name)
        if address is None:
            return state.bindings.reach(name)
        anycast, multicast = state.bindings.targets(address)
        return len(anycast) + len(multicast)

    def match_cost(self, name: str) -> int:
        """What the filters of its queues cost for a message to an address of that name, in microseconds (`steps`)."""
        bindings, address = self._state.bindings, self._state.addresses.get(name)
        return bindings.reach_cost(name) if address is None else bindings.match_cost(address)

    @property
    def filtering(self) -> bool:
        """Whether `match_cost` may be anything: any queue has a filter, or an address has very many queues."""
        return self._state.bindings.filtering

    @property
    def reach_max(self) -> int:
        """More than any message may enter."""
        return len(self._state.queues)

    def check_admitted(self, send: Send) -> None:
        """Raises AddressFull if the address of a send, which is found, refuses messages now."""
        self._state.room.check(send.address)

    def wait_for_room(self, address: Address | None, producer: Producer) -> bool:
        """Whether a producer must stop sending to an address (None: to any), until its `unblock` is called."""
        if address is None:
            return self._state.room.wait(None, producer)
        return wait_for_room(self._state, address, producer)

    def stop_waiting(self, producer: Producer) -> None:
        """Forget a producer that has disconnected: it no longer waits for room."""
        self._state.room.stop_waiting(producer)

    def destination(
        self,
        name: str,
        routing_type: RoutingType | None,
        *,
        access: Access,
        asked: RequestedAttributes = NO_ATTRIBUTES,
    ) -> tuple[Address, Queue | None]:
        """What a sender attaches to: an address, and the queue if the name is an FQQN.  Creates it, if allowed.

        Raises Denied, NotFound, InvalidName, RoutingTypeMismatch, AttributesDiffer, DiskFull.
        """
        return destinations.destination(self._state, name, routing_type, access=access, asked=asked, attached=True)

    def full_queue_name(
        self, addresses: Iterable[str], queue_names: Sequence[str], access: Access, permission: Permission
    ) -> str:
        """`address::queue` for the first of these addresses that may have one of these queues; empty: none may.

        What the client has no such permission for counts as missing.
        """
        return destinations.full_queue_name(self._state, addresses, queue_names, access, permission)

    def attach(self, address: Address, sender: AttachedSender) -> None:
        """Notify a sender when the address, or a queue of it, is deleted by name; auto-delete spares the address."""
        self._state.registry.attach_sender(address, sender)

    def detach(self, address: Address, sender: AttachedSender) -> None:
        """Detach a sender; no effect if it is not attached."""
        self._state.registry.detach_sender(address, sender)


def _find(state: State, send: Send) -> bool:
    """Find the destination of a send, creating what is missing if allowed; returns whether there is one."""
    if send.found or send.refusal is not None:
        return send.found
    address, queue = send.known, None
    if address is None or not destinations.is_current(state, address):
        wanted = send.made if send.made is not None and send.name not in state.addresses else send.routing_type
        outer, state.registry.made = state.registry.made, []
        try:
            address, queue = destinations.destination(state, send.name, wanted, access=send.access, asked=send.asked)
        except EngineError as error:
            send.refusal = error
            return False
        finally:
            send.created, state.registry.made = state.registry.made or None, outer
    send.address, send.queue, send.found = address, queue, True
    expire = send.header.expiration > 0
    for header in send.headers():
        address.receive(header, header.expiration, state.now)
    if (send.header.expiration > 0) is not expire:
        recharge_headers(send.messages)
    return True


def undo(state: State, sends: Iterable[Send]) -> None:
    """Delete what was created for sends that came to nothing, unless it is in use."""
    for send in sends:
        if send.created is not None and not send.routed:
            state.registry.undo(send.address, send.created)
        send.created = None


def publish(
    state: State,
    sends: Sequence[Send],
    arrived: Sequence[Message],
    *,
    producer: Producer | None = None,
    stop: bool = False,
    refused: Sequence[Send] = (),
) -> PublishResult:
    """Accept the messages of these sends, except those of the `refused` ones, which have no destination.

    `sends` are in the order of their first messages; `arrived` are the messages of all of them in order of arrival.
    With a `producer` the result says whether it must stop.
    """
    result = PublishResult()
    everything = arrived
    if refused:
        result.refusals = [Refusal(send, send.messages, send.refusal) for send in refused if send.refusal is not None]
        sends, arrived = _others(sends, arrived, result.refusals, stop=stop)
    try:
        parts = in_turn(state, sends, arrived, stop=stop)
    except DiskFull as error:
        without_room = [Refusal(send, send.messages, error) for send in sends]
        result.refusals = without_room if stop else result.refusals + without_room
        parts = []
    wrong: Message | None = None  # the first that is refused; with `stop` only what is `earlier` is accepted
    earlier: set[Message] = set()
    for send, messages in parts:
        if stop and result.refusals:
            if wrong is not result.refusals[0].messages[0]:
                wrong = result.refusals[0].messages[0]
                earlier = set(everything[: everything.index(wrong)])
            messages = [message for message in messages if message in earlier]
        if messages:
            _publish_part(state, send, messages, result, producer, stop=stop)
    if state.tracer is not None:
        trace(state, state.tracer, everything, result.refusals)
    return result


def _others(
    sends: Sequence[Send], arrived: Sequence[Message], refusals: list[Refusal], *, stop: bool
) -> tuple[Sequence[Send], Sequence[Message]]:
    """The sends that were not refused, and their messages.

    With `stop` the messages behind the first refused one are taken out of their sends.
    """
    out = {message for refusal in refusals for message in refusal.messages}
    if stop:
        del refusals[1:]  # sends are in the order of their first messages
        out.update(arrived[arrived.index(refusals[0].messages[0]) :])
    for send in sends:
        if send.found:
            send.messages = [message for message in send.messages if message not in out]
    return [send for send in sends if send.found and send.messages], [each for each in arrived if each not in out]


def trace(state: State, tracer: Tracer, arrived: Sequence[Message], refusals: Sequence[Refusal] = ()) -> None:
    """Trace the accepted messages, which have ids by now, and the refused ones."""
    refused = {message for refusal in refusals for message in refusal.messages}
    taken = [message for message in arrived if message.id and message not in refused]
    if tracer.published(taken, state.pending.work.number):
        state.pending.work.waiters[tracer] = None
    for refusal in refusals:
        tracer.refused(refusal.messages, refusal.error)


def in_turn(state: State, sends: Sequence[Send], arrived: Sequence[Message], *, stop: bool = False) -> list[Part]:
    """Publish these sends together if necessary and possible; otherwise return the parts in which to publish them.

    With `stop`, if any message may be refused, the parts are in the order in which all messages arrived.

    Raises DiskFull, before anything changed.
    """
    if len(sends) == 1 or (_follow(state, arrived, sends) and not (stop and _may_be_refused(state, sends))):
        return [(send, send.messages) for send in sends]
    if publish_multi.publish(state, arrived, sends):
        return []
    of = {message: send for send in sends for message in send.messages}
    return [(send, list(group)) for send, group in groupby(arrived, of.__getitem__)]


def _follow(state: State, arrived: Sequence[Message], sends: Sequence[Send]) -> bool:
    """Whether sends that reach the same queue do not overlap: one's first message comes after the other's last."""
    reached: dict[Queue, Send] = {}
    places: dict[Message, int] = {}
    for send in sends:
        extras = state.diverts.extras(send.address)
        if extras is not None and extras.reach:
            return False  # diverts lead to others
        targets = state.candidates(send.address, send.queue, send.routing_type)
        if arrival.are_many(state, targets[1]):
            return False  # they are not looked at one by one
        for queue in chain(*targets):
            before = reached.get(queue)
            if before is not None:
                if not places:
                    if _comes_later(arrived, before.messages[-1], send.messages[0]):
                        return False  # the usual case where sends alternate
                    places = {message: at for at, message in enumerate(arrived)}
                if places[before.messages[-1]] > places[send.messages[0]]:
                    return False
            reached[queue] = send
    return True


def _may_be_refused(state: State, sends: Sequence[Send]) -> bool:
    """Whether messages of these sends may be refused."""
    need = 0
    try:
        for send in sends:
            sending.check(state, send.address)
            sending.check_routed(state, send, send.messages)
            last = send.messages[-1].size
            if state.room.admit(send.address, len(send.messages) - 1, size_of(send.messages) - last) in _NO_MORE:
                return True
            if send.messages[0].header.durable:
                need += sending.needed(state, send.address, send.messages)
        if need:
            arrival.reserve_bytes(state, need, essential=False)
    except (AddressFull, DiskFull, NoQueue):
        return True
    return False


def _may_refuse(state: State, send: Send) -> bool:
    if not _find(state, send):
        return True
    if state.room.may_refuse(send.address) or state.diverts.extras(send.address) is not None:
        return True
    anycast, multicast = state.candidates(send.address, send.queue, send.routing_type)
    return send.needs_queue and not any([queue.accepts_all for queue in anycast + multicast])


def _comes_later(arrived: Sequence[Message], one: Message, other: Message) -> bool:
    """Whether `one` arrived after `other`; searches from the end."""
    for at in range(len(arrived) - 1, -1, -1):
        message = arrived[at]
        if message is one or message is other:
            return message is one
    raise AssertionError("both have arrived")


def _publish_part(
    state: State, send: Send, messages: list[Message], result: PublishResult, producer: Producer | None, *, stop: bool
) -> None:
    """Publish messages of one send in order, as many at once as possible; the producer may have to wait after it."""
    room, address = state.room, send.address
    left, at = messages, 0
    full = state.diverts.extras(address) is not None  # or another one, to which diverts lead
    while at < len(left):
        run, admission = left[at:] if at else left, _OK
        nbytes = size_of(run)
        if not room.takes(address, len(run), nbytes):
            full = True
            admission = room.admit(address, len(run) - 1, nbytes - run[-1].size)
            if admission in _NO_MORE and (fitting := room.fitting(address, run)):
                run, admission = run[:fitting], _OK
                nbytes = size_of(run)
        try:
            send.routed += publish_run(state, send, run, admission, nbytes, producer)
        except NoQueue as unroutable:  # nothing changed: continue without those that no queue accepts
            lost = set(unroutable.messages)
            first = next(place for place in range(at, len(left)) if left[place] in lost)
            refused = left[first:] if stop else [message for message in run if message in lost]
            left = left[:first] if stop else left[:at] + [message for message in left[at:] if message not in lost]
            _refuse(result, Refusal(send, refused, unroutable), stop=stop)
        except EngineError as error:
            _refuse(result, Refusal(send, left[at:], error), stop=stop)
            break
        else:
            send.accepted(run)
            at += len(run)
    if full and at and producer is not None:
        result.blocked |= wait_for_room(state, address, producer)


def wait_for_room(state: State, address: Address, producer: Producer, held: Uncommitted | None = None) -> bool:
    """Whether a producer must stop sending to an address, which is full or from which diverts lead to a full one.

    `held`: what the transaction holds in which it sends.
    """
    blocked = state.room.wait(address, producer, held)
    extras = state.diverts.extras(address)
    if extras is not None:
        for name in extras.reach:
            forward = state.addresses.get(name)
            if forward is not None and state.room.wait(forward, producer, held):
                blocked = True
    return blocked


def publish_run(
    state: State,
    send: Send,
    messages: list[Message],
    admission: Admission,
    nbytes: int,
    producer: Producer | None = None,
) -> int:
    """Accept messages of a send, all or none; returns how many reached a queue, directly or by a divert.

    The `admission` is what `Room` says of them, `nbytes` their size.  A duplicate counts as if it had.

    Raises AddressFull, DiskFull, NoQueue.
    """
    address = send.address
    if state.diverts.extras(address) is None and send.link_ids is None and not duplicates.may_have_ids(messages):
        targets = state.candidates(address, send.queue, send.routing_type)
        needs_queue = send.needs_queue
        if state.pending.held is not None and not state.atomic and _may_overtake(state, send, targets, producer):
            with state.pending.overtake():
                return arrival.publish(
                    state, address, messages, targets, admission, nbytes=nbytes, needs_queue=needs_queue
                )
        return arrival.publish(state, address, messages, targets, admission, nbytes=nbytes, needs_queue=needs_queue)
    return sending.publish(state, send, messages, admission)


def _may_overtake(state: State, send: Send, targets: Targets, producer: Producer | None) -> bool:
    """Whether messages of a send may be recorded before the held entry (`held_entry`)."""
    held, header = state.pending.held, send.messages[0].header
    if held is None or producer is None or not header.durable or header.attempts != NEW or send.is_joined:
        return False
    if not held.sends_may_overtake(state.journal, producer.transport):
        return False
    return all([queue.kind is None and held.is_older(queue) for queue in chain(*targets)])


def _refuse(result: PublishResult, refusal: Refusal, *, stop: bool) -> None:
    """Add a refusal.  With `stop` it replaces an earlier one: its messages arrived before those."""
    if stop:
        result.refusals.clear()
    result.refusals.append(refusal)
