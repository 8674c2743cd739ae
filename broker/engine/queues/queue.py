"""A queue: messages on one side, consumers on the other.  Both are here, as neither can be read without the other.

A message on a queue is in exactly one of these places, and each has its container here:

    landing      stored in the open or a submitted journal entry, not yet durable, or behind such messages; no consumer
                 sees it.  Where deliveries are recorded, messages need not wait here (`arrival.stored`)
    fanned       the same for messages that enter many queues: they are counted as having come when they land, on some
                 of the queues in each tick (`Pending.fans`)
    backlog      ready for delivery
    tail         ready as well, but only on disk: behind the backlog, see `paging`
    scheduled    waiting for its time (scheduled delivery, or the delay before a redelivery); on disk in the tail too
    delivering   with a consumer, not yet acknowledged (`Consumer.unacked`), or acknowledged in an open transaction; or
                 reserved for a link whose connection has ended (`Reservation.stand_in`); or being settled in steps
                 (`Queue.leaving`)

`states` has an entry for each message that is `redelivered`: it was sent to a consumer that did not settle it.  The
entry says how many of its deliveries count as failed.  A message that was never sent, or was properly released, has
none, which makes the ordinary path cheap.  `acquired` also has those returned without failure since the start; messages
from before the start (ids below `acquired_below`) may have been with any consumer.

A `Consumer` has credit, and the deliveries that it has not settled yet (`unacked`), in the order of delivery.  The last
of them may still await the journal (`held`).  A delivery takes credit; settling it gives that back where there is a
window.  `Queue.delivering` counts the deliveries of all consumers, of reservations and of open transactions, and those
that are being settled in steps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Final, Protocol

from broker.engine.filter import Filter
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.attributes import PLAIN, QueueAttributes
from broker.engine.model.errors import AlreadyInUse
from broker.engine.model.message import DL_FIRST_ADDRESS, ORIG_ADDRESS, Message, RoutingType, size_of
from broker.engine.model.names import SHARED_PREFIX, digest_of
from broker.engine.model.notes import Notes
from broker.engine.model.permissions import Permission
from broker.engine.queues.address import Address
from broker.engine.queues.backlog import Backlog, KeptBacklog
from broker.engine.queues.consumer import UNLIMITED, AckMode, Excluded, LinkTarget, Subscriber
from broker.engine.queues.counters import COUNTED, LEFT_COUNTERS, Counters
from broker.engine.queues.grouped import GroupedBacklog
from broker.engine.queues.matches import Matches
from broker.engine.queues.paging.tail import Tail
from broker.engine.queues.rules.queue_rules import NO_RULES, QueueRules, rules_for
from store.record import RemovalReason

_ID: Final[Callable[[Message], int]] = attrgetter("id")

#: How many ids of messages that are scheduled no more `Queue.scheduled_ids` may have, and one for each that still is.
SCHEDULED_GONE_MAX: Final = 1_024

#: From how many deliveries on that are settled together it pays to look whether they are the oldest, and to copy the
#: others; but not if these are more: an acknowledgement in many portions would copy them again for each.
PREFIX_MIN: Final = 1_000


class InternalOwner(Protocol):
    """A part of the broker that owns a queue: clients and operators cannot send to it, consume it, or change it."""

    def expired(self, message: Message) -> None:
        """Called when a message of the queue expires, just before it is removed."""


class Sink(Protocol):
    """The receiver of a consumer's messages: a session.  Called within a tick."""

    @property
    def transport(self) -> object:
        """The connection to close if it raises; None: there is none."""

    def journals_deliveries(self, consumer: Consumer) -> bool:
        """Whether deliveries to this consumer are in the journal before their first byte is sent.

        If so, the sink may be passed messages that are not durable yet, and consumers wait for the disk once, not
        twice.
        """

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        """Send these messages, in this order.  Must not call the engine."""

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """The engine closed the consumer (its queue was deleted)."""


