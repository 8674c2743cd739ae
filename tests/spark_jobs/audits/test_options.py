"""Which addresses an audit looks at, and what cannot be asked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.audits.options import TOP_MAX, Options, compile_pattern

WORDS = st.lists(st.sampled_from(["a", "b", "c", "", r"a\.b", r"\*", "\\\\"]), min_size=1, max_size=4)


def fits(pattern: list[str], words: list[str]) -> bool:
    """The rule as it is told, word by word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(fits(pattern[1:], words[n:]) for n in range(len(words) + 1))
    one = bool(words) and (pattern[0] == words[0] or (pattern[0] == "*" and words[0] != ""))
    return one and fits(pattern[1:], words[1:])


PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#", r"a\.b", r"\*", "\\\\"]), min_size=1, max_size=4)


@given(pattern=PATTERNS.filter(lambda words: words != [""]), words=WORDS)
def test_a_pattern_takes_what_the_rule_says(pattern: list[str], words: list[str]) -> None:
    found = re.fullmatch(compile_pattern(".".join(pattern)), ".".join(words))
    assert (found is not None) == fits(pattern, words)


@pytest.mark.parametrize(
    ("patterns", "address", "wanted"),
    [
        ((), "anything", True),
        ((), None, True),
        (("orders.#",), "orders", True),
        (("orders.#",), "orders.eu.new", True),
        (("orders.#",), "ordersX", False),
        (("orders.#",), "orders..eu", True),
        (("orders.#",), "orders.eu.", True),
        (("#.eu",), ".eu", True),
        (("orders.*",), "orders", False),
        (("orders.*",), "orders.", False),
        ((".a",), ".a", True),
        (("a..b",), "a..b", True),
        (("a..b",), "a.b", False),
        (("a.",), "a.", True),
        ((r"a\.b",), r"a\.b", True),
        (("a.*",), r"a\.b", False),
        (("*",), r"a\.b", True),
        ((r"\*",), r"\*", True),
        ((r"\*",), "a", False),
        (("*",), "a\\", True),
        (("a+b",), "a+b", True),
        (("a+b",), "aab", False),
        (("x", "y"), "y", True),
        (("x", "y"), "xy", False),
        (("#",), "new\nline", True),
        (("#",), None, False),
    ],
)
def test_wanted_addresses(patterns: tuple[str, ...], address: str | None, wanted: bool) -> None:
    assert Options(addresses=patterns).wants(address) is wanted


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"top": 0}, "top"),
        ({"top": TOP_MAX + 1}, "top"),
        ({"from_position": 5, "to_position": 5}, "position"),
        ({"from_time": 6, "to_time": 5}, "it begins at 1970-01-01T00:00:00.006"),
        ({"fail_over": -1}, "fail-over"),
        ({"addresses": ("a.b*",)}, "wildcard"),
        ({"addresses": (r"a.\\*",)}, "a backslash before it"),
        ({"addresses": ("",)}, "wildcard"),
    ],
)
def test_options_that_cannot_be_requested(asked: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Options(**asked)  # type: ignore[arg-type]


def test_limits() -> None:
    assert Options(top=TOP_MAX).top == TOP_MAX
    assert not Options().exceeded(1 << 60)
    assert not Options(fail_over=0).exceeded(0)
    assert Options(fail_over=0).exceeded(1)


def test_requested_options_are_reported() -> None:
    asked = Options(from_position=0, to_time=1_780_000_000_009, addresses=("a", "b.#"), fail_over=3).described()
    assert asked == {
        "from position": "0",
        "to time": "2026-05-28T20:26:40.009+00:00",
        "addresses": "a, b.#",
        "fail over": "3",
        "top": "20",
    }
    assert Options(from_time=1 << 60).described()["from time"] == str(1 << 60)


def test_a_pattern_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="it is not UTF-8"):
        compile_pattern("\udcff")
