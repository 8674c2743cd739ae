"""Finds or creates the queue that a SubscribeRequest reads.

A destination names a queue, or an address on which the subscriber gets a queue of its own:

    durable        under a lasting name, by which it is found again and deleted
    shared         under a name that several subscribers use; deleted with its last subscriber unless durable
    neither        a temporary queue, named by the broker and deleted with its subscriber

A request for an existing durable subscription with another address, selector or no-local is refused or, for protocols
whose clients expect it, replaces the subscription if it has no consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.engine.delivery import closing
from broker.engine.delivery.reservations import Reserve
from broker.engine.filter import Filter, InvalidFilter, compile_filter
from broker.engine.model.access import UNRESTRICTED, Access, create_permission, delete_permission
from broker.engine.model.attributes import RequestedAttributes, differences
from broker.engine.model.errors import AlreadyInUse, InvalidSelector, NotFound
from broker.engine.model.message import Message, PropertyView, RoutingType
from broker.engine.model.names import check_not_shared
from broker.engine.model.permissions import Permission
from broker.engine.queues.address import Address
from broker.engine.queues.consumer import AckMode, LinkTarget, Subscriber
from broker.engine.queues.consumer_lifecycle import check_room
from broker.engine.queues.cursors import MATCH_COST
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import alter, deletion, destinations


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A subscriber's request.

    `name` is that of its subscription ("": none), which belongs to the `subscriber`; `durable`, `shared` and
    `exclusive` say of what kind it is, `common` that all users may share it, `renewable` that a changed one is
    replaced.  `no_local` is the origin whose messages it does not want.  `window` is its credit in bytes, -1: no limit;
    with `counted` it is in messages, -1: what its sink grants.  Consumers of higher `priority` come first.  `access`
    holds the subscriber's permissions, `asked` the attributes requested for its queue.  With `filtered` its own queue
    on a wildcard address accepts only what it may read, so it needs no permission to read all that the address
    matches.  Messages acknowledged by a consumer that `forwards` are not consumed: another Bartleby has them.  `link`
    says where a link to another broker sends them.  A consumer `on_demand` is another broker's link that fetches for
    consumers waiting there; with `reserve` its unsettled messages are reserved for it when its connection ends
    (`reservations`).
    """

    destination: str
    routing_type: RoutingType | None = None
    name: str = ""
    subscriber: Subscriber = Subscriber.CLIENT
    durable: bool = False
    shared: bool = False
    common: bool = False
    exclusive: bool = False
    renewable: bool = False
    selector: str = ""
    no_local: str = ""
    ack_mode: AckMode = AckMode.AUTO
    window: int = -1
    counted: bool = False
    priority: int = 0
    client_id: str = ""
    remote: str = ""
    user: str = ""
    access: Access = UNRESTRICTED
    asked: RequestedAttributes = field(default_factory=dict)
    filtered: bool = False
    forwards: bool = False
    link: LinkTarget | None = None
    on_demand: bool = False
    reserve: Reserve | None = None


def find(
    state: State, request: SubscribeRequest, filter: Filter | None
) -> tuple[Queue, Callable[[Message], bool] | None]:
    """The queue to consume, created if needed, and a test of which messages the subscriber accepts (None: all).

    `filter` is its compiled selector.  Raises Denied, NotFound, InvalidName, RoutingTypeMismatch, AlreadyInUse,
    AttributesDiffer, TooManyConsumers.
    """
    target = destinations.queue_to_consume(
        state,
        request.destination,
        request.routing_type,
        access=request.access,
        subscribing=create_permission(durable=request.durable),
        asked=request.asked,
        partly=request.filtered,
    )
    if isinstance(target, Queue):
        closing.finish(state, target)
        check_room(target.name, target.attributes, len(target.consumers))
        return target, predicate(filter, request.no_local)
    queue = _subscription(state, target, filter, request)
    if request.filtered:
        alter.filter_for(state, queue, request.access)
    else:
        alter.unfilter(state, queue)
    return queue, None


def _subscription(state: State, address: Address, filter: Filter | None, request: SubscribeRequest) -> Queue:
    temporary = not request.durable
    name = request.name or state.fresh_name()
    access = request.access
    if request.name and not request.filtered:
        access.require(Permission.CONSUME, address.name, name)
    queue = _named(state, name)
    if request.subscriber is not Subscriber.SESSION and (queue is None or queue.is_shared_subscription):
        check_not_shared(name)
    if queue is not None and not _knows(request, queue):
        _check_creation(state, address, request)
        raise destinations.name_taken(name)
    if queue is not None:
        _check_usable(queue, request)
        if request.filtered:  # also if a consumer is refused now: the queue takes messages all the same
            alter.filter_for(state, queue, access)
        session = request.subscriber is Subscriber.SESSION  # it may change its no-local, and take more than it needs
        if queue.durable is not request.durable and not (session and queue.durable):
            raise AlreadyInUse(f"{name} is {'durable' if queue.durable else 'not durable'}: choose another name")
        if queue.consumers and (request.exclusive or queue.consumers[0].exclusive):
            raise AlreadyInUse(f"subscription {name} has its only consumer already")
        different = differences(queue.attributes, request.asked)
        if _is_same(queue, address, filter, queue.no_local if session else request.no_local) and not different:
            check_room(name, queue.attributes, len(queue.consumers))
            if session:
                alter.change_no_local(state, queue, request.no_local)
            return queue
        if queue.consumers or not request.renewable:
            moved = queue.address is not address
            changed = f"is on {queue.address.name}" if moved else "has another selector or no-local"
            if different and not moved:
                changed = f"exists, and its {' and its '.join(different)}"
            raise AlreadyInUse(f"subscription {name} {changed}: unsubscribe it first")
        access.require(delete_permission(durable=queue.durable), queue.address.name, name, named=name)
        _check_creation(state, address, request, replaced=queue)
        deletion.delete_queue(state, queue)
    else:
        _check_creation(state, address, request)
    attributes = state.registry.attributes(address, name, request.asked)
    check_room(name, attributes, 0)
    return state.registry.create_queue(
        address,
        name,
        RoutingType.MULTICAST,
        durable=request.durable,
        filter=filter,
        no_local=request.no_local,
        auto_created=temporary,
        temporary=temporary,
        attributes=attributes,
        creator=access.user,
        shared=request.shared and request.subscriber is Subscriber.SESSION,
    )


