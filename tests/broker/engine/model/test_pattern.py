"""Patterns against a table of all prefixes, and their cost."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.filter.grammar import like_pattern
from broker.engine.model.pattern import Pattern, Token, Wild

TOKENS = st.lists(st.sampled_from(["a", "b", Wild.ONE, Wild.RUN]), max_size=10)


def naive(tokens: list[Token], text: str) -> bool:
    """reached[i]: the tokens so far can stand for text[:i]."""
    reached = [True] + [False] * len(text)
    for token in tokens:
        if token is Wild.RUN:
            first = reached.index(True) if True in reached else len(reached)
            reached = [i >= first for i in range(len(reached))]
        else:
            reached = [False] + [reached[i] and token in (Wild.ONE, text[i]) for i in range(len(text))]
    return reached[-1]


@given(tokens=TOKENS, text=st.text("ab", max_size=12))
def test_a_pattern_matches_what_its_tokens_allow(tokens: list[Token], text: str) -> None:
    assert Pattern(tokens).matches(text) is naive(tokens, text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("%", "", True),
        ("%%", "abc", True),
        ("_", "", False),
        ("_", "\n", True),
        ("_", "\U0001f600", True),
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("%ab%ab%", "abab", True),
        ("%ab%ab%", "aba", False),
        ("%a_c%", "abxabc", True),
        ("%_%_%", "a", False),
        (".*", "xx", False),
        ("[ab]", "a", False),
    ],
)
def test_examples(pattern: str, text: str, expected: bool) -> None:
    assert like_pattern(pattern, None).matches(text) is expected


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("a!%", "!", "a%", True),
        ("a!%", "!", "ab", False),
        ("a!b", "!", "a!b", True),
        ("a!", "!", "a!", True),
        ("!!%", "!", "!x", True),
        ("%_", "%", "_", True),
        ("%_", "%", "a", False),
        ("%x", "%", "aax", True),
        ("__", "_", "_", True),
        ("__", "_", "a", False),
        ("\\_", "\\", "_", True),
    ],
)
def test_escapes(pattern: str, escape: str, text: str, expected: bool) -> None:
    assert like_pattern(pattern, escape).matches(text) is expected


def test_only_single_wildcards_between_runs_are_searched_for() -> None:
    assert [like_pattern(text, None).searches for text in ("a_b", "a_%_b", "%ab%", "%_%", "%a_b%", "%a_%_b%")] == [
        0,
        0,
        0,
        0,
        1,
        2,
    ]


@pytest.mark.parametrize("letter", ["a", "\u0431", "\U0001f600"])
def test_hostile_patterns_cost_little_for_each_character(letter: str) -> None:
    """Character by character, in a loop, they took 110 ms."""
    text = letter * 15_000
    patterns = [like_pattern(f"%_{letter}_b{n}%", None) for n in range(55)]
    began = time.process_time()
    assert not any([pattern.matches(text) for pattern in patterns])
    assert time.process_time() - began < 0.03


def test_texts_that_are_too_long_to_keep_are_searched_all_the_same() -> None:
    text = "a" * 70_000 + "xby" + "a" * 9
    assert like_pattern("%x_y%", None).matches(text)
    assert not like_pattern("%x_x%", None).matches(text)
