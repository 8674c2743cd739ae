"""Spark's results as small tables in UTC, and expressions that several audits use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

from spark_jobs.results import UTC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NUMBER: Final = "grouping number"
_RANK: Final = "rank within the grouping"
_GROUPS: Final = "groups of the grouping"


def collect(frame: DataFrame) -> pa.Table:
    """A small frame as a table, with times in UTC, whatever the session's time zone is."""
    table = frame.toArrow()
    fields = [(f.name, UTC if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields))


def most(frame: DataFrame, order: Sequence[Column], top: int) -> tuple[pa.Table, int]:
    """The first rows of a frame, and how many more there are: only if there are more, it is computed again."""
    table = collect(frame.orderBy(*order).limit(top))
    return table, frame.count() - top if table.num_rows == top else 0


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of one grouping, and how many more there are."""

    table: pa.Table
    beyond: int


def grouped(
    frame: DataFrame, groupings: Mapping[str, Sequence[str]], measures: Sequence[Column], limits: Mapping[str, int]
) -> dict[str, Groups]:
    """Several groupings of a frame in one pass, by name.

    The grouping by `hour` has the latest groups first, the others those with the highest first measure.  `limits` is
    the maximum number of groups of each.  The tables have the columns of their grouping, followed by all measures.
    """
    columns = list(dict.fromkeys(name for names in groupings.values() for name in names))
    # Spark numbers a grouping by the columns that it leaves out; the first column is the highest bit.
    numbers = {
        sum(1 << len(columns) - 1 - i for i, column in enumerate(columns) if column not in names): name
        for name, names in groupings.items()
    }
    sets = [[F.col(name) for name in names] for names in groupings.values()]
    counted = frame.groupingSets(sets, *columns).agg(F.grouping_id().alias(_NUMBER), *measures)
    most_first = F.when(F.col("hour").isNull(), F.col(counted.columns[len(columns) + 1])).desc()
    order = [most_first, F.desc("hour"), *map(F.asc, columns)]
    ranked = counted.withColumn(_RANK, F.row_number().over(Window.partitionBy(_NUMBER).orderBy(*order))).withColumn(
        _GROUPS, F.count("*").over(Window.partitionBy(_NUMBER))
    )
    within = [(F.col(_NUMBER) == number) & (F.col(_RANK) <= limits[name]) for number, name in numbers.items()]
    table = collect(ranked.where(reduce(or_, within))).sort_by(_RANK)
    return {name: _grouping(table, number, groupings[name], columns) for number, name in numbers.items()}


def whole(groups: Groups, columns: Sequence[str]) -> dict[str, int]:
    """The figures of the grouping without columns; for an empty frame, Spark has no such group."""
    found: list[dict[str, int]] = groups.table.select(list(columns)).to_pylist()
    return found[0] if found else dict.fromkeys(columns, 0)


def _grouping(table: pa.Table, number: int, names: Sequence[str], columns: Sequence[str]) -> Groups:
    own = table.filter(pc.field(_NUMBER) == number)
    beyond = own[_GROUPS][0].as_py() - len(own) if len(own) else 0
    others = {_NUMBER, _RANK, _GROUPS, *columns} - set(names)
    kept = [name for name in [*names, *own.column_names] if name not in others]
    return Groups(own.select(list(dict.fromkeys(kept))), beyond)


def quantiles(column: str, prefix: str = "") -> list[Column]:
    """Min, median, p95 and max of a column in ms, as seconds; the quantiles are actual values (nearest rank)."""

    def seconds(value: Column, name: str) -> Column:
        return F.round(value / 1000, 3).alias(prefix + name)

    def rank(share: float) -> Column:
        return F.percentile_approx(column, share, 10_000)

    return [
        seconds(F.min(column), "min (s)"),
        seconds(rank(0.5), "median (s)"),
        seconds(rank(0.95), "p95 (s)"),
        seconds(F.max(column), "max (s)"),
    ]


def hour(column: str) -> Column:
    """The full hour in UTC that contains a time."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(column) / 3600) * 3600)


def elapsed(since: str, until: str) -> Column:
    """The milliseconds from one time to another; null if one of them is unknown."""
    return F.unix_millis(until) - F.unix_millis(since)
