"""What an audit found, apart from how it was computed and how it is shown.

A result stands on a coverage: which part of which journal was read, and what of it could not be.  Damage is part of
every result (promise P7): it is at the head of each report and in the exit status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, IntEnum

import pyarrow as pa


class ExitStatus(IntEnum):
    """What `bartleby audit` ends with: of the statuses of `bartleby`, those that an audit has (docs/reasons.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_JOURNAL = 6
    DAMAGED = 7
    VIOLATED = 8
    EXCEEDED = 9


class Verdict(Enum):
    """What a ledger says.  NOT_PROVABLE: records are missing, so nothing can be proved."""

    BALANCED = "balanced"
    VIOLATED = "violated"
    NOT_PROVABLE = "not provable"


#: A figure at the head of a result: a number, a word, or a time.
Figure = int | str | datetime


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of the journal that could not be read.

    `path` and `offset` say where; `first_position` is the first record lost, `records` how many (-1: not known), `what`
    a sentence for an operator.
    """

    path: str
    offset: int
    first_position: int
    records: int
    what: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was read.  Positions are those of the first record and behind the last one, -1 for several journals
    together; times in ms since the epoch.

    `trimmed_records` lay in segments that the broker itself gave up, within or before the range: their messages had all
    left.  `torn_bytes`: the unfinished end of the newest segment, which is normal.
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
        """Whether everything that should be there could be read."""
        return not self.damage


@dataclass(frozen=True, slots=True)
class Chart:
    """How a section is drawn: bars over the column `x`, one series a column of `y`; stacked if there are several."""

    x: str
    y: tuple[str, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a report.  `name` is usable as a file name; the columns are named as people read them."""

    name: str
    title: str
    table: pa.Table
    note: str = ""
    chart: Chart | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """An audit's findings.  `summary` are the figures at its head; `problems` are sentences, worst first."""

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
        """The exit status: a violated ledger weighs most, then damage, then a threshold."""
        if self.verdict is Verdict.VIOLATED:
            return ExitStatus.VIOLATED
        if not self.coverage.whole or self.verdict is Verdict.NOT_PROVABLE:
            return ExitStatus.DAMAGED
        return ExitStatus.EXCEEDED if self.exceeded else ExitStatus.OK
