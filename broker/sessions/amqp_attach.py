"""Attaching links: what a peer's ATTACH asks for, what the engine makes of it, and our answer.

the peer's role    its terminus                                we make
sender             target with an address                      a producer's link
                   target without                              the anonymous relay
                   dynamic target                              a temporary address, and a producer's link to it
                   coordinator                                 a coordinator
receiver           source with an address                      a consumer or a browser
                   dynamic source                              a temporary queue, and a consumer of it
                   none                                        a look at a subscription, to be closed
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from broker.engine import administration
from broker.engine.access import delete_permission
from broker.engine.address import Address
from broker.engine.engine import Engine
from broker.engine.errors import NotFound
from broker.engine.message import RoutingType
from broker.engine.permissions import Permission
from broker.engine.query import split_query
from broker.engine.queue import Queue
from broker.sessions.amqp_incoming import Goal, IncomingLink, check_temporary
from broker.sessions.amqp_incoming import Owner as IncomingOwner
from broker.sessions.amqp_outgoing import BrowsingLink, Outgoing, OutgoingLink
from broker.sessions.amqp_outgoing import Owner as OutgoingOwner
from broker.sessions.amqp_source import (
    found_again,
    granted,
    is_browser,
    read_filters,
    subscription_name,
    wishes,
)
from broker.sessions.amqp_terms import TEMPORARY_QUEUE, TEMPORARY_TOPIC, TOPIC, stated_routing
from protocols.amqp.errors import INVALID_FIELD, NOT_IMPLEMENTED, link_error
from protocols.amqp.link import Link
from protocols.amqp.performatives import (
    Attach,
    Coordinator,
    Error,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender

_TRANSACTION_CAPABILITIES: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
_TEMPORARY: Final = frozenset({TEMPORARY_QUEUE, TEMPORARY_TOPIC})


class Owner(IncomingOwner, OutgoingOwner, Protocol):
    """What attaching needs of the connection's session layer."""

    engine: Engine
    container: str
    remote: str


