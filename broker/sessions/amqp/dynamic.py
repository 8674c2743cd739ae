"""Dynamic nodes: the properties that clients may request, and the nodes' lifetimes (part 3, 3.5.3, 3.5.4, 3.5.9).

A node belongs to the link that made it and is deleted when that closes, whatever was requested: the answer says so.
When a link is detached without closing, its node stays, and a link of the same name and direction can resume it:

    expiry-policy requested            the node exists until              answered
    link-detach                        the link is detached               link-detach
    session-end, or none               the session ends                   session-end
    connection-close, never            the connection ends                connection-close
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.engine import Address
from protocols.amqp.composite import composite_of
from protocols.amqp.errors import INVALID_FIELD, AmqpError, DecodeError, format_value, link_error
from protocols.amqp.link import Channel, Link
from protocols.amqp.performatives import CONNECTION_CLOSE, LINK_DETACH, SESSION_END, DeleteOnClose, Source, Target
from protocols.amqp.types import Array, Symbol

_LIFETIME: Final = "lifetime-policy"
_MODES: Final = "supported-dist-modes"
#: Nodes of detached links per connection: each costs an address and a queue.  Beyond that, the oldest is deleted.
LEFT_MAX: Final = 100
#: Distribution modes (3.5.7).
MOVE: Final = "move"
COPY: Final = "copy"


def check_properties(wanted: Mapping[str, object] | None) -> None:
    """Check the types of requested node properties.  Raises AmqpError (invalid-field)."""
    for name, value in (wanted or {}).items():
        if name == _LIFETIME and not _is_lifetime(value):
            raise _invalid(name, "one of the lifetime policies (delete-on-close ...)")
        if name == _MODES:
            modes = value.items if isinstance(value, Array) and value.type == "symbol" else [value]
            if not all(isinstance(mode, Symbol) and mode in (MOVE, COPY) for mode in modes):
                raise _invalid(name, "one or more of the symbols move and copy")


def _is_lifetime(value: object) -> bool:
    try:
        found = composite_of(value)
    except DecodeError:
        return False
    return found is not None and "lifetime-policy" in found.PROVIDES


def _invalid(name: str, wanted: str) -> AmqpError:
    return link_error(INVALID_FIELD, f"attach: {format_value(name)} of a dynamic node is {wanted}.")


def properties(*, topic: bool) -> dict[str, object]:
    """Return the properties of a node, whatever was requested."""
    modes = (COPY,) if topic else (MOVE, COPY)
    return {_LIFETIME: DeleteOnClose(), _MODES: Array("symbol", [Symbol(mode) for mode in modes])}


def lasting(terminus: Source | Target) -> str:
    """Return the expiry policy of a dynamic terminus."""
    asked = terminus.expiry_policy
    return asked if asked in (LINK_DETACH, SESSION_END) else CONNECTION_CLOSE


@dataclass(slots=True)
class _Node:
    address: Address
    expiry: str
    session: Channel


class Nodes:
    """The dynamic nodes of one connection; `delete` is called for those whose lifetime ends."""

    __slots__ = ("_attached", "_delete", "_left")

    def __init__(self, delete: Callable[[Address], None]) -> None:
        self._delete = delete
        self._attached: dict[Link, _Node] = {}
        self._left: dict[tuple[str, bool], _Node] = {}  # of detached links, by the links' name and role

    def made(self, link: Link, address: Address, expiry: str) -> None:
        """Add a node that a link has made."""
        self._attached[link] = _Node(address, expiry, link.session)

    def take_up(self, link: Link, address: str | None) -> Address | None:
        """Let a link resume the node that a detached link of its name has left.  Returns its address, if any."""
        node = self._left.get((link.name, link.role))
        if node is None or address != node.address.name:
            return None
        del self._left[link.name, link.role]
        self._attached[link] = node
        node.session = link.session
        return node.address

    def detached(self, link: Link, *, closed: bool) -> None:
        """Process the end of a link: its node is deleted unless it can be resumed."""
        node = self._attached.pop(link, None)
        if node is None:
            return
        if closed or node.expiry == LINK_DETACH:
            self._delete(node.address)
            return
        before = self._left.pop((link.name, link.role), None)  # of another link of this name
        if before is None and len(self._left) >= LEFT_MAX:
            before = self._left.pop(next(iter(self._left)))
        self._left[link.name, link.role] = node
        if before is not None:
            self._delete(before.address)

    def ended(self, session: Channel) -> None:
        """Delete the nodes that live no longer than a session: it has ended."""
        for key, node in list(self._left.items()):
            if node.session is session and node.expiry != CONNECTION_CLOSE:
                del self._left[key]
                self._delete(node.address)

    def clear(self) -> None:
        """Delete all nodes: the connection is gone."""
        nodes = [*self._attached.values(), *self._left.values()]
        self._attached.clear()
        self._left.clear()
        for node in nodes:
            self._delete(node.address)
