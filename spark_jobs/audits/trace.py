"""The trace: everything the journal says of one message, from its first id to its last.

It reads the journal itself, without Spark: the checksums of all segments, so that damage is told, and the records of
those in which an id of the message occurs.  Moves (dead letter, expiry, bringing back) give a message a new id.  Both
ids are in one entry (promise P2), so the segment in which one is found tells the other:

    what it became   lies there or further on: the same pass finds it
    what it was      lies there or before: another pass looks at what lies before
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from spark_jobs.audits import history
from spark_jobs.audits.coverage import coverage
from spark_jobs.audits.history import ROWS_MAX, History, Row
from spark_jobs.audits.options import Options
from spark_jobs.audits.tables import UTC, section
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.conditions import Condition
from spark_jobs.journal.decode import Selection, decode
from spark_jobs.journal.names import QueueName, learn_names
from spark_jobs.journal.scan import Scanned, scan
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.results import Damage, Figure, Result, Section
from store.record import RecordType

#: Ids of one family that are followed: a message that was moved so often is in a circle.
IDS_MAX: Final = 1000

_TYPES: Final = frozenset(RecordType[name.upper().replace("-", "_")] for name in history.TYPES)
_MESSAGES: Final = frozenset({RecordType.MESSAGE})
_LINKS: Final = ("message_id", "origin_message_id")


def trace(snapshot: Snapshot, message_id: int, options: Options, *, ids_max: int = IDS_MAX) -> Result:
    """The audit.  An id that the journal does not know gives an empty life, and a problem that says so."""
    bounded = snapshot.bounded(
        from_position=options.from_position,
        to_position=options.to_position,
        from_time=options.from_time,
        to_time=options.to_time,
    )
    search = _Search(bounded, message_id, ids_max)
    search.run()
    life = History(search.rows[:ROWS_MAX], max(0, len(search.rows) - ROWS_MAX))
    names = {id: name.name for id, name in search.names.items() if name.name is not None}
    problems = []
    if not any(message_id in (row["message_id"], row["new_message_id"]) for row in search.rows):
        problems.append(f"message {message_id} is not in what was read")
    if len(search.ids) > ids_max:
        problems.append(f"more than {ids_max} ids belong to this message; the others are left out")
    ids = sorted(search.ids)[:ids_max]
    summary: dict[str, Figure] = {"message": message_id, "ids": len(ids), "records": len(search.rows)}
    if search.rows:
        summary["now"] = _end(search.rows, names)
        summary |= _death(search.rows)
    lived = section("life", "What happened to it", life.table(names), beyond=life.beyond)
    read = coverage(bounded, options, search.damage)
    return Result(
        "trace", read, summary, (lived, _ids(ids, search.rows)), None, tuple(problems), options=options.described()
    )


class _Search:
    """Finds the `rows` (history.COLUMNS) about a message and all its `ids`, in order; the `names` of queues, and
    `damage`."""

    def __init__(self, snapshot: Snapshot, message_id: int, ids_max: int) -> None:
        self.ids = {message_id}
        self.rows: list[Row] = []
        self.names: dict[int, QueueName] = {}
        self.damage: list[Damage] = []
        self._refs = snapshot.segments
        self._bounds = snapshot.bounds
        self._ids_max = ids_max

    def run(self) -> None:
        """Pass after pass, until no id is left to be looked for."""
        wanted = dict.fromkeys(self.ids, len(self._refs))
        first = True
        while wanted and len(self.ids) <= self._ids_max:
            wanted = self._pass(wanted, first=first)
            first = False
        self.rows.sort(key=lambda row: (row["position"], row["message_id"]))

    def _pass(self, wanted: dict[int, int], *, first: bool) -> dict[int, int]:
        """Look for each of these ids in as many segments.  Returns those that it had before, in the same way."""
        before: dict[int, int] = {}
        new: set[int] = set()
        for index, ref in enumerate(self._refs):
            ids = new | {id for id, end in wanted.items() if index < end}
            occurs = partial(_occurs, [id.to_bytes(8, "little") for id in ids])
            for segment in scan([ref], wanted=occurs):
                learn_names(self.names, segment.found)
                if first:
                    self.damage += _damage(segment, self._bounds)
                if occurs(segment.data):
                    became, was = self._look(segment, ids)
                    new |= became | was
                    before |= dict.fromkeys(was, index)
        return before

    def _look(self, segment: Scanned, ids: set[int]) -> tuple[set[int], set[int]]:
        """Take in the rows about these ids, and those that they lead to: what they became, and what they were."""
        all_became: set[int] = set()
        all_were: set[int] = set()
        while ids and len(self.ids) <= self._ids_max:
            rows = [*self._about(segment, "message_id", ids, _TYPES, history.COLUMNS)]
            moved = self._about(segment, "origin_message_id", ids, _MESSAGES, _LINKS)
            became = {row["message_id"] for row in moved} | {row["new_message_id"] for row in rows}
            were = {row["origin_message_id"] for row in rows}
            self.rows += rows
            ids = (became | were) - self.ids - {None}
            self.ids |= ids
            all_became |= ids & became
            all_were |= ids & were
        return all_became, all_were

    def _about(
        self, segment: Scanned, column: str, ids: set[int], types: frozenset[int], columns: tuple[str, ...]
    ) -> Iterator[Row]:
        """The rows that have one of these ids in a column."""
        condition = Condition(column, "in", tuple(ids))
        selection = Selection(columns, types, self._bounds, (condition,))
        for batch in decode(segment.data, segment.found, selection):
            yield from (row for row in batch.to_pylist() if row[column] in ids)


def _occurs(ids: list[bytes], data: bytes) -> bool:
    return any(id in data for id in ids)


def _damage(segment: Scanned, bounds: Bounds) -> Iterator[Damage]:
    for hole in bounds.holes(segment.found):
        yield Damage(segment.path, max(hole.offset, 0), hole.first_position, hole.records, hole.what)


def _end(life: list[Row], names: dict[int, str]) -> str:
    """Where it is, or how it left last."""
    places = {(row["message_id"], id) for row in life for id in (row["queue_ids"] or ())}
    removed = [row for row in life if row["record_type"] == "removed"]
    there = places - {(row["message_id"], row["queue_id"]) for row in removed}
    if there:
        return "on " + ", ".join(f"{names.get(queue) or f'queue {queue}'} as {id}" for id, queue in sorted(there))
    return str(removed[-1]["reason"]) if removed else "not known"


def _death(life: list[Row]) -> dict[str, Figure]:
    """Why it died last, if it did."""
    deaths = [row for row in life if row["record_type"] in ("dead-lettered", "expired")]
    return {"why it died": history.told(deaths[-1])} if deaths else {}


def _ids(ids: list[int], life: list[Row]) -> Section:
    """The ids under which it lived."""
    stored = {row["message_id"]: row for row in life if row["record_type"] == "message"}
    table = pa.Table.from_pylist(
        [
            {
                "message": id,
                "was": stored[id]["origin_message_id"] if id in stored else None,
                "address": stored[id]["address"] if id in stored else None,
                "stored": stored[id]["time"] if id in stored else None,
            }
            for id in ids
        ],
        schema=pa.schema([("message", pa.int64()), ("was", pa.int64()), ("address", pa.string()), ("stored", UTC)]),
    )
    return section("ids", "The ids under which it lived", table)
