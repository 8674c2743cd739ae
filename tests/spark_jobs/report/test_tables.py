"""Columns ready to be shown: texts, alignment, and what is nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from spark_jobs.report.tables import Column, columns

MOMENT = pa.timestamp("us", tz="UTC")


def one(name: str, values: list[object], kind: pa.DataType) -> Column:
    """The only column of a table."""
    return columns(pa.table({name: pa.array(values, kind)}))[0]


def test_counts_ids_and_texts() -> None:
    found = columns(pa.table({"queue": ["a\x07", None], "messages": [1_000, None], "message": [1_000, 2]}))
    assert [(column.heading, column.cells, column.kind) for column in found] == [
        ("queue", [r"a\x07", ""], "text"),
        ("messages", ["1,000", ""], "number"),
        ("message", ["1000", "2"], "number"),
    ]


@pytest.mark.parametrize(
    ("values", "zero"), [([0, 0], True), ([0, None], True), ([0, 1], False), ([], False), ([None], True)]
)
def test_a_count_that_is_0_throughout_may_be_left_out(values: list[object], zero: bool) -> None:
    assert one("evicted", values, pa.int64()).zero is zero


def test_an_id_of_0_is_not_nothing() -> None:
    assert not one("queue id", [0], pa.int64()).zero
    assert not one("queue", ["0"], pa.string()).zero


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, 2.0], ["1", "2"]),
        ([1.5, 2.0], ["1.5", "2.0"]),
        ([1.25, None], ["1.25", ""]),
        ([1 / 3], ["0.333"]),
        ([float("nan"), float("inf"), 1.5], ["nan", "inf", "1.5"]),
    ],
)
def test_points_stand_below_each_other(values: list[object], shown: list[str]) -> None:
    assert one("mean", values, pa.float64()).cells == shown


@pytest.mark.parametrize(
    ("second", "microsecond", "shown"),
    [(0, 0, "2026-03-01 12:05"), (7, 0, "2026-03-01 12:05:07"), (7, 8_000, "2026-03-01 12:05:07.008")],
)
def test_times_are_no_finer_than_they_need_to_be(second: int, microsecond: int, shown: str) -> None:
    when = datetime(2026, 3, 1, 12, 5, second, microsecond, UTC)
    column = one("died", [when, None], MOMENT)
    assert (column.cells, column.kind) == ([shown, ""], "time")


def test_durations_and_sizes() -> None:
    found = columns(pa.table({"age (s)": [90.0], "size (bytes)": [2_048]}))
    assert [(column.heading, column.cells) for column in found] == [("age", ["1m 30s"]), ("size", ["2.0 KiB"])]
