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

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from broker.engine.filter import Filter, compile_filter
from broker.engine.model.errors import AlreadyInUse, InvalidName, NotFound
from broker.engine.model.message import RESERVED_PREFIXES, Message, PropertyView, RoutingType
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.settings import AddressSettings
from broker.engine.model.topics import Topics
from store import record

if TYPE_CHECKING:
    from broker.engine.queues.address import Address

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


class Diverts:
    """All diverts, by name, and which of them watch an address.

    A change looks at no address, of which there may be 100,000: it is counted, and each address finds its diverts again
    when it is next used.
    """

    def __init__(self, syntax: WildcardSyntax) -> None:
        self.by_name: dict[str, Divert] = {}
        self._version = 0
        self._syntax = syntax
        self._exact: dict[str, list[Divert]] = {}
        self._patterns: Topics[Divert] = Topics(syntax)

    def get(self, name: str) -> Divert:
        """A divert by name.  Raises NotFound."""
        divert = self.by_name.get(name)
        if divert is None:
            raise NotFound(f"divert {name} does not exist")
        return divert

    def add(self, divert: Divert) -> None:
        """Add a divert.  Raises AlreadyInUse, InvalidName."""
        if divert.name in self.by_name:
            raise AlreadyInUse(f"divert {divert.name} exists already")
        if len(self.by_name) >= DIVERTS_MAX:
            raise AlreadyInUse(f"there are {DIVERTS_MAX} diverts already: the limit is reached")
        divert.check()
        if self._syntax.routes(divert.address):
            self._patterns.add(divert.address, divert)
        else:
            self._exact.setdefault(divert.address, []).append(divert)
        self.by_name[divert.name] = divert
        self._version += 1

    def remove(self, divert: Divert) -> None:
        """Remove an existing divert."""
        del self.by_name[divert.name]
        self._version += 1
        if self._syntax.routes(divert.address):
            self._patterns.remove(divert.address, divert)
            return
        watching = self._exact[divert.address]
        watching.remove(divert)
        if not watching:
            del self._exact[divert.address]

    def of(self, address: str) -> list[Divert]:
        """The diverts that watch an address, by name."""
        if not self.by_name:
            return []
        found = {divert.name: divert for divert in self._exact.get(address, ())}
        if self._syntax.routing:
            found |= {divert.name: divert for divert in self._patterns.match(address)}
        return [found[name] for name in sorted(found)]

    def extras(self, address: Address) -> AddressExtras | None:
        """The extras of an address; None: it has none."""
        if address.extras_version != self._version:
            address.extras = self._find(address.name, address.settings)
            address.extras_version = self._version
        return address.extras

    def _find(self, name: str, settings: AddressSettings) -> AddressExtras | None:
        watching = self.of(name)
        if not (watching or settings.enable_ingress_timestamp or settings.send_to_dla_on_no_route):
            return None
        return AddressExtras(settings, watching, *self._reach(watching))

    def _reach(self, watching: list[Divert]) -> tuple[tuple[str, ...], int, bool]:
        """The addresses that diverts lead to, the most copies of a message, and whether diverts form a circle."""
        reached: dict[str, None] = {}
        further: dict[Divert, list[Divert]] = {}
        ways: Counter[Divert] = Counter()  # in which a divert follows another one
        following = deque(watching)
        while following:
            divert = following.popleft()
            if divert in further:
                continue
            reached |= dict.fromkeys(divert.forwarding)
            further[divert] = [each for forward in divert.forwarding for each in self.of(forward)]
            ways.update(further[divert])
            following += further[divert]
        order = [divert for divert in further if not ways[divert]]
        for divert in order:  # and those that are added
            for each in further[divert]:
                ways[each] -= 1
                if not ways[each]:
                    order.append(each)
        if len(order) < len(further):
            return tuple(reached), sum([len(divert.forwarding) for divert in further]), True
        copies: dict[Divert, int] = {}
        for divert in reversed(order):
            copies[divert] = len(divert.forwarding) + sum([copies[each] for each in further[divert]])
        return tuple(reached), sum([copies[divert] for divert in watching]), False
