"""Retroactive addresses: new queues get the last messages of their address (`retroactive-message-count`).

The broker stores them in resources of its own, with ActiveMQ Artemis's names (ADDRESS is the address; the dots are the
delimiter of the configuration):

    $.artemis.internal.ADDRESS.divert.retro               a non-exclusive divert that preserves the routing type
    $.artemis.internal.ADDRESS.address.retro              the address that it forwards to
    $.artemis.internal.ADDRESS.queue.multicast.retro      two ring queues on that address, without consumers, of
    $.artemis.internal.ADDRESS.queue.anycast.retro        `retroactive-message-count` messages each

A queue created on the address gets copies of the messages in the ring of its routing type that its filter accepts.
An existing queue gets no message twice.  Management sees the rings and may purge them.

Rules: internal addresses and wildcard addresses are not retroactive.  A changed count takes effect at once, but a
smaller ring does not drop its messages (see `alter`); with 0 no more are stored.  The resources are deleted with the
address.  A message that expires in a ring is not moved elsewhere: the address's own queues had it.
"""

from __future__ import annotations

from typing import Final

from broker.engine.model.attributes import QueueAttributes
from broker.engine.model.errors import DiskFull
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.names import internal_prefix
from broker.engine.moves import move
from broker.engine.moves.move import Placed
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.diverts import Divert, DivertRouting
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork
from broker.engine.queues.watcher import Watcher
from broker.engine.routing import alter, deletion

#: What it costs to look at an address, and to create its resources, in microseconds (`steps`).
LOOK_COST: Final = 1
SETTLE_COST: Final = 200

_KINDS: Final = (RoutingType.MULTICAST, RoutingType.ANYCAST)


class Retroactive(Watcher):
    """Maintains the resources of retroactive addresses, and fills new queues from them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._prefix = internal_prefix(state.syntax)

    def _name(self, address: str, *words: str) -> str:
        return self._state.syntax.delimiter.join((self._prefix + address, *words, "retro"))

    def _ring_name(self, address: str, kind: RoutingType) -> str:
        return self._name(address, "queue", kind.name.lower())

    def apply_settings(self) -> LongWork:
        """Create, resize or stop the rings of all addresses, as the settings say now."""
        for address in list(self._state.addresses.values()):
            if self._state.addresses.get(address.name) is address:
                self._settle(address)
            yield SETTLE_COST if address.settings.retroactive_message_count > 0 else LOOK_COST

    def _settle(self, address: Address) -> None:
        count = address.settings.retroactive_message_count
        present = self._state.diverts.by_name.get(self._name(address.name, "divert"))
        if count <= 0 or self._state.registry.is_internal(address.name) or self._state.syntax.routes(address.name):
            if present is not None:
                self._state.registry.remove_divert(present.name)
            return
        home = self._state.addresses.get(self._name(address.name, "address"))
        if home is None:
            home = self._state.registry.create_address(self._name(address.name, "address"), set(_KINDS), internal=True)
        attributes = QueueAttributes(ring_size=count, max_consumers=0)
        for kind in _KINDS:
            ring = self._state.queues.get(self._ring_name(address.name, kind))
            if ring is None:
                name = self._ring_name(address.name, kind)
                self._state.registry.create_queue(home, name, kind, durable=True, internal=True, attributes=attributes)
            else:
                alter.become(self._state, ring, attributes)
        if present is None:
            divert = Divert(
                self._name(address.name, "divert"),
                address.name,
                (home.name,),
                routing=DivertRouting.PASS,
                internal=True,
            )
            self._state.registry.add_divert(divert)

    def address_made(self, address: Address) -> None:
        if address.settings.retroactive_message_count > 0:
            self._settle(address)

    def address_gone(self, address: Address) -> None:
        divert = self._state.diverts.by_name.get(self._name(address.name, "divert"))
        if divert is not None:
            self._state.registry.remove_divert(divert.name)
        home = self._state.addresses.get(self._name(address.name, "address"))
        if home is not None:
            for queue in list(self._state.bindings.queues(home)):
                deletion.delete_queue(self._state, queue)
            self._state.registry.delete_address(home)

    def queue_made(self, queue: Queue) -> None:
        address = queue.address
        if address.settings.retroactive_message_count <= 0:
            return
        ring = self._state.queues.get(self._ring_name(address.name, queue.routing_type))
        if ring is not None:
            self._fill(queue, ring)

    def _fill(self, queue: Queue, ring: Queue) -> None:
        """Put copies of a ring's messages on a queue, oldest first, including those not yet durable."""
        kept = [*ring.backlog, *self._state.pending.landing_on(ring)]
        kept.sort(key=lambda message: message.id)
        now = self._state.now
        copies = [self._copy(message, queue) for message in kept if not 0 < message.header.expiration <= now]
        copies = [copy for copy in copies if queue.accepts(copy)]
        if not copies:
            return
        try:
            arrival.reserve(self._state, [copy for copy in copies if copy.header.durable], essential=False)
        except DiskFull as full:
            self._state.report("retroactive.disk_full", queue=queue.name, error=str(full))
            return
        anycast = queue.routing_type is RoutingType.ANYCAST
        targets = ([queue], []) if anycast else ([], [queue])
        move.bring(self._state, [Placed(copy, copy, queue.address, targets) for copy in copies])

    def _copy(self, message: Message, queue: Queue) -> Message:
        kept = message.header
        header = kept.copy(queue.address.name, dict(kept.annotations or {}))
        header.expiration, header.expiry_source = kept.expiration, kept.expiry_source
        header.scheduled, header.routing_type = kept.scheduled, kept.routing_type
        return Message.of(header, message.head, message.body)
