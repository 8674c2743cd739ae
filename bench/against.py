"""This tree beside another commit of it: both brokers run at once, and take turns under the same generator.

A ratio is taken round by round, so that whatever else the machine does meets both.  The median over the rounds is
told with an interval that the true one lies in with 95 %: the rounds need not be alike, nor their errors normal.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from statistics import median
from typing import Final
from zipfile import ZipFile

from bench.brokers import Bartleby
from bench.cases import Row
from tests.support.process import NotAvailable

#: How sure the interval is.
CONFIDENCE: Final = 0.95


def unpacked(revision: str, directory: Path) -> tuple[str, Path]:
    """A commit's short name, and its files in a directory of their own.  Raises NotAvailable."""
    name = _git("rev-parse", "--short", "--verify", f"{revision}^{{commit}}").decode().strip()
    tree = directory / name
    with ZipFile(io.BytesIO(_git("archive", "--format=zip", name))) as archive:
        archive.extractall(tree)
    return name, tree


def _git(*arguments: str) -> bytes:
    result = subprocess.run(["git", *arguments], capture_output=True, check=False)
    if result.returncode:
        raise NotAvailable(f"git {' '.join(arguments)}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


class Other(Bartleby):
    """Bartleby from another tree, with the configuration of that tree."""

    def __init__(self, parent: Path | None, name: str, tree: Path, python: str) -> None:
        self.name = f"bartleby@{name}"
        super().__init__(parent, tree / "etc" / "broker.toml", python, tree=tree)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a message costs now, as a multiple of what it cost then.  `low`, `high`: the interval."""

    case: str
    what: str
    ratio: float
    low: float
    high: float
    rounds: int

    def lost(self, tolerance: float) -> bool:
        """Whether it costs more than the tolerance (0.03: 3 %) allows, and that is no accident."""
        return self.ratio > 1 + tolerance and self.low > 1

    def unclear(self, tolerance: float) -> bool:
        """Whether it may cost more than that, and may not: more rounds would tell."""
        return not self.lost(tolerance) and self.high > 1 + tolerance

    def told(self, tolerance: float) -> str:
        """In a line."""
        verdict = "LOST   " if self.lost(tolerance) else "unclear" if self.unclear(tolerance) else "kept   "
        return (
            f"{verdict} {self.case}: {100 * (self.ratio - 1):+.1f} % {self.what} a message "
            f"({100 * (self.low - 1):+.1f} to {100 * (self.high - 1):+.1f}, {self.rounds} rounds)"
        )


def comparisons(rows: Sequence[Row], ours: str, other: str) -> list[Comparison]:
    """Each case by instructions where they were counted, by CPU time elsewhere."""
    found = []
    for case in dict.fromkeys(row.case for row in rows):
        by_round: dict[int, dict[str, Row]] = {}
        for row in rows:
            if row.case == case:
                by_round.setdefault(row.round, {})[row.broker] = row
        both = [pair for pair in by_round.values() if {ours, other} <= pair.keys()]
        pairs = [(pair[ours].outcome, pair[other].outcome) for pair in both]
        counted = [(a.instructions_each, b.instructions_each) for a, b in pairs]
        what = "instructions" if all(None not in pair for pair in counted) else "CPU"
        costs = counted if what == "instructions" else [(a.broker_us, b.broker_us) for a, b in pairs]
        ratios = sorted(now / then for now, then in costs if now is not None and then)
        if ratios:
            low, high = interval(len(ratios))
            found.append(Comparison(case, what, median(ratios), ratios[low], ratios[high], len(ratios)))
    return found


def interval(count: int) -> tuple[int, int]:
    """Between which of so many sorted values the median of all that there could be lies, as sure as CONFIDENCE.

    With less than six values that is not to be had: then it is all of them.
    """
    low, outside = 0, 2 / 2**count
    while outside + 2 * comb(count, low + 1) / 2**count <= 1 - CONFIDENCE:
        low += 1
        outside += 2 * comb(count, low) / 2**count
    return low, count - 1 - low
