"""The columns of a section, ready to be shown: texts, alignment, and which columns are all zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import pyarrow as pa

from spark_jobs.report import text

#: Maximum number of decimals of fractions: milliseconds, or per mille.
DECIMALS: Final = 3


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it is shown: a text for each row.

    `zero`: a count that is 0 in every row, so that the column may be left out if there is little room.
    """

    heading: str
    cells: list[str]
    kind: Literal["number", "time", "text"] = "text"
    zero: bool = False


def columns(table: pa.Table) -> list[Column]:
    """The columns of a table, in order."""
    return [_column(name, table.column(index)) for index, name in enumerate(table.column_names)]


def _column(name: str, values: pa.ChunkedArray) -> Column:
    kind = values.type
    found: list[Any] = values.to_pylist()
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if numeric:
        zero = text.is_count(name) and bool(found) and not any(found)
        return Column(text.heading(name), _shown(found, _number(name, found)), "number", zero)
    if pa.types.is_timestamp(kind):
        return Column(text.heading(name), _shown(found, _time(found)), "time")
    return Column(text.heading(name), _shown(found, text.plain))


def _shown(found: Sequence[Any], shown: Callable[[Any], str]) -> list[str]:
    return ["" if value is None else shown(value) for value in found]


def _number(name: str, values: Sequence[float | None]) -> Callable[[float], str]:
    """Use the same number of decimals in all rows of a column, as many as needed, so that the points align."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    needed = next((n for n in range(DECIMALS) if all(round(value, n) == value for value in finite)), DECIMALS)
    return lambda value: text.number(name, value, needed) if math.isfinite(value) else str(value)


def _time(values: Sequence[datetime | None]) -> Callable[[datetime], str]:
    """Show times only as finely as the column's values need."""
    times = [value for value in values if value is not None]
    if any(time.microsecond for time in times):
        return lambda value: text.moment(value, "milliseconds")
    spec = "seconds" if any(time.second for time in times) else "minutes"
    return lambda value: text.moment(value, spec)
