"""Charts: what they draw, what they leave out, and that nothing a client chose is more than a text."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from spark_jobs.report.charts import BARS_MAX, LABEL_CHARS_MAX, OTHERS, TIMES_MAX, UPRIGHT_MAX, draw
from spark_jobs.report.svg import SERIES, SERIES_MAX, VARIABLES
from spark_jobs.results import Chart, Section
from tests.spark_jobs.report.samples import MOMENT, START


def chart_of(columns: dict[str, Any], kind: Literal["bars", "stacked", "line"] = "bars") -> ET.Element | None:
    """The chart of a table: the first column is `x`."""
    table = pa.table(columns)
    x, *y = table.column_names
    return draw(Section("some", "Some", table, chart=Chart(kind, x, tuple(y), "Some chart")))


def texts(drawn: ET.Element | None) -> list[str]:
    """All texts of a chart."""
    assert drawn is not None
    return [element.text or "" for element in drawn.iter("text")]


def colours(drawn: ET.Element | None) -> set[str]:
    """The variables of the series that are used."""
    assert drawn is not None
    markup = ET.tostring(drawn, "unicode")
    return {VARIABLES[colour] for colour in SERIES if VARIABLES[colour] in markup}


def shapes(drawn: ET.Element | None, variable: str) -> int:
    """How many shapes are filled with a series' colour."""
    assert drawn is not None
    return sum(f"fill: {variable}" in element.get("style", "") for element in drawn.iter("path"))


def test_names_stay_in_their_order() -> None:
    said = texts(chart_of({"deliveries": [3, 1, 2], "messages": [5, 6, 7]}))
    assert [text for text in said if text in "123"] == ["3", "1", "2"]


def test_names_and_numbers_are_texts() -> None:
    drawn = chart_of({"queue": ["orders", "invoices"], "messages": [1_200, 7]})
    assert set(texts(drawn)) == {"orders", "invoices", "1,200", "7"}
    assert drawn is not None
    assert drawn.get("aria-label") == "messages by queue; the most, 1,200, at orders."


def test_colours_are_the_pages() -> None:
    drawn = chart_of({"queue": ["a", "b"], "x": [1, 2], "y": [3, 0]}, "stacked")
    assert drawn is not None
    markup = ET.tostring(drawn, "unicode")
    assert colours(drawn) == {"var(--s1)", "var(--s2)"}
    assert "#0102" not in markup
    assert "font-family" not in markup


@pytest.mark.parametrize("names", [UPRIGHT_MAX, UPRIGHT_MAX + 1])
@pytest.mark.parametrize("kind", ["bars", "stacked"])
def test_each_name_has_its_bar_upright_and_lying(names: int, kind: Literal["bars", "stacked"]) -> None:
    drawn = chart_of({"queue": [f"q{n}" for n in range(names)], "messages": range(1, names + 1)}, kind)
    assert {f"q{n}" for n in range(names)} <= set(texts(drawn))
    assert shapes(drawn, "var(--s1)") == names


def test_lines_over_names_never_lie() -> None:
    drawn = chart_of({"queue": [f"q{n}" for n in range(BARS_MAX)], "messages": [2.5] * BARS_MAX}, "line")
    assert drawn is not None
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    assert width > 4 * height
    assert "stroke: var(--s1)" in ET.tostring(drawn, "unicode")


@pytest.mark.parametrize("names", [BARS_MAX, BARS_MAX + 1])
def test_so_many_bars_are_drawn(names: int) -> None:
    drawn = chart_of({"queue": [f"q{n}" for n in range(names)], "messages": [1] * names})
    assert shapes(drawn, "var(--s1)") == BARS_MAX


def test_rows_of_one_name_are_added_up() -> None:
    drawn = chart_of({"address": ["b", "a", "a"], "messages": [4, 1, 5]})
    assert sorted(texts(drawn)) == ["4", "6", "a", "b"]
    assert texts(drawn).index("a") < texts(drawn).index("b")


def test_a_name_that_is_missing_is_said() -> None:
    assert "(none)" in texts(chart_of({"user": [None, "shop"], "messages": [1, 2]}))


def test_long_names_are_cut() -> None:
    drawn = chart_of({"queue": ["x" * LABEL_CHARS_MAX, "y" * (LABEL_CHARS_MAX + 1)], "messages": [1, 2]})
    assert {"x" * LABEL_CHARS_MAX, "y" * (LABEL_CHARS_MAX - 1) + "…"} <= set(texts(drawn))


