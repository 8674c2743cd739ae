"""Destinations of a connection's own, for replies: `/temp-queue/NAME` and `/temp-topic/NAME`.

NAME means something on this connection only: behind it is an address with a name of the broker's, made when the
connection first says NAME and deleted with it.  A client that gets a message with such a `reply-to` reads the real
name, and can send there by any protocol.

Clients expect one of two things (ActiveMQ Classic and RabbitMQ): that they subscribe to the destination like to any
other, or that a `reply-to` is enough.  Both work: a client that names it as `reply-to` without having subscribed gets a
subscription whose id is the destination, and loses it when it subscribes after all.
"""

from __future__ import annotations

from typing import Final

from broker.engine import Address, Engine
from broker.engine.model.access import Access
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission
from broker.sessions.stomp.headers import Prefixes
from protocols.stomp.errors import StompError

_TEMPORARY: Final = {"/temp-queue/": RoutingType.ANYCAST, "/temp-topic/": RoutingType.MULTICAST}
_PREFIXES: Final = tuple(prefix.encode() for prefix in _TEMPORARY)

#: Temporary destinations of one connection: each costs an address and a queue, and clients use one.
TEMPORARY_MAX: Final = 100


def is_temporary(destination: bytes) -> bool:
    """Whether a destination is one of its connection's own."""
    return destination.startswith(_PREFIXES)


class Destinations:
    """What destinations mean on one connection.

    `access` is what its peer may do, `origin` whose messages no-local means: the client's, whatever its connection.
    """

    def __init__(self, engine: Engine, prefixes: Prefixes, access: Access, origin: str) -> None:
        self.access = access
        self.origin = origin
        self._engine = engine
        self._prefixes = prefixes
        self._made: dict[str, Address] = {}

    def split(self, destination: str) -> tuple[str, str, RoutingType | None]:
        """The prefix, the name after it, and the routing type that the prefix states; as `Prefixes.split`.

        Raises StompError, Denied.
        """
        for temporary, kind in _TEMPORARY.items():
            if destination.startswith(temporary):
                prefixes = self._prefixes.anycast if kind else self._prefixes.multicast
                return next(iter(prefixes), ""), self._node(destination, kind).name, kind
        return self._prefixes.split(destination)

    def answered(self, destination: str) -> bool:
        """Whether somebody consumes what is sent to a temporary destination."""
        node = self._made.get(destination)
        return node is not None and any(queue.consumers for queue in node.queues)

    def _node(self, destination: str, kind: RoutingType) -> Address:
        node = self._made.get(destination)
        if node is None or self._engine.addresses.get(node.name) is not node:
            if len(self._made) >= TEMPORARY_MAX:
                detail = f"a connection may have {TEMPORARY_MAX} destinations of its own (/temp-queue/, /temp-topic/)"
                raise StompError("too many temporary destinations", detail)
            node = self._engine.make_temporary(kind, self.access, Permission.CONSUME, private=True)
            self._made[destination] = node
        return node

    def close(self) -> None:
        """The connection has ended, and its consumers are closed."""
        for node in self._made.values():
            self._engine.delete_temporary(node)
        self._made.clear()
