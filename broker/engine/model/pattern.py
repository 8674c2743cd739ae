"""A text pattern with "any one character" and "any run of characters", matched in linear time.

LIKE in filters and `*` inside a word of an address-setting's match are both such patterns, and both are matched against
text that a client chose. A regular expression with several `.*` takes polynomial time there, so the pattern is cut at
its runs into segments instead:

    'a%b_c%d'  ->  'a'  'b_c'  'd'

The first segment must open the text and the last must close it. Each one between is searched for from where the one
before ended: taking the leftmost place is never wrong, because it leaves the most text for the rest. A segment of
letters only is found by `str.find`; one with single wildcards by the shift-and automaton, whose states are the bits of
one integer: one step per character of the text, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum


class Wild(Enum):
    """The two tokens of a pattern that are not a character."""

    ONE = "any one character"
    RUN = "any run of characters, also an empty one"


Token = str | Wild


class _Segment:
    """The part of a pattern between two runs.  Its length is fixed."""

    __slots__ = ("_automaton", "_literal", "_pieces", "length")

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.length = len(tokens)
        self._pieces = list(_pieces(tokens))
        self._literal = "".join(token for token in tokens if isinstance(token, str))
        self._automaton = None if len(self._literal) == self.length else _automaton(tokens)

    @property
    def searched(self) -> bool:
        """Whether finding it needs the automaton."""
        return self._automaton is not None and bool(self._pieces)

    def stands_at(self, text: str, start: int) -> bool:
        """Whether the segment fits at `start`; the caller has made sure that the text is long enough."""
        return all(text.startswith(piece, start + offset) for offset, piece in self._pieces)

    def find(self, text: str, start: int, end: int) -> int:
        """The leftmost place of the segment within text[start:end], or -1."""
        if self._automaton is None:
            return text.find(self._literal, start, end)
        if not self._pieces:
            return start if start + self.length <= end else -1
        return self._search(self._automaton, text, start, end)

    def _search(self, automaton: tuple[dict[str, int], int], text: str, start: int, end: int) -> int:
        states, anywhere = automaton
        last = 1 << (self.length - 1)
        reached = 0
        for place in range(start, end):
            reached = (reached << 1 | 1) & states.get(text[place], anywhere)
            if reached & last:
                return place - self.length + 1
        return -1


def _pieces(tokens: Sequence[Token]) -> Iterable[tuple[int, str]]:
    """The runs of plain characters in a segment, each with its offset."""
    start = 0
    for end in range(len(tokens) + 1):
        if end == len(tokens) or not isinstance(tokens[end], str):
            if start < end:
                yield start, "".join(str(token) for token in tokens[start:end])
            start = end + 1


def _automaton(tokens: Sequence[Token]) -> tuple[dict[str, int], int]:
    """For each character of the pattern the positions that accept it; and the positions that accept every character."""
    anywhere = sum(1 << i for i, token in enumerate(tokens) if not isinstance(token, str))
    states: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if isinstance(token, str):
            states[token] = states.get(token, anywhere) | 1 << i
    return states, anywhere


def _segments(tokens: Iterable[Token]) -> list[_Segment]:
    cut: list[list[Token]] = [[]]
    for token in tokens:
        if token is Wild.RUN:
            cut.append([])
        else:
            cut[-1].append(token)
    # An empty segment between two runs fits anywhere; the outer two anchor the pattern even when empty.
    inner = [_Segment(segment) for segment in cut[1:-1] if segment]
    return [_Segment(cut[0]), *inner, *([_Segment(cut[-1])] if len(cut) > 1 else [])]


class Pattern:
    """A compiled pattern. `tokens` are single characters, `Wild.ONE` and `Wild.RUN`.

    searches: how many of its segments are searched for character by character (the rest at the speed of `str.find`).

    A match costs one pass over the text (promise P6: bad input costs its sender, by no more than its length).
    """

    __slots__ = ("_first", "_inner", "_last", "_shortest", "searches")

    def __init__(self, tokens: Iterable[Token]) -> None:
        segments = _segments(tokens)
        self._first = segments[0]
        self._inner = segments[1:-1]
        self._last = segments[-1] if len(segments) > 1 else None
        self.searches = sum(segment.searched for segment in self._inner)
        self._shortest = sum(segment.length for segment in segments)

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` fits the pattern."""
        last = self._last
        if last is None:
            return len(text) == self._shortest and self._first.stands_at(text, 0)
        if len(text) < self._shortest or not self._first.stands_at(text, 0):
            return False
        end = len(text) - last.length
        if not last.stands_at(text, end):
            return False
        place = self._first.length
        for segment in self._inner:
            found = segment.find(text, place, end)
            if found < 0:
                return False
            place = found + segment.length
        return True
