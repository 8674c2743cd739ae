"""What a generated journal must be found to hold."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

FILE: Final = "books.json"


@dataclass(slots=True)
class QueueBook:
    """A queue: how many entered, and how many left for each reason (by its word)."""

    name: str
    address: str
    entered: int = 0
    left: Counter[str] = field(default_factory=Counter)
    deleted: bool = False

    @property
    def present(self) -> int:
        """How many are still there."""
        return self.entered - self.left.total()


@dataclass(slots=True)
class Books:
    """True totals.

    `records` and `types` count records, `messages` those of type MESSAGE; positions run from 1 to `next_position` - 1.
    `bytes` is the size of all segments.  Deaths and expiries are counted by "address|queue|reason" and
    "address|queue|source", what was dropped by "address|reason" in messages and in bytes.  Times in ms since the epoch.
    """

    seed: int
    broker_id: str
    segment_bytes: int
    segments: int = 0
    bytes: int = 0
    records: int = 0
    messages: int = 0
    next_position: int = 1
    first_time: int = 0
    last_time: int = 0
    types: Counter[str] = field(default_factory=Counter)
    queues: dict[int, QueueBook] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)
    expiries: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_bytes: Counter[str] = field(default_factory=Counter)

    def left(self) -> Counter[str]:
        """How many left for each reason, of all queues."""
        return sum((queue.left for queue in self.queues.values()), Counter())

    def save(self, directory: Path) -> None:
        """Beside the segments; no reader of journals looks at it."""
        (directory / FILE).write_text(json.dumps(_plain(self), default=_plain, indent=1) + "\n")


def _plain(book: Books | QueueBook) -> dict[str, object]:
    return {each.name: getattr(book, each.name) for each in fields(book)}


def load(directory: Path) -> Books:
    """The books of a generated journal.  Raises FileNotFoundError if there is none."""
    stored = json.loads((directory / FILE).read_text())
    queues = stored.pop("queues")
    counters = {name: Counter(value) for name, value in stored.items() if isinstance(value, dict)}
    books = Books(**{**stored, **counters})
    for id, queue in queues.items():
        books.queues[int(id)] = QueueBook(**{**queue, "left": Counter(queue["left"])})
    return books
