"""Every limit on filters, at the limit and one beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from lark.lexer import BasicLexer, Token

from broker.engine.filter import Filter, InvalidFilter, compile_filter, grammar
from broker.engine.filter.filter import _compiled
from broker.engine.filter.limits import (
    CACHE_FILTERS_MAX,
    DEPTH_MAX,
    NODES_MAX,
    NODES_PER_SEARCH,
    NUMBER_CHARS_MAX,
    TEXT_CHARS_MAX,
    TEXT_RESULT_CHARS_MAX,
)


def compiled(text: str) -> Filter:
    result = compile_filter(text)
    assert result is not None
    return result


def test_text_length() -> None:
    text = "a = '" + "x" * (TEXT_CHARS_MAX - 6) + "'"
    assert compiled(text).matches({"a": text[5:-1]})
    with pytest.raises(InvalidFilter, match="longer than 4096 characters") as caught:
        compile_filter(text[:-1] + "x'")
    assert caught.value.position == TEXT_CHARS_MAX


@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("NOT ", ""), ("NOT (", ")"), ("(off OR ", ")"), ("(on AND (off OR ", "))")]
)
def test_depth(monkeypatch: pytest.MonkeyPatch, opening: str, closing: str) -> None:
    levels = opening.count("(") + opening.count("NOT") + opening.count("OR") + opening.count("AND")
    deep = (DEPTH_MAX - 1) // levels
    monkeypatch.setattr(grammar, "DEPTH_MAX", deep * levels + 1)
    properties = {"on": True, "off": False}
    text = opening * deep + "on" + closing * deep
    negations = text.count("NOT")
    assert compiled(text).matches(properties) is (negations % 2 == 0)
    with pytest.raises(InvalidFilter, match="levels deep"):
        compile_filter(opening * (deep + 1) + "on" + closing * (deep + 1))


@pytest.mark.parametrize("sign", ["-", "+"])
def test_depth_of_signs(sign: str) -> None:
    deep = DEPTH_MAX - 2
    assert compiled(f"0 = {(sign + ' ') * deep}a").matches({"a": 0})
    with pytest.raises(InvalidFilter, match="nested more than 64 levels deep"):
        compile_filter(f"0 = {(sign + ' ') * (deep + 1)}a")


def test_nesting_far_beyond_the_limit_is_refused_as_calmly() -> None:
    with pytest.raises(InvalidFilter, match="levels deep"):
        compile_filter("(" * 2000 + "a" + ")" * 2000)


@pytest.mark.parametrize(
    ("text", "why", "read"),
    [
        ("+".join(["1"] * 2040) + " = 1", "levels deep", 2 * DEPTH_MAX),
        ("(" * 2000 + "a" + ")" * 2000, "levels deep", 2000 + DEPTH_MAX),
        (" OR ".join(["a=1"] * 580), "operators, names and constants", 4 * (NODES_MAX // 3)),
    ],
)
def test_nothing_is_read_beyond_the_limit(monkeypatch: pytest.MonkeyPatch, text: str, why: str, read: int) -> None:
    tokens = 0
    lex = BasicLexer.next_token

    def counted(*args: Any) -> Token:
        nonlocal tokens
        tokens += 1
        return lex(*args)

    monkeypatch.setattr(BasicLexer, "next_token", counted)
    with pytest.raises(InvalidFilter, match=why):
        compile_filter(text)
    assert tokens <= read + 4


def test_a_long_chain_is_not_a_deep_one() -> None:
    text = " OR ".join(["a=1"] * 200)
    assert compiled(text).matches({"a": 1})


def test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "NODES_MAX", 30)
    ten = "a AND " * 28 + "a"  # 29 names and one AND
    assert compiled(ten).matches({"a": True})
    with pytest.raises(InvalidFilter, match="more than 30 operators, names and constants"):
        compile_filter(ten + " AND a")


def test_nodes_of_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "NODES_MAX", 2 + 2 * NODES_PER_SEARCH)
    assert compiled("a LIKE '%b_c%d_e%'").matches({"a": "xbxcdxexx"})
    with pytest.raises(InvalidFilter, match="more than"):
        compile_filter("a LIKE '%b_c%d_e%f_g%'")


def test_text_results() -> None:
    half = "x" * (TEXT_RESULT_CHARS_MAX // 2)
    joined = compiled("p + q LIKE 'x%'")
    assert joined.matches({"p": half, "q": half})
    assert not joined.matches({"p": half, "q": half + "x"})
    assert joined.failures == 1


def test_text_read_as_a_number() -> None:
    equal = compiled("convert_string_expressions:p = 5")
    assert equal.matches({"p": "0" * (NUMBER_CHARS_MAX - 1) + "5"})
    assert not equal.matches({"p": "0" * NUMBER_CHARS_MAX + "5"})


def test_the_cache_is_bounded() -> None:
    _compiled.cache_clear()
    first = compile_filter("a = 0")
    for i in range(1, CACHE_FILTERS_MAX):
        compile_filter(f"a = {i}")
    assert compile_filter("a = 0") is first
    for i in range(CACHE_FILTERS_MAX, CACHE_FILTERS_MAX + 2):
        compile_filter(f"a = {i}")
    assert _compiled.cache_info().currsize == CACHE_FILTERS_MAX
    assert compile_filter("a = 0") is first, "what is used stays"
