"""Which part of the journal to audit, and how much of the result to list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from spark_jobs.journal.bounds import Bounds

#: Number of rows shown of each list: a screen or two; the report says how many more there are.
TOP: Final = 20

#: Maximum number of rows of one list: no problem for the driver's memory or for a browser.
TOP_MAX: Final = 10_000

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CALENDAR_MS: Final = 253_402_300_800_000  # the year 10000


@dataclass(frozen=True, slots=True)
class Options:
    """The options that all audits have.

    Positions and times (ms since the epoch) are half-open ranges; None means no bound.  `addresses` are patterns, one
    of which must match; without any, all addresses are audited.  `top` is the number of rows of each list, 1 to
    TOP_MAX. `fail_over` is the threshold; each audit defines what it counts.

    Raises ValueError.
    """

    from_position: int | None = None
    to_position: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    addresses: tuple[str, ...] = ()
    top: int = TOP
    fail_over: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.top <= TOP_MAX:
            raise ValueError(f"top: {self.top} rows: it must be 1 to {TOP_MAX}")
        for low, high, what, said in (
            (self.from_position, self.to_position, "position", str),
            (self.from_time, self.to_time, "time", _said),
        ):
            if low is not None and high is not None and low >= high:
                raise ValueError(
                    f"the range of {what}s is empty: it begins at {said(low)} and ends before {said(high)}"
                )
        if self.fail_over is not None and self.fail_over < 0:
            raise ValueError("fail-over: the threshold must not be negative")
        for pattern in self.addresses:
            compile_pattern(pattern)

    @property
    def bounds(self) -> Bounds:
        """The ranges of positions and times."""
        return Bounds(self.from_position, self.to_position, self.from_time, self.to_time)

    def exceeded(self, number: int) -> bool:
        """Whether this number exceeds the threshold."""
        return self.fail_over is not None and number > self.fail_over

    def described(self, bounds: Bounds | None = None) -> dict[str, str]:
        """The options in words, for the top of a report; `bounds` if they differ from those of the options."""
        bounds = bounds or self.bounds
        said = {
            "from position": bounds.from_position,
            "to position": bounds.to_position,
            "from time": _said(bounds.from_time),
            "to time": _said(bounds.to_time),
            "addresses": ", ".join(self.addresses) or None,
            "fail over": self.fail_over,
        }
        return {name: str(value) for name, value in said.items() if value is not None} | {"top": str(self.top)}

    @property
    def address_regex(self) -> str:
        """One regular expression for all patterns, for both Java and Python; "" if all addresses are audited."""
        return "|".join(f"(?:{compile_pattern(pattern)})" for pattern in self.addresses)

    def unmet(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """The patterns that match none of these addresses."""
        found = set(addresses)
        left = {pattern: re.compile(compile_pattern(pattern), re.DOTALL) for pattern in self.addresses}
        return tuple(pattern for pattern, regex in left.items() if not any(map(regex.fullmatch, found)))

    def wants(self, address: str | None) -> bool:
        """Whether an address is to be audited; None: its name is unknown."""
        regex = self.address_regex
        return not regex or (address is not None and re.fullmatch(regex, address, re.DOTALL) is not None)


def _said(ms: int | None) -> str | None:
    """A readable time.  One that no calendar has remains a number."""
    if ms is None or not 0 <= ms < _CALENDAR_MS:
        return None if ms is None else str(ms)
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def compile_pattern(pattern: str) -> str:
    """A regular expression, to be matched in full, for an address pattern as in address settings.

    Words are separated by `.` and may be empty; `*` is one word that is not empty, `#` any number of words, as in
    ActiveMQ Artemis ("Wildcard Syntax"): `a.#` matches `a`, `a.b` and `a.b.c`.  After a backslash, each of these
    characters is part of its word, as in the names of addresses.  Raises ValueError if a wildcard is only part of a
    word.
    """
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise ValueError(f"address pattern {pattern!r}: it is not UTF-8") from None
    words = _WORD.findall(pattern)
    for word in words:
        if not pattern or (word not in ("*", "#") and _WILDCARD.search(word)):
            raise ValueError(
                f"address pattern '{pattern}': '{word}' is neither a word nor a wildcard (* or #); a wildcard character"
                " that is part of a name is written with a backslash before it"
            )
    return _of(words)


#: A character after its backslash, and a word, which has such characters; for both Java and Python.
_ESCAPED: Final = r"\\(?:[\s\S]|(?![\s\S]))"
_ANY_WORD: Final = rf"[^.\\]*(?:{_ESCAPED}[^.\\]*)*"

#: A word at the start of a pattern or behind a delimiter; an unescaped wildcard in it.
_WORD: Final = re.compile(rf"(?:\A|(?<=\.))({_ANY_WORD})(?=\.|\Z)")
_WILDCARD: Final = re.compile(rf"\A(?:{_ESCAPED}|[^*#\\])*[*#]")


def _of(words: list[str]) -> str:
    """Each word except the first includes the dot in front of it."""
    parts: list[str] = []
    for index, word in enumerate(words):
        one = rf"(?=[^.]){_ANY_WORD}" if word == "*" else re.escape(word)
        if word != "#":
            parts.append(one if index == 0 else rf"\.{one}")
        elif index:
            parts.append(rf"(?:\.{_ANY_WORD})*")
        elif len(words) == 1:
            parts.append(r"(?s:.*)")
        else:
            return rf"(?:{_ANY_WORD}\.)*{_of(words[1:])}"
    return "".join(parts)
