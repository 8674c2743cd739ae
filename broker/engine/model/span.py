"""Compares the set of names that a match fits with that of a wildcard address: covered, overlapping, or apart."""

from __future__ import annotations

from broker.engine.model.names import WildcardSyntax
from broker.engine.model.settings_match import word_fits


class Span:
    """The set of addresses that a match fits."""

    def __init__(self, match: str, syntax: WildcardSyntax) -> None:
        characters = syntax.characters(match)
        self._any = bool(characters) and characters[-1] == syntax.any_words
        text = match[:-1].removesuffix(syntax.delimiter) if self._any else match
        self._words = syntax.words(text) if text or not self._any else []
        self._syntax = syntax

    def covers(self, wildcard: list[str]) -> bool:
        """Whether it fits every address that the wildcard matches."""
        own, syntax = self._words, self._syntax
        if len(wildcard) < len(own) or (len(wildcard) > len(own) and not self._any):
            return False
        begin = wildcard[: len(own)]
        if syntax.any_words in begin or (not self._any and syntax.any_words in wildcard):
            return False
        return all(
            mine == syntax.single_word or (word != syntax.single_word and word_fits(mine, syntax)(word))
            for mine, word in zip(own, begin, strict=True)
        )

    def overlaps(self, wildcard: list[str]) -> bool:
        """Whether it fits some address that the wildcard matches.

        `reached`: how many of its own words the wildcard's words so far may have used up.
        """
        own, syntax = self._words, self._syntax
        end = len(own)
        reached = {0}
        for word in wildcard:
            if word == syntax.any_words:
                reached = set(range(min(reached), end + 1))
                continue
            reached = {
                at + 1 if at < end else end
                for at in reached
                if (at == end and self._any) or (at < end and self._meet(own[at], word))
            }
            if not reached:
                return False
        return end in reached

    def _meet(self, mine: str, word: str) -> bool:
        return self._syntax.single_word in (mine, word) or word_fits(mine, self._syntax)(word)
