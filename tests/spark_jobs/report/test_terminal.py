"""A result on a terminal and in a pipe."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from spark_jobs.report.terminal import DAMAGE_SHOWN, FIGURES_MAX, console_for, print_head, print_result
from spark_jobs.results import Damage, Result
from tests.spark_jobs.report.samples import ALL, WHOLE, empty, ledger, trace


def shown(result: Result, width: int | None = None) -> str:
    """What is printed; without a width to a pipe."""
    file = io.StringIO()
    console = console_for(file) if width is None else Console(file=file, width=width, highlight=False, markup=False)
    print_result(result, console)
    return file.getvalue()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [None, 40, 80, 200])
def test_nothing_can_steer_the_terminal(name: str, width: int | None) -> None:
    printed = shown(ALL[name], width)
    assert all(line.isprintable() for line in printed.split("\n")), name
    assert width is None or all(len(line) <= width for line in printed.split("\n"))


def test_the_verdict_and_the_damage_come_first() -> None:
    lines = shown(ALL["not provable"]).splitlines()
    assert lines[0] == "Ledger: NOT PROVABLE"
    damage = next(n for n, line in enumerate(lines) if line.startswith("damage"))
    assert lines[damage].split(maxsplit=1)[1].strip() == "3 places, at least 280,158 records lost"
    assert damage < lines.index("What became of them")
    assert any(
        "0000000112.journal at byte 5120764: an entry fails its checksum, 41 records lost" in line for line in lines
    )


def test_a_pipe_gets_each_row_in_one_line_with_all_columns() -> None:
    lines = shown(ledger(queues=3)).splitlines()
    heading = next(line for line in lines if line.startswith("queue "))
    assert heading.split()[:4] == ["queue", "address", "opening", "enqueued"]
    assert "evicted" in heading
    row = lines[lines.index(heading) + 1]
    assert row.split()[0] == "orders"
    assert row.rstrip().endswith("3")


def test_where_there_is_little_room_columns_without_a_figure_are_named_once() -> None:
    printed = shown(ledger(), width=130)
    heading = next(line for line in printed.splitlines() if line.startswith("queue "))
    assert "evicted" not in heading
    assert "present" in heading
    assert "0 in every row: opening, replaced, evicted" in printed


def test_where_there_is_less_the_rows_stand_below_each_other() -> None:
    lines = [line.strip() for line in shown(ledger(queues=2), width=60).splitlines()]
    assert "2." in lines
    assert "queue           orders.eu" in lines


def test_long_texts_are_wrapped_not_cut() -> None:
    printed = shown(trace(), width=100)
    assert printed.splitlines()[-1].split()[-1] == "3:27064"
    assert " ".join(printed.split()).count("the warehouse") == 1
    assert "split)" in printed


def test_an_empty_section_says_so() -> None:
    assert shown(empty()).rstrip().splitlines()[-2:] == ["Where they died", "none"]


@pytest.mark.parametrize(("places", "more"), [(DAMAGE_SHOWN, False), (DAMAGE_SHOWN + 1, True)])
def test_so_many_damaged_places_are_listed(places: int, more: bool) -> None:
    damage = tuple(Damage(f"{n}.journal", 64, n, 1, "damaged") for n in range(places))
    printed = shown(replace(empty(), coverage=replace(WHOLE, damage=damage)))
    assert printed.count(": damaged, 1 record lost") == DAMAGE_SHOWN
    assert ("and 1 more" in printed) is more


@pytest.mark.parametrize(("figures", "gathered"), [(FIGURES_MAX, False), (FIGURES_MAX + 1, True)])
def test_of_many_figures_those_that_are_0_share_a_line(figures: int, gathered: bool) -> None:
    result = replace(empty(), summary={f"figure {n}": n % 2 for n in range(figures)})
    lines = [line.strip() for line in shown(result).splitlines()]
    assert any(line.startswith("0  ") for line in lines) is gathered
    assert any(line.split() == ["figure", "2", "0"] for line in lines) is not gathered


def test_colours_are_for_terminals() -> None:
    file = io.StringIO()
    print_head(ledger(), Console(file=file, force_terminal=True, color_system="standard", width=80))
    assert "\x1b[1;32mBALANCED" in file.getvalue()
    assert "\x1b" not in shown(ledger())
