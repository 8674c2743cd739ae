"""Diverts: messages sent to one address also go, or go instead, to another.

A divert watches an address, by name or by a wildcard pattern.  Messages that match its filter are copied to its
forwarding addresses; if it is exclusive, the address itself does not get the message.  A copy is an independent message
with its own id and record.  Its annotations say where it comes from (`_AMQ_ORIG_ADDRESS`, `_AMQ_ORIG_MESSAGE_ID`, and
`_AMQ_ORIG_QUEUE` with the divert's name), and it keeps its expiration, priority and schedule.

    routing-type    the copy goes to
    STRIP           all queues of the forwarding address
    PASS            queues of the routing type that the sender asked for
    ANYCAST         anycast queues
    MULTICAST       multicast queues

Rules, in this order:

1. The exclusive diverts of an address are tried in the order of their names: the first whose filter matches takes the
   message, unless no queue at a forwarding address would accept the copy.  So no message is lost to an address without
   queues (in ActiveMQ Artemis it is).
2. Otherwise every other divert whose filter matches gets a copy, and the address's queues get the message.
3. A copy may be diverted again.  Where diverts form a circle, each takes a message or one copy of it, once: so circles
   end, with no more copies than the diverts have forwarding addresses.  (By every path, seven addresses that divert to
   each other would make thousands.)
4. A send to one queue (`address::queue`) and an operator's retry are not diverted: they name their queue.

This module defines diverts; `sending` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final

from broker.engine.filter import Filter, compile_filter
from broker.engine.model.errors import InvalidName
from broker.engine.model.message import RESERVED_PREFIXES, Message, PropertyView, RoutingType
from broker.engine.model.settings import AddressSettings
from store import record

Json = dict[str, object]

#: The most diverts of a broker: each may be looked at whenever an address is created.
DIVERTS_MAX: Final = 10_000

#: The most headers that one divert adds or removes: a transformation is a few notes, not a program.
HEADERS_MAX: Final = 64

#: The most forwarding addresses of one divert: each costs a copy of every message.
FORWARDS_MAX: Final = 64


class DivertRouting(StrEnum):
    """Which queues a diverted copy may enter."""

    STRIP = "STRIP"
    PASS = "PASS"
    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


@dataclass(slots=True, eq=False)
class Divert:
    """One divert.  `remove` and `add` transform the copy: properties to remove, then properties to set."""

    name: str
    address: str
    forwarding: tuple[str, ...]
    _: KW_ONLY
    exclusive: bool = False
    filter: Filter | None = None
    routing: DivertRouting = DivertRouting.STRIP
    add: Mapping[str, str] = field(default_factory=dict)
    remove: Sequence[str] = ()
    configured: bool = False
    internal: bool = False  # made by the broker for a retroactive address
    id: int = 0
    taken: int = 0  # messages, since the start

    def takes(self, message: Message) -> bool:
        """Whether a message matches the filter."""
        return self.filter is None or self.filter.matches(PropertyView(message))

    def routing_type(self, message: Message) -> RoutingType | None:
        """The routing type for a copy of this message; None: any."""
        if self.routing is DivertRouting.STRIP:
            return None
        if self.routing is DivertRouting.PASS:
            return message.header.routing_type
        return RoutingType[self.routing.value]

    def definition(self) -> Json:
        """The divert as the journal stores it."""
        return {
            "name": self.name,
            "address": self.address,
            "forwarding-addresses": list(self.forwarding),
            "exclusive": self.exclusive,
            "filter": self.filter.text if self.filter else "",
            "routing-type": self.routing.value,
            "add-headers": dict(self.add),
            "remove-headers": list(self.remove),
            "configured": self.configured,
            "internal": self.internal,
        }

    def same(self, other: Divert) -> bool:
        """Whether both have the same definition, apart from `configured`."""
        mine, others = self.definition(), other.definition()
        mine["configured"] = others["configured"] = True
        return mine == others

    def check(self) -> None:
        """Raises InvalidName if the divert is invalid or exceeds a limit."""
        if not self.name:
            raise InvalidName("a divert needs a name")
        if not 1 <= len(self.forwarding) <= FORWARDS_MAX:
            raise InvalidName(f"divert {self.name}: give 1 to {FORWARDS_MAX} forwarding addresses")
        if self.address in self.forwarding:
            raise InvalidName(f"divert {self.name} forwards to its own address: name another one")
        if len(self.add) + len(self.remove) > HEADERS_MAX:
            raise InvalidName(f"divert {self.name}: add and remove at most {HEADERS_MAX} headers")

    def check_added(self) -> None:
        """Raises InvalidName if a new divert adds a property that only the broker writes."""
        for name in self.add:
            if name.startswith(RESERVED_PREFIXES):
                raise InvalidName(f"divert {self.name} cannot add {name}: only the broker writes it")


def read_divert(id: int, definition: Json) -> Divert:
    """The inverse of `Divert.definition`.  Raises KeyError on a definition that lacks a field."""
    forwarding, add, remove = (definition[key] for key in ("forwarding-addresses", "add-headers", "remove-headers"))
    assert isinstance(forwarding, list)
    assert isinstance(add, dict)
    assert isinstance(remove, list)
    return Divert(
        str(definition["name"]),
        str(definition["address"]),
        tuple(str(name) for name in forwarding),
        exclusive=bool(definition["exclusive"]),
        filter=compile_filter(str(definition["filter"])),
        routing=DivertRouting(str(definition["routing-type"])),
        add={str(name): str(value) for name, value in add.items()},
        remove=[str(name) for name in remove],
        configured=bool(definition["configured"]),
        internal=bool(definition["internal"]),
        id=id,
    )


def divert_record(divert: Divert) -> bytes:
    """The DIVERT record of a divert."""
    return record.divert(divert.id, divert.definition())


class AddressExtras:
    """The extra work of an address beside putting messages on its queues: its diverts, and two of its settings.

    Most addresses have none, and a send checks nothing more.  After settings or diverts have changed, they are replaced
    once somebody asks for them (`Diverts.extras`).
    `reach` are the addresses that its diverts lead to, directly or through others; `copies` is the most copies of a
    message that this can make; `circle`: some of these diverts follow themselves.
    """

    __slots__ = ("circle", "copies", "exclusive", "ingress", "no_route", "others", "reach")

    def __init__(
        self, settings: AddressSettings, diverts: list[Divert], reach: tuple[str, ...], copies: int, circle: bool
    ) -> None:
        self.exclusive = [divert for divert in diverts if divert.exclusive]
        self.others = [divert for divert in diverts if not divert.exclusive]
        self.ingress = settings.enable_ingress_timestamp
        self.no_route = settings.send_to_dla_on_no_route
        self.reach = reach
        self.copies = copies + self.no_route
        self.circle = circle
