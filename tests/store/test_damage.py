"""Damage to a journal of a mebibyte, every so many bytes; all of them: `python -m tests.torture --every-byte`."""

from __future__ import annotations

import pytest

from tests.support.damage import KINDS, Whole, hurt


@pytest.fixture(scope="module")
def whole() -> Whole:
    return Whole()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_told_and_never_taken_for_something_else(whole: Whole, kind: str) -> None:
    assert whole.nbytes > 1 << 20
    tried, told = hurt(whole, kind, stride=521, seed=1)
    assert tried > 1_000
    assert told > tried * 9 // 10
    if kind == "flipped":
        assert told == tried