class DetachedSink:
    """What is left of the sink of a closed consumer: its connection.

    A session refers to its consumers.  If they referred to it for ever, each ended one would be in a reference cycle.
    """

    __slots__ = ("_journals", "transport")

    def __init__(self, transport: object, *, journals: bool) -> None:
        self.transport = transport
        self._journals = journals

    def journals_deliveries(self, consumer: Consumer) -> bool:
        return self._journals

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        raise AssertionError("a closed consumer is sent no messages")

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """Do nothing: it has been told, or has closed it."""


class Reservation(Protocol):
    """Keeps a link's deliveries for it when its connection ends (`delivery.reservations`)."""

    stand_in: Consumer  # holds the reserved messages; it is sent none

    @property
    def whole(self) -> Consumer | None:
        """The attached consumer that gets the reserved messages, if there is one."""

    def delivered(self, messages: list[Message]) -> bool:
        """Reserve messages that are about to be sent; returns whether they must wait for the journal."""

    def has_left(self, id: int) -> bool:
        """Whether a message was sent over a connection that has ended."""

    def keep(self, messages: list[Message]) -> None:
        """Move deliveries whose outcome is unknown to the stand-in."""

    def detached(self, consumer: Consumer) -> None:
        """Handle the detachment of a consumer, after its deliveries were kept."""

    def returned(self, messages: list[Message]) -> None:
        """End the reservation of deliveries that are returned: any consumer may get them."""

    def settled(self, ids: list[int]) -> None:
        """Forget messages that have left the queue."""

    def queue_gone(self) -> None:
        """End the reservation: the queue is deleted with all its messages."""

    def release(self, why: str) -> None:
        """Return the reserved messages to the queue, for any consumer."""


class DeliveryState:
    """The state of a message that has been delivered before, on one queue.  Immutable.

    `count` is the number of failed deliveries, which may be 0; `first_failure` the time of the first, in ms.
    """

    __slots__ = ("count", "first_failure")

    def __init__(self, count: int, first_failure: int = 0) -> None:
        self.count = count
        self.first_failure = first_failure

    def failed(self, now: int) -> DeliveryState:
        """The state after one more failed delivery."""
        return DeliveryState(self.count + 1, self.first_failure if self.count else now)


#: The state of every message that was delivered without a failure.
DELIVERED: Final = DeliveryState(0)


#: The shared `left` of queues that no message has left: a list of its own takes 176 bytes.
_NONE_LEFT: Final = [0] * (max(RemovalReason) + 1)


#: The shared, empty `journalled` of queues that were never strict: an empty set takes 216 bytes.
_NEVER_STRICT: Final[set[int]] = set()

#: The shared, empty `reserved` of queues that no link with a reservation has read.
_NOT_RESERVED: Final[dict[int, Reservation]] = {}


