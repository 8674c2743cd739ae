"""The parts of a journal that Spark tasks read: planned on the driver, read where the task runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_jobs.journal import unfinished
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.decode import decode
from spark_jobs.journal.inspect import inspect
from spark_jobs.journal.scan import MissingSegments, Scanned, scan_segment
from spark_jobs.journal.segments import Gap, SegmentRef
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.source_options import SourceOptions

_frozen: Final[list[bool]] = []


@dataclass
class Part(InputPartition):
    """The part that one task reads: segments in order, or gaps to report, within the bounds."""

    segments: tuple[SegmentRef, ...]
    gaps: tuple[Gap, ...]
    bounds: Bounds


def plan(snapshot: Snapshot, options: SourceOptions) -> list[Part]:
    """The parts of a snapshot.  Raises MissingSegments."""
    gaps = snapshot.missing if options.gaps else ()
    if gaps and options.strict and options.view != "segments":
        raise MissingSegments(gaps)
    parts = [Part(tuple(refs), (), snapshot.bounds) for refs in snapshot.partitions(options.target_bytes)]
    if gaps:
        parts.append(Part((), gaps, snapshot.bounds))
    return parts


def read(part: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a part, as batches of the options' columns.  Raises CorruptSegment, Vanished, OSError.

    For a plan without parts, Spark passes a partition of another type.
    """
    if not _frozen:
        # A worker is forked with all of Spark imported; without this, garbage collection in each task would scan it.
        gc.freeze()
        _frozen.append(True)
    if isinstance(part, Part):
        yield from _VIEWS[options.view](part, options)


def _scan(part: Part, options: SourceOptions) -> Iterator[Scanned]:
    """The segments of a part, and the substitutes for those of its gaps."""
    yield from map(Scanned.missing, part.gaps)
    for segment in map(scan_segment, part.segments):
        if options.strict:
            segment.check(part.bounds)
        yield segment


def _records(part: Part, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    selection = replace(options.selection, bounds=part.bounds)
    if options.finished:
        for segment in _scan(part, options):
            yield from decode(segment.data, segment.found, selection)
        return
    yield from unfinished.rows(_scan(part, options), selection)


def _segments(part: Part, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    for segment in _scan(part, replace(options, strict=False)):
        yield inspect(segment).select(list(options.selection.columns))


_VIEWS: Final = {"records": _records, "segments": _segments}
