"""Room: everything about "full", asked once for each run of messages.

`Room.admit` says what becomes of messages sent to an address, by what is full and by the address's policy:

    full                                PAGE              BLOCK   FAIL   DROP   moved by the broker
    memory                              PAGE              BLOCK   FAIL   DROP   PAGE
    memory, and a queue cannot page     BLOCK             BLOCK   FAIL   DROP   it stays where it is
    the address's page limits           page-full-policy  -       -      -      -
    a wildcard address's page limits    that address's page-full-policy         -
    the disk                            BLOCK             BLOCK   FAIL   DROP   -
    the reject threshold                -                 FAIL    -      -      -

Page limits count what the queues of an address have on disk, whoever sent it.  Those of a wildcard address hold for
what is sent to any address that it matches; what its queues have on disk counts in no other address's limits.

Memory is full when an address reaches its limits, or all messages together reach that of the broker.  Messages that
the broker moves (dead letters, expired ones, those that an operator moves or imports) were accepted before and are
never refused: beyond the limit they wait on disk, whatever the policy.  So an address that does not page counts them
as held wherever they are.

A queue may have a limit of its own (`messages_max`).  Its messages wait from the moment they are stored until a
consumer has them: those not yet durable, the ready ones, in memory or paged, and the scheduled ones.  At the limit

    drop_oldest    the oldest ready ones leave (DISPLACED) in the tick in which the new ones become ready
    otherwise      the new ones leave (DROPPED) in the journal entry that stores them; in a later one, as they land, if
                   they enter many queues (`arrival.land_from`)
    memory full    new non-durable ones that no consumer could get at once leave (DROPPED): only durable ones wait on
                   disk

and each is recorded as having entered the queue and left it by name, so that the books balance.

BLOCK admits messages, and then stops their producer: `wait` enters it, `wake` lets it continue.  As each sender that
comes anew brings some, such as a client that reconnects, or a will, what exceeds a limit by more than a quarter waits
on disk.  A ring, which stops nobody, evicts its oldest then (the broker's limit only).  A message is charged
to the address that it was sent to as long as it is in memory, whoever holds it, even if the address is deleted.  So are
messages of an open transaction, from when they are sent (`uncommitted`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

from broker.engine.model.attributes import QueueAttributes
from broker.engine.model.errors import AddressFull
from broker.engine.model.message import (
    MESSAGE_OVERHEAD_BYTES,
    Annotations,
    Message,
    annotations_bytes,
    size_of,
)
from broker.engine.model.report import Report
from broker.engine.model.settings import AddressFullPolicy, AddressSettings, PageFullPolicy
from broker.engine.queues.address import Address, Producer
from broker.engine.queues.bindings import Bindings, Targets
from broker.engine.queues.blocked import Blocked
from broker.engine.queues.consumer import UNLIMITED
from broker.engine.queues.queue import Queue
from broker.engine.queues.steps import Steps
from broker.engine.queues.uncommitted import OpenTransactions, Uncommitted
from store.counted import counted
from store.pages import Pages

#: A full address or queue is reported again only after it has fallen to this percentage of its limit: not for every
#: message while it is at its limit.
REPORT_AGAIN_PERCENT: Final = 50

#: What a message that waits for its time takes beside itself: its entries in two tables, measured.
SCHEDULED_BYTES: Final = 600

#: The most bytes of annotations that consumers may add to a message while memory is full: enough for a trace context.
FULL_ANNOTATIONS_BYTES: Final = 1024


#: The part of a limit by which rings, and what senders bring before they stop, may exceed it.
OVERRUN_PART: Final = 4


class Admission(Enum):
    """What becomes of messages."""

    OK = "they enter"
    PAGE = "they enter, and wait on disk only"
    BLOCK = "they enter, and their producer must wait"
    FAIL = "they are refused"
    DROP = "they are dropped by name"


class Full(Enum):
    """What is full."""

    MEMORY = "memory"
    STUCK = "memory, and a queue cannot page"
    PAGES_FAIL = "the page limits of an address that refuses messages then"
    PAGES_DROP = "the page limits of an address that drops messages then"
    DISK = "the disk"
    THRESHOLD = "the reject threshold"


_PAGE, _BLOCK = AddressFullPolicy.PAGE, AddressFullPolicy.BLOCK
_PAGES_OFF: Final = PageFullPolicy.OFF
_REFUSING: Final = {AddressFullPolicy.FAIL: Admission.FAIL, AddressFullPolicy.DROP: Admission.DROP}

#: What becomes of messages that are sent: the rows of the table above.
_ADMISSIONS: Final[dict[Full, Mapping[AddressFullPolicy, Admission]]] = {
    Full.PAGES_FAIL: dict.fromkeys(AddressFullPolicy, Admission.FAIL),
    Full.PAGES_DROP: dict.fromkeys(AddressFullPolicy, Admission.DROP),
    Full.MEMORY: {_PAGE: Admission.PAGE, _BLOCK: Admission.BLOCK, **_REFUSING},
    Full.STUCK: {_PAGE: Admission.BLOCK, _BLOCK: Admission.BLOCK, **_REFUSING},
    Full.DISK: {_PAGE: Admission.BLOCK, _BLOCK: Admission.BLOCK, **_REFUSING},
    Full.THRESHOLD: {_BLOCK: Admission.FAIL},
}

#: The first that applies to any address counts.
_PAGES_FULL: Final = {PageFullPolicy.FAIL: Full.PAGES_FAIL, PageFullPolicy.DROP: Full.PAGES_DROP}


@dataclass(slots=True, eq=False)
class Disk:
    """The journal's disk when last measured, in bytes; `full`: beyond the limit for producers.

    `usage_max`: percent that may be used, `free_min`: bytes that must be free; -1: not set.  `free_min` counts alone if
    it is set.  `waiting` are producers without an address, which wait only for the disk.
    """

    full: bool = False
    usage_max: int = -1
    free_min: int = -1
    used_bytes: int = 0
    free_bytes: int = 0
    waiting: dict[Producer, None] = field(default_factory=dict)

    @property
    def percent(self) -> int:
        """How much of the disk is used, rounded up as `df` does; 0 before the first measurement."""
        total = self.used_bytes + self.free_bytes
        return -(-self.used_bytes * 100 // total) if total else 0

    @property
    def exceeded(self) -> bool:
        """Whether the limit is not met."""
        if self.free_min >= 0:
            return self.free_bytes < self.free_min
        return 0 <= self.usage_max <= self.percent

    @property
    def unmet(self) -> str:
        """The limit that is not met, and by what, as everybody is told."""
        if self.free_min >= 0:
            return f"the disk has {counted(self.free_bytes, 'byte')} free, min-disk-free is {self.free_min}"
        return f"{self.percent} % of the disk is used, max-disk-usage is {self.usage_max} %"


@dataclass(slots=True, eq=False)
class Usage:
    """Memory held by messages in the whole broker, in bytes, against one limit (-1: none), and the disk.

    These count against the same limit: `ids_bytes` is what remembered duplicate ids take, and `link_ids_bytes` those of
    links; `clients_bytes` are wills and the like (`client_memory`); `scheduled` are the messages that wait for their
    time, each of which takes more than it is charged as a message.
    """

    bytes_max: int = -1
    bytes: int = field(init=False, default=0)
    ids_bytes: int = field(init=False, default=0)
    link_ids_bytes: int = field(init=False, default=0)
    clients_bytes: int = field(init=False, default=0)
    scheduled: Sized = field(init=False, default=())
    messages: int = field(init=False, default=0)
    disk: Disk = field(init=False, default_factory=Disk)

    def fits(self, nbytes: int) -> bool:
        """Whether the memory limit would not be reached with `nbytes` more."""
        if self.bytes_max < 0:
            return True
        others = self.ids_bytes + self.link_ids_bytes + self.clients_bytes + self.scheduled_bytes
        return self.bytes + others + nbytes < self.bytes_max

    @property
    def scheduled_bytes(self) -> int:
        """What is noted of messages that wait for their time, beside themselves."""
        return SCHEDULED_BYTES * len(self.scheduled)

    @property
    def memory_full(self) -> bool:
        """Whether the memory limit is reached."""
        return not self.fits(0)


#: What may be full without stopping those who send in a transaction, by policy: then nothing else does.
_NOT_FOR_TRANSACTIONS: Final = {
    policy: {None} if policy is _BLOCK else {None, Full.MEMORY} for policy in AddressFullPolicy
}


def may_page(attributes: QueueAttributes) -> bool:
    """Whether a queue with these attributes can have a tail.

    It cannot if it must know all of its messages: their keys, the oldest, or which consumer was sent which.
    """
    return not (attributes.key or attributes.non_destructive or attributes.ring_size >= 0)


def pageable(queue: Queue) -> bool:
    """Whether a queue can have a tail."""
    return queue.internal_owner is None and may_page(queue.attributes)


def is_full(address: Address, count: int = 0, nbytes: int = 0) -> bool:
    """Whether an address has reached the limits of its settings, with so many messages more."""
    settings = address.settings
    count += address.size_messages
    nbytes += address.size_bytes
    if address.paged_messages and settings.address_full_policy is not _PAGE and not address.wildcard:
        count += address.paged_messages
        nbytes += _paged_size(address)
    return 0 <= settings.max_size_bytes <= nbytes or 0 <= settings.max_size_messages <= count


def _held(address: Address) -> tuple[int, int]:
    """The messages and bytes that count against the limits of an address."""
    if address.settings.address_full_policy is _PAGE or address.wildcard:
        return address.size_messages, address.size_bytes
    return address.size_messages + address.paged_messages, address.size_bytes + _paged_size(address)


def _paged_size(address: Address) -> int:
    """What its messages on disk would take in memory: after a restart those may be there that were in memory before."""
    return address.paged_bytes + MESSAGE_OVERHEAD_BYTES * address.paged_messages


def _has_recovered(address: Address) -> bool:
    """Whether an address is far enough below its limits for the next time that it is full to be reported."""
    settings = address.settings
    messages_held, bytes_held = _held(address)
    return (settings.max_size_bytes < 0 or bytes_held * 100 <= settings.max_size_bytes * REPORT_AGAIN_PERCENT) and (
        settings.max_size_messages < 0 or messages_held * 100 <= settings.max_size_messages * REPORT_AGAIN_PERCENT
    )


def _forget_warnings(address: Address) -> None:
    """Report again when it is full, if it has recovered since."""
    if _has_recovered(address):
        address.warned -= {"full", "unpageable"}


def _on_disk(address: Address) -> tuple[int, int]:
    """The messages and bytes that count against the page limits of an address: on disk only, or on their way there."""
    return address.paged_messages + address.landing_messages, address.paged_bytes + address.landing_bytes


def _pages_full(address: Address, *, memory_full: bool) -> bool:
    """Whether an address has reached its page limits, if there is a policy, and messages are paged."""
    settings = address.settings
    if settings.page_full_policy is _PAGES_OFF or settings.address_full_policy is not _PAGE:
        return False
    messages, nbytes = _on_disk(address)
    if not (messages or memory_full):
        return False
    return 0 <= settings.page_limit_bytes <= nbytes or 0 <= settings.page_limit_messages <= messages


def _blocks(address: Address, full: Full) -> bool:
    """Whether an address stops producers when this is full."""
    return _ADMISSIONS[full][address.settings.address_full_policy] is Admission.BLOCK


def _stuck_queue(targets: Targets) -> Queue | None:
    """A queue that neither pages nor has a bound of its own, as a ring and the broker's own queues have."""
    for queues in targets:
        for queue in queues:
            if not (pageable(queue) or queue.attributes.ring_size >= 0 or queue.internal_owner is not None):
                return queue
    return None