@dataclass(slots=True, eq=False, repr=False)  # a repr would show all that it leads to
class Queue:
    """One queue.  Its identity is `id`: a queue deleted and created again under the same name is another one.

    `rules` are those of its attributes.  `open`: new messages may enter; `stopped`: nothing is
    delivered; `non_destructive`: deliveries are copies, and the messages stay; `strict`: deliveries are journalled
    before they are sent.
    """

    id: int
    name: str
    address: Address
    routing_type: RoutingType
    _: KW_ONLY
    durable: bool = True
    filter: Filter | None = None
    no_local: str = ""  # messages of this origin do not enter
    auto_created: bool = False
    temporary: bool = False  # deleted with its last consumer
    configured: bool = False
    attributes: QueueAttributes = PLAIN
    paused: bool = False  # by an operator; its address may be paused too
    creator: str = ""  # the user who created it; empty: none did
    messages_max: int = -1  # how many may wait, -1: no limit
    drop_oldest: bool = False  # whether the oldest leave to make room for new ones (`room`)
    unused_since: int = 0
    used: bool = False
    swept: bool = False
    deleted: bool = False
    rules: QueueRules = NO_RULES
    internal_owner: InternalOwner | None = None  # the part of the broker that owns this queue
    reader: Access | None = None  # messages that it may not read do not enter (`routing.alter.filter_for`)
    durable_only: bool = False  # accepts only durable messages: its client is away

    # Derived from these (`refresh`).
    non_destructive: bool = False
    open: bool = True
    accepts_all: bool = True  # every message may enter without a check
    stopped: bool = False
    strict: bool = False

    # Its messages.
    backlog: Backlog = field(default_factory=Backlog)
    landing: int = 0  # how many; the messages are in the work of their tick (`Pending.landing_on`)
    fanned: int = 0  # how many are on their way to this and many other queues
    paging: int = 0  # how many of these will be paged: what comes later has to go behind them
    behind: int = 0  # how many runs have to land behind such ones
    scheduled: dict[int, tuple[int, Message]] = field(default_factory=dict)  # id -> (due, message)
    scheduled_ids: list[int] | None = None  # of `scheduled`, in order, and of some that have left; None: not needed yet
    tail: Tail | None = None
    delivering: int = 0
    expiring: int = 0  # messages in the backlog that have an expiration
    stored: int = 0  # messages of this queue in the journal, including the open entry, and not removed
    ahead: int = 0  # the last tick in which messages became ready before they were durable (`arrival.stored`)
    states: dict[int, DeliveryState] = field(default_factory=dict)
    acquired: dict[int, None] = field(default_factory=dict)  # an empty set takes more memory; this is mostly empty
    acquired_below: int = 0
    #: Deliveries whose count is already in the journal (strict mode).
    journalled: set[int] = field(default_factory=lambda: _NEVER_STRICT)
    grouped: bool = False  # it has had a message of a group
    overflowing: bool = False  # it is over its limit, and that was reported
    counters: Counters = field(default_factory=Counters)
    left: list[int] = field(default_factory=lambda: _NONE_LEFT)  # how many have left it, by RemovalReason

    # Its consumers.
    consumers: list[Consumer] = field(default_factory=list)
    next_consumer: int = 0
    leaving: tuple[
        list[Message], ...
    ] = ()  # deliveries taken from their consumers, to be settled in steps (`settling`)
    returning: int = 0  # how many of these lists return: until then nothing is delivered
    reservations: tuple[Reservation, ...] = ()  # of links that read here, or for which messages are reserved
    #: Messages that such links hold, or that are reserved for them.
    reserved: dict[int, Reservation] = field(default_factory=lambda: _NOT_RESERVED)

    def __post_init__(self) -> None:
        if self.attributes == PLAIN:
            self.attributes = PLAIN  # one shared object for nearly all queues
        else:
            self.rules = rules_for(self.attributes)
        self.non_destructive = self.attributes.non_destructive
        self.refresh()
        if self.non_destructive:
            self.rebuild()

    def refresh(self) -> None:
        """Recompute `open`, `accepts_all`, `stopped` and `strict` after a change of what they depend on."""
        attributes = self.attributes
        self.open = attributes.enabled and (not attributes.purge_on_no_consumers or bool(self.consumers))
        self.open = self.open and self.internal_owner is None
        self.accepts_all = self.filter is None and not self.no_local and self.reader is None and self.open
        self.stopped = self.paused or self.address.paused
        self.strict = self.durable and self.address.settings.strict
        if self.strict and self.journalled is _NEVER_STRICT:
            self.journalled = set()

    @property
    def ready(self) -> int:
        """Messages in memory that a consumer could get now."""
        return len(self.backlog)

    @property
    def paged(self) -> int:
        """Ready messages that are only on disk."""
        return 0 if self.tail is None else self.tail.messages

    @property
    def scheduled_count(self) -> int:
        """Scheduled messages, in memory or only on disk."""
        return len(self.scheduled) + (0 if self.tail is None else self.tail.scheduled)

    def due_of(self, id: int) -> int:
        """When a scheduled message is due, in ms since the epoch; 0 if it is not scheduled."""
        waiting = self.scheduled.get(id)
        if waiting is not None:
            return waiting[0]
        return 0 if self.tail is None else self.tail.due_of(id)

    @property
    def has_waiting(self) -> bool:
        """Whether any message is ready or scheduled."""
        return bool(self.ready or self.paged or self.scheduled_count)

    @property
    def message_count(self) -> int:
        """All messages on the queue, wherever they are."""
        return self.ready + self.paged + self.landing + self.fanned + self.scheduled_count + self.delivering

    @property
    def internal(self) -> bool:
        """Whether this is one of the broker's own queues."""
        return self.internal_owner is not None

    @property
    def is_subscription(self) -> bool:
        """Whether a subscription may be this queue: it is multicast, and not one of the broker's own."""
        return self.routing_type is RoutingType.MULTICAST and self.internal_owner is None

    @property
    def is_shared_subscription(self) -> bool:
        """Whether this is the queue of a shared subscription (MQTT) to its address, as `queue_name` names them."""
        if not (self.name.startswith(SHARED_PREFIX) and self.is_subscription):
            return False
        name, pattern = self.name.removeprefix(SHARED_PREFIX), self.address.name
        return name.endswith((f".{pattern}", f".{digest_of(pattern)}"))

    def count_left(self, reason: RemovalReason, messages: int) -> None:
        """Count messages that leave the queue: part of `Totals.count_left`, and of nothing else."""
        if self.left is _NONE_LEFT:
            self.left = _NONE_LEFT.copy()
        self.left[reason] += messages

    @property
    def counts(self) -> dict[str, int]:
        """All of its counters, by name."""
        left = {name: self.left[reason] for reason, name in LEFT_COUNTERS.items()}
        here = {"added": self.added, "delivered": self.counters.delivered, "redelivered": self.counters.redelivered}
        return {name: left[name] if name in left else here[name] for name in COUNTED}

    @property
    def added(self) -> int:
        """How many messages have come since the start, with those on their way to many queues."""
        return self.counters.added + self.fanned

    def check_owner(self, access: Access) -> None:
        """Refuse a subscription that another user has made.  Raises Denied.

        One that operators, the configuration or anonymous clients have made, or that is shared by its nature, is
        anybody's who may consume from its address.
        """
        made = self.is_subscription and (self.temporary or not self.auto_created) and not self.is_shared_subscription
        if made and self.creator not in ("", access.user):
            access.require(Permission.MANAGE_SESSIONS, self.address.name, self.name, named=self.name)

    def check_public(self) -> None:
        """Raises AlreadyInUse if this is one of the broker's own queues."""
        if self.internal_owner is not None:
            raise AlreadyInUse(f"queue {self.name} is the broker's own: it can only be inspected")

    def accepts(self, message: Message, found: Matches | None = None) -> bool:
        """Whether the message may enter: the queue is open, its filter matches, its reader may read the message.

        `found`: what the filters of other queues have found.
        """
        if not self.open:
            return False
        if self.no_local and message.header.origin == self.no_local:
            return False
        if self.reader is not None and not _may_read(self.reader, message):
            return False
        return self.filter is None or (found or Matches(message)).match(self.filter)

    @property
    def forgets(self) -> bool:
        """Whether the queue accepts nothing now because it keeps nothing without consumers."""
        attributes = self.attributes
        return attributes.enabled and attributes.purge_on_no_consumers and not self.consumers

    def forget(self, messages: list[Message]) -> None:
        """Note that messages leave: their keys are free, and others may be the first of their groups."""
        self.rules.left(messages)
        backlog = self.backlog
        if isinstance(backlog, GroupedBacklog) and backlog.first:
            backlog.left(messages)

    def begin_groups(self) -> None:
        """Switch to a backlog with groups, for the first message of a group."""
        self.grouped = True
        self.rebuild()

    def rebuild(self) -> None:
        """Replace the backlog by one of the kind that attributes and messages need, with the same ready messages."""
        attributes, before = self.attributes, self.backlog
        if attributes.non_destructive:
            self.backlog = KeptBacklog(before.levels)
        elif self.grouped and attributes.groups:
            mark_first = bool(attributes.group_first_key)
            self.backlog = GroupedBacklog(before.levels, buckets=attributes.group_buckets, mark_first=mark_first)
        else:
            self.backlog = Backlog(before.levels)
        self.backlog.floor = before.floor
        for consumer in self.consumers:
            self.backlog.attach(consumer.id, consumer.predicate)

    @property
    def attached(self) -> int:
        """Consumers whose clients are connected.  The others belong to sessions that outlast their connections."""
        return len(self.consumers) - sum([consumer.away for consumer in self.consumers])

    def holders(self) -> list[Consumer]:
        """Everybody who holds deliveries: the consumers, and the stand-ins of links whose connections have ended."""
        if not self.reservations:
            return self.consumers
        return self.consumers + [each.stand_in for each in self.reservations if each.stand_in.unacked]

    def between(self, after: int, below: int, most: int) -> list[Message]:
        """At most `most` ready and scheduled messages in memory with ids between these two, oldest first.

        Few others are visited.
        """
        found = self.backlog.between(after, below, most)
        if self.scheduled:
            found += self._scheduled_between(after, below, most)
            found.sort(key=_ID)
            del found[most:]
        return found

    def _scheduled_between(self, after: int, below: int, most: int) -> list[Message]:
        if self.scheduled_ids is None:
            self.scheduled_ids = sorted(self.scheduled)
        ids, found = self.scheduled_ids, list[Message]()
        start = at = bisect_right(ids, after)
        while at < len(ids) and ids[at] < below and len(found) < most:
            waiting = self.scheduled.get(ids[at])
            if waiting is not None:
                found.append(waiting[1])
            at += 1
        ids[start:at] = [message.id for message in found]
        return found

    def hold(self, message: Message, due: int) -> None:
        """Add a message to the scheduled ones."""
        self.scheduled[message.id] = (due, message)
        ids = self.scheduled_ids
        if ids is None:
            return
        if len(ids) > 2 * len(self.scheduled) + SCHEDULED_GONE_MAX:
            self.scheduled_ids = None
            return
        at = bisect_left(ids, message.id)
        if at == len(ids) or ids[at] != message.id:
            ids.insert(at, message.id)

    def clear(self) -> list[Message]:
        """Remove and return all ready messages in memory."""
        self.expiring = 0
        return self.backlog.clear()

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer at the end of the round."""
        assert consumer.queue is self, "it counts this queue's deliveries"
        assert not consumer.closed, "nothing would detach it"
        self.consumers.append(consumer)
        self.used = True
        self.swept = False
        self.backlog.attach(consumer.id, consumer.predicate)
        self.refresh()

    def detach(self, consumer: Consumer, now: int) -> None:
        """Take a consumer out of the round."""
        self.consumers.remove(consumer)
        self.next_consumer = 0
        if not self.consumers:
            self.unused_since = now
        self.backlog.detach(consumer.id)
        self.refresh()

    def add_reservation(self, reservation: Reservation) -> None:
        """Add the reservation of a link."""
        self.reservations += (reservation,)
        if self.reserved is _NOT_RESERVED:
            self.reserved = {}

    def remove_reservation(self, reservation: Reservation) -> None:
        """Remove the reservation of a link that neither reads the queue nor has messages of it."""
        self.reservations = tuple([each for each in self.reservations if each is not reservation])

    def delivery_count(self, id: int) -> int:
        """Failed deliveries of a message so far."""
        state = self.states.get(id)
        return 0 if state is None else state.count


@dataclass(slots=True, eq=False, repr=False)  # a repr would show all that it leads to
class Consumer:
    """One subscription to one queue.

    `credit` is how much may still be sent: delivery goes on while it is above zero.  By default it counts bytes of
    message size, returns with settlement, and one message always fits.  `counted` credit is a number of messages, which
    also returns with settlement or, without a window, is granted by the sink.
    `unacked` holds the deliveries not yet settled, in the order of delivery; `order` repeats their ids for cumulative
    consumers, whose acknowledgements cover a prefix.
    """

    id: int
    queue: Queue
    sink: Sink
    _: KW_ONLY
    ack_mode: AckMode
    window: int
    counted: bool = False
    priority: int = 0
    predicate: Callable[[Message], bool] | None = None
    selector: str = ""
    filter: Filter | None = None  # what it became
    client_id: str = ""
    remote: str = ""
    user: str = ""
    access: Access = UNRESTRICTED
    forwards: bool = False  # messages it acknowledges are with another broker now: they leave as FORWARDED
    link: LinkTarget | None = None  # of a link to another broker
    exclusive: bool = False  # the only consumer of its subscription: others are refused
    subscriber: Subscriber | None = None  # None: it reads a queue that is not its subscription
    on_demand: bool = False  # another broker's link, which fetches for consumers waiting there
    credit: int = 0
    settled: int = 0  # messages acknowledged
    excluded: Excluded | None = None
    reservation: Reservation | None = None
    revoked: bool = False  # closed because its client lost the permission to consume
    paused: bool = False
    away: bool = False  # its client is not connected; it stays, with the client's messages in flight
    closed: bool = False
    unacked: dict[int, Message] = field(default_factory=dict)
    held: int = 0  # how many of `unacked`, the youngest, await the journal and are not with the sink (strict mode)
    order: deque[int] | None = None

    def __post_init__(self) -> None:
        self.credit = max(self.window, 1) if self.window >= 0 else 0 if self.counted else UNLIMITED
        if self.ack_mode is AckMode.CUMULATIVE:
            self.order = deque()

    def take(self, messages: list[Message]) -> None:
        """Add deliveries: they use credit and await settlement."""
        unacked = self.unacked
        for message in messages:
            unacked[message.id] = message
        if self.order is not None:
            self.order.extend([message.id for message in messages])
        if self.counted:
            self.credit -= len(messages)
        elif self.window >= 0:
            self.credit -= size_of(messages)

    def take_again(self, messages: list[Message]) -> None:
        """Add deliveries whose settlement was undone; only for a consumer whose sink grants its credit.

        Those that are `held` remain the last.
        """
        assert self.window < 0, "credit of a window would have to be reduced again"
        unacked = self.unacked
        held = [unacked.popitem()[1] for _ in range(self.held)]
        unacked.update([(message.id, message) for message in messages])
        unacked.update([(message.id, message) for message in reversed(held)])

    def room(self) -> tuple[int, int]:
        """How many messages, and bytes, it may get now; the last message may exceed the bytes."""
        return (self.credit, UNLIMITED) if self.counted else (UNLIMITED, self.credit)

    def settle(self, ids: list[int]) -> list[Message]:
        """Remove and return deliveries, restoring their credit.  Every id must be in `unacked`."""
        unacked = self.unacked
        if len(ids) > max(PREFIX_MIN, len(unacked) // 2) and list(islice(unacked, len(ids))) == ids:
            messages = list(islice(unacked.values(), len(ids)))
            self.unacked = dict(islice(unacked.items(), len(ids), None))
        else:
            messages = [unacked[id] for id in ids]
            for id in ids:
                del unacked[id]
        if self.window >= 0:
            self._win_back(messages)
        return messages

    def take_back(self, ids: list[int]) -> list[Message]:
        """Remove and return deliveries that were never sent, restoring their credit, which they have not used."""
        messages = self.settle(ids)
        if self.order is not None:
            gone = set(ids)
            self.order = deque([id for id in self.order if id not in gone])
        if self.counted and self.window < 0:
            self.credit += len(messages)
        return messages

    def _win_back(self, messages: list[Message]) -> None:
        """Restore a window's credit for settled deliveries."""
        self.credit += len(messages) if self.counted else size_of(messages)

    def settle_next(self, ids: list[int]) -> list[Message] | None:
        """Remove and return these deliveries if all are here and, for a cumulative consumer, they are the oldest.

        Otherwise None, and nothing is done.
        """
        order, unacked = self.order, self.unacked
        if order is not None and list(islice(order, len(ids))) != ids:
            return None
        try:
            messages = [unacked[id] for id in ids]
        except KeyError:
            return None
        if len(ids) > 1 and len(set(ids)) < len(ids):
            return None
        for id in ids:
            del unacked[id]
        if order is not None:
            for _ in ids:
                order.popleft()
        if self.window >= 0:
            self._win_back(messages)
        return messages

    def detach_sink(self) -> None:
        """Forget the session, which is told nothing more: the consumer is closed."""
        sink = self.sink
        if not isinstance(sink, DetachedSink):
            self.sink = DetachedSink(sink.transport, journals=sink.journals_deliveries(self))

    def take_all(self) -> dict[int, Message]:
        """Remove and return all deliveries, in order, of a consumer that is closed, whose credit is void."""
        deliveries, self.unacked = self.unacked, {}
        if self.order is not None:
            self.order.clear()
        return deliveries

    def settle_all(self) -> list[Message]:
        """Remove and return all deliveries, in order."""
        messages = list(self.unacked.values())
        self.unacked.clear()
        if self.order is not None:
            self.order.clear()
        if self.window >= 0:
            self._win_back(messages)
        return messages

    def settle_delivered(self) -> list[Message]:
        """Remove and return the deliveries that are with the sink."""
        if not self.held:
            return self.settle_all()
        return self.settle(list(self.unacked)[: -self.held])

    def up_to(self, id: int) -> list[int]:
        """The ids that a cumulative acknowledgement of `id` covers, oldest first.  `id` must be in `unacked`."""
        order = self.order
        if order is None:
            return [id]
        if self.covers_all(id):
            order.clear()
            return list(self.unacked)
        covered = [order.popleft() for _ in range(order.index(id) + 1)]
        unacked = self.unacked
        return covered if len(covered) + len(order) == len(unacked) else [each for each in covered if each in unacked]

    def covers_all(self, id: int) -> bool:
        """Whether a cumulative acknowledgement of `id` covers all deliveries."""
        return self.order is not None and self.order[-1] == id

    def portion(self, id: int, most: int) -> int:
        """The id that a cumulative acknowledgement of `id` covers first, if it covers `most` deliveries at a time."""
        if self.order is not None and len(self.unacked) > most and id in self.unacked:
            covered = 0
            for first in self.order:
                if first == id:
                    break
                covered += first in self.unacked
                if covered == most:
                    return first
        return id

    def exclude_some(self) -> Callable[[Message], bool]:
        """Make the predicate check exclusions from now on; returns it."""
        self.excluded = Excluded(self.predicate)
        self.predicate = self.excluded
        return self.excluded

    @property
    def describe(self) -> str:
        """The consumer as named in texts for operators."""
        who = self.client_id or self.user or "a consumer"
        if self.link is not None:
            who = f"link {self.link.link}"
        return f"{who} at {self.remote}" if self.remote else who

    def note(self, notes: Notes, type: str) -> None:
        """Add a note about the consumer for notifications."""
        if notes.listening:
            queue = self.queue
            notes.add(
                type,
                {
                    "_AMQ_Address": queue.address.name,
                    "_AMQ_RoutingName": queue.name,
                    "_AMQ_ConsumerCount": len(queue.consumers),
                    "_AMQ_ConsumerName": self.id,
                    "_AMQ_User": self.user,
                    "_AMQ_RemoteAddress": self.remote,
                    "_AMQ_Client_ID": self.client_id,
                    "_AMQ_FilterString": self.selector,
                },
            )


def _may_read(reader: Access, message: Message) -> bool:
    """Whether a message may be read: a dead letter is as secret as the addresses it came from (promise P8)."""
    annotations = message.header.annotations or {}
    origins = [annotations[key] for key in (ORIG_ADDRESS, DL_FIRST_ADDRESS) if key in annotations]
    return all([reader.might(Permission.CONSUME, name) for name in (message.header.address, *map(str, origins))])
