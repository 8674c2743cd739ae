"""How values are shown."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest

from broker.cli.output import format_duration, format_size, format_time, format_value, print_table


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (4 << 50, "4096.0 TiB"),
    ],
)
def test_sizes(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s"),
        (999, "0s"),
        (59_999, "59s"),
        (60_000, "1m 0s"),
        (3_661_000, "1h 1m"),
        (86_400_000, "1d 0h"),
        (90_061_000, "1d 1h"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize(("ms", "text"), [(0, ""), (1_700_000_000_000, "2023-11-14 22:13:20"), (1 << 62, str(1 << 62))])
def test_times(ms: int, text: str) -> None:
    assert format_time(ms) == text


@pytest.mark.parametrize(
    ("value", "text"), [(True, "yes"), (False, "no"), (None, ""), (7, "7"), ("a\x1bb", r"a\x1bb"), ("[b]", "[b]")]
)
def test_values(value: object, text: str) -> None:
    assert format_value(value) == text


def table(capsys: pytest.CaptureFixture[str], *rows: Sequence[object]) -> list[str]:
    """The lines of a table with these rows, for a program."""
    print_table(["name", "messages", "state"], rows, right=["messages"])
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_has_columns_as_wide_as_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, ["日本", 5, ""], ["[b]x\x1b", 1_234_567_890, None], ["é", 0, "paused" * 50]) == [
        "name        messages  state",
        "日本               5",
        r"[b]x\x1b  1234567890",
        f"é                  0  {'paused' * 50}",
    ]
    assert table(capsys) == ["name  messages  state"]


@pytest.mark.parametrize(("columns", "lines"), [("200", 2), ("30", 6)])
def test_cells_are_folded_if_the_terminal_is_too_narrow(
    monkeypatch: pytest.MonkeyPatch, columns: str, lines: int
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", columns)
    print_table(["name", "state"], [["a", "b" * 100]])
    shown = screen.getvalue().splitlines()
    assert len(shown) == lines
    assert "".join(line[6:].strip() for line in shown[1:]) == "b" * 100
