"""A segment as one row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.journal.batch import times
from spark_jobs.journal.decode import known
from spark_jobs.journal.scan import Scanned
from spark_jobs.journal.schema import SEGMENTS, arrow_schema
from spark_jobs.journal.walk import UNKNOWN, Hole


def inspect(segment: Scanned) -> pa.RecordBatch:
    """A batch of one row with all columns of schema.SEGMENTS; for a lost segment, what should exist."""
    row = _lost(segment) if segment.lost else _read(segment)
    return pa.RecordBatch.from_pylist([row], schema=arrow_schema(SEGMENTS))


def _lost(segment: Scanned) -> dict[str, object]:
    (hole,) = segment.found.holes
    return {
        "path": segment.path,
        "segment": segment.found.number,
        "first_position": known(hole.first_position),
        "status": segment.lost,
        "lost_records": known(hole.records),
        "error": hole.what,
    }


def _read(segment: Scanned) -> dict[str, object]:
    found = segment.found
    header = found.header
    hole = found.holes[0] if found.holes else None
    if hole is None and found.torn_bytes:
        hole = Hole(found.end, found.next_position, UNKNOWN, "the last write is incomplete")
    lost = [hole.records for hole in found.holes]
    read = len(found.offsets) > 0
    return {
        "path": segment.path,
        "segment": found.number,
        "broker_id": header.broker_id.hex() if header else None,
        "created": _moment(header.created if header else 0),
        "size": len(segment.data),
        "used": found.end,
        "entries": found.entries,
        "records": len(found.offsets),
        "first_position": header.first_position if header else None,
        "last_position": int(found.positions[-1]) if read else None,
        "first_time": _moment(int(found.times[0]) if read else 0),
        "last_time": _moment(int(found.times[-1]) if read else 0),
        "status": _status(segment),
        "error_offset": hole.offset if hole else None,
        "unread_bytes": found.unread_bytes + found.torn_bytes,
        "lost_records": None if UNKNOWN in lost else sum(lost),
        "error": hole.what if hole else None,
    }


def _status(segment: Scanned) -> str:
    if not segment.data:
        return "empty"
    if segment.found.header is None:
        return "unreadable"
    if segment.found.holes:
        return "corrupt"
    return "torn-tail" if segment.found.torn_bytes else "ok"


def _moment(milliseconds: int) -> pa.Scalar:
    return times(np.array([milliseconds], np.int64))[0]
