"""A consumer of a queue: its credit, and the deliveries that it has not yet settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, Protocol

from broker.engine.filter import Filter
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.message import Message, size_of
from broker.engine.model.notes import Notes
from broker.engine.queues.cursors import cost_of
from broker.engine.queues.queue import Queue

#: Credit of a consumer without a window: more bytes than any queue will ever hold.
UNLIMITED: Final = 1 << 62

#: How many exclusions a consumer has at least before it looks for those of messages that have left.
EXCLUDED_SWEEP_MIN: Final = 64

#: From how many deliveries on that are settled together it pays to look whether they are the oldest, and to copy the
#: others; but not if these are more: an acknowledgement in many portions would copy them again for each.
PREFIX_MIN: Final = 1_000


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


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Where a link sends what its consumer takes: the link's name, an address there, and that broker's name."""

    link: str
    address: str
    broker: str = ""


class AckMode(Enum):
    """How the messages of a consumer are acknowledged."""

    AUTO = "auto"  # by the session, once the transport has accepted the bytes
    CUMULATIVE = "client"  # one acknowledgement covers everything delivered before
    INDIVIDUAL = "client-individual"


class Subscriber(Enum):
    """Who a subscription belongs to while it has consumers."""

    CLIENT = "client"
    SESSION = "session"  # a client's session, which ends the subscription with itself


class Excluded:
    """A predicate: what `before` accepts, except messages with `ids`, which a consumer must not get again.

    Those that have left the queue are forgotten in time.  `cost`: of a match.
    """

    __slots__ = ("_before", "_most", "cost", "ids")

    def __init__(self, before: Callable[[Message], bool] | None = None) -> None:
        self.ids: set[int] = set()
        self.cost = cost_of(before)
        self._before = before
        self._most = EXCLUDED_SWEEP_MIN

    def __call__(self, message: Message) -> bool:
        """Whether the consumer accepts a message."""
        return message.id not in self.ids and (self._before is None or self._before(message))

    def add(self, id: int, acquired: Container[int]) -> None:
        """Add one of a queue that still has the `acquired` ones."""
        self.ids.add(id)
        if len(self.ids) > self._most:
            self.ids.difference_update([each for each in self.ids if each not in acquired])
            self._most = max(2 * len(self.ids), EXCLUDED_SWEEP_MIN)


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
        messages: list[Message] = []
        last, rising = 0, True
        for id in ids:
            message = unacked.get(id)
            if message is None:
                return None
            messages.append(message)
            rising = rising and id > last
            last = id
        if not rising and len(set(ids)) < len(ids):
            return None
        for id in ids:
            del unacked[id]
        if order is not None:
            for _ in ids:
                order.popleft()
        if self.window >= 0:
            self._win_back(messages)
        return messages

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
