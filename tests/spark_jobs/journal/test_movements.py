"""Movements combined with numpy are those counted in dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeGuard

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.journal import movements as moving
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.movements import Movements
from spark_jobs.journal.schema import MOVEMENTS, arrow_schema
from spark_jobs.journal.walk import walk
from store import decode, record
from store.record import RemovalReason
from tests.spark_jobs.journal import making, oracle
from tests.spark_jobs.journal.making import CREATED, copy, message, segment

Entries = Sequence[Sequence[bytes]]
Row = dict[str, Any]


def journal(segments: Sequence[Entries]) -> list[bytes]:
    """Segments one behind the other, the entries ten milliseconds from each other."""
    made, first = [], 1
    for number, entries in enumerate(segments, 1):
        made.append(
            segment(entries, number=number, first=first, times=[10 * first + 10 * i for i, _ in enumerate(entries)])
        )
        first += sum(map(len, entries))
    return made  # fmt: skip


def moved(segments: Sequence[bytes], **more: Any) -> list[Row]:
    """The view of a partition of these segments."""
    bounds = Bounds(**{name: more.pop(name) for name in Bounds.__slots__ if name in more})
    movements = Movements(bounds, **more)
    for number, data in enumerate(segments, 1):
        movements.add(data, walk(data, number=number, newest=False))
    batches = list(movements.batches())
    assert all(batch.schema.equals(arrow_schema(MOVEMENTS), check_metadata=True) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


# -- the same in dictionaries ------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Everything in dictionaries, one movement after the other."""

    keep_below: int = 0
    first_segment: int = 0
    from_position: int | None = None
    to_position: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    events: dict[tuple[int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    names: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    queues: set[int] = field(default_factory=set)
    dropped: dict[tuple[str | None, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))

    def add(self, data: bytes, number: int) -> None:
        for _, position, time, type, buffer, offset in oracle.raw(data, number):
            found = decode.decode(buffer, offset)
            if isinstance(found, decode.Definition):
                self._define(found, type)
            if self._within(position, time):
                self._move(found, {"segment": number, "offset": offset}, position, oracle._time(time))

    def _within(self, position: int, time: int) -> bool:
        return (
            (self.from_position is None or position >= self.from_position)
            and (self.to_position is None or position < self.to_position)
            and (self.from_time is None or time >= self.from_time)
            and (self.to_time is None or time < self.to_time)
        )

    def _define(self, found: decode.Definition, type: int) -> None:
        name, address = (oracle._string(found.definition.get(member)) for member in ("name", "address"))
        if type == record.RecordType.QUEUE:
            self.names[found.id] = (name, address)
        elif type == record.RecordType.QUEUE_DELETED:
            self.names.setdefault(found.id, (name, None))

    def _move(self, found: decode.Record, where: Row, position: int, time: object) -> None:
        if isinstance(found, decode.Message) or self._is_first(found):
            row = {**where, "entered": 1, "left": 0, "entered_position": position, "entered_time": time}
            for queue in found.facts.queue_ids:
                self.events[queue, found.id].append(row)
        elif isinstance(found, decode.Removed):
            row = {**where, "entered": 0, "left": 1, "left_position": position, "left_time": time}
            row["reason"] = oracle._word(RemovalReason, found.reason)
            for id in found.ids:
                self.events[found.queue_id, id].append(row)
        elif isinstance(found, decode.Dropped):
            sums = self.dropped[found.address or None, oracle._word(RemovalReason, found.reason)]
            sums[0] += found.count
            sums[1] += found.size

    def _is_first(self, found: decode.Record) -> TypeGuard[decode.Copied]:
        """A copy of what no segment has."""
        begins = self.from_position is not None or self.from_time is not None
        return isinstance(found, decode.Copied) and not begins and found.previous < self.first_segment

    def rows(self) -> list[Row]:
        settled: Counter[tuple[int, str | None]] = Counter()
        rows: list[Row] = []
        for (queue, id), events in self.events.items():
            if id >= self.keep_below and [event["left"] for event in events] == [0, 1]:
                settled[queue, events[1]["reason"]] += 1
            else:
                rows += [{"kind": "open", "queue_id": queue, "message_id": id, **event} for event in events]
        for queue in ({queue for queue, _ in self.events} | self.names.keys()) - {queue for queue, _ in settled}:
            settled[queue, None] = 0
        for (queue, reason), n in settled.items():
            name, address = self.names.get(queue, (None, None))
            common = {"kind": "settled", "queue_id": queue, "queue": name, "address": address}
            rows.append({**common, "reason": reason, "entered": n, "left": n})
        for (target, why), (count, size) in self.dropped.items():
            rows.append({"kind": "dropped", "address": target, "reason": why, "count": count, "bytes": size})
        return rows


def modelled(segments: Sequence[bytes], **more: Any) -> list[Row]:
    model = Model(**more)
    for number, data in enumerate(segments, 1):
        model.add(data, number)
    return model.rows()


def sorted_rows(rows: Sequence[Row]) -> list[str]:
    """Rows in an order of their own, and times as text: equal moments may have different zones of the same offset."""
    plain = [{name: row.get(name) for name in MOVEMENTS} for row in rows]
    return sorted(
        str({name: v.isoformat() if isinstance(v, datetime) else v for name, v in row.items()}) for row in plain
    )


def check(segments: Sequence[bytes], **more: Any) -> list[Row]:
    rows = moved(segments, **more)
    assert sorted_rows(rows) == sorted_rows(modelled(segments, **more))
    return rows


# -- at random ---------------------------------------------------------------------------------------------------------

_IDS = st.integers(1, 8)
_QUEUES = st.integers(1, 3)
_NAMES = st.fixed_dictionaries(
    {}, optional={"name": st.sampled_from(["a", "b"]), "address": st.sampled_from(["x", "y"])}
)


def records(scale: int) -> st.SearchStrategy[bytes]:
    """Few queues and messages, so that they meet; the same ids far from each other with another `scale`."""
    ids, queues = _IDS.map(lambda id: id * scale), _QUEUES.map(lambda id: id * scale)
    return st.one_of(
        st.builds(message, ids, st.lists(queues, max_size=3)),
        st.builds(copy, ids, st.lists(queues, max_size=3), st.integers(0, 6)),
        st.builds(record.removed, queues, st.integers(0, 13), st.lists(ids, max_size=4)),
        st.builds(record.removed, queues, st.integers(1, 2), st.lists(ids, max_size=4, unique=True)),
        st.builds(record.queue, queues, _NAMES),
        st.builds(record.queue_deleted, queues, _NAMES),
        st.builds(record.dropped, st.integers(6, 8), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["", "n"])),
        st.builds(record.counts, queues, st.just(1), st.lists(ids)),
    )  # fmt: skip


def segments_of(scale: int) -> st.SearchStrategy[list[bytes]]:
    entries = st.lists(st.lists(records(scale), min_size=1, max_size=6), max_size=4)
    return st.lists(entries, min_size=1, max_size=3).map(journal)


_BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "keep_below": st.integers(0, 9),
        "first_segment": st.integers(0, 6),
        "from_position": st.integers(0, 40),
        "to_position": st.integers(0, 40),
        "from_time": st.integers(0, 400),
        "to_time": st.integers(0, 400),
    },
)