@pytest.mark.parametrize("series", [SERIES_MAX, SERIES_MAX + 1, 30])
def test_series_beyond_the_colours_are_added_up(series: int) -> None:
    columns: dict[str, Any] = {"queue": ["a"]} | {f"way {n}": [n + 1] for n in range(series)}
    drawn = chart_of(columns, "stacked")
    assert len(colours(drawn)) == SERIES_MAX
    assert (OTHERS in texts(drawn)) is (series > SERIES_MAX)


def test_series_without_anything_are_left_out() -> None:
    said = texts(chart_of({"queue": ["a"], "consumed": [1], "evicted": [0], "purged": [2]}, "stacked"))
    assert "evicted" not in said
    assert {"consumed", "purged"} <= set(said)


@pytest.mark.parametrize(
    "columns",
    [
        {"queue": pa.array([], pa.string()), "messages": pa.array([], pa.int64())},
        {"hour": pa.array([], MOMENT), "messages": pa.array([], pa.int64())},
        {"queue": ["a"], "messages": [0]},
        {"queue": ["a"], "messages": pa.array([None], pa.int64())},
        {"hour": pa.array([None], MOMENT), "messages": [1]},
        {"queue": ["a"]},
    ],
)
def test_nothing_is_not_drawn(columns: dict[str, Any]) -> None:
    assert chart_of(columns) is None


def test_a_section_without_a_chart_has_none() -> None:
    assert draw(Section("some", "Some", pa.table({"a": [1]}))) is None


@pytest.mark.parametrize("kind", ["bars", "stacked", "line"])
@pytest.mark.parametrize("hours", [1, 2, 26, 24 * 31])
def test_over_time(kind: Literal["bars", "stacked", "line"], hours: int) -> None:
    times = [START + timedelta(hours=n) for n in range(hours)]
    drawn = chart_of({"hour": pa.array(times, MOMENT), "a": [1] * hours, "b": [2] * hours}, kind)
    assert colours(drawn) == {"var(--s1)", "var(--s2)"}
    assert any("2026" in text or "Nov" in text for text in texts(drawn))


def test_the_latest_times_are_drawn_in_order() -> None:
    times = [START + timedelta(hours=n) for n in reversed(range(TIMES_MAX + 1))]
    drawn = chart_of({"hour": pa.array(times, MOMENT), "a": [1] * TIMES_MAX + [1_000]})
    assert drawn is not None
    assert "the most, 1," in str(drawn.get("aria-label"))


def test_hours_that_are_missing_keep_their_place() -> None:
    def left_edges(hours: list[int]) -> list[float]:
        times = pa.array([START + timedelta(hours=n) for n in hours], MOMENT)
        drawn = chart_of({"hour": times, "a": [1] * len(hours)})
        assert drawn is not None
        bars = [element for element in drawn.iter("path") if "fill: var(--s1)" in element.get("style", "")]
        return [float(bar.attrib["d"].split()[1]) for bar in bars]

    first, second, third = left_edges([0, 1, 20])
    assert third - second == pytest.approx(19 * (second - first), rel=0.01)


@pytest.mark.parametrize("name", ["$\\frac{1}{2}$", "$", "_hidden", "数据", "<b>&amp;", "\x1b[2J", "🦀", "%s {0}"])
def test_odd_names_are_only_names(name: str) -> None:
    drawn = chart_of({"queue": [name, "b"], name: [1, 2], "c": [2, 1]}, "stacked")
    shown = [text.replace("\\x1b", "\x1b") for text in texts(drawn)]
    assert name in shown
    assert name.lstrip("_") in shown


def test_two_charts_of_a_page_share_no_ids() -> None:
    table = pa.table({"queue": ["a", "b"], "x": [1, 2], "y": [1, 2]})
    chart = Chart("stacked", "queue", ("x", "y"), "Some chart")
    one, other = (draw(Section(name, name, table, chart=chart)) for name in ("one", "other"))
    assert one is not None
    assert other is not None
    ids = [{element.get("id") for element in drawn.iter() if element.get("id")} for drawn in (one, other)]
    assert all(ids)
    assert not ids[0] & ids[1]
