"""A text pattern with "any one character" and "any run of characters", matched in linear time.

LIKE in filters and `*` inside a word of an address-setting's match are both such patterns, and both are matched against
text that a client chose. A regular expression with several `.*` takes polynomial time there, so the pattern is cut at
its runs into segments instead:

    'a%b_c%d'  ->  'a'  'b_c'  'd'

The first segment must open the text and the last must close it. Each one between is searched for from where the one
before ended: taking the leftmost place is never wrong, because it leaves the most text for the rest. A segment of
letters only is found by `str.find`.

One with single wildcards is searched for at all places at once. The places of a character in the text are the bits of
one integer; shifted by its offset in the segment, and joined by AND with those of the others, they are the places of
the segment. That takes 64 places in a step, where a loop over the characters takes 0.13 us for each: 2 ms for a header
of 16 KiB, and a subscriber may have 64 such segments in each of 1,000 selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final


class Wild(Enum):
    """The two tokens of a pattern that are not a character."""

    ONE = "any one character"
    RUN = "any run of characters, also an empty one"


Token = str | Wild


#: Texts whose characters' places are kept: many patterns look at the same header of a message; and how long they are.
_TEXTS_MAX: Final = 4
_TEXT_CHARS_MAX: Final = 65_536

#: For each byte a table that makes 1 of it, and 0 of all others.
_DIGITS: Final = [b"0" * byte + b"1" + b"0" * (255 - byte) for byte in range(256)]


class _Places:
    """Where the characters of a text are: the highest of `length` bits is the first place."""

    __slots__ = ("_found", "_planes", "length")

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self._found: dict[str, int] = {}
        try:
            self._planes = [text.encode("latin-1")]
        except UnicodeEncodeError:
            encoded = text.encode("utf-32-le", "surrogatepass")
            self._planes = [encoded[0::4], encoded[1::4], encoded[2::4]]

    def of(self, character: str) -> int:
        """The places of a character."""
        found = self._found.get(character)
        if found is None:
            code, found = ord(character), (1 << self.length) - 1
            for plane in self._planes:
                found &= int(plane.translate(_DIGITS[code & 255]) or b"0", 2)
                code >>= 8
            found = self._found[character] = 0 if code else found
        return found


_kept_places = lru_cache(_TEXTS_MAX)(_Places)


class _Segment:
    """The part of a pattern between two runs.  Its length is fixed."""

    __slots__ = ("_characters", "_literal", "_pieces", "length")

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.length = len(tokens)
        self._pieces = list(_pieces(tokens))
        self._literal = "".join(token for token in tokens if isinstance(token, str))
        self._characters = [(at, token) for at, token in enumerate(tokens) if isinstance(token, str)]

    @property
    def searched(self) -> bool:
        """Whether it has single wildcards, and something else."""
        return 0 < len(self._literal) < self.length

    def stands_at(self, text: str, start: int) -> bool:
        """Whether the segment fits at `start`; the caller has made sure that the text is long enough."""
        return all(text.startswith(piece, start + offset) for offset, piece in self._pieces)

    def find(self, text: str, start: int, end: int) -> int:
        """The leftmost place of the segment within text[start:end], or -1."""
        if len(self._literal) == self.length:
            return text.find(self._literal, start, end)
        if start + self.length > end:
            return -1
        if not self._characters:
            return start
        places = _kept_places(text) if len(text) <= _TEXT_CHARS_MAX else _Places(text)
        found = (1 << (places.length - start)) - 1  # not before `start`
        for offset, character in self._characters:
            found &= places.of(character) << offset
            if not found:
                return -1
        place = places.length - found.bit_length()
        return place if place + self.length <= end else -1


def _pieces(tokens: Sequence[Token]) -> Iterable[tuple[int, str]]:
    """The runs of plain characters in a segment, each with its offset."""
    start = 0
    for end in range(len(tokens) + 1):
        if end == len(tokens) or not isinstance(tokens[end], str):
            if start < end:
                yield start, "".join(str(token) for token in tokens[start:end])
            start = end + 1


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

    searches: how many of its segments have single wildcards (the rest are found at the speed of `str.find`).

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