def places_left(queue: Queue, most: int) -> int:
    """How many more messages the queue may have if `most` may wait: below 0 if it has too many.

    Deliveries do not count, nor do as many messages as the queue's consumers could get at once.
    """
    taking = 0
    for consumer in () if queue.stopped else queue.consumers:
        if consumer.credit > 0 and not consumer.paused:
            if not consumer.counted:
                return UNLIMITED
            taking += consumer.credit
    return most + taking - queue.ready - queue.paged - queue.scheduled_count - queue.landing - queue.fanned


def queue_has_recovered(queue: Queue, free: int) -> bool:
    """Whether a queue with this much room is far enough below its limit for the next overflow to be reported."""
    return free > queue.messages_max * (100 - REPORT_AGAIN_PERCENT) // 100


class Room:
    """What addresses and the broker may hold, what they hold, and who waits for room."""

    def __init__(
        self,
        usage: Usage,
        pages: Pages,
        report: Report,
        steps: Steps,
        *,
        addresses: Mapping[str, Address],
        bindings: Bindings,
        settings: Callable[[str], AddressSettings],
        blame: Callable[[object, BaseException], None],
        transactions: OpenTransactions,
    ) -> None:
        self.usage = usage
        self.transactions = transactions
        #: Deleted addresses whose messages are still on queues of wildcard addresses, by name: charged to them.
        self.departed: dict[str, Address] = {}
        self._blocked = Blocked(
            steps,
            usage.disk.waiting,
            disk_is_full=lambda: usage.disk.full,
            stops=self._stops,
            free=self._free,
            blame=blame,
        )
        self._attributes = 0  # how often those of any queue have changed
        self._was_full = False  # since all were last looked at the broker's memory was full, for which any may wait
        self._pages = pages
        self._report = report
        self._addresses = addresses
        self._bindings = bindings
        self._settings = settings

    # -- the question ----------------------------------------------------------------------------------------------

    def admit(self, address: Address, count: int, nbytes: int) -> Admission:
        """What becomes of a message that is sent to an address after `count` others, of `nbytes`, have entered."""
        full = self._what_is_full(address, count, nbytes)
        if full is None:
            if address.warned:
                _forget_warnings(address)
            return Admission.OK
        return _ADMISSIONS[full][address.settings.address_full_policy]

    def takes(self, address: Address, count: int, nbytes: int) -> bool:
        """Whether nothing is full even with so many messages more: all are admitted, and their producer goes on."""
        if address.warned:
            _forget_warnings(address)
        return self._what_is_full(address, count, nbytes) is None

    def admit_whole(self, address: Address, messages: list[Message]) -> Admission:
        """What becomes of messages that enter as a whole or not at all: beyond a limit that they reach."""
        admission = self.admit(address, len(messages) - 1, size_of(messages) - messages[-1].size)
        return self.admit(address, 0, 0) if admission in (Admission.FAIL, Admission.DROP) else admission

    def admit_moved(self, address: Address, targets: Targets, count: int = 0, nbytes: int = 0) -> Admission:
        """What becomes of a message that the broker moves to these queues: OK, PAGE, or BLOCK (it must stay).

        `count`, `nbytes`: of those that it moves there before this one.
        """
        if not self.is_tight(address, count, nbytes):
            return Admission.OK
        return Admission.PAGE if _stuck_queue(targets) is None else Admission.BLOCK

    def _what_is_full(self, address: Address, count: int, nbytes: int, *, apart: int = 0) -> Full | None:
        """What is full with so many messages more; `apart`: bytes elsewhere that count in no limit."""
        settings, usage = address.settings, self.usage
        policy = settings.address_full_policy
        memory_full = not usage.fits(nbytes - apart)
        if not memory_full and (settings.max_size_bytes >= 0 or settings.max_size_messages >= 0):
            memory_full = is_full(address, count, nbytes)
        if settings.page_full_policy is not _PAGES_OFF or self._bindings.reached(address).patterns:
            full = self._full_pages(address, memory_full=memory_full)
            if full is not None:
                return full
        if policy is _BLOCK and 0 <= settings.max_size_bytes_reject_threshold <= _held(address)[1]:
            return Full.THRESHOLD
        if usage.disk.full:
            return Full.DISK
        if not memory_full:
            return None
        if policy is _PAGE and (self._pages.full or self._stuck(address) is not None):
            return Full.STUCK
        return Full.MEMORY

    def _stuck(self, address: Address) -> Queue | None:
        """A queue of an address, or of a wildcard address that matches it, that neither pages nor has a bound."""
        reach = self._bindings.reached(address)
        if reach.stuck_at != self._attributes:
            reach.stuck, reach.stuck_at = _stuck_queue(reach.targets), self._attributes
        return reach.stuck

    def attributes_changed(self) -> None:
        """Note that a queue has other attributes: one that could not page may now be able to, or the reverse."""
        self._attributes += 1
        self.wake()

    def _full_pages(self, address: Address, *, memory_full: bool) -> Full | None:
        """Which page limits an address has reached: its own, or those of wildcard addresses that match it."""
        limiting = (address, *self._bindings.reached(address).patterns)
        reached = {each.settings.page_full_policy for each in limiting if _pages_full(each, memory_full=memory_full)}
        return next((full for policy, full in _PAGES_FULL.items() if policy in reached), None)

    def goes_to_disk(self, address: Address, admission: Admission) -> bool:
        """Whether messages that enter an address now, and are admitted so, wait on disk only."""
        if admission is Admission.BLOCK:
            return self.pages(address) or self.is_overrun(address)
        return admission is Admission.PAGE

    def pages(self, address: Address) -> bool:
        """Whether messages that an address admits now wait on disk, on those of its queues that can page."""
        return address.settings.address_full_policy is _PAGE and self.is_tight(address)

    def is_tight(self, address: Address, count: int = 0, nbytes: int = 0) -> bool:
        """Whether memory is full, for what is there already: it goes to disk if it can.

        `count`, `nbytes`: of what the address has moved to it, which takes as much memory elsewhere until then.
        """
        return not self.usage.fits(0) or is_full(address, count, nbytes)

    @property
    def overrun(self) -> bool:
        """Whether memory is fuller by a quarter than it may be: by what neither waits on disk nor stops its senders."""
        return not self.usage.fits(-(self.usage.bytes_max // OVERRUN_PART))

    def is_overrun(self, address: Address) -> bool:
        """The same, or of the limits of an address that stops its senders: by what each brings before it stops."""
        bytes_max, messages_max = address.settings.max_size_bytes, address.settings.max_size_messages
        return (
            self.overrun
            or 0 <= bytes_max + bytes_max // OVERRUN_PART <= address.size_bytes
            or 0 <= messages_max + messages_max // OVERRUN_PART <= address.size_messages
        )

    def has_room(self, address: Address, count: int, nbytes: int) -> bool:
        """Whether no limit would be reached with so many messages more in memory."""
        return self.usage.fits(nbytes) and not self.usage.disk.full and not is_full(address, count, nbytes)

    def fitting(self, address: Address, messages: list[Message]) -> int:
        """How many of these messages, from the first one on, an address with FAIL or DROP takes before it is full."""
        nbytes = 0
        for count, message in enumerate(messages):
            if self.admit(address, count, nbytes) is not Admission.OK:
                return count
            nbytes += message.size
        return len(messages)

    def may_refuse(self, address: Address) -> bool:
        """Whether the settings of an address may ever refuse messages."""
        settings = address.settings
        if settings.address_full_policy is AddressFullPolicy.FAIL or settings.max_size_bytes_reject_threshold >= 0:
            return True
        limiting = (address, *self._bindings.reached(address).patterns)
        return any([each.settings.page_full_policy is PageFullPolicy.FAIL for each in limiting])

    def check(self, address: Address, *, sent_to: Address | None = None) -> None:
        """Raises AddressFull if the address refuses messages now.

        `sent_to`: the address of a send that diverts lead here, if one does: its sender may not know of this one.
        """
        if self.admit(address, 0, 0) is Admission.FAIL:
            if sent_to is not None:
                raise AddressFull(
                    f"address {sent_to.name} takes no messages: an address that its diverts lead to is full"
                )
            raise self.refusal(address)

    def check_brought_back(self, address: Address) -> None:
        """Raises AddressFull if an address has no room for messages inserted or replayed, which nothing stops."""
        if self.usage.disk.full:
            raise AddressFull(f"{self.usage.disk.unmet}: messages are brought back only once it has room")
        if self.admit(address, 0, 0) not in (Admission.OK, Admission.PAGE):
            raise self.refusal(address)

    def refusal(self, address: Address) -> AddressFull:
        """The error for messages that an address refuses."""
        if _pages_full(address, memory_full=True):
            messages, nbytes = _on_disk(address)
            waiting = f"{counted(messages, 'message')} of {counted(nbytes, 'byte')}"
            return AddressFull(f"address {address.name} is full: {waiting} wait on disk")
        if self._full_pages(address, memory_full=True) is not None:
            return AddressFull(  # its sender may not know of that one
                f"address {address.name} takes no messages: a wildcard address that matches it is full"
            )
        if self.usage.disk.full and not is_full(address):
            return AddressFull(f"address {address.name} takes no messages: {self.usage.disk.unmet}")
        messages_held, bytes_held = _held(address)
        held = f"{counted(messages_held, 'message')} of {counted(bytes_held, 'byte')}"
        return AddressFull(f"address {address.name} is full: it holds {held}")

    def report_dropping(self, address: Address) -> None:
        """Report that a full address drops messages, once until it has room again."""
        if "full" not in address.warned:
            address.warned |= {"full"}
            self._report("address.full.dropping", address=address.name, bytes=address.size_bytes)

    # -- what is held ----------------------------------------------------------------------------------------------

    def charged(self, name: str) -> Address:
        """The address to which messages of that name are charged while they are in memory; it may be deleted."""
        address = self._addresses.get(name) or self.departed.get(name)
        if address is None:
            address = self.departed[name] = Address(0, name, frozenset(), self._settings(name))
        return address

    def charge(self, name: str, messages: list[Message], nbytes: int = -1) -> None:
        """Count messages of an address as in memory; `nbytes`: their size, if it is known."""
        if nbytes < 0:
            nbytes = size_of(messages)
        address, usage, count = self._addresses.get(name) or self.charged(name), self.usage, len(messages)
        address.size_bytes += nbytes
        address.size_messages += count
        usage.bytes += nbytes
        usage.messages += count

    def discharge(self, name: str, size: int, count: int) -> None:
        """Count `count` messages of an address, of `size` bytes in all, as no longer in memory."""
        self.usage.bytes -= size
        self.usage.messages -= count
        address = self.charged(name)
        address.size_bytes -= size
        address.size_messages -= count
        assert address.size_messages >= 0, "each message is discharged once, from the address that it was charged to"
        if not address.size_messages:
            self.departed.pop(name, None)
        self._wake_if_room(address)

    def _wake_if_room(self, address: Address | None) -> None:
        """Let producers continue if there is room: something has left that counted, also for an address if given."""
        blocked = self._blocked
        if not blocked.addresses or self.usage.disk.full:
            return
        if not self.usage.fits(-self.transactions.sent_bytes):
            self._was_full = True
        elif self._was_full and (self.usage.fits(0) or blocked.any_within):
            self.wake()
        elif address is not None:
            blocked.look_at(address)

    def charge_arriving(self, nbytes: int) -> None:
        """Count bytes of messages that have not come whole, so that no address has them; below 0: no longer."""
        self.usage.bytes += nbytes
        if nbytes < 0:
            self._wake_if_room(None)

    def recharge(self, message: Message, before: str, after: str) -> None:
        """Charge a message in memory to the address `after` instead of `before`."""
        self.charge(after, [message])
        self.discharge(before, message.size, 1)

    def annotate(self, message: Message, annotations: Annotations, *, bounded: bool) -> None:
        """Add annotations to a message in memory, and charge them.

        `bounded`: while memory is full, or would be with them, a message gets no more than FULL_ANNOTATIONS_BYTES.
        """
        address, before = self.charged(message.header.address), message.size
        if bounded:
            more = annotations_bytes((message.header.annotations or {}) | annotations)
            full = not self.usage.fits(more) or is_full(address, 0, more)
            if full and more > FULL_ANNOTATIONS_BYTES:
                return
        message.annotate(annotations)
        address.size_bytes += message.size - before
        self.usage.bytes += message.size - before

    def take_over(self, address: Address) -> None:
        """Charge to a new address what a deleted one of its name is still charged for."""
        before = self.departed.pop(address.name, None)
        if before is not None:
            address.size_bytes, address.size_messages = before.size_bytes, before.size_messages
            self._blocked.replace(before, address)

    # -- open transactions -----------------------------------------------------------------------------------------

    def hold_sends(self, held: Uncommitted, sends: Mapping[str, list[Message]], nbytes: int) -> None:
        """Charge messages, of `nbytes` in all, that a transaction sends, by address.  Raises TransactionsFull."""
        self.transactions.check(held, sum(map(len, sends.values())), nbytes, self.usage.bytes_max)
        for name, messages in sends.items():
            size = size_of(messages)
            self.charge(name, messages, size)  # first: what is held is discharged at the end, whatever happens
            self.transactions.add_sends(held, name, len(messages), size)

    def hold_deliveries(self, held: Uncommitted, messages: list[Message]) -> None:
        """Count deliveries that a transaction settles, which are charged already.  Raises TransactionsFull."""
        nbytes = size_of(messages)
        self.transactions.check(held, len(messages), nbytes, self.usage.bytes_max)
        self.transactions.add(held, nbytes)

    @contextmanager
    def without(self, held: Uncommitted, names: Iterable[str]) -> Iterator[None]:
        """A context in which what a transaction sends is charged neither to these addresses nor to the broker.

        Its commit charges it again.
        """
        charged = [(self.charged(name), *held.sends[name]) for name in set(names) if name in held.sends]
        usage, all_bytes, all_messages = self.usage, held.sent_bytes, held.sent_messages
        for address, count, nbytes in charged:
            address.size_bytes -= nbytes
            address.size_messages -= count
        usage.bytes -= all_bytes
        usage.messages -= all_messages
        try:
            yield
        finally:  # no call is made here, which could fail and leave them uncounted
            for address, count, nbytes in charged:
                address.size_bytes += nbytes
                address.size_messages += count
            usage.bytes += all_bytes
            usage.messages += all_messages

    def release(self, held: Uncommitted, addresses: int = sys.maxsize) -> bool:
        """Discharge what a transaction that ends has sent, to so many addresses; if that is all, forget what it holds.

        Returns whether it was all.
        """
        for name, (count, nbytes) in list(islice(held.sends.items(), addresses)):
            self.release_sends(held, name, count, nbytes)
        if held.sends:
            return False
        self.transactions.remove(held)
        return True

    def release_sends(self, held: Uncommitted, name: str, count: int, nbytes: int) -> None:
        """Discharge messages that a transaction has sent to an address: its commit has charged them again."""
        self.transactions.remove_sends(held, name, count, nbytes)
        self.discharge(name, nbytes, count)

    # -- who waits -------------------------------------------------------------------------------------------------

    def wait(self, address: Address | None, producer: Producer, held: Uncommitted | None = None) -> bool:
        """Whether a producer must stop sending to an address; it is then entered to be woken once there is room.

        Without an address it sends to any, and only a full disk stops it.  `held`: what the transaction holds in which
        it sends.
        """
        disk = self.usage.disk
        if address is None:
            if disk.full:
                disk.waiting[producer] = None
            return disk.full
        full = self._what_is_full(address, 0, 0)
        if held is not None and full not in _NOT_FOR_TRANSACTIONS[address.settings.address_full_policy]:
            full = self._what_is_full_for(address, self.transactions.behind(held, address.name))
        if full is None or not _blocks(address, full):
            return False
        if full is Full.STUCK:
            self._report_stuck(address)
        if not address.blocked and not disk.full:  # a full disk was reported already
            self._report("address.full.blocking", address=address.name, bytes=address.size_bytes)
        self._blocked.add(address, producer, held)
        self._note_full()
        return True

    def _what_is_full_for(self, address: Address, behind: tuple[int, int]) -> Full | None:
        """The same for who sends in a transaction: neither its own sends count nor what may wait for it (`behind`)."""
        messages, nbytes = behind
        return self._what_is_full(address, -messages, -nbytes, apart=self.transactions.sent_bytes - nbytes)

    def _report_stuck(self, address: Address) -> None:
        queue = self._stuck(address)
        if queue is not None and "unpageable" not in address.warned:
            address.warned |= {"unpageable"}
            self._report("address.full.unpageable", address=address.name, queue=queue.name)

    def stop_waiting(self, producer: Producer) -> None:
        """Forget a producer that has disconnected: it no longer waits for room."""
        self._blocked.remove(producer)

    def left_disk(self, address: Address) -> None:
        """Note that messages of an address's queues have left the disk, where one that does not page counts them."""
        if not self.usage.disk.full:
            self._blocked.look_at(address)

    def wake(self) -> None:
        """Let producers continue whose addresses no longer stop them.

        Messages may have left, but the settings or queues of an address may also have changed: then it may page, drop
        or refuse, although memory or disk are full.
        """
        self._was_full = False
        self._blocked.look_at_all()

    def wake_for_disk(self) -> None:
        """Let producers continue that waited for the disk."""
        self._was_full = False
        self._blocked.release()

    def _note_full(self) -> None:
        """Note that producers may wait for the broker's memory."""
        self._was_full |= not self.usage.fits(0)

    def _stops(self, address: Address) -> bool:
        """Whether an address stops those who send outside transactions."""
        stops = self.admit(address, 0, 0) is Admission.BLOCK
        if stops:
            self._note_full()
        return stops

    def _free(self, address: Address, waiting: list[Uncommitted]) -> list[Uncommitted]:
        """Those of some waiting transactions that an address no longer stops."""
        transactions = self.transactions
        if self._stops_behind(address, transactions.sent_to(address.name)):
            return []  # what is on its queues is enough
        behind = transactions.behind_each(waiting, address.name)
        return [held for held in waiting if not self._stops_behind(address, behind[held])]

    def _stops_behind(self, address: Address, behind: tuple[int, int]) -> bool:
        full = self._what_is_full_for(address, behind)
        return full is not None and _blocks(address, full)
