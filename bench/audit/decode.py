"""How fast one core reads a journal: the bytes alone, the walk, the views."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.audit.books import Books
from spark_jobs.journal.decode import Selection, decode
from spark_jobs.journal.schema import DEFAULT_RECORDS
from spark_jobs.journal.walk import walk
from store.segment import segment_name

#: What a ledger needs of the records.
LEDGER: Final = ("position", "time", "record_type", "message_id", "queue_id", "queue_ids", "reason")

#: Million records a second that one core must reach with the ledger's columns.
TARGET: Final = 1.5


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement: its best time in seconds, for so many records and bytes, which made so many rows."""

    name: str
    seconds: float
    records: int
    bytes: int
    rows: int

    @property
    def records_s(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def bytes_s(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds


def _read(paths: list[Path]) -> int:
    for path in paths:
        path.read_bytes()
    return 0


def _walk(paths: list[Path]) -> int:
    return sum(len(walk(path.read_bytes(), number=n, newest=False).types) for n, path in enumerate(paths, 1))


def _records(columns: tuple[str, ...]) -> Callable[[list[Path]], int]:
    def run(paths: list[Path]) -> int:
        rows = 0
        selection = Selection(columns)
        for n, path in enumerate(paths, 1):
            data = path.read_bytes()
            rows += sum(map(len, decode(data, walk(data, number=n, newest=False), selection)))
        return rows

    return run


CASES: Final[dict[str, Callable[[list[Path]], int]]] = {
    "plain sequential read": _read,
    "walk with checksums": _walk,
    f"records, {len(LEDGER)} ledger columns": _records(LEDGER),
    f"records, {len(DEFAULT_RECORDS)} default columns": _records(DEFAULT_RECORDS),
}


def measure(directory: Path, books: Books, rounds: int) -> list[Row]:
    """The best of `rounds` for each case, everything in the page cache."""
    paths = [directory / segment_name(number) for number in range(1, books.segments + 1)]
    rows = []
    for name, run in CASES.items():
        seconds, count = best(partial(run, paths), rounds)
        rows.append(Row(name, seconds, books.records, books.bytes, count))
    return rows


def best(run: Callable[[], int], rounds: int) -> tuple[float, int]:
    """The shortest time of so many rounds, in seconds, and what was counted in it."""

    def timed() -> tuple[float, int]:
        start = time.perf_counter()
        count = run()
        return time.perf_counter() - start, count

    return min(timed() for _ in range(rounds))


def table(rows: list[Row]) -> Table:
    """For people."""
    made = Table("", "s", "million records/s", "MB/s", "rows")
    for column in made.columns[1:]:
        column.justify = "right"
    for row in rows:
        figures = (f"{row.seconds:.2f}", f"{row.records_s / 1e6:.2f}", f"{row.bytes_s / 1e6:,.0f}", f"{row.rows:,}")
        made.add_row(row.name, *figures)
    return made


def missed(rows: list[Row]) -> list[str]:
    """The targets that are not met."""
    held = [row for row in rows if "ledger" in row.name]
    return [
        f"{row.name}: {row.records_s / 1e6:.2f} of {TARGET} million records/s"
        for row in held
        if row.records_s < TARGET * 1e6
    ]