def _check_creation(
    state: State, address: Address, request: SubscribeRequest, *, replaced: Queue | None = None
) -> None:
    """Check that a subscriber may create a queue, in the place of its own one if given.

    Raises Denied, TooManyQueues, DiskFull.
    """
    access = request.access
    access.require(create_permission(durable=request.durable), address.name, request.name)
    if replaced is None or replaced.creator != access.user:
        state.registry.quotas.check(access.user)
    if request.durable:
        destinations.check_room(state, essential=True)


def _knows(request: SubscribeRequest, queue: Queue) -> bool:
    """Whether a subscriber may know of the queue that has the name of its subscription.

    A filtered one is its user's alone: it may hold messages that others may not read.
    """
    if request.filtered:
        return queue.creator == request.access.user
    return request.access.sees(queue.address.name, queue.name, durable=queue.durable)


def _check_usable(queue: Queue, request: SubscribeRequest) -> None:
    """Refuse what is no subscription, or not this subscriber's.  Raises AlreadyInUse, Denied."""
    access, name = request.access, queue.name
    if not queue.is_subscription:
        raise AlreadyInUse(f"{name} is the name of a queue, not of a subscription: choose another name")
    if not request.common:
        queue.check_owner(access)
    _check_subscriber(queue, request)


def _check_subscriber(queue: Queue, request: SubscribeRequest) -> None:
    """Refuse to share a subscription between sessions and others: each would get a part of the messages."""
    holder = next((each for each in queue.consumers if each.subscriber is not None), None)  # the others are alike
    if holder is not None and holder.subscriber is not request.subscriber:
        session = holder.subscriber is Subscriber.SESSION
        whose = f"the session of client {holder.client_id}" if session else "another subscriber"
        raise AlreadyInUse(f"subscription {queue.name} belongs to {whose}: choose another name")


def _is_same(queue: Queue, address: Address, filter: Filter | None, no_local: str) -> bool:
    text = queue.filter.text if queue.filter else ""
    return queue.address is address and text == (filter.text if filter else "") and queue.no_local == no_local


def parse_selector(selector: str) -> Filter | None:
    """A compiled selector, None for an empty one.  Raises InvalidSelector."""
    try:
        return compile_filter(selector)
    except InvalidFilter as invalid:
        raise InvalidSelector(f"invalid selector: {selector[:200]!r}: {invalid}") from invalid


@dataclass(frozen=True, slots=True)
class Accepts:
    """A test of which messages a consumer accepts: equal for those that accept the same, which then share a view."""

    filter: Filter | None
    no_local: str

    @property
    def cost(self) -> int:
        """What a match costs, in microseconds (`queues.steps`)."""
        return MATCH_COST + (0 if self.filter is None else self.filter.cost)

    def __call__(self, message: Message) -> bool:
        """Whether it accepts a message."""
        if self.no_local and message.header.origin == self.no_local:
            return False
        return self.filter is None or self.filter.matches(PropertyView(message))


def predicate(filter: Filter | None, no_local: str) -> Callable[[Message], bool] | None:
    """A test of which messages a consumer accepts on a queue that others use too; None: all."""
    return None if filter is None and not no_local else Accepts(filter, no_local)


def _named(state: State, name: str) -> Queue | None:
    """The queue of this name, without consumers of connections that have ended."""
    queue = state.queues.get(name)
    if queue is not None:
        closing.finish(state, queue)
    return queue


def known(state: State, name: str, access: Access) -> Queue | None:
    """The subscription of this name, if there is one and the client may know of it."""
    queue = _named(state, name)
    if queue is None or not queue.is_subscription:
        return None
    return queue if access.sees(queue.address.name, name, durable=queue.durable) else None


def deletable(state: State, name: str, access: Access) -> Queue:
    """A subscription that a client may delete.  Raises Denied, or NotFound if the client may not know of it."""
    queue = known(state, name, access)
    if queue is None:
        raise NotFound(f"there is no subscription {name}")
    access.require(delete_permission(durable=queue.durable), queue.address.name, queue.name, named=name)
    queue.check_owner(access)
    return queue
