"""Comparisons with another commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.against import Comparison, comparisons, interval, unpacked
from bench.cases import Row
from bench.generator import Outcome
from tests.support.process import NotAvailable


def row(broker: str, number: int, us: float, instructions: int | None = None) -> Row:
    return Row("case", broker, number, Outcome(1000, 1.0, us / 1000, 0.1, 1, 0, 0, instructions))


def test_ratios_are_taken_round_by_round() -> None:
    rows = [row("now", number, us) for number, us in enumerate([2.0, 20.0, 8.8])]
    rows += [row("then", number, us) for number, us in enumerate([1.0, 10.0, 8.0])]
    rows += [row("peer", 0, 1.0)]
    [found] = comparisons(rows, "now", "then")
    assert (found.case, found.what, found.rounds) == ("case", "CPU", 3)
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 1.1, 2.0))


@pytest.mark.parametrize("counted", [True, False])
def test_instructions_are_what_counts_where_all_have_them(counted: bool) -> None:
    rows = [row("now", 1, 2.0, 1010), row("then", 1, 1.0, 1000 if counted else None)]
    [found] = comparisons(rows, "now", "then")
    assert (found.what, found.ratio) == (("instructions", 1.01) if counted else ("CPU", 2.0))


def test_a_case_that_one_did_not_run_is_not_compared() -> None:
    assert comparisons([row("now", 1, 2.0), row("then", 2, 2.0)], "now", "then") == []


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict"),
    [
        (1.031, 1.001, 1.06, "LOST"),
        (1.031, 0.999, 1.06, "unclear"),
        (1.029, 1.01, 1.05, "unclear"),
        (1.01, 0.98, 1.03, "kept"),
        (0.5, 0.4, 0.6, "kept"),
    ],
)
def test_a_loss_is_one_when_it_is_no_accident(ratio: float, low: float, high: float, verdict: str) -> None:
    found = Comparison("case", "CPU", ratio, low, high, 15)
    assert found.told(0.03).startswith(verdict)
    assert found.lost(0.03) is (verdict == "LOST")


@pytest.mark.parametrize(("count", "bounds"), [(1, (0, 0)), (5, (0, 4)), (6, (0, 5)), (15, (3, 11)), (50, (17, 32))])
def test_the_interval_of_the_median(count: int, bounds: tuple[int, int]) -> None:
    """As in tables of the sign test."""
    assert interval(count) == bounds


def test_a_commit_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    (repository / "a").write_text("then")
    for command in ("init -q", "add a", "-c user.name=n -c user.email=e commit -qm c"):
        subprocess.run(["git", *command.split()], check=True)
    (repository / "a").write_text("now")
    name, tree = unpacked("HEAD", tmp_path)
    assert (tree / "a").read_text() == "then"
    assert tree == tmp_path / name
    with pytest.raises(NotAvailable, match="nowhere"):
        unpacked("nowhere", tmp_path)