class Attacher:
    """Makes the links of one connection, and remembers what goes with them."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._dynamic: dict[Link, Address] = {}
        self._subscriptions: dict[Link, str] = {}

    def attach(self, link: Link, attach: Attach) -> IncomingLink | Outgoing | None:
        """Make what is asked for and answer; None for a coordinator.  Raises AmqpError, EngineError."""
        if isinstance(link, Receiver):
            return self._attach_sender(link, attach)
        assert isinstance(link, Sender)
        return self._attach_receiver(link, attach)

    # -- the peer sends --------------------------------------------------------------------------------------------

    def _attach_sender(self, link: Receiver, attach: Attach) -> IncomingLink | None:
        target = attach.target
        if isinstance(target, Coordinator):
            granted_target = Coordinator(_TRANSACTION_CAPABILITIES)
            link.send_attach(source=attach.source, target=granted_target, snd_settle_mode=attach.snd_settle_mode)
            return None
        if not isinstance(target, Target):
            raise link_error(INVALID_FIELD, "attach: a sender names its target.")
        asked = stated_routing(target.capabilities)
        temporary = not _TEMPORARY.isdisjoint(target.capabilities)
        engine = self._owner.engine
        address: Address | None = None
        if target.dynamic:
            topic = asked is RoutingType.MULTICAST or TEMPORARY_TOPIC in target.capabilities
            address = self._make_dynamic(link, topic, Permission.SEND)
            target = replace(target, address=address.name)
            link.order = address.name
        elif target.address:
            name, stated = self._owner.options.split(target.address)
            name, query = split_query(name)
            check_temporary(engine, name, stated=temporary)
            wanted = next((t for t in (stated, asked, query.routing_type) if t is not None), None)
            found, _ = engine.router.destination(name, wanted, access=self._owner.access, asked=query.asked)
            link.order = found.name
            address = found
        made = IncomingLink(self._owner, link, Goal(target.address or "", asked, temporary))
        made.wait_for_room(address)
        limits = link.session.limits
        link.streams = limits.streamed_bytes_max > 0
        link.send_attach(
            source=attach.source,
            target=target,
            snd_settle_mode=attach.snd_settle_mode,
            rcv_settle_mode=ReceiverSettleMode.FIRST,
            max_message_size=max(limits.message_bytes_max, limits.streamed_bytes_max),
            offered_capabilities=tuple(c for c in attach.desired_capabilities if c == "DELAYED_DELIVERY"),
        )
        return made

    # -- the peer receives -----------------------------------------------------------------------------------------

    def _attach_receiver(self, link: Sender, attach: Attach) -> Outgoing:
        source = attach.source
        if source is None:
            return self._look_up(link, attach)
        if not isinstance(source, Source):
            raise link_error(NOT_IMPLEMENTED, "attach: the source is of an unknown kind.")
        if source.dynamic:
            topic = TEMPORARY_TOPIC in source.capabilities or TOPIC in source.capabilities
            address = self._make_dynamic(link, topic, Permission.CONSUME)
            source = replace(source, address=address.name)
            if topic and stated_routing(source.capabilities) is None:
                source = replace(source, capabilities=(*source.capabilities, TOPIC))
        if not source.address:
            raise link_error(INVALID_FIELD, "attach: a receiver names its source.")
        filters = read_filters(source.filter)
        owner = self._owner
        wanted = wishes(
            attach,
            source,
            filters,
            owner.options,
            container=owner.container,
            origin=owner.origin,
            access=owner.access,
        )
        if is_browser(source) and not wanted.name:
            target = owner.engine.router.queue_to_consume(
                wanted.destination,
                wanted.routing_type,
                access=owner.access,
                permission=Permission.BROWSE,
                asked=wanted.asked,
            )
            if isinstance(target, Queue):  # on a topic everybody gets copies anyhow
                browser = BrowsingLink(owner, link, owner.engine.browse(target, filters.selector, access=owner.access))
                self._answer(link, attach, granted(source, filters), settled=True)
                return browser
        settled = attach.snd_settle_mode == SenderSettleMode.SETTLED
        made = OutgoingLink(owner, link, settled=settled, default=source.default_outcome)
        wanted = replace(wanted, ack_mode=made.mode, remote=owner.remote)
        made.consumer = owner.engine.subscribe(made, wanted)
        if wanted.name:
            self._subscriptions[link] = wanted.name
        self._answer(link, attach, granted(source, filters), settled=settled)
        return made

    def _answer(self, link: Sender, attach: Attach, source: Source, *, settled: bool) -> None:
        link.send_attach(
            source=source,
            target=attach.target,
            snd_settle_mode=SenderSettleMode.SETTLED if settled else SenderSettleMode.UNSETTLED,
            rcv_settle_mode=attach.rcv_settle_mode,
            offered_capabilities=tuple(c for c in attach.desired_capabilities if c == "SHARED-SUBS"),
        )

    def _look_up(self, link: Sender, attach: Attach) -> Outgoing:
        """A receiver without a source asks for the subscription of its link's name.  Raises NotFound."""
        engine = self._owner.engine
        asked = Source(durable=1, capabilities=attach.desired_capabilities)
        names = (
            subscription_name(attach, asked, self._owner.container),
            subscription_name(attach, replace(asked, durable=0), self._owner.container),
        )
        queue = administration.known_subscription(engine.router, names, self._owner.access)
        if queue is None:
            raise NotFound(f"there is no subscription {attach.name} of {self._owner.container or 'this connection'}")
        self._subscriptions[link] = queue.name
        self._answer(link, attach, found_again(queue.address.name, queue.durable), settled=True)
        return BrowsingLink(self._owner, link, iter(()))

    # -- what goes with a link -------------------------------------------------------------------------------------

    def _make_dynamic(self, link: Link, topic: bool, use: Permission) -> Address:
        """A node of the peer's own, with a name of the broker's."""
        routing_type = RoutingType.MULTICAST if topic else RoutingType.ANYCAST
        address = administration.make_node(self._owner.engine.router, routing_type, self._owner.access, use)
        self._dynamic[link] = address
        return address

    def release(self, link: Link, *, closed: bool) -> None:
        """A link is gone: its node with it; a subscription only if the link was closed, and nobody else uses it.

        Raises Denied for a subscription that the peer may not delete.
        """
        engine = self._owner.engine
        address = self._dynamic.pop(link, None)
        if address is not None:
            engine.delete_node(address)
        name = self._subscriptions.pop(link, "")
        queue = engine.router.queues.get(name)
        if closed and queue is not None and not queue.consumers:
            self._owner.access.require(delete_permission(queue), queue.address.name, name, named=name)
            engine.delete_queue(queue)

    def release_all(self) -> None:
        """The connection is gone."""
        for link in list(self._dynamic):
            self.release(link, closed=False)
        self._subscriptions.clear()


def refuse(link: Link, error: Error) -> None:
    """Attach and detach at once: that is how a link is refused (part 2, 2.6.3)."""
    assert link.attach is not None
    if isinstance(link, Receiver):
        link.send_attach(source=link.attach.source, target=None)
    else:
        link.send_attach(source=None, target=link.attach.target)
    link.send_detach(error=error)
