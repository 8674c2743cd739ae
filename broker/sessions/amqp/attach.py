"""Attaching links: from a peer's ATTACH to a link of the engine's, and the answer.

the peer's role    its terminus                                the broker makes
sender             target with an address                      a producer's link
                   target without                              the anonymous relay
                   dynamic target                              a temporary address, and a producer's link to it
                   coordinator                                 a coordinator
receiver           source with an address                      a consumer or a browser
                   dynamic source                              a temporary queue, and a consumer of it
                   none                                        a lookup of a subscription, to delete it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from broker.engine import Address, Queue, SubscribeRequest
from broker.engine.model.access import delete_permission
from broker.engine.model.errors import AlreadyInUse, NotBrowsable, NotFound
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.model.query import split_query
from broker.sessions.amqp.coordinator import CoordinatorLink
from broker.sessions.amqp.dynamic import COPY, Nodes, check_properties, lasting, properties
from broker.sessions.amqp.incoming import IncomingLink, Peer, Place, SendTarget, check_temporary
from broker.sessions.amqp.link_encoder import Stamp
from broker.sessions.amqp.link_id import LINK_CAPABILITY
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.outgoing import BrowsingLink, OutgoingLink
from broker.sessions.amqp.outgoing_links import Outgoing
from broker.sessions.amqp.source import found_again, granted, read_filters, request, subscription_name
from broker.sessions.amqp.terms import GLOBAL, SHARED, TEMPORARY_QUEUE, TEMPORARY_TOPIC, TOPIC, offered, stated_routing
from broker.sessions.amqp.transactions import Transactions
from protocols.amqp.errors import INVALID_FIELD, NOT_IMPLEMENTED, link_error
from protocols.amqp.link import Link
from protocols.amqp.performatives import LINK_DETACH, Attach, Coordinator, Error, SenderSettleMode, Source, Target
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session

_TRANSACTION_CAPABILITIES: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
_OFFERED_SENDERS: Final = ("DELAYED_DELIVERY", LINK_CAPABILITY)
_OFFERED_RECEIVERS: Final = ("SHARED-SUBS", LINK_CAPABILITY)
_TEMPORARY: Final = frozenset({TEMPORARY_QUEUE, TEMPORARY_TOPIC})


class Attacher:
    """Makes the links of one connection, and tracks the nodes and subscriptions that belong to them."""

    def __init__(self, owner: LinkOwner, transactions: Transactions) -> None:
        self._owner = owner
        self._transactions = transactions
        self._nodes = Nodes(owner.engine.delete_temporary)
        self._subscriptions: dict[Link, tuple[str, bool]] = {}  # names, and whether the link only looks it up

    def attach(self, link: Link, attach: Attach) -> None:
        """Make the requested link and answer.

        Raises AmqpError, EngineError: if the answer cannot be sent, which ends the session, the link is there already.
        """
        if isinstance(link, Receiver):
            self._attach_sender(link, attach)
        else:
            assert isinstance(link, Sender)
            self._attach_receiver(link, attach)

    # -- the peer sends --------------------------------------------------------------------------------------------

    def _attach_sender(self, link: Receiver, attach: Attach) -> None:
        target = attach.target
        if isinstance(target, Coordinator):
            granted_target = Coordinator(_TRANSACTION_CAPABILITIES)
            link.send_attach(source=attach.source, target=granted_target, snd_settle_mode=attach.snd_settle_mode)
            coordinator = CoordinatorLink(self._owner, link, self._transactions)
            self._owner.incoming.add(coordinator)
            coordinator.top_up()
            return
        if not isinstance(target, Target):
            raise link_error(INVALID_FIELD, "attach: a sender names its target.")
        asked = stated_routing(target.capabilities)
        temporary = not _TEMPORARY.isdisjoint(target.capabilities)
        engine = self._owner.engine
        place: Place | None = None
        if target.dynamic:
            topic = asked is RoutingType.MULTICAST or TEMPORARY_TOPIC in target.capabilities
            address = self._own_node(link, target, topic, Permission.SEND)
            place = Place(address, None, RoutingType.MULTICAST if topic else RoutingType.ANYCAST)
        elif target.address:
            name, stated = self._owner.options.split(target.address)
            name, query = split_query(name)
            check_temporary(engine, name, stated=temporary)
            wanted = next((t for t in (stated, asked, query.routing_type) if t is not None), None)
            found, queue = engine.producers.destination(name, wanted, access=self._owner.access, asked=query.asked)
            place = Place(found, queue, wanted)
            self._nodes.take_up(link, found.name)
        link.order = None if place is None else place.address.name
        target = _granted(target, None if place is None else place.address)
        peer = Peer.BARTLEBY if LINK_CAPABILITY in attach.desired_capabilities else Peer.CLIENT
        made = IncomingLink(self._owner, link, SendTarget(target.address or "", asked, temporary), place, peer)
        self._owner.incoming.add(made)
        limits = link.session.limits
        link.streams = limits.streamed_bytes_max > 0
        link.send_attach(
            source=attach.source,
            target=target,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=attach.rcv_settle_mode,
            max_message_size=max(limits.message_bytes_max, limits.streamed_bytes_max),
            offered_capabilities=tuple(c for c in attach.desired_capabilities if c in _OFFERED_SENDERS),
        )
        made.top_up()

    # -- the peer receives -----------------------------------------------------------------------------------------

    def _attach_receiver(self, link: Sender, attach: Attach) -> None:
        source = attach.source
        if source is None:
            self._look_up(link, attach)
            return
        if not isinstance(source, Source):
            raise link_error(NOT_IMPLEMENTED, "attach: the source is of an unknown kind.")
        if source.dynamic:
            topic = TEMPORARY_TOPIC in source.capabilities or TOPIC in source.capabilities
            address = self._own_node(link, source, topic, Permission.CONSUME)
            source = replace(source, address=address.name)
            if topic and stated_routing(source.capabilities) is None:
                source = replace(source, capabilities=(*source.capabilities, TOPIC))
        if not source.address:
            raise link_error(INVALID_FIELD, "attach: a receiver names its source.")
        filters = read_filters(source.filter)
        owner = self._owner
        wanted = request(attach, source, filters, owner)
        if source.distribution_mode == COPY and not wanted.name:
            browsed = self._browse(wanted, filters.selector)
            if browsed is not None:  # None: a topic, whose subscribers get copies anyway
                self._add(BrowsingLink(owner, link, browsed))
                self._answer(link, attach, granted(source, filters, copies=True, stays=False), settled=True)
                return
        settled = attach.snd_settle_mode == SenderSettleMode.SETTLED
        stamp = None
        if LINK_CAPABILITY in attach.desired_capabilities:
            stamp = Stamp(owner.options.container_id, attach.name, owner.engine.journal.broker_id)
        made = OutgoingLink(owner, link, settled=settled, default=source.default_outcome, stamp=stamp)
        if wanted.exclusive:
            self._take_over(wanted.name, made)
        made.subscribe(wanted)
        self._add(made)
        if wanted.name:
            self._subscriptions[link] = wanted.name, False
        queue = made.attached.queue
        self._nodes.take_up(link, queue.address.name)
        copies = queue.routing_type is RoutingType.MULTICAST
        self._answer(link, attach, granted(source, filters, copies=copies, stays=wanted.durable), settled=settled)
        made.send_available()

    def _take_over(self, name: str, made: OutgoingLink) -> None:
        """Take a subscription from the same link of another connection, whose network may have failed unnoticed.

        Within a connection the second link is refused, as JMS asks.  Other links of equal names are all attached.
        """
        queue = self._owner.engine.queues.get(name)
        for consumer in () if queue is None else tuple(queue.consumers):
            if isinstance(consumer.sink, OutgoingLink):
                consumer.sink.give_way(made)

    def _add(self, made: Outgoing) -> None:
        self._owner.outgoing.add(made)
        if self._owner.window.paused:
            made.pause(True)

    def _browse(self, wanted: SubscribeRequest, selector: str) -> Iterator[Message | None] | None:
        """Return the messages of a queue; None if the source is a topic."""
        engine = self._owner.engine
        access = self._owner.access
        try:
            _, messages = engine.browse(
                wanted.destination, wanted.routing_type, selector, access=access, asked=wanted.asked
            )
        except NotBrowsable:
            return None
        return messages

    def _answer(self, link: Sender, attach: Attach, source: Source, *, settled: bool) -> None:
        link.send_attach(
            source=source,
            target=attach.target,
            snd_settle_mode=SenderSettleMode.SETTLED if settled else attach.snd_settle_mode,
            rcv_settle_mode=attach.rcv_settle_mode,
            offered_capabilities=tuple(c for c in attach.desired_capabilities if c in _OFFERED_RECEIVERS),
        )

    def _look_up(self, link: Sender, attach: Attach) -> None:
        """Look up the subscription with the link's name, for a receiver without a source: closing the link deletes it.

        Raises NotFound, and AlreadyInUse if it has consumers: clients like Qpid JMS read this answer, not the one to
        their DETACH.
        """
        engine = self._owner.engine
        asked = Source(durable=1, capabilities=attach.desired_capabilities)
        names = (
            subscription_name(attach, asked, self._owner.container),
            subscription_name(attach, replace(asked, durable=0), self._owner.container),
        )
        everywhere = {SHARED, GLOBAL}.issubset(attach.desired_capabilities)
        queue = engine.known_subscription(names, self._owner.access, common=everywhere)
        if queue is None:
            raise NotFound(f"there is no subscription {attach.name} of {self._owner.container or 'this connection'}")
        if queue.consumers:
            raise _consumed(queue)
        self._subscriptions[link] = queue.name, True
        self._add(BrowsingLink(self._owner, link, iter(())))
        self._answer(link, attach, found_again(queue, attach.desired_capabilities), settled=True)

    # -- nodes and subscriptions of links --------------------------------------------------------------------------

    def _own_node(self, link: Link, terminus: Source | Target, topic: bool, use: Permission) -> Address:
        """Return the node of a dynamic terminus, new unless the link resumes one.  Raises AmqpError, Denied."""
        check_properties(terminus.dynamic_node_properties)
        address = self._nodes.take_up(link, terminus.address)
        if address is None:
            routing_type = RoutingType.MULTICAST if topic else RoutingType.ANYCAST
            private = not _TEMPORARY.isdisjoint(terminus.capabilities)
            address = self._owner.engine.make_temporary(routing_type, self._owner.access, use, private=private)
            self._nodes.made(link, address, lasting(terminus))
        return address

    def release(self, link: Link, *, closed: bool, detached: bool = False) -> None:
        """Release a link that has ended: its node, unless it was only `detached`, and its subscription, if the link was
        `closed` and there is no other consumer.

        Raises Denied for a subscription that the peer may not delete, AlreadyInUse for one that it looked up and that
        has consumers.
        """
        engine = self._owner.engine
        self._nodes.detached(link, closed=not detached)
        name, looked_up = self._subscriptions.pop(link, ("", False))
        queue = engine.queues.get(name)
        if not closed or queue is None or not queue.is_subscription:
            return
        if queue.consumers:
            if looked_up:
                raise _consumed(queue)
        else:
            self._owner.access.require(delete_permission(durable=queue.durable), queue.address.name, name, named=name)
            engine.delete_queue(queue)

    def session_ended(self, session: Session) -> None:
        """Release the nodes of a session that has ended, after its links."""
        self._nodes.ended(session)

    def release_all(self) -> None:
        """Release everything, as the connection has ended."""
        self._nodes.clear()
        self._subscriptions.clear()


def _consumed(queue: Queue) -> AlreadyInUse:
    return AlreadyInUse(f"subscription {queue.name} has consumers: close them first")


def _granted(target: Target, address: Address | None) -> Target:
    """Return the target for the answer: the actual properties, not the requested ones (3.5.4)."""
    capabilities = offered(target.capabilities)
    if address is None or not target.dynamic:
        return Target(target.address, expiry_policy=LINK_DETACH, capabilities=capabilities)
    node = properties(topic=RoutingType.MULTICAST in address.routing_types)
    return Target(address.name, 0, lasting(target), 0, True, node, capabilities)


def refuse(link: Link, error: Error) -> None:
    """Refuse a link: attach and detach at once (part 2, 2.6.3)."""
    assert link.attach is not None
    if isinstance(link, Receiver):
        link.send_attach(source=link.attach.source, target=None)
    else:
        link.send_attach(source=None, target=link.attach.target)
    link.send_detach(error=error)
    link.attach = link.local = None  # they may be large, and the peer may be slow to detach