@given(segments_of(1))
def test_movements(segments: list[bytes]) -> None:
    check(segments)


@given(segments_of(1 << 59))
def test_ids_far_from_each_other(segments: list[bytes]) -> None:
    check(segments)


@given(segments_of(1), _BOUNDS)
def test_bounds(segments: list[bytes], bounds: dict[str, int]) -> None:
    check(segments, **bounds)


@given(segments_of(1), st.integers(1, 3))
def test_batches_are_bounded(segments: list[bytes], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving, "BATCH_ROWS", rows)
        check(segments)
        movements = Movements()
        for number, data in enumerate(segments, 1):
            movements.add(data, walk(data, number=number, newest=False))
        assert all(0 < len(batch) <= rows for batch in movements.batches())


@pytest.mark.parametrize("seed", range(3))
def test_journals_of_the_real_store(seed: int) -> None:
    found = making.random_journal(seed)
    movements, model = Movements(), Model()
    for number, data in found.items():
        movements.add(data, walk(data, number=number, newest=False))
        model.add(data, number)
    rows = pa.Table.from_batches(movements.batches()).to_pylist()
    assert sorted_rows(rows) == sorted_rows(model.rows())
    assert {row["kind"] for row in rows} >= {"settled", "open"}


# -- case by case ------------------------------------------------------------------------------------------------------


def kinds(*entries: Sequence[bytes], **more: Any) -> Counter[tuple[str, int, int]]:
    """How many rows of each kind, with what they count as entered and left."""
    rows = check(journal([entries]), **more)
    return Counter((row["kind"], row["entered"], row["left"]) for row in rows)


CONSUMED = RemovalReason.CONSUMED


