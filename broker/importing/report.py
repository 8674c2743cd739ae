"""The report on each part of a file: taken over, taken over with a change, or without counterpart, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker.importing.xml import Element

VALUE_CHARS_MAX: Final = 75
"""Characters of a value in the report: enough to recognise it."""
_SECRET: Final = re.compile("passw|passphrase|codec|psk$|kpass|_opt_", re.IGNORECASE)


class Outcome(Enum):
    """The outcome for a part of the file; the values are the headings of the report."""

    TAKEN = "Taken over"
    CHANGED = "Taken over with a change"
    LEFT = "No counterpart"
    STRICTER = "Stricter in the old broker: resolve these before clients connect"


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the file.  what: how to find it; value: as written, hidden if it is a secret."""

    line: int
    what: str
    value: str = ""
    properties: tuple[str, ...] = ()
    """System properties in it that were replaced by their defaults."""


def place(element: Element, what: str, value: str | None = None) -> Place:
    """The place of an element, with its text or the given value."""
    text = element.text if value is None else value
    return Place(element.line, what, format_value(what, text), tuple(element.properties))


def format_value(what: str, text: str) -> str:
    """A value for the report: on one line, cut, and hidden if it is a secret."""
    if text and _SECRET.search(what.rpartition(":")[2]):
        return "(not shown)"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f"{text[:VALUE_CHARS_MAX]}..." if len(text) > VALUE_CHARS_MAX else text


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding on one part.  target: its key in broker.toml, empty if it has none."""

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
        """Add a finding."""
        assert why or outcome is Outcome.TAKEN, f"{found}: a change or omission needs a reason"
        self.findings.append(Finding(found, outcome, target, why))

    def left(self, found: Place, why: str) -> None:
        """Add a part without counterpart."""
        self.add(found, Outcome.LEFT, why=why)

    def count(self) -> Counter[Outcome]:
        """The number of findings by outcome."""
        return Counter(finding.outcome for finding in self.findings)

    def summary(self) -> str:
        """A summary in one line."""
        count = self.count()
        stricter = f", {count[Outcome.STRICTER]} that the old broker was stricter in" if count[Outcome.STRICTER] else ""
        return (
            f"{count[Outcome.TAKEN]} taken over, {count[Outcome.CHANGED]} with a change,"
            f" {count[Outcome.LEFT]} without counterpart{stricter}"
        )

    def lines(self) -> Iterator[str]:
        """The lines of the report: what needs attention first, each outcome in the order of the file."""
        yield self.summary()
        for outcome in (Outcome.STRICTER, Outcome.LEFT, Outcome.CHANGED, Outcome.TAKEN):
            found = [finding for finding in self.findings if finding.outcome is outcome]
            if found:
                yield ""
                yield outcome.value
                yield from (f"  {finding}" for finding in sorted(found, key=lambda finding: finding.place.line))
