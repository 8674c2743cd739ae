"""The schemas are those of Spark, column by column."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from spark_jobs.journal.columns import COLUMNS
from spark_jobs.journal.schema import DEFAULT_RECORDS, RECORDS, SEGMENTS, Column, arrow_schema, ddl

VIEWS = {"records": RECORDS, "segments": SEGMENTS}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_spark_reads_and_writes_the_same_types(view: Mapping[str, Column]) -> None:
    """Without a session: pyspark's own conversion both ways, strict about names and types of inner fields."""
    ours = arrow_schema(view)
    spark = from_arrow_schema(ours, prefer_timestamp_ntz=False)
    assert to_arrow_schema(spark, timezone="UTC").equals(ours, check_metadata=True)
    types = {field.name: field.dataType.simpleString() for field in spark.fields}
    assert types == {column.name: column.ddl for column in view.values()}
    assert all(field.nullable for field in ours)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_columns_are_named_and_explained(view: Mapping[str, Column]) -> None:
    assert all(column.name == name and column.doc for name, column in view.items())


def test_every_column_of_the_records_is_made() -> None:
    assert list(COLUMNS) == list(RECORDS)


def test_costly_columns_are_read_on_request() -> None:
    assert set(RECORDS) - set(DEFAULT_RECORDS) == {"properties", "body", "body_hash"}


def test_some_columns() -> None:
    names = ["reason", "queue_ids"]
    assert arrow_schema(RECORDS, names).names == names
    assert arrow_schema(RECORDS, names).field("queue_ids").type == pa.list_(pa.int64())
    for make in (arrow_schema, ddl):
        with pytest.raises(KeyError, match="colour"):
            make(RECORDS, ["colour"])