def test_a_copy_of_what_is_there_is_nothing_new() -> None:
    found = kinds([message(1, [1])], [copy(1, [1], previous=1), record.removed(1, CONSUMED, [1])], first_segment=1)
    assert found == {("settled", 1, 1): 1}


def test_a_copy_of_what_is_gone_is_an_entry() -> None:
    entries = [[copy(1, [1], previous=1)], [record.removed(1, CONSUMED, [1])]]
    assert kinds(*entries, first_segment=2) == {("settled", 1, 1): 1}
    assert kinds(*entries, first_segment=2, from_position=1) == {("settled", 0, 0): 1, ("open", 0, 1): 1}


def test_in_and_out() -> None:
    assert kinds([message(1), message(2)], [record.removed(1, CONSUMED, [1, 2])]) == {("settled", 2, 2): 1}


def test_in_and_out_within_one_entry() -> None:
    assert kinds([message(1), record.removed(1, CONSUMED, [1])]) == {("settled", 1, 1): 1}


def test_only_in_and_only_out() -> None:
    found = kinds([message(1), record.removed(1, CONSUMED, [2])])
    assert found == {("settled", 0, 0): 1, ("open", 1, 0): 1, ("open", 0, 1): 1}


def test_out_before_in() -> None:
    found = kinds([record.removed(1, CONSUMED, [1])], [message(1)])
    assert found == {("settled", 0, 0): 1, ("open", 1, 0): 1, ("open", 0, 1): 1}


def test_out_twice() -> None:
    found = kinds([message(1)], [record.removed(1, CONSUMED, [1])], [record.removed(1, CONSUMED, [1])])
    assert found == {("settled", 0, 0): 1, ("open", 1, 0): 1, ("open", 0, 1): 2}


def test_in_twice() -> None:
    found = kinds([message(1)], [message(1)], [record.removed(1, CONSUMED, [1])])
    assert found == {("settled", 0, 0): 1, ("open", 1, 0): 2, ("open", 0, 1): 1}


def test_in_twice_and_never_out() -> None:
    assert kinds([message(1), message(1)]) == {("settled", 0, 0): 1, ("open", 1, 0): 2}


def test_two_queues_are_two_books() -> None:
    found = kinds([message(1, [1, 2])], [record.removed(2, CONSUMED, [1])])
    assert found == {("settled", 0, 0): 1, ("settled", 1, 1): 1, ("open", 1, 0): 1}


def test_what_is_kept_never_settles() -> None:
    entries = ([message(4), message(5)], [record.removed(1, CONSUMED, [4, 5])])
    assert kinds(*entries, keep_below=5) == {("settled", 1, 1): 1, ("open", 1, 0): 1, ("open", 0, 1): 1}
    assert kinds(*entries, keep_below=4) == {("settled", 2, 2): 1}


def test_a_queue_without_movements_is_named() -> None:
    (row,) = check(journal([[[record.queue(5, {"name": "idle", "address": "a"})]]]))
    assert (row["kind"], row["queue"], row["address"], row["entered"]) == ("settled", "idle", "a", 0)


def test_segments_that_name_a_queue_differently() -> None:
    named = record.queue(1, {"name": "first", "address": "a"})
    renamed = record.queue(1, {"name": "second", "address": "b"})
    deleted = record.queue_deleted(1, {"name": "third"})
    for entries, name in (([named, renamed], "second"), ([named, deleted], "first"), ([deleted], "third")):
        rows = check(journal([[[message(1)]], *([[each]] for each in entries)]))
        assert {row["queue"] for row in rows if row["kind"] == "settled"} == {name}


def test_damage() -> None:
    good = journal([[[message(1)], [message(2)], [record.removed(1, CONSUMED, [1, 2])]]])[0]
    hit = walk(good, number=1, newest=False).offsets[1]
    data = good[:hit] + b"\xff\xff" + good[hit + 2 :]
    rows = moved([data, b""])
    damage = [row for row in rows if row["kind"] == "damage"]
    assert [(row["segment"], row["entered_position"], row["count"]) for row in damage] == [(1, 2, 1), (2, None, None)]
    assert damage[0]["offset"] == hit - 48
    assert damage[1]["text"] == "segment of 0 bytes is shorter than its header"
    assert [(row["message_id"], row["left"]) for row in rows if row["kind"] == "open"] == [(2, 1)]
    assert [row for row in moved([data], from_position=3) if row["kind"] == "damage"] == []


def test_nothing() -> None:
    assert moved([]) == []
    assert moved([segment([])]) == []
    assert moved([segment([[message(1, timestamp=CREATED)]])], to_position=1) == []
