"""Charts: what they draw, what they leave out, and that nothing a client chose is more than a text."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.report.charts import BARS_MAX, HOUR_MARKS_MAX, LABEL_CHARS_MAX, OTHERS, SERIES_MAX, TIMES_MAX, Drawing
from spark_jobs.report.charts import draw as draw_section
from spark_jobs.results import Chart, Section
from tests.spark_jobs.report.samples import MOMENT, START


def chart_of(columns: dict[str, Any]) -> Drawing | None:
    """The chart of a table: the first column is `x`."""
    table = pa.table(columns)
    x, *y = table.column_names
    return draw_section(Section("some", "Some", table, chart=Chart(x, tuple(y), "Some chart")))


def draw(columns: dict[str, Any]) -> Drawing:
    """The chart of a table that has one.  Nothing of it lies outside."""
    drawn = chart_of(columns)
    assert drawn is not None
    for bar in drawn.bars:
        assert 0 <= bar.at <= bar.at + drawn.width <= 100.01
        for (_, begin, length), (_, follows, _) in pairwise(bar.parts):
            assert follows == pytest.approx(begin + length, abs=0.02), "the parts of a bar touch"
        assert sum(length for _, _, length in bar.parts) <= 100.01
    assert all(0 <= mark.at <= 100 for mark in (*drawn.times, *drawn.values))
    return drawn


def names(drawn: Drawing) -> list[str]:
    """What the bars are called."""
    return [bar.name for bar in drawn.bars]


def test_names_stay_in_their_order() -> None:
    assert names(draw({"deliveries": [3, 1, 2], "messages": [5, 6, 7]})) == ["3", "1", "2"]


def test_names_and_numbers_are_texts() -> None:
    drawn = draw({"queue": ["orders", "invoices"], "messages": [1_200, 6]})
    assert [(bar.name, bar.value) for bar in drawn.bars] == [("orders", "1,200"), ("invoices", "6")]
    assert [bar.parts for bar in drawn.bars] == [[(1, 0.0, 100.0)], [(1, 0.0, 0.5)]]
    assert drawn.description == "messages by queue; the most, 1,200, at orders."


def test_series_lie_behind_each_other() -> None:
    drawn = draw({"queue": ["a", "b"], "x": [1, 2], "y": [3, 0]})
    assert drawn.legend == ["x", "y"]
    assert [bar.parts for bar in drawn.bars] == [[(1, 0.0, 25.0), (2, 25.0, 75.0)], [(1, 0.0, 50.0)]]
    assert [bar.value for bar in drawn.bars] == ["4", "2"]


@pytest.mark.parametrize("count", [BARS_MAX, BARS_MAX + 1])
def test_so_many_bars_are_drawn(count: int) -> None:
    drawn = draw({"queue": [f"q{n}" for n in range(count)], "messages": [1] * count})
    assert names(drawn) == [f"q{n}" for n in range(BARS_MAX)]


def test_rows_of_one_name_are_added_up() -> None:
    drawn = draw({"address": ["b", "a", "a"], "messages": [4, 1, 5]})
    assert [(bar.name, bar.value) for bar in drawn.bars] == [("a", "6"), ("b", "4")]


def test_a_name_that_is_missing_is_said() -> None:
    assert names(draw({"user": [None, "shop"], "messages": [1, 2]})) == ["(none)", "shop"]


def test_long_names_are_cut() -> None:
    drawn = draw({"queue": ["x" * LABEL_CHARS_MAX, "y" * (LABEL_CHARS_MAX + 1)], "messages": [1, 2]})
    assert names(drawn) == ["x" * LABEL_CHARS_MAX, "y" * (LABEL_CHARS_MAX - 1) + "…"]


@pytest.mark.parametrize("series", [SERIES_MAX, SERIES_MAX + 1, 30])
def test_series_beyond_the_colours_are_added_up(series: int) -> None:
    drawn = draw({"queue": ["a"]} | {f"way {n}": [n + 1] for n in range(series)})
    assert len(drawn.legend) == SERIES_MAX
    assert [number for number, _, _ in drawn.bars[0].parts] == list(range(1, SERIES_MAX + 1))
    assert (OTHERS in drawn.legend) is (series > SERIES_MAX)
    assert drawn.bars[0].value == str(sum(range(series + 1)))


def test_series_without_anything_are_left_out() -> None:
    assert draw({"queue": ["a"], "consumed": [1], "evicted": [0], "purged": [2]}).legend == ["consumed", "purged"]


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
    assert draw_section(Section("some", "Some", pa.table({"a": [1]}))) is None


@pytest.mark.parametrize("hours", [1, 2, 26, 24 * 31])
def test_over_time(hours: int) -> None:
    times = [START + timedelta(hours=n) for n in range(hours)]
    drawn = draw({"hour": pa.array(times, MOMENT), "a": [1] * hours, "b": [2] * hours})
    assert names(drawn) == [f"{time:%Y-%m-%d %H:%M}" for time in times]
    assert {tuple(bar.parts) for bar in drawn.bars} == {((1, 0.0, 33.33), (2, 33.33, 66.67))}
    assert [mark.label for mark in drawn.values] == ["0", "1", "2", "3"]
    assert any("Nov" in mark.label for mark in drawn.times)
    assert 2 <= len(drawn.times) <= HOUR_MARKS_MAX + 1


def test_marks_stand_at_full_hours_and_days() -> None:
    drawn = draw({"hour": pa.array([START, START + timedelta(hours=19)], MOMENT), "a": [1, 1]})
    assert [(mark.at, mark.label) for mark in drawn.times][:3] == [(0.0, "22:00"), (10.0, "18 Nov"), (20.0, "02:00")]


def test_the_latest_times_are_drawn_in_order() -> None:
    times = [START + timedelta(hours=n) for n in reversed(range(TIMES_MAX + 1))]
    drawn = draw({"hour": pa.array(times, MOMENT), "a": [1] * TIMES_MAX + [1_000]})
    assert names(drawn) == [f"{time:%Y-%m-%d %H:%M}" for time in reversed(times[:-1])]
    assert "the most, 1," in drawn.description


def test_hours_that_are_missing_keep_their_place() -> None:
    drawn = draw({"hour": pa.array([START + timedelta(hours=n) for n in (0, 1, 20)], MOMENT), "a": [1, 1, 1]})
    first, second, third = (bar.at for bar in drawn.bars)
    assert second - first == pytest.approx(drawn.width, abs=0.02)
    assert third - second == pytest.approx(19 * drawn.width, rel=0.01)


@pytest.mark.parametrize(
    ("most", "scale"),
    [
        (1, ["0", "1"]),
        (7, ["0", "2", "4", "6", "8"]),
        (99, ["0", "20", "40", "60", "80", "100"]),
        (1_001, ["0", "500", "1,000", "1,500"]),
        (0.5, ["0", "0.10", "0.20", "0.30", "0.40", "0.50"]),
    ],
)
def test_the_scale_is_easily_read(most: float, scale: list[str]) -> None:
    drawn = draw({"hour": pa.array([START], MOMENT), "a": [most]})
    assert [mark.label for mark in drawn.values] == scale


@pytest.mark.parametrize("name", ["$\\frac{1}{2}$", "$", "_hidden", "数据", "<b>&amp;", "\x1b[2J", "🦀", "%s {0}"])
def test_odd_names_are_only_names(name: str) -> None:
    drawn = draw({"queue": [name, "b"], name: [1, 2], "c": [2, 1]})
    shown = name.replace("\x1b", "\\x1b")
    assert names(drawn) == [shown, "b"]
    assert drawn.legend == [shown, "c"]
