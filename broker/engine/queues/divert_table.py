"""The table of all diverts: which of them watch an address."""

from __future__ import annotations

from collections import Counter, deque

from broker.engine.model.errors import AlreadyInUse, NotFound
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.settings import AddressSettings
from broker.engine.model.topics import Topics
from broker.engine.queues.address import Address
from broker.engine.queues.diverts import DIVERTS_MAX, AddressExtras, Divert


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
