"""Looks up an address's settings: the fields of all matches that fit it, merged (Artemis semantics 2.2-2.4).

A match is a name or a pattern. It is read as text, not word by word as in routing:

1. `#` may only be the last character. `foo.#` fits `foo` and every name that begins with `foo.`; `foo#` is the same;
   `#` alone fits everything.
2. `*` stands for one or more characters of one word, also inside a word: `my*` fits `myqueue`.
3. A match between the literal-match markers, such as `(orders.#)` with `()`, is the name `orders.#` without wildcards.
4. A match with `::` is a queue's full name: it fits that queue alone, and has no wildcards.

The most specific match that sets a field decides it; the defaults fill the rest. In order: the full name of the queue;
the exact name; the literal match; then the patterns:

5. one without `#` before one with it;
6. of two with `#`, the longer text, purely by characters: `*.*.*.#` comes before `a.b.#`;
7. of two without `#`, the one without `*` at the first word where they differ in that; then the shorter text.

Two patterns with `#` of equal length are ordered by rule 7, then alphabetically, so the result never depends on the
order in the file. An unset field is None or absent; an empty text is a value (an empty expiry-address: none).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from broker.engine.model.names import DEFAULT_SYNTAX, FQQN_SEPARATOR, WildcardSyntax
from broker.engine.model.pattern import Pattern, Token, Wild

Fields = Mapping[str, object]

CACHE_RESULTS_MAX: Final = 1_000
"""Merged results cached, keyed by the matches that fit: far fewer than addresses, 100,000 of which may share one. A
result costs about 2 KiB and a few us to recompute, so a client that invents names gains nothing."""


class InvalidMatch(ValueError):
    """A match that is invalid: `#` before its end, or given twice."""


class _WildcardMatch:
    """A compiled pattern and its sort key.  `first`: the first word of all that it fits; None: that may be any."""

    __slots__ = ("_any_words", "_fits_all", "_words", "fields", "first", "order", "text")

    def __init__(self, text: str, fields: Fields, syntax: WildcardSyntax) -> None:
        characters = syntax.characters(text)
        if syntax.any_words in characters[:-1]:
            raise InvalidMatch(f"match {text!r}: {syntax.any_words} can only be the last character")
        self.text = text
        self.fields = fields
        self._any_words = characters[-1] == syntax.any_words
        self._fits_all = len(characters) == 1 and self._any_words
        words = _words(text, syntax, any_words=self._any_words)
        self._words = [word_fits(word, syntax) for word in words]
        self.first = None if self._fits_all or syntax.is_wildcard(words[0]) else words[0]
        length = -len(text) if self._any_words else 0
        self.order = (self._any_words, length, [word == syntax.single_word for word in words], len(text), text)

    def fits(self, words: list[str]) -> bool:
        """Whether the match fits the address with these words."""
        if self._fits_all:
            return True
        own = self._words
        more = len(words) - len(own)
        if more < 0 or (more > 0 and not self._any_words) or (more == 1 and not words[-1]):
            return False
        return all(fits(word) for fits, word in zip(own, words, strict=False))


def _order(match: _WildcardMatch) -> tuple[bool, int, list[bool], int, str]:
    return match.order


def _words(text: str, syntax: WildcardSyntax, *, any_words: bool) -> list[str]:
    """The words of a match without a final `#`, which needs no delimiter before it (rule 1)."""
    return syntax.words(text[:-1].removesuffix(syntax.delimiter) if any_words else text)


def word_fits(word: str, syntax: WildcardSyntax) -> Callable[[str], bool]:
    """A test of whether a word of a name fits a word of a match (rule 2)."""
    if word == syntax.single_word:
        return bool
    if not syntax.is_wildcard(word):
        return word.__eq__
    tokens: list[Token] = []
    for character in syntax.characters(word):
        tokens += (Wild.ONE, Wild.RUN) if character == syntax.single_word else character
    return Pattern(tokens).matches


def matcher(match: str, *, syntax: WildcardSyntax = DEFAULT_SYNTAX, literal_markers: str = "") -> Callable[[str], bool]:
    """A test of whether a name fits a match, by the rules of settings.  Raises InvalidMatch."""
    table = SettingsTable([(match, {})], {}, syntax=syntax, literal_markers=literal_markers)
    return lambda name: bool(table.matching(name))


class SettingsTable:
    """Settings by match. Each match gives the fields that it sets; `defaults` has all fields.

    literal_markers: two characters, or empty for none. Raises InvalidMatch.
    """

    __slots__ = (
        "_cache",
        "_defaults",
        "_exact",
        "_literal",
        "_markers",
        "_of_any_first",
        "_of_first",
        "_wildcards",
        "qualified",
        "syntax",
    )

    def __init__(
        self,
        matches: Iterable[tuple[str, Fields]],
        defaults: Fields,
        *,
        syntax: WildcardSyntax = DEFAULT_SYNTAX,
        literal_markers: str = "",
    ) -> None:
        if len(literal_markers) not in (0, 2):
            raise InvalidMatch(f"literal-match-markers must be two characters, not {literal_markers!r}")
        self._defaults = dict(defaults)
        self.syntax = syntax
        self._markers = literal_markers
        self._cache: dict[tuple[str, ...], Fields] = {}
        self.replace(matches)

    def matcher(self, match: str) -> Callable[[str], bool]:
        """A test of whether a name fits a match, with this table's syntax.  Raises InvalidMatch."""
        return matcher(match, syntax=self.syntax, literal_markers=self._markers)

    def replace(self, matches: Iterable[tuple[str, Fields]]) -> None:
        """Replace all matches, or, on an error, none. Raises InvalidMatch."""
        exact: dict[str, Fields] = {}
        literal: dict[str, Fields] = {}
        wildcards: dict[str, _WildcardMatch] = {}
        for match, fields in matches:
            name = self._literal_name(match)
            taken = exact if name is None else literal
            if (match if name is None else name) in taken or match in wildcards:
                raise InvalidMatch(f"match {match!r} appears twice")
            if name is not None:
                literal[name] = dict(fields)
            elif self.syntax.is_wildcard(match) and FQQN_SEPARATOR not in match:
                wildcards[match] = _WildcardMatch(match, dict(fields), self.syntax)
            else:
                exact[match] = dict(fields)
        self._exact, self._literal = exact, literal
        self.qualified = any(FQQN_SEPARATOR in match for match in exact)  # queues may have settings of their own
        self._wildcards = sorted(wildcards.values(), key=lambda wildcard: wildcard.order)
        self._of_first: dict[str, list[_WildcardMatch]] = {}
        self._of_any_first: list[_WildcardMatch] = []
        for each in self._wildcards:
            if each.first is None:
                self._of_any_first.append(each)
            else:
                self._of_first.setdefault(each.first, []).append(each)
        self._cache.clear()

    def resolve(self, name: str) -> Fields:
        """The merged settings of an address, or of `address::queue`: a cached mapping, read-only."""
        layers = self.matching(name)
        key = tuple([match for match, _ in layers])
        merged = self._cache.get(key)
        if merged is None:
            merged = self._merge(layers)
            if len(self._cache) >= CACHE_RESULTS_MAX:
                del self._cache[next(iter(self._cache))]  # the oldest: cheap, and one in use is soon cached again
            self._cache[key] = merged
        return merged

    def matching(self, name: str) -> list[tuple[str, Fields]]:
        """The matches that fit, most specific first, each with the fields that it sets."""
        address, separator, _ = name.partition(FQQN_SEPARATOR)
        layers: list[tuple[str, Fields]] = []
        for candidate in (name, address) if separator else (name,):
            if candidate in self._exact:
                layers.append((candidate, self._exact[candidate]))
            if candidate in self._literal:
                layers.append((f"{self._markers[0]}{candidate}{self._markers[1]}", self._literal[candidate]))
        words = self.syntax.words(address)
        found = [match for match in self._of_any_first if match.fits(words)]
        if words[0] in self._of_first:  # thousands of tenants have a match each
            found += [match for match in self._of_first[words[0]] if match.fits(words)]
            found.sort(key=_order)
        layers += [(match.text, match.fields) for match in found]
        return layers

    def in_order(self) -> Iterator[tuple[str, Fields]]:
        """All matches, the most specific first (rules 5 to 7), each with the fields that it sets."""
        yield from self._exact.items()
        for name, fields in self._literal.items():
            yield f"{self._markers[0]}{name}{self._markers[1]}", fields
        for match in self._wildcards:
            yield match.text, match.fields

    def values(self, *names: str) -> set[object]:
        """All values of the fields with these names, in any match or by default."""
        tables = [self._defaults, *(fields for _, fields in self.in_order())]
        return {fields[name] for fields in tables for name in names if fields.get(name) is not None}

    def emptied(self, name: str) -> list[str]:
        """The matches that leave a text empty: those that set it to nothing, and `#` if nothing sets it for all."""
        any_words = self.syntax.any_words
        found = [match for match, fields in self.in_order() if fields.get(name) == ""]
        everywhere = any(match == any_words and fields.get(name) is not None for match, fields in self.in_order())
        return found if everywhere or self._defaults.get(name) else [*found, any_words]

    def _merge(self, layers: list[tuple[str, Fields]]) -> Fields:
        merged = dict(self._defaults)
        for _, fields in reversed(layers):
            merged.update({field: value for field, value in fields.items() if value is not None})
        return MappingProxyType(merged)

    def _literal_name(self, match: str) -> str | None:
        markers = self._markers
        if markers and len(match) > 1 and match.startswith(markers[0]) and match.endswith(markers[1]):
            return match[1:-1]
        return None
