"""What Spark hands to a task, and the task: shared by the batch and the stream reader."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_jobs.reading import Part, read
from spark_jobs.source_options import SourceOptions

_frozen: Final[list[bool]] = []


class JournalPartition(InputPartition):
    """One part of a snapshot."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


def read_partition(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """See reading.read.  Spark stands a partition of None for a plan without any."""
    if not _frozen:
        # A worker is forked with all of Spark imported; each of its tasks would have all of that looked through.
        gc.freeze()
        _frozen.append(True)
    if isinstance(partition, JournalPartition):
        yield from read(partition.part, options)
