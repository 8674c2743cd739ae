"""The patterns of LIKE: `%` is any run of characters, `_` any one; ESCAPE names the character that escapes them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.model.pattern import Pattern, Token, Wild

_WILDS: dict[str, Wild] = {"%": Wild.RUN, "_": Wild.ONE}


def like_pattern(text: str, escape: str | None) -> Pattern:
    """The pattern of a LIKE. The escape character escapes `%`, `_` and itself; before anything else it means itself."""
    return Pattern(_tokens(text, escape))


def _tokens(text: str, escape: str | None) -> Iterator[Token]:
    characters = iter(range(len(text)))
    for i in characters:
        if text[i] == escape and text[i + 1 : i + 2] in ("%", "_", escape):
            yield text[next(characters)]
        else:
            yield _WILDS.get(text[i], text[i])
