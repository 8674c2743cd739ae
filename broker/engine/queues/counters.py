"""The counters of a queue, by the names that operators see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from store.record import RemovalReason


@dataclass(slots=True, eq=False)
class Counters:
    """Counts of messages that entered a queue, and of deliveries, since the start.  `Queue.left` has the ways out."""

    added: int = 0
    delivered: int = 0
    redelivered: int = 0


#: The names of the counters of `Queue.left`: those of the reasons, but for messages that were consumed.  Messages that
#: are deleted with their queue need none: its counters go as well.
LEFT_COUNTERS: Final[Mapping[RemovalReason, str]] = {
    reason: "acknowledged" if reason is RemovalReason.CONSUMED else reason.name.lower()
    for reason in RemovalReason
    if reason is not RemovalReason.DELETED
}

#: The counters of a queue (`Queue.counts`).  What is unroutable was on no queue.
COUNTED: Final = tuple(
    sorted([each.name for each in fields(Counters)] + [*{*LEFT_COUNTERS.values()} - {RemovalReason.UNROUTABLE.word}])
)
