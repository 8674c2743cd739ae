"""Readable values, and a result in words.

The columns and figures of a result have readable names.  A unit at the end of a name tells how to show the number: `age
(s)` is shown as a duration and `size (bytes)` as a size, both without the unit in the heading; programs get the plain
number.  Other whole numbers are counts and get separators, unless their name says otherwise (`message 4711`, `segment
12`), so that an id can be copied into the next command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from spark_jobs.results import Coverage, Damage, ExitStatus, Figure, Result, Verdict
from store.counted import counted

#: Maximum number of characters shown of one value: a little more than the longest text that the broker itself writes
#: into a record.
CELL_CHARS_MAX: Final = 1_200

#: In Result and Damage: an unknown number.
UNKNOWN: Final = -1

SECONDS: Final = " (s)"
BYTES: Final = " (bytes)"

#: Words in a name that mark a whole number as an identifier or a place instead of a count.
_IDENTIFIER: Final = re.compile(r"\b(id|message|was|position|segment|offset)\b")


class Tone(Enum):
    """The colour of a finding; the words say the same to readers who do not see the colour."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line of a report: a word, and a sentence that explains it."""

    tone: Tone
    word: str
    sentence: str


# -- values ------------------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The text with everything unprintable (control characters, escapes, direction marks) escaped, and shortened."""
    if not text.isprintable():
        text = "".join([c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text])
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"


def heading(name: str) -> str:
    """A name without its unit."""
    return clean(name.removesuffix(SECONDS).removesuffix(BYTES))


def is_count(name: str) -> bool:
    """Whether whole numbers with this name are counts."""
    return _IDENTIFIER.search(name) is None


def number(name: str, value: float, decimals: int = 0) -> str:
    """A number as its name requires; `decimals` applies to fractions without a unit."""
    if name.endswith(SECONDS):
        return duration(value)
    if name.endswith(BYTES):
        return size(value)
    if isinstance(value, int):
        return f"{value:,}" if is_count(name) else str(value)
    return f"{value:,.{decimals}f}"


def figure(name: str, value: Figure) -> str:
    """A figure from the top of the report."""
    return number(name, value) if isinstance(value, int) else plain(value)


def size(nbytes: float) -> str:
    """A size with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:,.1f} TiB"


def duration(seconds: float) -> str:
    """A duration: milliseconds, seconds, or the two largest of days, hours, minutes and seconds."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    parts = [(whole // 86_400, "d"), (whole // 3_600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")]
    while not parts[0][0]:
        del parts[0]
    return " ".join(f"{n:,}{unit}" for n, unit in parts[:2])


def moment(when: datetime, timespec: str = "seconds") -> str:
    """A time from a table, in UTC."""
    return when.astimezone(UTC).replace(tzinfo=None).isoformat(" ", timespec)


def moment_ms(ms: int) -> str:
    """A time from a coverage; empty for 0."""
    if not ms:
        return ""
    try:
        return moment(datetime.fromtimestamp(ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):  # damage may leave any number
        return str(ms)


def plain(value: Any) -> str:
    """A value that is not a number."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, bytes):
        return clean(value.hex())
    if isinstance(value, dict):
        return clean(", ".join(f"{key}={item}" for key, item in value.items()))
    if isinstance(value, list):
        return clean(", ".join(map(str, value)))
    return clean(str(value))


# -- words -------------------------------------------------------------------------------------------------------------


def title(result: Result) -> str:
    """The audit's name as a heading."""
    return {
        "ledger": "Ledger",
        "dlq": "Dead letters",
        "expiry": "Expired messages",
        "trace": "Trace",
    }.get(result.audit, clean(result.audit))


_LEDGER: Final = {
    Verdict.BALANCED: Headline(
        Tone.GOOD,
        "BALANCED",
        "Every message that entered a queue left it once, for a recorded reason, or is still there.",
    ),
    Verdict.VIOLATED: Headline(
        Tone.BAD, "VIOLATED", "The books do not balance. The affected messages are listed below."
    ),
    Verdict.NOT_PROVABLE: Headline(
        Tone.WARN, "NOT PROVABLE", "Parts of the journal are missing or damaged, so nothing can be proved."
    ),
}
_COMPLETE: Final = Headline(Tone.GOOD, "COMPLETE", "Everything in the range was read.")
_REMARKABLE: Final = Headline(Tone.WARN, "COMPLETE", "Everything in the range was read. Note the following:")
_INCOMPLETE: Final = Headline(
    Tone.WARN, "INCOMPLETE", "Parts of the journal are missing or damaged. The figures cover only what could be read."
)
_EXCEEDED: Final = Headline(Tone.BAD, "THRESHOLD EXCEEDED", "There are more messages than --fail-over allows.")


def headline(result: Result) -> Headline:
    """The verdict in words, in agreement with the exit status; also mentions an exceeded threshold."""
    if result.status is ExitStatus.EXCEEDED:
        return _EXCEEDED
    if result.verdict is not None and result.verdict is Verdict.BALANCED and not result.coverage.whole:
        said = _LEDGER[Verdict.NOT_PROVABLE]
    elif result.verdict is not None:
        said = _LEDGER[result.verdict]
    elif not result.coverage.whole:
        said = _INCOMPLETE
    else:
        said = _REMARKABLE if result.problems else _COMPLETE
    if result.exceeded:
        return Headline(said.tone, said.word, f"{said.sentence} {_EXCEEDED.sentence}")
    return said


def lost(damage: Iterable[Damage]) -> str:
    """The amount of damage, in a sentence."""
    places = list(damage)
    known = sum(place.records for place in places if place.records > 0)
    unknown = any(place.records == UNKNOWN for place in places)
    if not places:
        return "none"
    least = "at least " if unknown and known else ""
    records = f"{least}{counted(known, 'record')} lost" if known or not unknown else "number of lost records not known"
    return f"{counted(len(places), 'place')}, {records}"


def described(place: Damage) -> str:
    """One damaged place, in one line."""
    where = f"{clean(place.path)} at byte {place.offset}" if place.offset else clean(place.path)
    records = "" if place.records == UNKNOWN else f", {counted(place.records, 'record')} lost"
    position = "" if place.first_position == UNKNOWN else f", from position {place.first_position} on"
    return f"{where}: {clean(place.what)}{records}{position}"


def covered(coverage: Coverage) -> dict[str, str]:
    """What was read, as names and values."""
    fields = {
        "journal": ", ".join(map(clean, coverage.paths)),
        "broker": clean(coverage.broker_id),
        "read": f"{counted(coverage.segments, 'segment')}, {size(coverage.bytes)}",
        "first position": _record(coverage, coverage.first_position, coverage.first_time),
        "last position": _record(coverage, coverage.next_position - 1, coverage.last_time),
        "damage": lost(coverage.damage),
    }
    if coverage.trimmed_records:
        fields["removed earlier"] = (
            f"{counted(coverage.trimmed_records, 'record')} in segments removed by the broker (normal)"
        )
    if coverage.torn_bytes:
        fields["unfinished end"] = f"{size(coverage.torn_bytes)} of the newest segment (normal)"
    return {name: value for name, value in fields.items() if value}


def _record(coverage: Coverage, position: int, time: int) -> str:
    if coverage.next_position == UNKNOWN:  # for several journals
        return ""
    if coverage.next_position <= coverage.first_position:
        return "none"
    when = moment_ms(time)
    return f"{position} ({when} UTC)" if when else str(position)
