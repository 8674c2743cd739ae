"""Formats numbers with their nouns: `1 byte`, `1,200 messages were moved`."""

from __future__ import annotations


def counted(number: int, one: str, more: str = "") -> str:
    """A number and its noun, or a whole phrase; `more` is the plural if it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"
