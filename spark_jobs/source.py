"""The data source `bartleby-journal`: the views of spark_jobs.journal as DataFrames.

    register(spark)
    spark.read.format("bartleby-journal").option("types", "dead-lettered").load("/var/lib/bartleby")

The driver pins a snapshot and packs its segments, in order, into partitions of about 64 MiB; each executor reads and
decodes the segments of its partition, with one segment in memory at a time.

1. Spark does not tell a Python source which columns a query uses, and should not tell it which rows: up to Spark 4.3,
   `pushFilters` of one query also restricts every other query on the same data frame, which then misses rows.
   Therefore, options select the data; columns that are not named are not decoded.
2. While a journal is being written, every `load` sees a different end.  Scans that must agree need the same
   `snapshot`.
3. Damage is never ignored: it is an exception (mode=FAILFAST) or a row of its own (PERMISSIVE), and so is a missing
   segment.

`stream` has the other half, for `spark.readStream`.  docs/audits.md lists the options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.errors import AnalysisException, PySparkAttributeError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_jobs import pyfiles
from spark_jobs.journal.schema import ddl
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.reading import plan, read
from spark_jobs.source_options import VIEWS, BadOption, SourceOptions, parse, parse_columns
from spark_jobs.stream import JournalStreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "bartleby-journal"

_registered: Final[WeakSet[SparkSession]] = WeakSet()


def register(spark: SparkSession) -> None:
    """Register the data source with a session, and send its code to remote executors.  Harmless if repeated."""
    if spark in _registered:
        return
    if not pyfiles.shipped():
        _ship(spark)
    try:
        spark.dataSource.register(JournalSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark looks for the name in the active session, which is another one; creating a data frame activates this
        # one.
        spark.createDataFrame([], "nothing int")
        spark.dataSource.register(JournalSource)
    _registered.add(spark)


def _ship(spark: SparkSession) -> None:
    """Send the code to the executors of a cluster, or to the server of Spark Connect."""
    try:
        context = spark.sparkContext
    except PySparkAttributeError:  # in Spark Connect, Spark is another process, perhaps on another machine
        with pyfiles.packed() as code:
            spark.addArtifacts(str(code), pyfile=True)
        return
    if not str(context.master).startswith("local"):
        code = Path(SparkFiles.getRootDirectory()) / "code" / pyfiles.NAME
        pyfiles.write(code)
        context.addPyFile(str(code))


def open_journal(
    spark: SparkSession,
    snapshot: Snapshot,
    *,
    view: str = "records",
    columns: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    not_null: Sequence[str] = (),
    message_ids: Iterable[int] | None = None,
    finished: bool = True,
    target_bytes: int | None = None,
    mode: str = "PERMISSIVE",
) -> DataFrame:
    """A view of a snapshot, within its bounds.

    Damage within segments, and segments that vanish meanwhile, are rows, or exceptions with FAILFAST.  Segments missing
    from the snapshot are neither: the caller has them in `snapshot.missing`.
    """
    options: dict[str, object] = {
        "snapshot": snapshot.to_json(),
        "view": view,
        "gaps": False,
        "columns": None if columns is None else ",".join(columns),
        "types": None if types is None else ",".join(types),
        "notNull": ",".join(not_null) or None,
        "messageIds": None if message_ids is None else ",".join(map(str, message_ids)),
        "finished": None if finished else False,
        "targetBytes": target_bytes,
        "mode": None if view == "segments" else mode,
    }
    register(spark)
    reader = spark.read.format(NAME)
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value if isinstance(value, bool) else str(value))
    return reader.load()


class JournalSource(DataSource):
    """The entry point of `bartleby-journal` for Spark."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """The columns named by the options."""
        view = self.options.get("view", "records")
        if view not in VIEWS:
            raise BadOption(f"view={view}: possible values are {', '.join(VIEWS)}")
        return ddl(VIEWS[view], parse_columns(view, self.options.get("columns")))

    def reader(self, schema: StructType) -> JournalReader:
        """The reader for `spark.read`.  Raises BadOption."""
        return JournalReader(with_schema(parse(dict(self.options)), schema))

    def streamReader(self, schema: StructType) -> JournalStreamReader:
        """The reader for `spark.readStream`.  Raises BadOption."""
        return JournalStreamReader(with_schema(parse(dict(self.options), stream=True), schema))


def with_schema(options: SourceOptions, schema: StructType) -> SourceOptions:
    """The options with the columns of a schema, which the user may have given.  Raises BadOption."""
    view = VIEWS[options.view]
    for column in schema.fields:
        known = view.get(column.name)
        if known is None or known.ddl != column.dataType.simpleString():
            what = f"has type {known.ddl}" if known else f"does not exist in view={options.view}"
            raise BadOption(f"column {column.name} {column.dataType.simpleString()}: it {what}")
    return replace(options, selection=replace(options.selection, columns=tuple(schema.names)))


class JournalReader(DataSourceReader):
    """The batch reader: plans on the driver, reads on the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions of the query.  Raises the exceptions of SourceOptions.pinned and plan."""
        return plan(self._options.pinned(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, as Arrow batches."""
        return read(partition, self._options)
