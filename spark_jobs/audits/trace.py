"""The trace: everything that the journal says about one message, from its first id to its last.

It reads the journal without Spark.  One pass over all segments checks them, so that damage is reported, and indexes
which ids occur in each.  Then, the trace reads the segments in which an id of the message may occur.  Moves (dead
letter, expiry, bringing back) give a message a new id.  Both ids are in one entry (promise P2): the segment that has
one of them also has the other, which is then looked for in all segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_jobs.audits import history
from spark_jobs.audits.coverage import coverage
from spark_jobs.audits.history import ROWS_MAX, History, Row
from spark_jobs.audits.options import Options
from spark_jobs.journal import decode
from spark_jobs.journal.batch import Segment
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.decode import Condition, Selection
from spark_jobs.journal.ids import IdFilter, message_ids
from spark_jobs.journal.names import learn_names
from spark_jobs.journal.scan import Scanned, scan_segment
from spark_jobs.journal.segments import SegmentRef
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.journal.walk import Definition
from spark_jobs.results import UTC, Damage, Figure, Result, Section, section
from store.record import RecordType

#: Maximum number of ids of one message that are followed: a message moved more often is in a circle.
IDS_MAX: Final = 1000

#: How a message left that is on no queue: with its queue, or the journal does not say.
DELETED: Final = "deleted"
UNKNOWN: Final = "unknown"

#: Number of segments read in parallel.  Checking one releases Python's lock for about half of the time.
THREADS: Final = 2

_TYPES: Final = frozenset(RecordType[name.upper().replace("-", "_")] for name in history.TYPES)
_MESSAGES: Final = frozenset({RecordType.MESSAGE, RecordType.COPIED})
_DELETIONS: Final = frozenset({RecordType.QUEUE_DELETED})
_LINKS: Final = ("message_id", "origin_message_id")


def trace(snapshot: Snapshot, message_id: int, options: Options) -> Result:
    """Run the audit.  For an unknown id, the history is empty, and a problem says so."""
    bounded = snapshot.within(options.bounds)
    search = _Search(bounded, message_id)
    search.run()
    life = History(search.rows[:ROWS_MAX], max(0, len(search.rows) - ROWS_MAX))
    names = {id: name for id, name in search.names.items() if name is not None}
    problems = []
    if not any(message_id in (row["message_id"], row["new_message_id"]) for row in search.rows):
        problems.append(f"message {message_id} is not in the part of the journal that was read")
    if len(search.ids) > IDS_MAX:
        problems.append(f"this message has more than {IDS_MAX} ids; the others are left out")
    ids = sorted(search.ids)[:IDS_MAX]
    summary: dict[str, Figure] = {"message": message_id, "ids": len(ids), "records": len(search.rows)}
    if search.rows:
        summary["now"], lost = _end(search.rows, names, bounded.lifeless, search.deleted)
        problems += lost
        summary |= _death(search.rows)
    lived = section("life", "What happened to it", life.table(names), beyond=life.beyond)
    read = coverage(bounded, search.damage)
    return Result(
        "trace", read, summary, (lived, _ids(ids, search.rows)), None, tuple(problems), options=options.described()
    )


@dataclass(frozen=True, slots=True)
class _Indexed:
    """An indexed segment: its definitions of names, the deleted queues, its damage, and the ids that occur."""

    ref: SegmentRef
    definitions: list[Definition]
    deleted: set[int]
    damage: list[Damage]
    ids: IdFilter


class _Search:
    """Finds the `rows` (history.COLUMNS) of a message, in order, all its `ids`, and `damage`.

    Of all queues, it finds the `names`, and which are `deleted`.
    """

    def __init__(self, snapshot: Snapshot, message_id: int) -> None:
        self.ids = {message_id}
        self.rows: list[Row] = []
        self.names: dict[int, str | None] = {}
        self.deleted: set[int] = set()
        self.damage: list[Damage] = []
        self._refs = snapshot.segments
        self._bounds = snapshot.bounds

    def run(self) -> None:
        """Index all segments, and read them until there is no id left to look for."""
        with ThreadPoolExecutor(THREADS) as pool:
            segments = [*pool.map(self._index, self._refs)]
        for each in segments:
            learn_names(self.names, each.definitions)
            self.deleted |= each.deleted
            self.damage += each.damage
        wanted: dict[int, set[int]] = {}
        new, looked_at = set(self.ids), -1
        while True:
            for index, each in enumerate(segments):
                ids = {id for id in new if each.ids.may_have(id)}
                if ids and index != looked_at:
                    wanted.setdefault(index, set()).update(ids)
            if not wanted or len(self.ids) > IDS_MAX:
                break
            looked_at = min(wanted)
            new = self._look(segments[looked_at].ref, wanted.pop(looked_at))
        self.rows.sort(key=lambda row: (row["position"], row["message_id"]))

    def _index(self, ref: SegmentRef) -> _Indexed:
        segment = scan_segment(ref)
        found = segment.found
        ids = IdFilter([*message_ids(segment.data, found)])
        deletions = Selection(("queue_id",), _DELETIONS, self._bounds)
        batches = decode.rows(Segment(segment.data, found), deletions.indices(found), deletions)
        deleted = {id for batch in batches for id in batch["queue_id"].to_pylist()}
        return _Indexed(ref, found.definitions, deleted, [*_damage(segment, self._bounds)], ids)

    def _look(self, ref: SegmentRef, ids: set[int]) -> set[int]:
        """Collect the rows of these ids, and of those that they lead to in this segment.  Returns the latter ids."""
        segment = scan_segment(ref)
        if segment.lost:  # lost after it was indexed
            self.damage += _damage(segment, self._bounds)
        all_new: set[int] = set()
        while ids and len(self.ids) <= IDS_MAX:
            rows = [*self._rows_with(segment, "message_id", ids, _TYPES, history.COLUMNS)]
            moved = self._rows_with(segment, "origin_message_id", ids, _MESSAGES, _LINKS)
            self.rows += rows
            ids = {row["message_id"] for row in moved}
            ids |= {row[name] for row in rows for name in ("new_message_id", "origin_message_id")}
            ids -= self.ids | {None}
            self.ids |= ids
            all_new |= ids
        return all_new

    def _rows_with(
        self, segment: Scanned, column: str, ids: set[int], types: frozenset[int], columns: tuple[str, ...]
    ) -> Iterator[Row]:
        """The rows with one of these ids in this column, without rows for damage, which is known."""
        condition = Condition(column, tuple(ids))
        selection = Selection(columns, types, self._bounds, (condition,))
        indices = selection.indices(segment.found)
        for batch in decode.rows(Segment(segment.data, segment.found), indices, selection):
            yield from batch.to_pylist()


def _damage(segment: Scanned, bounds: Bounds) -> Iterator[Damage]:
    for hole in bounds.holes(segment.found):
        yield Damage(segment.path, max(hole.offset, 0), hole.first_position, hole.records, hole.what)


def _end(life: list[Row], names: dict[int, str], lifeless: frozenset[int], deleted: set[int]) -> tuple[str, list[str]]:
    """Where the message is, or how it last left; and sentences about removals that the journal lacks.

    It may have left with its queue (rules).  A message that only `lifeless` segments have has left.
    """
    removed = [row for row in life if row["record_type"] == "removed"]
    left = {(row["message_id"], row["queue_id"]) for row in removed}
    stored = [(row["segment"], (row["message_id"], id)) for row in life for id in row["queue_ids"] or ()]
    open_ = {place for _, place in stored} - left
    alive = {place for segment, place in stored if segment not in lifeless}
    called = {place: names.get(place[1]) or f"queue {place[1]}" for place in sorted(open_) if place[1] not in deleted}
    lost = [
        f"the journal no longer has the record of how message {place[0]} left {called[place]}"
        for place in called
        if place not in alive
    ]
    if there := [f"{called[place]} as {place[0]}" for place in called if place in alive]:
        return f"on {', '.join(there)}", lost
    if lost:
        return UNKNOWN, lost
    if removed:
        return str(removed[-1]["reason"]), lost
    return DELETED if open_ else UNKNOWN, lost


def _death(life: list[Row]) -> dict[str, Figure]:
    """Why the message last died, if it did."""
    deaths = [row for row in life if row["record_type"] in ("dead-lettered", "expired")]
    return {"why it died": history.sentence(deaths[-1])} if deaths else {}


def _ids(ids: list[int], life: list[Row]) -> Section:
    """The ids of the message."""
    whole = {row["message_id"]: row for row in reversed(life) if row["record_type"] in history.WHOLE}
    table = pa.Table.from_pylist(
        [
            {
                "message": id,
                "was": row.get("origin_message_id"),
                "address": row.get("address"),
                "stored": row["time"] if row.get("record_type") == "message" else None,
            }
            for id, row in ((id, whole.get(id, {})) for id in ids)
        ],
        schema=pa.schema([("message", pa.int64()), ("was", pa.int64()), ("address", pa.string()), ("stored", UTC)]),
    )
    return section("ids", "Its ids", table)
