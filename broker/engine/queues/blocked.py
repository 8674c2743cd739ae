"""The producers that a full address, or the full disk, has stopped, and how they go on.

One client may be stopped by thousands of addresses, and one address may stop thousands of clients.  So no message that
leaves looks at all of them: an address is looked at when something that counted there has left, all of them when
anything else has changed that may stop them (the memory of the broker was full and is not, settings, a queue that could
not page).  Those that are to be looked at take turns, in steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final

from broker.engine.queues.address import NONE_BLOCKED, Address, Producer
from broker.engine.queues.steps import LongWork, Steps, gathered
from broker.engine.queues.uncommitted import Uncommitted

#: What it costs to look at an address, and to let a producer continue, in microseconds.
LOOK_COST: Final = 3
UNBLOCK_COST: Final = 10

#: How many producers of an address continue in one step, and how many that wait within transactions are looked at.
_TOGETHER: Final = 64
_TRANSACTIONS_TOGETHER: Final = 512

_OWNER: Final = "producers that wait for room"


class Blocked:
    """Producers that wait for room.

    `stops`: whether an address stops those who send outside transactions; `free`: which of some transactions it does
    not stop.
    `disk_is_full`: then nobody continues.
    """

    __slots__ = (
        "_all",
        "_blame",
        "_disk_is_full",
        "_due",
        "_for_disk",
        "_free",
        "_looking",
        "_released",
        "_steps",
        "_stops",
        "_within",
        "addresses",
        "by_producer",
    )

    def __init__(
        self,
        steps: Steps,
        for_disk: dict[Producer, None],
        *,
        disk_is_full: Callable[[], bool],
        stops: Callable[[Address], bool],
        free: Callable[[Address, list[Uncommitted]], list[Uncommitted]],
        blame: Callable[[object, BaseException], None],
    ) -> None:
        #: The addresses that have stopped producers.
        self.addresses: dict[Address, None] = {}
        #: Those that have stopped each producer.
        self.by_producer: dict[Producer, dict[Address, None]] = {}
        self._within: dict[Producer, None] = {}  # those that wait within a transaction
        self._for_disk = for_disk
        self._released: OrderedDict[Producer, None] = OrderedDict()  # the disk has room again, and they have to be told
        self._due: OrderedDict[Address, None] = OrderedDict()  # to be looked at
        self._all = False  # all are to be looked at
        self._looking = False
        self._steps = steps
        self._disk_is_full = disk_is_full
        self._stops = stops
        self._free = free
        self._blame = blame

    @property
    def any_within(self) -> bool:
        """Whether any producer waits that sends in a transaction."""
        return bool(self._within)

    def add(self, address: Address, producer: Producer, held: Uncommitted | None) -> None:
        """Note that an address has stopped a producer; `held`: what the transaction holds in which it sends."""
        if address.blocked is NONE_BLOCKED:
            address.blocked = {}
        address.blocked[producer] = held
        self.addresses[address] = None
        self.by_producer.setdefault(producer, {})[address] = None
        if held is not None:
            self._within[producer] = None

    def remove(self, producer: Producer) -> None:
        """Forget a producer."""
        for address in self.by_producer.pop(producer, ()):
            del address.blocked[producer]
            if not address.blocked:
                self.addresses.pop(address, None)
        self._within.pop(producer, None)
        self._for_disk.pop(producer, None)
        self._released.pop(producer, None)

    def replace(self, before: Address, after: Address) -> None:
        """Let the producers that an address has stopped wait for another one."""
        for producer, held in before.blocked.items():
            del self.by_producer[producer][before]
            self.add(after, producer, held)
        before.blocked = NONE_BLOCKED
        self.addresses.pop(before, None)

    def look_at(self, address: Address) -> None:
        """Let producers continue if this address no longer stops them."""
        if address in self.addresses:
            self._due[address] = None
            self._look()

    def look_at_all(self) -> None:
        """The same for all addresses."""
        if self.addresses:
            self._all = True
            self._look()

    def release(self) -> None:
        """The same, and for those that wait for the disk: it has room."""
        self._released.update(self._for_disk)
        self._for_disk.clear()
        self._all = True
        self._look()

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._steps.begin(_OWNER, gathered(self._each()))

    def _each(self) -> LongWork:
        try:
            while self._all or self._due:
                if self._all:
                    self._all = False
                    self._due = OrderedDict(self.addresses)
                    continue
                address, _ = self._due.popitem(last=False)
                if address in self.addresses:
                    yield from self._look_at(address)
            while self._released:
                producer, _ = self._released.popitem(last=False)
                self._continue(producer)
                yield UNBLOCK_COST
        finally:
            self._looking = False

    def _look_at(self, address: Address) -> LongWork:
        yield LOOK_COST
        if self._stops(address):
            waiting = list(self._within.keys() & address.blocked.keys())
            for at in range(0, len(waiting), _TRANSACTIONS_TOGETHER):
                yield self._look_within(address, waiting[at : at + _TRANSACTIONS_TOGETHER])
            return
        free = list(islice(address.blocked, _TOGETHER))
        for producer in free:
            if producer in address.blocked:
                self._go_on(address, producer)
        if address.blocked:
            self._due[address] = None
        yield UNBLOCK_COST * len(free)

    def _look_within(self, address: Address, producers: list[Producer]) -> int:
        """Let those of some producers continue whose transactions an address no longer stops; returns the cost."""
        waiting = [(each, held) for each in producers if (held := address.blocked.get(each)) is not None]
        free = set(self._free(address, [held for _, held in waiting])) if waiting else set[Uncommitted]()
        for producer, held in waiting:
            if held in free and producer in address.blocked:
                self._go_on(address, producer)
        return LOOK_COST * len(waiting)

    def _go_on(self, address: Address, producer: Producer) -> None:
        """Note that an address no longer stops a producer, which continues unless something else does."""
        del address.blocked[producer]
        if not address.blocked:
            self.addresses.pop(address, None)
        others = self.by_producer[producer]
        del others[address]
        if others:
            return
        del self.by_producer[producer]
        self._within.pop(producer, None)
        self._continue(producer)

    def _continue(self, producer: Producer) -> None:
        if producer in self.by_producer or (self._disk_is_full() and producer in self._for_disk):
            return
        try:
            producer.unblock()
        except BaseException as error:
            self._blame(producer.transport, error)
