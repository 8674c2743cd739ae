"""The verbs of clients that send: publishing, and what they ask before, of an address or of its room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from broker.engine.model.access import Access
from broker.engine.model.attributes import NO_ATTRIBUTES, RequestedAttributes
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.publish.plan import plan
from broker.engine.publish.publish import find, publish, undo, wait_for_room
from broker.engine.publish.send import PublishResult, Send
from broker.engine.queues import arrival
from broker.engine.queues.address import Address, AttachedSender, Producer
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import destinations


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
        refused = [send for send in sends if not find(state, send)]
        state.begin()
        messages = sends[0].messages if arrived is None else arrived
        result = publish(state, sends, messages, producer=producer, stop=stop, refused=refused)
        if result.refusals:
            undo(state, sends)
        return result

    def find(self, send: Send) -> None:
        """Find the destination of a send before it is published.  Raises the errors of `destination`."""
        if not find(self._state, send):
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
        state.room.check(send.address)
        made = plan(state, send, send.messages, checks=True)
        made.discard()
        if made.lost:
            raise made.no_queue
        arrival.reserve_bytes(state, more + made.bytes_needed(), essential=essential)
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
        if not bindings.filtering:
            return 0
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


def _may_refuse(state: State, send: Send) -> bool:
    if not find(state, send):
        return True
    if state.room.may_refuse(send.address) or state.diverts.extras(send.address) is not None:
        return True
    anycast, multicast = state.bindings.candidates(send.address, send.queue, send.routing_type)
    return send.needs_queue and not any([queue.accepts_all for queue in anycast + multicast])
