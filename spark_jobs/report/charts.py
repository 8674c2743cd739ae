"""The geometry of a section's chart, in percent of its width and height; page.html draws it.

Names have horizontal bars.  Counts by hour have columns on a time axis, so that a quiet night is a gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Final

import pyarrow as pa

from spark_jobs.report import text
from spark_jobs.results import Chart, Section

#: Maximum number of bars in a chart of names, for readability.  Of a longer table, the first rows are drawn.
BARS_MAX: Final = 20

#: Maximum number of columns in a chart over time (one per pixel; the latest are drawn), and the number of hours for
#: which there is always room, so that a few columns do not get too wide.
TIMES_MAX: Final = 1_000
TIMES_MIN: Final = 12

#: Maximum number of characters of a name beside its bar.
LABEL_CHARS_MAX: Final = 40

#: Number of series with their own colour; if there are more, the smallest are summed.
SERIES_MAX: Final = 8
OTHERS: Final = "others"

#: Steps between two marks of an axis: in hours, and as the first digit of numbers.  The first step that needs few
#: enough marks is used.
HOURS: Final = (1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 8_760)
HOUR_MARKS_MAX: Final = 12
DIGITS: Final = (1, 2, 5, 10)
NUMBER_MARKS_MAX: Final = 5

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on an axis, in percent of its length, and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, or a column at `at`.  `parts`: the number of a series, where it begins, and its length."""

    name: str
    value: str
    at: float
    parts: list[tuple[int, float, float]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart.  One over time also has marks on both axes, and the width of its columns."""

    description: str
    legend: list[str]
    bars: list[Bar]
    times: Sequence[Mark] = ()
    values: Sequence[Mark] = ()
    width: float = 0.0


def draw(section: Section) -> Drawing | None:
    """The chart of a section; None if it has none, or if everything in it is 0."""
    chart = section.chart
    if chart is None:
        return None
    over_time = pa.types.is_timestamp(section.table.column(chart.x).type)
    rows = _by_time(section.table, chart) if over_time else _by_name(section.table, chart)
    series = _series(dict(zip(chart.y, map(list, zip(*rows.values(), strict=True)), strict=False)))
    if not any(map(any, series.values())):
        return None
    names = [text.moment(place, "minutes") if isinstance(place, datetime) else place for place in rows]
    stacks = list(zip(*series.values(), strict=True))
    sums = list(map(sum, stacks))
    legend, peak = list(map(text.heading, series)), sums.index(max(sums))
    said = f"{', '.join(legend)} by {text.heading(chart.x)}; the most, {_figure(chart, sums[peak])}, at {names[peak]}."

    def bars(top: float, at: Sequence[float]) -> list[Bar]:
        return [
            Bar(name, _figure(chart, total), left, _parts(stack, top))
            for name, total, left, stack in zip(names, sums, at, stacks, strict=True)
        ]

    if not over_time:
        return Drawing(said, legend, bars(sums[peak], [0.0] * len(sums)))
    scale = _scale(sums[peak], whole=all(value.is_integer() for stack in stacks for value in stack))
    values = [Mark(_percent(value, scale[-1]), _figure(chart, value)) for value in scale]
    at, width, times = _axis([place for place in rows if isinstance(place, datetime)])
    return Drawing(said, legend, bars(scale[-1], at), times, values, width)


def _by_time(table: pa.Table, chart: Chart) -> dict[str | datetime, list[float]]:
    """The latest rows, by time."""
    table = table.filter(table.column(chart.x).is_valid()).sort_by(chart.x)
    table = table.slice(max(0, table.num_rows - TIMES_MAX))
    return dict(zip(table.column(chart.x).to_pylist(), _rows(table, chart), strict=False))


def _by_name(table: pa.Table, chart: Chart) -> dict[str | datetime, list[float]]:
    """The first names.  If rows have the same name, they are summed, and the largest come first."""
    labels = list(map(_label, table.column(chart.x).to_pylist()))
    found: dict[str | datetime, list[float]] = {}
    for label, row in zip(labels, _rows(table, chart), strict=False):
        found[label] = list(map(sum, zip(found.get(label, [0.0] * len(row)), row, strict=True)))
    if len(found) < len(labels):
        found = dict(sorted(found.items(), key=lambda named: -sum(named[1])))
    return dict(islice(found.items(), BARS_MAX))


def _rows(table: pa.Table, chart: Chart) -> list[list[float]]:
    columns = [[float(value or 0) for value in table.column(name).to_pylist()] for name in chart.y]
    return list(map(list, zip(*columns, strict=True)))


def _series(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """The series that are not all 0; if there are too many, the smallest are combined."""
    if len(found) > 1:
        found = {name: values for name, values in found.items() if any(values)}
    if len(found) <= SERIES_MAX:
        return found
    kept = sorted(found, key=lambda name: -sum(found[name]))[: SERIES_MAX - 1]
    rest = [found[name] for name in found if name not in kept]
    largest = {name: values for name, values in found.items() if name in kept}
    return largest | {OTHERS: [sum(row) for row in zip(*rest, strict=True)]}


def _label(value: object) -> str:
    shown = text.plain(value) or "(none)"
    return shown if len(shown) <= LABEL_CHARS_MAX else f"{shown[: LABEL_CHARS_MAX - 1]}…"


def _figure(chart: Chart, value: float) -> str:
    return text.number(chart.y[0], int(value) if value.is_integer() else value, 2)


def _parts(stack: Sequence[float], top: float) -> list[tuple[int, float, float]]:
    placed = enumerate(zip(accumulate(stack, initial=0.0), stack, strict=False), 1)
    return [(number, _percent(begin, top), _percent(value, top)) for number, (begin, value) in placed if value]


def _percent(value: float, whole: float) -> float:
    return round(100 * value / whole, 2)


def _scale(most: float, *, whole: bool) -> list[float]:
    """Marks from 0 to the largest value or beyond, in readable steps."""
    digit = 10.0 ** math.floor(math.log10(most / NUMBER_MARKS_MAX))
    digit = max(1.0, digit) if whole else digit
    step = next(digit * first for first in DIGITS if digit * first * NUMBER_MARKS_MAX >= most)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def _axis(times: list[datetime]) -> tuple[list[float], float, list[Mark]]:
    """Where the columns begin, how wide one is, and the marks, at full hours or days."""
    around = max(timedelta(0), (TIMES_MIN * _HOUR - (times[-1] - times[0])) / 2)
    first, last = times[0] - around, times[-1] + around + _HOUR
    span = last - first
    hours = next((hours for hours in HOURS if span / (hours * _HOUR) <= HOUR_MARKS_MAX), HOURS[-1])
    mark = first + (_EPOCH - first) % (hours * _HOUR)
    marks = []
    while mark <= last:
        marks.append(Mark(_percent((mark - first) / span, 1), f"{mark:%H:%M}" if mark.hour else f"{mark:%-d %b}"))
        mark += hours * _HOUR
    return [_percent((time - first) / span, 1) for time in times], _percent(_HOUR / span, 1), marks
