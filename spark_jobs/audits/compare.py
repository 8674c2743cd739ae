"""Compares the contents of the queues according to the running broker and to the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_jobs.audits.rules import QueueBook, QueuePresent


class BadComparison(Exception):
    """Broker and journal cannot be compared; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The broker's durable queues, with the number of messages on each that the journal must have.

    This is the state when everything below `position` was on disk.
    """

    broker_id: str
    position: int
    queues: tuple[QueuePresent, ...]

    @classmethod
    def from_answer(cls, answer: Mapping[str, Any]) -> Expected:
        """Create from the response to GET /api/v1/balance.  Raises BadComparison."""
        try:
            queues = tuple(
                QueuePresent(int(q["id"]), str(q["name"]), str(q["address"]), int(q["journalled"]))
                for q in answer["queues"]
                if q["durable"]
            )
            return cls(str(answer["broker_id"]), int(answer["position"]), queues)
        except (KeyError, TypeError, ValueError) as error:
            raise BadComparison(f"the broker's balance cannot be read: {error!r}") from error


def differences(expected: Expected, books: Mapping[int, QueueBook]) -> list[dict[str, Any]]:
    """The queues that differ, largest difference first, as rows of a table."""
    found: list[dict[str, Any]] = []
    queues = {queue.queue_id: queue for queue in expected.queues}
    for id in {*queues, *books}:
        queue, book = queues.get(id, QueuePresent(id, "", "", 0)), books.get(id, QueueBook(id))
        row = {
            "queue": book.name or queue.name,
            "address": book.address or queue.address,
            "in the journal": book.present,
            "in the broker": queue.messages,
            "difference": book.present - queue.messages,
            "queue id": id,
        }
        if row["difference"]:
            found.append(row)
    return sorted(found, key=lambda row: (-abs(row["difference"]), row["queue id"]))
