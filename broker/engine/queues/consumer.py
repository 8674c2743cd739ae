"""What consumers ask for: how they acknowledge, whose subscription they are, what they must not get again."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.engine.model.message import Message
from broker.engine.queues.cursors import cost_of

#: Credit of a consumer without a window: more bytes than any queue will ever hold.
UNLIMITED: Final = 1 << 62

#: How many exclusions a consumer has at least before it looks for those of messages that have left.
EXCLUDED_SWEEP_MIN: Final = 64


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
