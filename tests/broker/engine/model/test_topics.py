"""Wildcard bindings: routing's rules (Artemis semantics 1.2, 2.3), a naive matcher, and what a match costs."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.errors import InvalidName
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.topics import WORDS_MAX, Topics


def bound(*patterns: str) -> Topics[str]:
    topics: Topics[str] = Topics()
    for pattern in patterns:
        topics.add(pattern, pattern)
    return topics


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "A.b"]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.b"]),
        ("*", ["a", ""], ["a.b"]),
        ("*.b", ["a.b", ".b"], ["b", "a.a.b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["ab", "b.a"]),
        ("#", ["a", "a.b.c", ""], []),
        ("#.z", ["z", "a.z", "a.b.z", "z.z"], ["a", "z.a"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z", "a.z.z"], ["a", "z", "a.z.b"]),
        ("a.*.#", ["a.b", "a.b.c"], ["a"]),
        ("#.#", ["a", "a.b"], []),
        ("#.m.#", ["m", "a.m", "m.b", "a.m.m.b"], ["a.b"]),
        ("#.*.#", ["a", "a.b"], []),
        ("foo*", ["foo*"], ["food", "foo"]),
        ("foo#", ["foo#"], ["foo", "foo.a"]),
        ("x\\.y.*", ["x\\.y.z"], ["x.y.z", "x.y"]),
        ("\\*.a", ["\\*.a"], ["b.a"]),
    ],
)
def test_rules(pattern: str, matching: list[str], others: list[str]) -> None:
    topics = bound(pattern)
    for address in matching:
        assert topics.match(address) == [pattern], address
    for address in others:
        assert topics.match(address) == [], address


def test_several_patterns_match_at_once() -> None:
    topics = bound("news.#", "news.europe.#", "news.*", "*.europe", "news.asia")
    assert sorted(topics.match("news.europe")) == sorted(["news.#", "news.europe.#", "news.*", "*.europe"])


def test_values_are_bound_once_a_pattern_and_keep_their_order() -> None:
    topics: Topics[int] = Topics()
    for value in (3, 1, 2, 3):
        topics.add("a.*", value)
    assert topics.match("a.b") == [3, 1, 2]
    topics.add("#", 3)
    assert sorted(topics.match("a.b")) == [1, 2, 3, 3]
    topics.remove("a.*", 3)
    assert sorted(topics.match("a.b")) == [1, 2, 3]


@pytest.mark.parametrize("pattern", ["a.*", "a.#", "a.b", "c", "a.b.c"])
def test_removing_what_is_not_bound_is_an_error(pattern: str) -> None:
    topics = bound("a.*", "a.b.*")
    with pytest.raises(KeyError):
        topics.remove(pattern, "other")
    assert topics.match("a.x") == ["a.*"]


def test_removing_drops_all_that_nothing_needs() -> None:
    topics = bound("a.b.c.d", "a.b.*", "#.x", "a.*.#")
    for pattern in ("a.b.c.d", "#.x", "a.*.#", "a.b.*"):
        topics.remove(pattern, pattern)
    assert topics.empty


def test_the_words_of_a_pattern_are_limited() -> None:
    pattern = ".".join("*" * WORDS_MAX)
    topics = bound(pattern)
    assert topics.match(pattern) == [pattern]
    with pytest.raises(InvalidName, match="129 words: at most 128"):
        topics.add(pattern + ".a", "x")
    assert bound("#").match("a." * 100_000) == ["#"], "an address may have more"


def test_another_syntax() -> None:
    topics: Topics[str] = Topics(WildcardSyntax("/", ">", "+"))
    topics.add("a/+/>", "x")
    assert topics.match("a/b.c/d") == ["x"]
    assert topics.match("a") == []


def test_many_patterns_that_differ_in_literal_words() -> None:
    patterns = [f"region{i % 100}.{kind}.site{i // 100}" for i in range(5_000) for kind in ("*", "#")]
    topics = bound(*patterns, *[f"*.{pattern}" for pattern in patterns])
    assert sorted(topics.match("region7.x.site3")) == ["region7.#.site3", "region7.*.site3"]
    assert sorted(topics.match("x.region7.site3")) == ["*.region7.#.site3"]
    for pattern in patterns:
        topics.remove(f"*.{pattern}", f"*.{pattern}")
    assert topics.match("x.region7.site3") == []
    topics.add("*.region7.*", "again")
    assert topics.match("x.region7.site3") == ["again"]


def test_repeated_any_words_may_all_stand_for_none() -> None:
    topics = bound(".".join(["#"] * 50), ".".join(["#"] * 50 + ["a"]))
    assert len(topics.match(".".join("a" * 100))) == 2
    assert len(topics.match("b")) == 1


@pytest.mark.parametrize("hard", ["single", "any"])
def test_patterns_that_nearly_match_cost_little(hard: str) -> None:
    """One message to an address that a thousand patterns match up to their last word: clients choose both."""
    topics: Topics[int] = Topics()
    for n in range(1_000):
        kind = f"{n:010b}".replace("0", "*." if hard == "single" else "#.").replace("1", "a.")
        topics.add(kind + "a." * 117 + "z", n)
    address = ".".join("a" * 128)
    took = []
    for _ in range(3):
        before = time.thread_time_ns()
        assert topics.match(address) == []
        took.append(time.thread_time_ns() - before)
    assert min(took) < 20_000_000, "some milliseconds"


def naive(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return naive(pattern[1:], words) or (bool(words) and naive(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


NAMES = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=5).map(".".join)


@given(
    steps=st.lists(st.tuples(st.booleans(), PATTERNS, st.integers(0, 2)), max_size=20),
    addresses=st.lists(NAMES, min_size=1, max_size=5),
)
def test_topics_match_as_the_naive_matcher(steps: list[tuple[bool, str, int]], addresses: list[str]) -> None:
    topics: Topics[int] = Topics()
    bindings: set[tuple[str, int]] = set()
    for adding, pattern, value in steps:
        if adding:
            topics.add(pattern, value)
            bindings.add((pattern, value))
        elif (pattern, value) in bindings:
            topics.remove(pattern, value)
            bindings.remove((pattern, value))
    for address in addresses:
        expected = [value for pattern, value in bindings if naive(pattern.split("."), address.split("."))]
        assert Counter(topics.match(address)) == Counter(expected)
