"""Parses a rules table of IBM MQ's runmqdlq to entries whose keywords have their line.

1. A line whose first character is `*` is a comment; blank lines are ignored.
2. `+` at the end of a line continues the entry with the first non-blank character of the next line; `-` with its very
   first character.  Both may be in the middle of a word.
3. An entry is KEYWORD(VALUE) ..., separated by blanks or commas, each keyword once, in any case.
4. A value in single quotes is literal, with two quotes for one, and '' is a blank; an unquoted one is in
   capitals, as in MQ.
5. The first entry may be control data; each of the others is a rule, and has an ACTION.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.importing.files import InvalidFile, text_of

RULES_BYTES_MAX: Final = 1 << 20
"""Bytes of a table: real ones have a few KiB."""

CONTROL: Final = ("INPUTQ", "INPUTQM", "RETRYINT", "WAIT")
PATTERN: Final = (
    "APPLIDAT",
    "APPLNAME",
    "APPLTYPE",
    "DESTQ",
    "DESTQM",
    "FEEDBACK",
    "FORMAT",
    "MSGTYPE",
    "PERSIST",
    "REASON",
    "REPLYQ",
    "REPLYQM",
    "USERID",
)
ACTION: Final = ("ACTION", "CONVERT", "FWDQ", "FWDQM", "HEADER", "PUTAUT", "RETRY")

_CONTINUED: Final = re.compile(r"[+-][ \t]*\Z")
_KEYWORD: Final = re.compile(r"([A-Za-z]+)\s*")
_VALUE: Final = re.compile(r"\(\s*(?:'((?:[^']|'')*)'|([^'()]*?))\s*\)")
_BETWEEN: Final = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class Given:
    """A keyword's value, and the line that it is on."""

    line: int
    keyword: str
    value: str


@dataclass(slots=True)
class Entry:
    """Control data or a rule: its values by keyword, and the line that it begins on."""

    line: int
    given: dict[str, Given] = field(default_factory=dict)

    def get(self, keyword: str) -> str:
        """The value of a keyword; empty if it is not given."""
        found = self.given.get(keyword)
        return "" if found is None else found.value

    @property
    def control(self) -> bool:
        """Whether it is control data."""
        return any(keyword in CONTROL for keyword in self.given)


def is_table(data: bytes) -> bool:
    """Whether a file begins like a table: with a comment's `*`, a keyword, or a value in parentheses; or is empty."""
    text = data[:RULES_BYTES_MAX].decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    word = _KEYWORD.match(text)
    if word is None:
        return not text or text.startswith(("*", "+", "-"))
    return word[1].upper() in (*CONTROL, *PATTERN, *ACTION) or text[word.end() :].startswith("(")


def read_table(data: bytes) -> tuple[Entry | None, list[Entry]]:
    """The control data, if there is any, and the rules.  Raises InvalidFile with the line."""
    text = text_of(data, RULES_BYTES_MAX, "rules table")
    entries = [_entry(whole, starts) for whole, starts in _joined(text)]
    control = entries.pop(0) if entries and entries[0].control else None
    for entry in entries:
        if entry.control:
            word = next(keyword for keyword in entry.given if keyword in CONTROL)
            raise InvalidFile(
                f"line {entry.given[word].line}: {word} is control data, which only the first entry may have"
            )
        if "ACTION" not in entry.given:
            raise InvalidFile(f"line {entry.line}: a rule needs an ACTION")
    if not entries:
        raise InvalidFile("there is no rule in it: name a rules table of runmqdlq")
    return control, entries


def _joined(text: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """The entries as texts, each with the beginnings of its lines: (offset in the text, line number)."""
    whole, starts, sign = "", list[tuple[int, int]](), ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("*") or not line.strip():
            continue
        line = line.lstrip() if sign != "-" else line
        starts.append((len(whole), number))
        continued = _CONTINUED.search(line)
        whole += line[: continued.start()] if continued else line
        sign = continued[0][0] if continued else ""
        if not sign:
            yield whole, starts
            whole, starts = "", []
    if sign:
        raise InvalidFile(f"line {starts[-1][1]}: it ends with {sign}, and nothing follows")


def _entry(whole: str, starts: list[tuple[int, int]]) -> Entry:
    offsets = [offset for offset, _ in starts]

    def line(at: int) -> int:
        return starts[bisect_right(offsets, at) - 1][1]

    entry = Entry(starts[0][1])
    at = _end(_BETWEEN.match(whole))
    while at < len(whole):
        word = _KEYWORD.match(whole, at)
        if word is None:
            raise InvalidFile(f"line {line(at)}: a keyword is expected, not {whole[at : at + 20]!r}")
        keyword = word[1].upper()
        if keyword not in (*CONTROL, *PATTERN, *ACTION):
            raise InvalidFile(f"line {line(at)}: {word[1]} is not a keyword of a rules table")
        value = _VALUE.match(whole, word.end())
        if value is None:
            raise InvalidFile(f"line {line(at)}: {keyword} needs a value in parentheses; quotes come in pairs")
        quoted, plain = value[1], (value[2] or "").upper()
        if quoted is None and not plain:
            raise InvalidFile(f"line {line(at)}: the value of {keyword} is empty")
        if keyword in entry.given:
            raise InvalidFile(f"line {line(at)}: {keyword} is given twice in one rule")
        text = plain if quoted is None else quoted.replace("''", "'")
        entry.given[keyword] = Given(line(at), keyword, text)
        at = _end(_BETWEEN.match(whole, value.end()))
    return entry


def _end(found: re.Match[str] | None) -> int:
    assert found is not None, "it also matches the empty text"
    return found.end()
