"""Temporary destinations of a connection, for replies: `/temp-queue/NAME` and `/temp-topic/NAME`.

NAME is valid on this connection only.  It stands for an address with a generated name, which is made when the
connection first uses NAME and deleted when the connection ends.  A client that receives a message with such a
`reply-to` sees the real name, and can send to it through any protocol.

In ActiveMQ Classic clients subscribe to the destination like to any other; in RabbitMQ a `reply-to` is enough.  Both
work: a client that uses it as `reply-to` without a subscription gets one whose id is the destination.  A later
SUBSCRIBE replaces that.
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

#: Temporary destinations per connection: each costs an address and a queue, and clients usually need one.
TEMPORARY_MAX: Final = 100


def is_temporary(destination: bytes) -> bool:
    """Whether a destination is temporary."""
    return destination.startswith(_PREFIXES)


class Destinations:
    """Resolves the destinations of one connection.

    `access`: the peer's permissions; `origin`: identifies the client's messages for no-local, on any connection.
    """

    def __init__(self, engine: Engine, prefixes: Prefixes, access: Access, origin: str) -> None:
        self.access = access
        self.origin = origin
        self._engine = engine
        self._prefixes = prefixes
        self._made: dict[str, Address] = {}

    def split(self, destination: str) -> tuple[str, str, RoutingType | None]:
        """Return prefix, name and routing type as `Prefixes.split`; makes the address of a temporary destination.

        Raises StompError, Denied.
        """
        for temporary, kind in _TEMPORARY.items():
            if destination.startswith(temporary):
                prefixes = self._prefixes.anycast if kind else self._prefixes.multicast
                return next(iter(prefixes), ""), self._node(destination, kind).name, kind
        return self._prefixes.split(destination)

    def answered(self, destination: str) -> bool:
        """Whether a temporary destination has consumers."""
        node = self._made.get(destination)
        return node is not None and any(queue.consumers for queue in self._engine.queues_of(node))

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
        """Delete the temporary addresses; the consumers are closed."""
        for node in self._made.values():
            self._engine.delete_temporary(node)
        self._made.clear()
