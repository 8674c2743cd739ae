"""Durations and sizes as written, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import units


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0ms", 0),
        ("500ms", 500),
        ("30s", 30_000),
        ("5min", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        (" 1 s ", 1_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert units.duration(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7B", 7),
        ("64KiB", 65_536),
        ("64kib", 65_536),
        ("1k", 1_024),
        ("10M", 10 << 20),
        ("10MB", 10 << 20),
        ("1 GiB", 1 << 30),
        ("2T", 2 << 40),
    ],
)
def test_sizes_are_powers_of_1024_as_in_artemis(text: str, size: int) -> None:
    assert units.size(text) == size


@pytest.mark.parametrize("value", ["", "30", "s", "-1s", "1.5s", "5 parsecs", "1s 2s", "1m", "1S", "٣s", True, 1.5])
def test_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="give milliseconds as an integer"):
        units.duration(value)


@pytest.mark.parametrize("value", ["", "30", "MiB", "-1K", "1.5M", "1X", "1KiBB", False, 0.5])
def test_no_size(value: object) -> None:
    with pytest.raises(ValueError, match="give bytes as an integer"):
        units.size(value)


@pytest.mark.parametrize("read", [units.duration, units.size])
def test_integers_are_taken_as_they_are(read: Callable[[object], object]) -> None:
    assert read(-1) == -1
    assert read(1500) == 1500


@given(st.integers(-1, 2**63 - 1))
def test_a_written_value_reads_the_same(value: int) -> None:
    for known, read in ((units.DURATION_UNITS, units.duration), (units.SIZE_UNITS, units.size)):
        text = units.written(value, known)
        assert (int(text) if value <= 0 else read(text)) == value


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (-1, "-1"), (60_000, "1min"), (90_000, "90s"), (86_400_000, "1d"), (1, "1ms")]
)
def test_durations_are_written_with_the_largest_unit(value: int, text: str) -> None:
    assert units.written(value, units.DURATION_UNITS) == text
