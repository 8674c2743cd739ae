"""A section's chart, drawn by matplotlib.

Over time the columns stand where their hours are, so that a quiet night is a gap.  Names go below their columns if they
are few and short, else beside bars that lie on their side.  The same section gives the same bytes: no date, no random
ids.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise
from typing import Any, Final
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from spark_jobs.report import text
from spark_jobs.report.svg import INK, LINES, SERIES, SERIES_MAX, fit_for_page
from spark_jobs.results import Chart, Section

#: Bars of a chart that has names: what can be read.  Of a longer table the first ones are drawn.
BARS_MAX: Final = 20

#: Names that stand below their columns; more of them, or longer ones, lie beside their bars.
UPRIGHT_MAX: Final = 8
UPRIGHT_CHARS_MAX: Final = 16

#: Points of a chart over time, the latest: one a pixel.
TIMES_MAX: Final = 1_000

#: Characters of a name beside its bar.
LABEL_CHARS_MAX: Final = 40

#: Inches of 72 points; a point is about a pixel of the page.
WIDTH: Final = 14.8
HEIGHT: Final = 3.5
UPRIGHT_HEIGHT: Final = 2.6
BAR_HEIGHT: Final = 0.34

OTHERS: Final = "others"

_HOUR: Final = 1 / 24

_SETTINGS: Final[dict[str, Any]] = {
    "axes.edgecolor": LINES,
    "axes.linewidth": 1.0,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "font.size": 13,
    "grid.color": LINES,
    "grid.linewidth": 1.0,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # a client's `$` is a dollar
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.pad": 7,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}

#: How hours, days and months are written: by the step of the axis, at the first of the next larger unit, at its end.
_DATES: Final[dict[str, list[str]]] = {
    "formats": ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"],
    "zero_formats": ["", "%Y", "%b", "%d %b", "%H:%M", "%H:%M"],
    "offset_formats": ["", "%Y", "%b %Y", "%d %b %Y", "%d %b %Y", "%d %b %Y %H:%M"],
}

# What matplotlib tells about its font cache is of no use to whoever runs an audit.
logging.getLogger("matplotlib").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn: the places (times, or names), and for each series, by its name, a value for each place."""

    chart: Chart
    times: list[datetime]
    names: list[str]
    series: dict[str, list[float]]

    @property
    def lying(self) -> bool:
        """Whether the bars lie on their side."""
        if self.times or self.chart.kind == "line":
            return False
        return len(self.names) > UPRIGHT_MAX or max(map(len, self.names)) > UPRIGHT_CHARS_MAX

    @property
    def labelled(self) -> bool:
        """Whether each bar has its number beside it, and so needs no axis."""
        return not self.times and len(self.series) == 1 and self.chart.kind != "line"

    def shown(self, value: float) -> str:
        """A value as people read it."""
        return text.number(self.chart.y[0], int(value) if float(value).is_integer() else value, 2)


def draw(section: Section) -> ET.Element | None:
    """The chart of a section; None if it has none, or if there is nothing to see."""
    chart = section.chart
    if chart is None:
        return None
    drawing = _over_time(section.table, chart) or _by_name(section.table, chart)
    if not any(map(any, drawing.series.values())):
        return None
    settings: Any = _SETTINGS | {"svg.hashsalt": section.name}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the page's font is another one
        file = io.BytesIO()
        _figure(drawing).savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return fit_for_page(file.getvalue(), section.name, _description(drawing))


# -- what is drawn -----------------------------------------------------------------------------------------------------


def _over_time(table: pa.Table, chart: Chart) -> Drawing | None:
    """The latest rows, if `x` is a time."""
    if not pa.types.is_timestamp(table.column(chart.x).type):
        return None
    table = table.filter(table.column(chart.x).is_valid()).sort_by(chart.x)
    table = table.slice(max(0, table.num_rows - TIMES_MAX))
    return Drawing(chart, table.column(chart.x).to_pylist(), [], _series(_values(table, chart)))


def _by_name(table: pa.Table, chart: Chart) -> Drawing:
    """The first names.  Rows of the same name are added up, and then the largest come first."""
    labels = list(map(_label, table.column(chart.x).to_pylist()))
    sums: dict[str, list[float]] = {}
    for label, row in zip(labels, zip(*_values(table, chart).values(), strict=True), strict=False):
        sums[label] = [one + other for one, other in zip(sums.get(label, [0.0] * len(row)), row, strict=True)]
    if len(sums) < len(labels):
        sums = dict(sorted(sums.items(), key=lambda named: -sum(named[1])))
    first = dict(islice(sums.items(), BARS_MAX))
    series = dict(zip(chart.y, map(list, zip(*first.values(), strict=True)), strict=False))
    return Drawing(chart, [], list(first), _series(series))


def _values(table: pa.Table, chart: Chart) -> dict[str, list[float]]:
    return {name: [float(value or 0) for value in table.column(name).to_pylist()] for name in chart.y}


