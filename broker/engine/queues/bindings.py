"""Bindings: the queues that an address's messages may enter, its own and those of every matching wildcard address.

The lists (`Reach`) are computed once and kept until a binding that may concern them changes.  All addresses without
queues of their own that the same wildcard addresses match share one, as 100,000 topics and 10,000 subscriptions to all
of them do.  So that others do not fill the memory either, the long ones have `PLACES_MAX` together: beyond it
the oldest are forgotten, and made again for whoever asks.  That of an address with thousands of queues of its own is
made from the one before while only some came or went: to look at each queue takes many milliseconds.

Changes of wildcard bindings are counted: all of them, those whose pattern begins with a wildcard, and the others by
their first word.  An address looks for its patterns again only once the count of its first word or that of leading
wildcards has changed.  So clients that come and go on `news.#` do not slow down those that send to `orders.eu`.

Dead-letter and expiry addresses, and notifications, are hidden from patterns that begin with a wildcard, as those with
a `$` are: whoever may read `#` would read each dead letter of addresses that it may not read, its own messages a second
time, and what other clients do.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.message import RoutingType
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.topics import Topics
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue

#: A message that enters more queues costs a microsecond for so many of them: that counts with what the filters cost.
WIDE: Final = 2_048
ENTERED_FOR_A_MICROSECOND: Final = 5

#: The list of an address with so many queues is not made again from all of them, unless more than this came or went.
RECENT_MAX: Final = 64

#: How many queues say in a microsecond whether they accept a message, beside what their filters cost.
ASKED_FOR_A_MICROSECOND: Final = 4

#: The most first words of wildcard addresses for which changes are counted separately; clients choose them.
FIRST_WORDS_MAX: Final = 10_000

#: The most places of queues and wildcard addresses in all shared lists, and in those of addresses with queues of their
#: own, together: 32 MiB.  A list with fewer places than `KEPT_FROM` takes less than its address, which has it alone.
PLACES_MAX: Final = 4 << 20
KEPT_FROM: Final = 64

#: For how many addresses that do not exist, which are sent to, it is kept what they reach: some hundred bytes each.
OTHERS_MAX: Final = 10_000

#: The queues that messages of an address may enter: anycast queues, multicast queues.
Targets = tuple[list[Queue], list[Queue]]


@dataclass(slots=True, eq=False, repr=False)
class Reach:
    """The queues that messages of an address may enter, or of all that share it (`Bindings`)."""

    targets: Targets  # with those of wildcard addresses
    patterns: tuple[Address, ...]  # these wildcard addresses
    version: int  # of the bindings when it was made
    match_cost: int = 0  # of the filters of `targets`
    durable_ids: array[int] | None = None  # of the durable ones of many multicast `targets`; None: not asked for yet
    stuck: Queue | None = None  # one that cannot page, as `Room` found it
    stuck_at: int = -1  # when: see there
    forgotten: bool = False  # to be made again


#: That of all addresses without queues that no wildcard address matches.
NO_REACH: Final = Reach(([], []), (), 0)


@dataclass(slots=True, eq=False, repr=False)
class AddressBindings:
    """The bindings of one address: its own queues, and when it was last asked for all that its messages may enter."""

    queues: dict[Queue, None] = field(default_factory=lambda: _NO_QUEUES)  # in the order of their bindings
    reach: Reach = NO_REACH  # when last asked for
    version: int = -1  # of all bindings then
    key: tuple[int, int] = (0, 0)  # of those that may concern it
    #: Queues of its own that came or went since `reach` was made, and whether each was in it; None: not known.
    recent: dict[Queue, bool] | None = None
    changed_at: int = 0  # of a wildcard address: the version of the bindings when its queues last changed


#: The shared, empty `queues` of addresses that have none: an empty dict takes 80 bytes.
_NO_QUEUES: Final[dict[Queue, None]] = {}


def _match_cost(queues: list[Queue]) -> int:
    """What it costs to match a message with the filters of these queues, each text once (`queue.Matches`)."""
    filters = [queue.filter for queue in queues if queue.filter is not None]
    return sum({filter.text: filter.cost for filter in filters}.values()) + len(filters) // ASKED_FOR_A_MICROSECOND


def _places(reach: Reach) -> int:
    """How many places a list takes."""
    return len(reach.targets[0]) + len(reach.targets[1]) + len(reach.patterns)


def _note(own: AddressBindings, queue: Queue, *, gone: bool) -> None:
    """Note that a queue of an address has come or gone since its list was made."""
    if own.version >= 0:
        reach = own.reach
        own.recent = {} if not reach.patterns and sum(map(len, reach.targets)) > WIDE else None
        own.version = -1
    if own.recent is not None:
        own.recent.setdefault(queue, gone)
        if queue.filter is not None or len(own.recent) > RECENT_MAX:
            own.recent = None


def _followed(own: AddressBindings) -> Reach | None:
    """The list of an address that no wildcard address matches, made from the one before, if that is possible."""
    recent, before = own.recent, own.reach
    own.recent = None
    if recent is None or before.patterns or before.forgotten:
        return None
    gone = {queue for queue, was_there in recent.items() if was_there}
    anycast, multicast = [
        [queue for queue in queues if queue not in gone] if gone else queues.copy() for queues in before.targets
    ]
    came = [queue for queue in recent if queue in own.queues]
    anycast += [queue for queue in came if queue.routing_type is not RoutingType.MULTICAST]
    came = [queue for queue in came if queue.routing_type is RoutingType.MULTICAST]
    multicast += came
    wide = len(anycast) + len(multicast)
    if wide <= WIDE:
        return None
    cost = before.match_cost - sum(map(len, before.targets)) // ENTERED_FOR_A_MICROSECOND
    ids = before.durable_ids
    if ids is not None:
        for queue in gone:
            if queue.durable and queue.id in ids:
                ids.remove(queue.id)
        ids.extend([queue.id for queue in came if queue.durable])
    return Reach((anycast, multicast), (), before.version, cost + wide // ENTERED_FOR_A_MICROSECOND, ids)


class Bindings:
    """The bindings of wildcard addresses, and the cached lists of all addresses."""

    __slots__ = (
        "_by_address",
        "_by_word",
        "_filtered",
        "_hidden",
        "_leading",
        "_others",
        "_places",
        "_reaches",
        "_syntax",
        "_version",
        "_wide",
        "_wildcards",
    )

    def __init__(self, syntax: WildcardSyntax) -> None:
        self._syntax = syntax
        self._wildcards: Topics[Address] = Topics(syntax)
        self._version = 0
        self._leading = 0
        self._by_word: dict[str, int] = {}
        self._hidden: AbstractSet[object] = frozenset()
        self._filtered: set[Queue] = set()  # those with a filter, of any address
        self._wide = False  # whether any address ever had more than `WIDE` queues
        # Those with queues of wildcard addresses, by these, or by the address that has queues of its own.
        self._reaches: OrderedDict[tuple[Address, ...] | Address, Reach] = OrderedDict()
        self._places = 0  # in all of them
        self._by_address: dict[Address, AddressBindings] = {}  # of those that exist
        self._others: dict[Address, AddressBindings] = {}  # of some that do not: nobody says when they are forgotten

    def add(self, address: Address) -> None:
        """Add an address, which is new."""
        assert address not in self._by_address, "its bindings would be lost"
        self._by_address[address] = AddressBindings()

    def remove(self, address: Address) -> None:
        """Remove an address, which has no queues any more."""
        assert not self._by_address[address].queues, "they reach it, and are charged to it"
        del self._by_address[address]

    def queues(self, address: Address) -> Collection[Queue]:
        """The queues of an address itself, in the order of their bindings."""
        own = self._by_address.get(address)
        return () if own is None else own.queues

    def _of(self, address: Address) -> AddressBindings:
        own = self._by_address.get(address) or self._others.get(address)
        if own is None:
            if len(self._others) >= OTHERS_MAX:
                self._others.clear()
            own = self._others[address] = AddressBindings()
        return own

    def hide(self, names: AbstractSet[object]) -> None:
        """Hide the addresses of these names, and no others, from patterns that begin with a wildcard."""
        if names != self._hidden:
            self._hidden = names
            self._version += 1
            self._leading += 1

    def bind(self, queue: Queue) -> None:
        """Bind a queue to its address.  Raises InvalidName for a pattern of too many words."""
        own = self._by_address[queue.address]
        if own.queues is _NO_QUEUES:
            own.queues = {}
        assert queue not in own.queues, "it is bound once"
        own.queues[queue] = None
        self._others.clear()  # they may have queues now
        self._enter(queue)

    def unbind(self, queue: Queue) -> None:
        """Unbind a queue from its address."""
        own = self._by_address[queue.address]
        del own.queues[queue]
        if not own.queues:
            own.queues = _NO_QUEUES
        self._leave(queue)

    @contextmanager
    def redefining(self, queue: Queue) -> Iterator[None]:
        """A context in which a queue gets another routing type or filter; it keeps its place."""
        self._leave(queue)
        yield
        self._enter(queue)

    def _enter(self, queue: Queue) -> None:
        self._change(queue, gone=False)
        if queue.filter is not None:
            self._filtered.add(queue)

    def _leave(self, queue: Queue) -> None:
        self._filtered.discard(queue)
        self._change(queue, gone=True)

    @property
    def filtering(self) -> bool:
        """Whether any queue has a filter, or an address has had very many queues."""
        return self._wide or bool(self._filtered)

    def targets(self, address: Address) -> Targets:
        """The anycast and the multicast queues that messages sent to an address may enter."""
        return self.reached(address).targets

    def candidates(self, address: Address, queue: Queue | None, routing_type: RoutingType | None) -> Targets:
        """The queues that a send may enter: the named queue, or those of the requested routing type, or all."""
        if queue is not None:
            if queue.deleted:
                return [], []
            anycast = queue.routing_type is RoutingType.ANYCAST
            return ([queue], []) if anycast else ([], [queue])
        targets = self.reached(address).targets
        if routing_type is None:
            return targets
        return (targets[0], []) if routing_type is RoutingType.ANYCAST else ([], targets[1])

    def match_cost(self, address: Address) -> int:
        """What it costs, in microseconds, to match a message sent to an address with all filters of its queues.

        If these are very many, with what it costs to enter them.
        """
        return self.reached(address).match_cost

    def patterns(self, address: Address) -> tuple[Address, ...]:
        """The wildcard addresses whose queues messages sent to an address may enter."""
        return self.reached(address).patterns

    def reach(self, name: str) -> int:
        """How many queues of wildcard addresses a message to an address of that name may enter."""
        return sum([len(self.queues(address)) for address in self._match(name)])

    def reach_cost(self, name: str) -> int:
        """`match_cost` for an address of that name which does not exist."""
        return self._shared(tuple(self._match(name))).match_cost

    def reaches(self, name: str, queue: Queue) -> bool:
        """Whether messages sent to an address of that name may enter the queue."""
        return queue.address.name == name or queue.address in self._match(name)

    def _match(self, name: str) -> list[Address]:
        return self._wildcards.match(name, hidden=name in self._hidden)

    def reached(self, address: Address) -> Reach:
        """The queues that messages sent to an address may enter, and what is known of all of them."""
        own = self._by_address.get(address) or self._of(address)
        current = own.version == self._version or self._is_current(address, own)
        if current and not own.reach.forgotten:
            return own.reach
        patterns = tuple([each for each in self._match(address.name) if each is not address])
        if own.queues:
            reach = None if patterns else _followed(own)
            own.reach = reach = reach or self._make(list(own.queues), patterns)
            if patterns and _places(reach) >= KEPT_FROM:
                self._keep(address, reach)
        else:
            own.reach = reach = self._shared(patterns)
        own.version = self._version
        return reach

    def _shared(self, patterns: tuple[Address, ...]) -> Reach:
        """What addresses without queues reach that these wildcard addresses match."""
        if not patterns:
            return NO_REACH
        if sum([len(self.queues(each)) for each in patterns], len(patterns)) < KEPT_FROM:
            return self._make([], patterns)
        found = self._reaches.get(patterns)
        if found is None or any([self._of(each).changed_at > found.version for each in patterns]):
            found = self._make([], patterns)
            self._keep(patterns, found)
        return found

    def _make(self, queues: list[Queue], patterns: tuple[Address, ...]) -> Reach:
        for each in patterns:
            queues += self.queues(each)
        multicast = RoutingType.MULTICAST
        targets = (
            [queue for queue in queues if queue.routing_type is not multicast],
            [queue for queue in queues if queue.routing_type is multicast],
        )
        cost = _match_cost(queues) if self._filtered else 0
        if len(queues) > WIDE:
            self._wide = True
            cost += len(queues) // ENTERED_FOR_A_MICROSECOND
        return Reach(targets, patterns, self._version, cost)

    def _keep(self, key: tuple[Address, ...] | Address, reach: Reach) -> None:
        """Keep a list, and forget an earlier one and, if all have too many places, the oldest."""
        before = self._reaches.pop(key, None)
        if before is not None:
            self._forget(before)
        self._reaches[key] = reach
        self._places += _places(reach)
        while self._places > PLACES_MAX and len(self._reaches) > 1:
            self._forget(self._reaches.popitem(last=False)[1])

    def _forget(self, reach: Reach) -> None:
        """Forget a list that addresses still have, perhaps."""
        assert not reach.forgotten, "its places are counted no more"
        self._places -= _places(reach)
        assert self._places >= 0, "what is forgotten was kept"
        reach.targets, reach.patterns, reach.durable_ids, reach.stuck, reach.forgotten = ([], []), (), None, None, True

    def _first_word(self, name: str) -> str:
        return name.partition(self._syntax.delimiter)[0]

    def _is_current(self, address: Address, own: AddressBindings) -> bool:
        """Whether no binding that changed can match the address; marks it as up to date with all changes so far."""
        key = (self._leading, self._by_word.get(self._first_word(address.name), 0))
        current = own.version >= 0 and own.key == key
        own.key = key
        if current:
            own.version = self._version
        return current

    def _change(self, queue: Queue, *, gone: bool) -> None:
        """Note that an address has one more queue, or one less."""
        address = queue.address
        own = self._by_address[address]
        before = self._reaches.pop(address, None)
        if before is not None:
            self._forget(before)
        pattern = address.name
        if not self._syntax.routes(pattern):
            _note(own, queue, gone=gone)
            return
        if own.queues:
            self._wildcards.add(pattern, address)
        else:
            self._wildcards.remove(pattern, address)
        self._version += 1
        own.changed_at = self._version
        first = self._first_word(pattern)
        if self._syntax.is_wildcard(first) or len(self._by_word) >= FIRST_WORDS_MAX:
            self._leading += 1
            self._by_word.clear()
        else:
            self._by_word[first] = self._by_word.get(first, 0) + 1
