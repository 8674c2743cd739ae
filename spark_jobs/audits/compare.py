"""What the running broker says is on its queues, against what the journal says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.audits.rules import QueueBook, QueuePresent


class BadComparison(Exception):
    """The two cannot be compared; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The broker's durable queues when everything below `position` was on disk, with the messages of which the journal
    must know.
    """

    broker_id: str
    position: int
    queues: tuple[QueuePresent, ...]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Expected:
        """From the answer of GET /api/v1/balance.  Raises BadComparison."""
        try:
            queues = tuple(
                QueuePresent(int(q["id"]), str(q["name"]), str(q["address"]), int(q["journalled"]))
                for q in answer["queues"]
                if q["durable"]
            )
            return cls(str(answer["broker_id"]), int(answer["position"]), queues)
        except (KeyError, TypeError, ValueError) as error:
            raise BadComparison(f"the broker's balance cannot be read: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Difference:
    """A queue of which the two have different numbers of messages."""

    queue_id: int
    queue: str
    address: str
    journal: int
    broker: int


def differences(expected: Expected, books: Mapping[int, QueueBook]) -> list[Difference]:
    """The queues that differ, the largest difference first."""
    found = []
    queues = {queue.queue_id: queue for queue in expected.queues}
    for id in {*queues, *books}:
        queue, book = queues.get(id), books.get(id)
        journal, broker = book.present if book else 0, queue.messages if queue else 0
        if journal != broker:
            name, address = (queue.name, queue.address) if queue else ("", "")
            if book:
                name, address = book.name or name, book.address or address
            found.append(Difference(id, name, address, journal, broker))
    return sorted(found, key=lambda each: (-abs(each.journal - each.broker), each.queue_id))
