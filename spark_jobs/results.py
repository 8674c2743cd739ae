"""The result of an audit, independent of how it was computed and how it is shown.

Every result has a coverage: which part of which journal was read, and what could not be read.  Damage is part of every
result (promise P7): it appears at the top of each report and in the exit status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum
from typing import Final

import pyarrow as pa

from store.counted import counted

UTC: Final = pa.timestamp("us", tz="UTC")


class ExitStatus(IntEnum):
    """The exit statuses of `bartleby audit`, a subset of those of `bartleby` (docs/reasons.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_JOURNAL = 6
    DAMAGED = 7
    VIOLATED = 8
    EXCEEDED = 9


class Verdict(Enum):
    """The verdict of a ledger.  NOT_PROVABLE: records are missing, so nothing can be proved."""

    BALANCED = "balanced"
    VIOLATED = "violated"
    NOT_PROVABLE = "not provable"


#: A figure at the top of a result: a number, a word, or a time.
Figure = int | str | datetime


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the journal that could not be read.

    `path` and `offset` say where.  `first_position` is the first lost record, `records` their number (-1: unknown), and
    `what` a description for an operator.
    """

    path: str
    offset: int
    first_position: int
    records: int
    what: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read.  The positions are those of the first record and after the last one, -1 for several journals
    together; times are in ms since the epoch.

    `trimmed_records` counts records in segments that the broker removed itself, within or before the range, after all
    their messages had left.  `torn_bytes` is the unfinished end of the newest segment, which is normal.
    """

    broker_id: str
    paths: tuple[str, ...]
    segments: int
    bytes: int
    first_position: int
    next_position: int
    first_time: int
    last_time: int
    trimmed_records: int = 0
    torn_bytes: int = 0
    damage: tuple[Damage, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether everything that should exist could be read."""
        return not self.damage


@dataclass(frozen=True, slots=True)
class Chart:
    """How a section is drawn: bars over column `x`, one series per column in `y`; several series are stacked."""

    x: str
    y: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a report.  `name` can be used as a file name; the columns have readable names."""

    name: str
    title: str
    table: pa.Table
    note: str = ""
    chart: Chart | None = None


def section(
    name: str, title: str, table: pa.Table, *, beyond: int = 0, note: str = "", chart: Chart | None = None
) -> Section:
    """A section that says how many more rows there are.  An empty table gets no chart."""
    cut = f"{counted(beyond, 'more is', 'more are')} not shown." if beyond else ""
    return Section(name, title, table, " ".join(filter(None, (note, cut))), chart if table.num_rows else None)


@dataclass(frozen=True, slots=True)
class Result:
    """The findings of an audit.  `summary` has the figures at the top, `problems` sentences, worst first."""

    audit: str
    coverage: Coverage
    summary: dict[str, Figure]
    sections: tuple[Section, ...]
    verdict: Verdict | None = None
    problems: tuple[str, ...] = ()
    exceeded: bool = False
    options: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> ExitStatus:
        """The exit status: a violated ledger has precedence, then damage, then an exceeded threshold."""
        if self.verdict is Verdict.VIOLATED:
            return ExitStatus.VIOLATED
        if not self.coverage.whole or self.verdict is Verdict.NOT_PROVABLE:
            return ExitStatus.DAMAGED
        return ExitStatus.EXCEEDED if self.exceeded else ExitStatus.OK
