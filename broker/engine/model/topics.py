"""Which patterns match an address: the bindings of wildcard addresses (Artemis semantics 1.2, 2.3).

Matching is strictly word by word. `*` stands for exactly one word, `#` for any number of words including none; both
may occur anywhere, also several times. Inside a word (`foo*`) they are ordinary characters. A pattern without wildcards
matches itself. So `a.#` matches `a`, `a.b` and `a.b.c`, and `a.#.z` matches `a.z`. A pattern that begins with a
wildcard matches no address that begins with `$`: brokers publish about themselves there.

Patterns are kept by their words before the first wildcard, in a trie: an address takes one way through it.  On that way
are the rests of patterns, from their first wildcard on.  Those of one node are matched at once, by a set of bits
(Shift-And: R. Baeza-Yates and G. Gonnet, A New Approach to Text Searching, CACM 35(10), 1992):

    rests          * . b          # . c           a rest of n words has a bit for each word, and one for its end
    bit            0   1   2      4   5   6       set: the words before it match those of the address so far
    a word x       moves each bit whose word is x or `*` to the next one; a bit at `#` stays; and a bit that reaches `#`
                   is at the one behind it too: `#` may stand for none

So a word costs some operations on integers of as many bits as there are words in all rests, a microsecond for 10,000
of them, whatever they are: clients choose patterns and addresses, and one message must not hold up others.  Words keep
their escapes: names are compared as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from broker.engine.model.errors import InvalidName
from broker.engine.model.names import DEFAULT_SYNTAX, WildcardSyntax

T = TypeVar("T")

WORDS_MAX: Final = 128
"""The most words of a pattern. No naming scheme has so many levels, and each is a bit that lives with its binding."""

#: The bits of a rest are rounded up to a multiple of this, so that others fit in their place once it is gone.
_ROUNDED_TO: Final = 4

#: A word that occurs more often than this, and than once in so many bits, is kept as a set of bits; others as a list.
_LISTED_MAX: Final = 64
_LISTED_BITS: Final = 1_024

_NOT_ZERO: Final = re.compile(rb"[^\0]")


def is_hidden(address: str) -> bool:
    """Whether patterns that begin with a wildcard do not match this address (MQTT 5.0, MQTT-4.7.2-1).

    Where `$` itself is a wildcard, it is escaped in such an address.
    """
    return address.startswith(("$", "\\$"))


class _Rests(Generic[T]):
    """The rests of patterns that have the same words before their first wildcard."""

    __slots__ = ("_any_word", "_any_words", "_ends", "_first", "_free", "_places", "_size", "_values", "_words")

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], int] = {}  # the first bit of each rest
        self._values: dict[int, dict[T, None]] = {}  # by the last bit; each a set that remembers the order of binding
        self._words: dict[str, int | list[int]] = {}  # the bits of each word
        self._first = self._any_word = self._any_words = self._ends = 0  # sets of bits
        self._size = 0  # bits, used or free
        self._free: dict[int, list[int]] = {}  # places that are free, by their number of bits

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, rest: tuple[str, ...], value: T, syntax: WildcardSyntax) -> None:
        place = self._places.get(rest)
        if place is None:
            place = self._places[rest] = self._allocate(len(rest))
            self._values[place + len(rest)] = {}
            self._change(place, rest, syntax)
            for bit, word in enumerate(rest, place):
                if not _is_wildcard(word, syntax):
                    self._note(word, bit)
        self._values[place + len(rest)][value] = None

    def remove(self, rest: tuple[str, ...], value: T, syntax: WildcardSyntax) -> None:
        """Raises KeyError."""
        place = self._places[rest]
        values = self._values[place + len(rest)]
        del values[value]
        if not values:
            del self._places[rest], self._values[place + len(rest)]
            self._free.setdefault(_rounded(len(rest)), []).append(place)
            self._change(place, rest, syntax)
            for bit, word in enumerate(rest, place):
                if not _is_wildcard(word, syntax):
                    self._forget(word, bit)

    def _allocate(self, words: int) -> int:
        size = _rounded(words)
        free = self._free.get(size)
        if free:
            return free.pop()
        self._size += size
        return self._size - size

    def _change(self, place: int, rest: tuple[str, ...], syntax: WildcardSyntax) -> None:
        """Set the bits of a rest that have nothing to do with its words, or clear them again."""
        single = sum([1 << at for at, word in enumerate(rest) if word == syntax.single_word])
        several = sum([1 << at for at, word in enumerate(rest) if word == syntax.any_words])
        self._first ^= 1 << place
        self._any_word ^= single << place
        self._any_words ^= several << place
        self._ends ^= 1 << place + len(rest)

    def _note(self, word: str, bit: int) -> None:
        bits = self._words.setdefault(word, [])
        if isinstance(bits, int):
            self._words[word] = bits | 1 << bit
            return
        bits.append(bit)
        if len(bits) > max(_LISTED_MAX, self._size // _LISTED_BITS):
            self._words[word] = _together(bits)

    def _forget(self, word: str, bit: int) -> None:
        bits = self._words[word]
        if isinstance(bits, int):
            self._words[word] = bits = bits ^ 1 << bit
        else:
            bits.remove(bit)
        if not bits:
            del self._words[word]

    def match(self, words: list[str], at: int) -> Iterator[T]:
        """The values of the rests that match an address from a word on."""
        any_word, any_words = self._any_word, self._any_words
        reached = self._first
        reached |= ((reached & any_words) + any_words) ^ any_words  # the carry passes `#` after `#`
        for word in words[at:] if at else words:
            bits = self._words.get(word, 0)
            if not isinstance(bits, int):
                bits = _those(reached, bits)
            reached = (reached & (any_word | bits)) << 1 | reached & any_words
            if not reached:
                return
            reached |= ((reached & any_words) + any_words) ^ any_words
        for end in _bits(reached & self._ends):
            yield from self._values[end]


def _is_wildcard(word: str, syntax: WildcardSyntax) -> bool:
    return word in (syntax.single_word, syntax.any_words)


def _rounded(words: int) -> int:
    """How many bits a rest of so many words has."""
    return -(-(words + 1) // _ROUNDED_TO) * _ROUNDED_TO


def _together(bits: list[int]) -> int:
    """A set of bits."""
    octets = bytearray((max(bits) >> 3) + 1)
    for bit in bits:
        octets[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(octets, "little")


def _those(reached: int, bits: list[int]) -> int:
    """The bits of a list that are in a set, or more."""
    if len(bits) == 1:
        return 1 << bits[0]
    return _together(bits)


def _bits(found: int) -> Iterator[int]:
    """The bits of a set."""
    octets = found.to_bytes((found.bit_length() + 7) >> 3, "little")
    for octet in _NOT_ZERO.finditer(octets):
        at, value = octet.start() << 3, octet[0][0]
        for bit in range(8):
            if value >> bit & 1:
                yield at + bit


class _Node(Generic[T]):
    """The patterns that begin with the same words, without wildcards."""

    __slots__ = ("rests", "values", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.rests: _Rests[T] | None = None
        self.values: dict[T, None] = {}  # of the pattern that ends here: a set that remembers the order of binding

    @property
    def needed(self) -> bool:
        """Whether a pattern ends here or goes on."""
        return bool(self.values or self.words or self.rests)


class Topics(Generic[T]):
    """Values by pattern. A value is bound to a pattern once; values are compared by hash."""

    __slots__ = ("_root", "_syntax")

    def __init__(self, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
        self._root: _Node[T] = _Node()
        self._syntax = syntax

    def add(self, pattern: str, value: T) -> None:
        """Bind a value; binding it again has no effect. Raises InvalidName for more than WORDS_MAX words."""
        words = self._syntax.words(pattern)
        if len(words) > WORDS_MAX:
            raise InvalidName(f"a wildcard address of {len(words)} words: at most {WORDS_MAX} are allowed")
        node = self._root
        for at, word in enumerate(words):
            if _is_wildcard(word, self._syntax):
                if node.rests is None:
                    node.rests = _Rests()
                node.rests.add(tuple(words[at:]), value, self._syntax)
                return
            child = node.words.get(word)
            if child is None:
                child = node.words[word] = _Node()
            node = child
        node.values[value] = None

    def remove(self, pattern: str, value: T) -> None:
        """Unbind a value, and drop what only it needed. Raises KeyError if it was not bound."""
        words = self._syntax.words(pattern)
        path = [self._root]
        for at, word in enumerate(words):
            rests = path[-1].rests
            if _is_wildcard(word, self._syntax):
                if rests is None:
                    raise KeyError(pattern)
                rests.remove(tuple(words[at:]), value, self._syntax)
                if not rests:
                    path[-1].rests = None
                break
            path.append(path[-1].words[word])
        else:
            del path[-1].values[value]
        while len(path) > 1 and not path.pop().needed:
            del path[-1].words[words[len(path) - 1]]

    @property
    def empty(self) -> bool:
        """Whether nothing is bound."""
        return not self._root.needed

    def match(self, address: str, *, hidden: bool = False) -> list[T]:
        """The values of all matching patterns; a value bound to several of them is listed several times.

        `hidden`: patterns that begin with a wildcard do not match, as if the address began with `$`.
        """
        words = self._syntax.words(address)
        node: _Node[T] | None = self._root
        found: list[T] = []
        hidden = hidden or is_hidden(address)
        for at, word in enumerate(words):
            assert node is not None
            if node.rests is not None and not (hidden and not at):
                found += node.rests.match(words, at)
            node = node.words.get(word)
            if node is None:
                return found
        assert node is not None
        found += node.values
        if node.rests is not None:
            found += node.rests.match([], 0)  # a `#` may stand for no word
        return found
