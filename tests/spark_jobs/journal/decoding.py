"""Segments in memory, read as a scan reads those of a journal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from spark_jobs.journal.decode import Selection, decode
from spark_jobs.journal.scan import Scanned
from spark_jobs.journal.walk import walk


def scanned(data: bytes, *, path: str = "p", number: int = 1, newest: bool = False, **more: Any) -> Scanned:
    """A segment; `more` as for walk."""
    return Scanned(path, data, walk(data, number=number, newest=newest, **more))


def decoded(data: bytes, selection: Selection, *, strict: bool = True, **more: Any) -> Iterator[pa.RecordBatch]:
    """The selected records of a segment; strict: raises CorruptSegment for damage that is selected."""
    segment = scanned(data, **more)
    if strict:
        segment.check(selection.bounds)
    yield from decode(data, segment.found, selection)
