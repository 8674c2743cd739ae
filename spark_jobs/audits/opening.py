"""Balances on disk: the contents of each queue at a position, so that a later ledger needs no earlier records.

    DIR/present-POSITION.parquet   queue_id, message_id, position, time: one row for each message on each queue
    DIR/balance.json               broker id, position, time, the queues with their names and counts, a checksum of both

The head names the file of messages and replaces the old head in one step, after all its messages are written: a reader
finds either the old balance or the new one.  The checksum is the CRC32C of the file of messages, continued over the
head without the checksum: a balance is stored for a day or a year, and the next ledger depends on every byte of it. DIR
is a local path or the URI of anything that pyarrow opens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from crc32c import crc32c
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_jobs.audits.rules import QueuePresent
from spark_jobs.journal.files import location
from spark_jobs.results import UTC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

HEAD: Final = "balance.json"
_PRESENT: Final = "present-"
_TEMPORARY: Final = ".part"
_VERSION: Final = 1
_CHECKSUM: Final = "crc32c"
_PIECE_BYTES: Final = 1 << 20

SCHEMA: Final = pa.schema(
    [("queue_id", pa.int64()), ("message_id", pa.int64()), ("position", pa.int64()), ("time", UTC)]
)


class BadBalance(Exception):
    """A balance that cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The head of a balance.

    `position` follows the last record it covers; `time` is in ms since the epoch.  All messages in it have ids lower
    than `below`.  `verdict` is that of the ledger that wrote it.
    """

    broker_id: str
    position: int
    time: int
    messages: int
    below: int
    verdict: str
    queues: tuple[QueuePresent, ...]

    @property
    def file(self) -> str:
        """The name of the file with the messages."""
        return f"present-{self.position}.parquet"


def read(directory: str) -> Balance:
    """The head of the balance in a directory.  Raises BadBalance."""
    filesystem, path = _open(directory)
    try:
        with filesystem.open_input_stream(f"{path}/{HEAD}") as stream:
            head = json.loads(stream.read())
        if head["version"] != _VERSION:
            raise BadBalance(f"{directory}: the balance has version {head['version']}, this software reads {_VERSION}")
        queues = tuple(QueuePresent(**queue) for queue in head["queues"])
        fields = ("broker_id", "position", "time", "messages", "below", "verdict")
        balance = Balance(**{name: head[name] for name in fields}, queues=queues)
        checksum = head.pop(_CHECKSUM)
        if checksum != _checksum(filesystem, f"{path}/{balance.file}", head):
            raise ValueError("its checksum is wrong")
        rows = pq.ParquetFile(filesystem.open_input_file(f"{path}/{balance.file}")).metadata.num_rows
    except FileNotFoundError as gone:
        raise BadBalance(f"{directory}: there is no balance; --save-balance writes one") from gone
    except OSError as error:
        raise BadBalance(f"{directory}: the balance cannot be read: {_why(error)}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise BadBalance(f"{directory}: the balance cannot be read: {error}") from error
    if rows != balance.messages:
        raise BadBalance(f"{directory}: {HEAD} says {balance.messages} messages, but {balance.file} has {rows}")
    return balance


def frame(spark: SparkSession, directory: str, balance: Balance) -> DataFrame:
    """The messages of a balance (SCHEMA), read by the executors."""
    spark.dataSource.register(BalanceSource)
    return spark.read.format(BalanceSource.name()).load(f"{directory.rstrip('/')}/{balance.file}")


class BalanceSource(DataSource):
    """A file of messages for Spark.

    Spark's own Parquet reader would need Hadoop's file systems for an object store, with different credentials from
    those used for everything else here.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "bartleby-balance"

    def schema(self) -> str:
        """The schema in Spark's syntax."""
        return "queue_id bigint, message_id bigint, position bigint, time timestamp_ltz"

    def reader(self, schema: StructType) -> BalanceReader:
        """The reader for `spark.read`."""
        return BalanceReader(self.options["path"])


class BalanceReader(DataSourceReader):
    """Reads row groups, one per task."""

    def __init__(self, place: str) -> None:
        self._place = place

    def _file(self) -> pq.ParquetFile:
        filesystem, path = _open(self._place)
        return pq.ParquetFile(filesystem.open_input_file(path))

    def partitions(self) -> list[InputPartition]:
        """One partition per row group."""
        with self._file() as file:
            return [InputPartition(group) for group in range(file.metadata.num_row_groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a row group.  For a file without row groups, Spark passes a partition with None."""
        if partition.value is not None:
            with self._file() as file:
                yield from file.read_row_group(partition.value, list(SCHEMA.names)).cast(SCHEMA).to_batches()


def check_target(directory: str) -> None:
    """Check that a balance can be written there, before an hour of work is done for it.  Raises BadBalance."""
    filesystem, path = _open(directory)
    tried = f"{path}/{HEAD}{_TEMPORARY}"
    try:
        filesystem.create_dir(path, recursive=True)
        filesystem.open_output_stream(tried).close()
        filesystem.delete_file(tried)
    except OSError as error:
        raise BadBalance(f"{directory}: no balance can be written there: {_why(error)}") from error


def write(directory: str, balance: Balance, batches: Iterable[pa.Table]) -> None:
    """Write a balance: first the messages (SCHEMA), batch by batch, then the head.  Raises OSError, BadBalance."""
    filesystem, path = _open(directory)
    filesystem.create_dir(path, recursive=True)
    present, head = f"{path}/{balance.file}", f"{path}/{HEAD}"
    old = [info.path for info in filesystem.get_file_info(pafs.FileSelector(path)) if _PRESENT in info.base_name]
    with (
        filesystem.open_output_stream(present + _TEMPORARY) as stream,
        pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_table(batch.cast(SCHEMA))
    filesystem.move(present + _TEMPORARY, present)
    with filesystem.open_output_stream(head + _TEMPORARY) as stream:
        written = {"version": _VERSION, **asdict(balance)}
        written[_CHECKSUM] = _checksum(filesystem, present, written)
        stream.write(json.dumps(written, indent=1).encode())
    filesystem.move(head + _TEMPORARY, head)
    for gone in set(old) - {present}:
        filesystem.delete_file(gone)


def _checksum(filesystem: pafs.FileSystem, messages: str, head: dict[str, Any]) -> int:
    """The checksum of the file of messages and the head.  Raises OSError."""
    crc = 0
    with filesystem.open_input_stream(messages) as stream:
        while piece := stream.read(_PIECE_BYTES):
            crc = crc32c(piece, crc)
    return crc32c(json.dumps(head).encode(), crc)


def _why(error: OSError) -> str:
    """The error's text without the error number, which Arrow prints twice."""
    return str(error).rpartition("] ")[2]


def _open(directory: str) -> tuple[pafs.FileSystem, str]:
    try:
        filesystem, path = pafs.FileSystem.from_uri(location(directory))
    except (ValueError, pa.ArrowInvalid) as error:
        raise BadBalance(f"{directory}: {error}") from error
    return filesystem, path.rstrip("/")
