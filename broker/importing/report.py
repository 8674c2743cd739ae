"""What became of each thing in a file: taken over, taken over with a change and why, no counterpart and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.importing.xml import Element

VALUE_CHARS_MAX: Final = 75
"""Characters of a value in the report: enough to find it."""
_SECRET: Final = re.compile("passw|passphrase|codec|psk$|kpass|_opt_", re.IGNORECASE)


class Outcome(Enum):
    """What became of a thing; the values are the headings of the report."""

    TAKEN = "Taken over"
    CHANGED = "Taken over with a change"
    LEFT = "No counterpart"
    STRICTER = "Stricter in the old broker: see to these before clients come"


@dataclass(frozen=True, slots=True)
class Place:
    """A thing in the file.  what: how one finds it; value: as written, hidden if it is a secret."""

    line: int
    what: str
    value: str = ""
    properties: tuple[str, ...] = ()
    """System properties of which defaults were taken in it."""


def place(element: Element, what: str, value: str | None = None) -> Place:
    """A thing of this element: its text, or the value given."""
    text = element.text if value is None else value
    return Place(element.line, what, shown(what, text), tuple(element.properties))


def shown(what: str, text: str) -> str:
    """A value as the report has it: on one line, cut, and not at all if what it belongs to is a secret."""
    if text and _SECRET.search(what.rpartition(":")[2]):
        return "(not shown)"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f"{text[:VALUE_CHARS_MAX]}..." if len(text) > VALUE_CHARS_MAX else text


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one thing.  target: its key in broker.toml, empty if it has none."""

    place: Place
    outcome: Outcome
    target: str = ""
    why: str = ""

    def __str__(self) -> str:
        text = f"line {self.place.line}: {self.place.what}" if self.place.line else self.place.what
        if self.place.value:
            text += f" = {self.place.value}"
        if self.target:
            text += f" -> {self.target}"
        return f"{text}: {self.why}" if self.why else text


class Report:
    """All findings of one file."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, found: Place, outcome: Outcome, target: str = "", why: str = "") -> None:
        """One more."""
        assert why or outcome is Outcome.TAKEN, f"{found}: whoever changes or leaves something says why"
        self.findings.append(Finding(found, outcome, target, why))

    def left(self, found: Place, why: str) -> None:
        """A thing without counterpart."""
        self.add(found, Outcome.LEFT, why=why)

    def count(self) -> Counter[Outcome]:
        """How many things of each outcome."""
        return Counter(finding.outcome for finding in self.findings)

    def summary(self) -> str:
        """One line."""
        count = self.count()
        stricter = f", {count[Outcome.STRICTER]} that the old broker was stricter in" if count[Outcome.STRICTER] else ""
        return (
            f"{count[Outcome.TAKEN]} taken over, {count[Outcome.CHANGED]} with a change,"
            f" {count[Outcome.LEFT]} without counterpart{stricter}"
        )

    def lines(self) -> Iterator[str]:
        """The report as text: what needs attention first, each kind in the order of the file."""
        yield self.summary()
        for outcome in (Outcome.STRICTER, Outcome.LEFT, Outcome.CHANGED, Outcome.TAKEN):
            found = [finding for finding in self.findings if finding.outcome is outcome]
            if found:
                yield ""
                yield outcome.value
                yield from (f"  {finding}" for finding in sorted(found, key=lambda finding: finding.place.line))
