"""Numbers and their nouns."""

from __future__ import annotations

import pytest

from store.counted import counted


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (0, ("byte",), "0 bytes"),
        (1, ("byte",), "1 byte"),
        (1_200, ("byte",), "1,200 bytes"),
        (1, ("entry", "entries"), "1 entry"),
        (2, ("entry", "entries"), "2 entries"),
        (1, ("message was moved", "messages were moved"), "1 message was moved"),
    ],
)
def test_one_is_one_and_all_others_are_several(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said
