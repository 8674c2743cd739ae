"""Bindings: the queues that an address's messages may enter, its own and those of every matching wildcard address.

The list is computed once for each address and cached until a binding that may concern it changes.  Changes of wildcard
bindings are counted: all of them, those whose pattern begins with a wildcard, and the others by their first word.  An
address keeps its list as long as neither the count of its first word nor that of leading wildcards has changed.  So
clients that come and go on `news.#` do not slow down those that send to `orders.eu`.

Dead-letter and expiry addresses, and notifications, are hidden from patterns that begin with a wildcard, as those with
a `$` are: whoever may read `#` would read each dead letter of addresses that it may not read, its own messages a second
time, and what other clients do.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from broker.engine.model.message import RoutingType
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.topics import Topics
from broker.engine.queues.address import Address, Targets
from broker.engine.queues.queue import Queue

#: A message that enters more queues costs a microsecond for so many of them: that counts with what the filters cost.
WIDE: Final = 2_048
ENTERED_FOR_A_MICROSECOND: Final = 5

#: The most first words of wildcard addresses for which changes are counted separately; clients choose them.
FIRST_WORDS_MAX: Final = 10_000


def _match_cost(queues: list[Queue]) -> int:
    """What it costs to match a message with the filters of these queues, each text once (`queue.Matches`)."""
    return sum({queue.filter.text: queue.filter.cost for queue in queues if queue.filter is not None}.values())


class Bindings:
    """The bindings of wildcard addresses, and the cached lists of all addresses."""

    __slots__ = ("_by_word", "_filtered", "_hidden", "_leading", "_syntax", "_version", "_wide", "_wildcards")

    def __init__(self, syntax: WildcardSyntax) -> None:
        self._syntax = syntax
        self._wildcards: Topics[Queue] = Topics(syntax)
        self._version = 0
        self._leading = 0
        self._by_word: dict[str, int] = {}
        self._hidden: AbstractSet[object] = frozenset()
        self._filtered: set[Queue] = set()  # those with a filter, of any address
        self._wide = False  # whether any address ever had more than `WIDE` queues

    def hide(self, names: AbstractSet[object]) -> None:
        """Hide the addresses of these names, and no others, from patterns that begin with a wildcard."""
        if names != self._hidden:
            self._hidden = names
            self._version += 1
            self._leading += 1

    def bind(self, queue: Queue) -> None:
        """Bind a queue to its address.  Raises InvalidName for a pattern of too many words."""
        self._change(queue, self._wildcards.add)
        if queue.filter is not None:
            self._filtered.add(queue)

    def unbind(self, queue: Queue) -> None:
        """Unbind a queue from its address."""
        self._filtered.discard(queue)
        self._change(queue, self._wildcards.remove)

    @property
    def filtering(self) -> bool:
        """Whether any queue has a filter, or an address has had very many queues."""
        return self._wide or bool(self._filtered)

    def targets(self, address: Address) -> Targets:
        """The anycast and the multicast queues that messages sent to an address may enter."""
        if address.targets_version != self._version and not self._is_current(address):
            others = [queue for queue in self._match(address.name) if queue.address is not address]
            address.patterns = tuple(dict.fromkeys([queue.address for queue in others]))
            queues = [*address.queues, *others]
            multicast = RoutingType.MULTICAST
            address.targets = (
                [queue for queue in queues if queue.routing_type is not multicast],
                [queue for queue in queues if queue.routing_type is multicast],
            )
            address.durable_ids = None
            address.match_cost = _match_cost(queues) if self._filtered else 0
            if len(queues) > WIDE:
                self._wide = True
                address.match_cost += len(queues) // ENTERED_FOR_A_MICROSECOND
            address.targets_version = self._version
        return address.targets

    def match_cost(self, address: Address) -> int:
        """What it costs, in microseconds, to match a message sent to an address with all filters of its queues.

        If these are very many, with what it costs to enter them.
        """
        self.targets(address)
        return address.match_cost

    def patterns(self, address: Address) -> tuple[Address, ...]:
        """The wildcard addresses whose queues messages sent to an address may enter."""
        self.targets(address)
        return address.patterns

    def reach(self, name: str) -> int:
        """How many queues of wildcard addresses a message to an address of that name may enter."""
        return len(self._match(name))

    def reach_cost(self, name: str) -> int:
        """`match_cost` for an address of that name which does not exist."""
        return _match_cost(self._match(name))

    def reaches(self, name: str, queue: Queue) -> bool:
        """Whether messages sent to an address of that name may enter the queue."""
        return queue.address.name == name or queue in self._match(name)

    def _match(self, name: str) -> list[Queue]:
        return self._wildcards.match(name, hidden=name in self._hidden)

    def _first_word(self, name: str) -> str:
        return name.partition(self._syntax.delimiter)[0]

    def _is_current(self, address: Address) -> bool:
        """Whether no binding that changed can match the address; marks it as up to date with all changes so far."""
        key = (self._leading, self._by_word.get(self._first_word(address.name), 0))
        current = address.targets_version >= 0 and address.targets_key == key
        address.targets_key = key
        if current:
            address.targets_version = self._version
        return current

    def _change(self, queue: Queue, change: Callable[[str, Queue], None]) -> None:
        pattern = queue.address.name
        if not self._syntax.routes(pattern):
            queue.address.targets_version = -1
            return
        change(pattern, queue)
        self._version += 1
        first = self._first_word(pattern)
        if self._syntax.is_wildcard(first) or len(self._by_word) >= FIRST_WORDS_MAX:
            self._leading += 1
            self._by_word.clear()
        else:
            self._by_word[first] = self._by_word.get(first, 0) + 1
