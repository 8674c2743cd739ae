"""What passes a sieve is what a filter over all records lets pass, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_jobs.audits.sieve import LEDGER, AuditSource, LedgerScan, RecordScan, Sieve, Walked
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.schema import RECORDS, arrow_schema
from spark_jobs.journal.walk import walk
from store import decode
from store.record import RecordType
from tests.spark_jobs.audits import journals
from tests.spark_jobs.journal.decoding import decoded
from tests.support import books as oracle
from tests.support import tamper

COLUMNS = ("record_type", "segment", "offset", "position", "message_id", "origin_message_id", "expiration", "count")
TYPES = ("message", "removed", "counts", "dead-lettered", "expired", "queue-deleted")


def walked(data: Path) -> Iterator[Walked]:
    """All segments, each as the reader hands it on."""
    for segment in journals.segments_of(data / "journal"):
        yield segment.data, walk(segment.data, number=segment.number, newest=segment.newest)


def passing(data: Path, sieve: Sieve, bounds: Bounds) -> list[dict[str, object]]:
    """The rows that pass."""
    batches = list(RecordScan(bounds, sieve).read(walked(data)))
    found: list[dict[str, object]] = pa.Table.from_batches(batches, arrow_schema(RECORDS, sieve.columns)).to_pylist()
    return found


def everything(data: Path, bounds: Bounds) -> list[dict[str, object]]:
    """All rows of the types, as the decoder gives them."""
    types = frozenset(int(RecordType[name.upper().replace("-", "_")]) for name in TYPES)
    selection = Selection(COLUMNS, types, bounds)
    rows: list[dict[str, object]] = []
    for segment in journals.segments_of(data / "journal"):
        for batch in decoded(segment.data, selection, number=segment.number, newest=segment.newest, strict=False):
            rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize("bounds", [Bounds(), Bounds(from_position=500, to_position=3000)])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize("few", [False, True])
def test_a_sieve_is_a_filter(generated: Path, bounds: Bounds, moved: bool, brief: bool, few: bool) -> None:
    lines = oracle.read(generated / "journal")
    by = lines[len(lines) // 2].time if brief else None
    about = [line.record for line in lines if isinstance(line.record, decode.Removed | decode.DeadLettered)]
    named = [r.ids[0] if isinstance(r, decode.Removed) else r.old_id for r in about]
    ids = tuple(named[::20]) if few else None
    found = passing(generated, Sieve(COLUMNS, TYPES, moved, by, ids), bounds)

    def passes(row: dict[str, object]) -> bool:
        if row["record_type"] != "message":
            return ids is None or row["message_id"] in ids
        expiration = row["expiration"]
        wanted = [
            moved and row["origin_message_id"] is not None,
            by is not None and expiration is not None and expiration.timestamp() * 1000 <= by,  # type: ignore[attr-defined]
            ids is not None and row["message_id"] in ids,
        ]
        return any(wanted) or not (moved or brief or few)

    assert found == [row for row in everything(generated, bounds) if passes(row)]
    assert found


def test_damage_passes_every_sieve(generated: Path, tmp_path: Path) -> None:
    data = tamper.copy(generated, tmp_path / "data")
    tamper.flip(tamper.path_of(data / "journal", 2), 5_000)
    sieve = Sieve(COLUMNS, ("dead-lettered",), ids=(1,))
    (row,) = passing(data, sieve, Bounds())
    assert (row["record_type"], row["segment"]) == ("damage", 2)
    assert row["count"]


def test_a_ledgers_scan_has_its_columns(generated: Path) -> None:
    batches = list(LedgerScan(Bounds(), 0, 0).read(walked(generated)))
    assert all(batch.schema == pa.schema(list(LEDGER.items())) for batch in batches)
    kinds = set(pa.Table.from_batches(batches)["kind"].to_pylist())
    assert kinds == {"settled", "open", "dropped", "range", "gone"}


def test_what_travels_to_the_executors_can_travel(generated: Path) -> None:
    options = {"snapshot": "{}", "bounds": "{}", "sieve": '{"columns": ["user"], "types": ["message"], "ids": [1]}'}
    source = AuditSource(options)
    assert source.schema() == "`user` string"
    assert pickle.loads(pickle.dumps(source.reader(None)))  # type: ignore[arg-type]  # not looked at