def _series(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """The series that have anything; if they are too many, the smallest as one."""
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


def _description(drawing: Drawing) -> str:
    """What the chart shows, for those who do not see it; the figures themselves are in the table below it."""
    sums = [sum(row) for row in zip(*drawing.series.values(), strict=True)]
    peak = max(range(len(sums)), key=sums.__getitem__)
    where = text.moment(drawing.times[peak], "minutes") if drawing.times else drawing.names[peak]
    names = ", ".join(map(_legend, drawing.series))
    return f"{names} by {text.heading(drawing.chart.x)}; the most, {drawing.shown(sums[peak])}, at {where}."


# -- how it is drawn ---------------------------------------------------------------------------------------------------


def _figure(drawing: Drawing) -> Figure:
    upright = HEIGHT if drawing.times else UPRIGHT_HEIGHT
    height = BAR_HEIGHT * (len(drawing.names) + 1.5) if drawing.lying else upright
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    if drawing.times:
        _draw_times(axes, drawing)
    elif drawing.lying:
        _draw_lying(axes, drawing)
    else:
        _draw_upright(axes, drawing)
    _draw_scale(axes, drawing)
    if len(drawing.series) > 1:
        handles, names = axes.get_legend_handles_labels()
        columns = dict(ncols=min(len(names), SERIES_MAX), handlelength=0.9, handleheight=0.9)
        figure.legend(handles, names, loc="outside upper left", **columns)
    return figure


def _draw_scale(axes: Axes, drawing: Drawing) -> None:
    axis = axes.xaxis if drawing.lying else axes.yaxis
    if drawing.labelled:
        axis.set_visible(False)
        axes.spines["bottom"].set_visible(not drawing.lying)
        return
    whole = all(value.is_integer() for values in drawing.series.values() for value in values)
    axis.set_major_locator(MaxNLocator(nbins=5, integer=whole, min_n_ticks=2))
    axis.set_major_formatter(FuncFormatter(lambda value, _: drawing.shown(value)))
    axes.grid(visible=True, axis="x" if drawing.lying else "y")


def _draw_times(axes: Axes, drawing: Drawing) -> None:
    days = [float(date2num(time)) for time in drawing.times]  # type: ignore[no-untyped-call]
    step = min((after - before for before, after in pairwise(days)), default=_HOUR)
    if drawing.chart.kind == "line":
        _draw_lines(axes, drawing, days)
        axes.set_ylim(bottom=0)
    else:
        _draw_columns(axes, drawing, [day + step / 2 for day in days], step * 0.88)
    around = max(step, (12 * step - (days[-1] - days[0])) / 2)  # a few columns are not as wide as the page
    axes.set_xlim(days[0] - around, days[-1] + around + step)
    locator = AutoDateLocator(minticks=3, maxticks=12)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, **_DATES))  # type: ignore[no-untyped-call]


def _draw_upright(axes: Axes, drawing: Drawing) -> None:
    places = [float(place) for place in range(len(drawing.names))]
    if drawing.chart.kind == "line":
        _draw_lines(axes, drawing, places)
    else:
        _draw_columns(axes, drawing, places, 0.6)
    axes.set_xticks(places, drawing.names)
    axes.set_xlim(-0.6, max(len(places), 4) - 0.4)
    axes.set_ylim(bottom=0)


def _draw_lines(axes: Axes, drawing: Drawing, places: Sequence[float]) -> None:
    for colour, (name, values) in zip(SERIES, drawing.series.items(), strict=False):
        axes.plot(places, values, color=colour, label=_legend(name), linewidth=2, marker="o", markersize=4)


def _draw_columns(axes: Axes, drawing: Drawing, places: Sequence[float], width: float) -> None:
    bottom = [0.0] * len(places)
    for colour, (name, values) in zip(SERIES, drawing.series.items(), strict=False):
        bars = axes.bar(places, values, width=width, bottom=bottom, color=colour, label=_legend(name))
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
        if drawing.labelled:
            axes.bar_label(bars, [drawing.shown(value) for value in values], padding=3)


def _draw_lying(axes: Axes, drawing: Drawing) -> None:
    places = range(len(drawing.names))
    left = [0.0] * len(places)
    for colour, (name, values) in zip(SERIES, drawing.series.items(), strict=False):
        bars = axes.barh(places, values, height=0.66, left=left, color=colour, label=_legend(name))
        left = [low + value for low, value in zip(left, values, strict=True)]
        if drawing.labelled:
            axes.bar_label(bars, [drawing.shown(value) for value in values], padding=6)
    axes.set_yticks(places, drawing.names)
    axes.set_ylim(len(places) - 0.5, -0.5)


def _legend(series: str) -> str:
    """A series' name; matplotlib leaves out of a legend what begins with `_`."""
    return text.heading(series).lstrip("_") or "?"
