"""A queue: messages on one side, consumers on the other.

A message on a queue is in exactly one of these places, and each has its container here:

    landing      stored in the open or a submitted journal entry, not yet durable; no consumer sees it
    backlog      ready for delivery
    scheduled    waiting for its time (scheduled delivery, or the delay before a redelivery)
    delivering   with a consumer, not yet acknowledged (`Consumer.unacked`), or acknowledged in an open transaction

`states` keeps what only messages that failed before have: how often.  A message that was never returned has no entry,
which is what makes the ordinary path cheap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from broker.engine.backlog import Backlog
from broker.engine.consumer import Consumer
from broker.engine.filter import Filter
from broker.engine.message import Message, PropertyView, RoutingType
from broker.engine.selective import SelectiveBacklog

if TYPE_CHECKING:
    from broker.engine.address import Address

_ID: Final[Callable[[Message], int]] = attrgetter("id")


class DeliveryState:
    """What a message's failed deliveries on one queue amount to.

    `count` is the number of deliveries that failed; `first_failure` the time of the first, in ms; `text` what the
    last consumer said about it.
    """

    __slots__ = ("count", "first_failure", "text")

    def __init__(self, count: int, first_failure: int = 0, text: str = "") -> None:
        self.count = count
        self.first_failure = first_failure
        self.text = text


class Counters:
    """Messages that entered a queue and how they left it, since the start.  Each message leaves by one way only."""

    __slots__ = (
        "acknowledged",
        "added",
        "dead_lettered",
        "delivered",
        "expired",
        "killed",
        "moved",
        "purged",
        "redelivered",
    )

    def __init__(self) -> None:
        self.added = 0
        self.delivered = 0
        self.redelivered = 0
        self.acknowledged = 0
        self.dead_lettered = 0
        self.expired = 0
        self.killed = 0
        self.moved = 0
        self.purged = 0

    def add(self, other: Counters) -> None:
        """Count what another queue counted."""
        for name in Counters.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Queue:
    """One queue.  Its identity is `id`: a queue that is deleted and made again under the same name is another one."""

    __slots__ = (
        "address",
        "auto_created",
        "backlog",
        "configured",
        "consumers",
        "counters",
        "deleted",
        "delivering",
        "durable",
        "expiring",
        "filter",
        "id",
        "journalled",
        "landing",
        "name",
        "next_consumer",
        "no_local",
        "routing_type",
        "scheduled",
        "selective",
        "states",
        "stored",
        "swept",
        "temporary",
        "unused_since",
        "used",
    )

    def __init__(
        self,
        id: int,
        name: str,
        address: Address,
        routing_type: RoutingType,
        *,
        durable: bool = True,
        filter: Filter | None = None,
        no_local: str = "",
        auto_created: bool = False,
        temporary: bool = False,
        configured: bool = False,
        created: int = 0,
    ) -> None:
        self.id = id
        self.name = name
        self.address = address
        self.routing_type = routing_type
        self.durable = durable
        self.filter = filter
        self.no_local = no_local  # messages of this origin do not enter
        self.auto_created = auto_created
        self.temporary = temporary  # goes with its last consumer
        self.configured = configured
        self.backlog = Backlog()
        self.selective: SelectiveBacklog | None = None  # takes the backlog's place while a consumer has a selector
        self.landing: deque[list[Message]] = deque()
        self.scheduled: dict[int, tuple[int, Message]] = {}  # id -> (due, message)
        self.expiring = 0  # messages in the backlog that have an expiration
        self.delivering = 0
        self.consumers: list[Consumer] = []
        self.next_consumer = 0
        self.states: dict[int, DeliveryState] = {}
        self.journalled: set[int] = set()  # deliveries whose count is already in the journal (strict mode)
        self.stored = 0  # messages that the journal has on this queue: in the open entry or before it, and not removed
        self.counters = Counters()
        self.deleted = False
        self.unused_since = created
        self.used = False
        self.swept = False

    @property
    def ready(self) -> int:
        """Messages that a consumer could get now."""
        return len(self.backlog) if self.selective is None else len(self.selective)

    @property
    def message_count(self) -> int:
        """All messages on the queue, wherever they are."""
        return self.ready + sum(map(len, self.landing)) + len(self.scheduled) + self.delivering

    def accepts(self, message: Message) -> bool:
        """Whether the queue's filter lets the message in."""
        if self.no_local and message.facts.origin == self.no_local:
            return False
        return self.filter is None or self.filter.matches(PropertyView(message))

    @property
    def accepts_all(self) -> bool:
        """Whether every message may enter, so that none need be looked at."""
        return self.filter is None and not self.no_local

    # -- the backlog, plain or selective ---------------------------------------------------------------------------

    def append(self, messages: list[Message], priority: int) -> None:
        """New messages of one priority become ready."""
        backlog = self.backlog if self.selective is None else self.selective
        backlog.append(messages, priority)

    def put_back(self, messages: list[Message]) -> None:
        """Messages become ready again, at the head."""
        backlog = self.backlog if self.selective is None else self.selective
        backlog.put_back(messages)

    def discard(self, message: Message) -> None:
        """Take a ready message out of the line."""
        backlog = self.backlog if self.selective is None else self.selective
        backlog.discard(message)

    def waiting(self) -> Iterator[Message]:
        """The ready messages in the order of delivery."""
        return iter(self.backlog if self.selective is None else self.selective)

    def places(self) -> Iterator[tuple[Message, str]]:
        """All messages that landed and are in no transaction, with where each is: ready, scheduled or delivering."""
        for message in self.waiting():
            yield message, "ready"
        for _, message in self.scheduled.values():
            yield message, "scheduled"
        for consumer in self.consumers:
            for message in consumer.unacked.values():
                yield message, "delivering"

    def between(self, after: int, below: int) -> list[Message]:
        """The ready and scheduled messages with identities between these two, oldest first.  Looks at all of them."""
        ready = self.backlog if self.selective is None else self.selective
        found = [m for m in ready.unordered() if after < m.id < below]
        found += [m for _, m in self.scheduled.values() if after < m.id < below]
        found.sort(key=_ID)
        return found

    def clear(self) -> list[Message]:
        """Take all ready messages out of the line."""
        self.expiring = 0
        return self.backlog.clear() if self.selective is None else self.selective.clear()

    # -- consumers -------------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer at the end of the round."""
        self.consumers.append(consumer)
        self.used = True
        self.swept = False
        if self.selective is not None:
            self.selective.attach(consumer.id, consumer.predicate)
        elif consumer.predicate is not None:
            self.selective = SelectiveBacklog(self.backlog.clear())
            for other in self.consumers:
                self.selective.attach(other.id, other.predicate)

    def detach(self, consumer: Consumer, now: int) -> None:
        """Take a consumer out of the round."""
        self.consumers.remove(consumer)
        self.next_consumer = 0
        if not self.consumers:
            self.unused_since = now
        if self.selective is None:
            return
        self.selective.detach(consumer.id)
        if all(other.predicate is None for other in self.consumers):
            messages = self.selective.clear()
            self.selective = None
            self.backlog.put_back(messages)

    def delivery_count(self, id: int) -> int:
        """Failed deliveries of a message so far."""
        state = self.states.get(id)
        return 0 if state is None else state.count
