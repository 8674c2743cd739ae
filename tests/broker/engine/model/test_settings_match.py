"""Which settings an address has: Artemis semantics 2.2-2.4 line by line, its test vectors, and an oracle."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.engine.model import settings_match
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.settings_match import InvalidMatch, SettingsTable
from tests.support.interpreted import interpreted

DEFAULTS = {"dla": None, "max": 10, "delay": 0, "expiry": None}


def table(*matches: str, literal_markers: str = "") -> SettingsTable:
    return SettingsTable([(match, {"dla": match}) for match in matches], DEFAULTS, literal_markers=literal_markers)


def order(settings_table: SettingsTable, name: str) -> list[str]:
    return [match for match, _ in settings_table.matching(name)]


@pytest.mark.parametrize(
    ("match", "fitting", "others"),
    [
        ("foo", ["foo"], ["foo.x", "Foo", "fo"]),
        ("foo.#", ["foo", "foo.x", "foo.x.y", "foo..x"], ["foox", "fo", "x.foo", "foo."]),
        ("foo#", ["foo", "foo.x", "foo.x.y"], ["foox", "foo."]),
        ("#", ["", "a", "a.b.c", "."], []),
        (".#", ["", ".a"], ["a", "."]),
        ("my*", ["myqueue", "my1"], ["my", "my.queue", "amy1"]),
        ("*my", ["amy"], ["my", "a.my"]),
        ("a*c*e", ["abcde", "axcxxe"], ["ace", "abce", "ab.cde"]),
        ("**", ["ab", "abc"], ["a", ""]),
        ("*", ["a", "ab"], ["", "a.b"]),
        ("a.*", ["a.b", "a.bcd"], ["a", "a.b.c", "a."]),
        ("a.*.c", ["a.b.c"], ["a..c", "a.c", "a.b.b.c"]),
        ("a.*.#", ["a.b", "a.b.c", "a.b.c.d"], ["a", "a."]),
        ("a.*#", ["a.b", "a.b.c"], ["a"]),
        ("$sys.#", ["$sys", "$sys.mqtt"], ["sys"]),
        ("a+b.*", ["a+b.c"], ["aab.c"]),
        ("a.\\*", ["a.\\*"], ["a.b", "a.\\b"]),
        ("x\\.y.*", ["x\\.y.z"], ["x.y.z"]),
        ("a\\**", ["a\\*b"], ["a\\*", "axb"]),
    ],
)
def test_fitting(match: str, fitting: list[str], others: list[str]) -> None:
    one = table(match)
    assert [name for name in fitting if order(one, name) != [match]] == []
    assert [name for name in others if order(one, name) != []] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # the table of 2.3
        ("a.b.c", ["a.b.c", "a.*.c", "a.#", "#"]),
        ("a.x.c", ["a.*.c", "a.#", "#"]),
        ("a", ["a.#", "#"]),
        ("b", ["#"]),
    ],
)
def test_the_reference_order(name: str, expected: list[str]) -> None:
    assert order(table("#", "a.#", "a.*.c", "a.b.c"), name) == expected
    assert order(table("a.b.c", "a.*.c", "a.#", "#"), name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b.c", ["*.*.*", "a.b.#"]),  # no # beats #
        ("a.b.c", ["*.*.*.#", "a.b.#"]),  # the longer text, however vague
        ("a.b.c", ["a.*.#", "*.b.#"]),  # equally long: word by word
        ("a.b.c", ["a.*.*", "*.b.*", "*.*.c"]),  # the first word that differs decides
        ("a.b.c", ["a.b.c", "*.b.c"]),  # exact beats *
        ("myqueue", ["my*", "*"]),  # * inside a word is not a word of *
        ("myqueue", ["m*", "my*"]),  # remaining ties: the shorter
        ("myqueue", ["*ueue", "my***"]),  # remaining ties of one length: the alphabet
        ("foo", ["foo.#", "foo#"]),
        ("foo.x", ["foo.x", "foo.*", "foo.#", "foo#", "#"]),
    ],
)
def test_the_order_of_two(name: str, expected: list[str]) -> None:
    assert order(table(*expected), name) == expected
    assert order(table(*reversed(expected)), name) == expected


def test_literal_matches_come_after_the_exact_and_before_the_patterns() -> None:
    marked = table("#", "(orders.#)", "orders.#", "(a)", "a", literal_markers="()")
    assert order(marked, "orders.#") == ["(orders.#)", "orders.#", "#"]
    assert order(marked, "orders.x") == ["orders.#", "#"]
    assert order(marked, "a") == ["a", "(a)", "#"]
    assert order(table("(a)"), "a") == [], "without markers a parenthesis is a character"
    assert order(table("(a)"), "(a)") == ["(a)"]


def test_a_queue_has_its_own_match_and_those_of_its_address() -> None:
    full = table("#", "a.*", "a.b", "a.b::q", "a.*::q")
    assert order(full, "a.b::q") == ["a.b::q", "a.b", "a.*", "#"]
    assert order(full, "a.b::other") == ["a.b", "a.*", "#"]
    assert order(full, "a.c::q") == ["a.*", "#"], "a full name has no wildcards"
    assert order(full, "a.*::q") == ["a.*::q", "a.*", "#"]
    assert order(full, "a.b") == ["a.b", "a.*", "#"]


MERGED = SettingsTable(
    [("#", {"dla": "D", "max": 5, "delay": None}), ("a.#", {"max": 3, "dla": None}), ("a.b", {"delay": 10})], DEFAULTS
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b", {"dla": "D", "max": 3, "delay": 10, "expiry": None}),
        ("a", {"dla": "D", "max": 3, "delay": 0, "expiry": None}),
        ("x", {"dla": "D", "max": 5, "delay": 0, "expiry": None}),
    ],
)
def test_the_reference_merge(name: str, expected: dict[str, object]) -> None:
    assert dict(MERGED.resolve(name)) == expected


def test_an_empty_text_is_a_value() -> None:
    merged = SettingsTable([("#", {"expiry": "E"}), ("a.#", {"expiry": ""})], DEFAULTS)
    assert merged.resolve("a.b")["expiry"] == ""
    assert merged.resolve("b")["expiry"] == "E"


def test_nothing_set_is_the_defaults() -> None:
    assert dict(SettingsTable([], DEFAULTS).resolve("a")) == DEFAULTS


def test_resolved_settings_cannot_be_changed_from_outside() -> None:
    fields: dict[str, object] = {"max": 1}
    defaults = dict(DEFAULTS)
    merged = SettingsTable([("a", fields)], defaults)
    fields["max"], defaults["delay"] = 2, 2
    assert merged.resolve("a") == {**DEFAULTS, "max": 1}
    with pytest.raises(TypeError):
        merged.resolve("a")["max"] = 3  # type: ignore[index]


def test_replacing_takes_effect_at_once_and_wholly() -> None:
    changing = table("a", "#")
    assert changing.resolve("a")["dla"] == "a"
    changing.replace([("#", {"max": 1})])
    assert changing.resolve("a") == {**DEFAULTS, "max": 1}
    with pytest.raises(InvalidMatch):
        changing.replace([("a", {"max": 2}), ("#.a", {"max": 3})])
    assert changing.resolve("a") == {**DEFAULTS, "max": 1}


def test_results_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_match, "CACHE_RESULTS_MAX", 2)
    small = SettingsTable([("#", {"max": 1}), ("b", {"max": 2}), ("c", {"max": 3})], DEFAULTS)
    first, second = small.resolve("a"), small.resolve("b")
    assert small.resolve("another") is first, "the same matches fit"
    assert small.resolve("b") is second
    small.resolve("c")
    assert small.resolve("b") is second
    assert small.resolve("a") is not first, "the oldest made room"


@interpreted
def test_an_address_is_compared_with_matches_of_its_first_word_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    fits_before = settings_match._WildcardMatch.fits

    def note(match: settings_match._WildcardMatch, words: list[str]) -> bool:
        tried.append(match.text)
        return fits_before(match, words)

    monkeypatch.setattr(settings_match._WildcardMatch, "fits", note)
    tenants = table("#", "*.a", *(f"tenant{number}.#" for number in range(1_000)))
    assert [match for match, _ in tenants.matching("tenant7.a")] == ["*.a", "tenant7.#", "#"]
    assert sorted(tried) == ["#", "*.a", "tenant7.#"]


@pytest.mark.parametrize("matches", [["#.a"], ["a.#.b"], ["a##"], ["#a"], ["a", "a"], ["a.*", "a.*"], ["(a)", "(a)"]])
def test_impossible_matches(matches: list[str]) -> None:
    with pytest.raises(InvalidMatch):
        table(*matches, literal_markers="()")


@pytest.mark.parametrize("markers", ["(", "(((", "( )"])
def test_impossible_markers(markers: str) -> None:
    with pytest.raises(InvalidMatch, match="two characters"):
        table(literal_markers=markers)


def test_another_syntax() -> None:
    other = SettingsTable([("a/+/>", {"max": 1}), ("a.*", {"max": 2})], DEFAULTS, syntax=WildcardSyntax("/", ">", "+"))
    assert [other.resolve(name)["max"] for name in ("a/b", "a/b.c/d", "a", "a.*", "a.b")] == [1, 1, 10, 2, 10]


# -- the oracle: matches as regular expressions of their text, and a comparison of two ---------------------------------


def fits(match: str, name: str) -> bool:
    if match == "#":
        return True
    text = match.replace(".#", "#").replace(".", r"\.").replace("*", "[^.]+").replace("#", r"(\..+)?")
    return re.fullmatch(text, name) is not None


def compare(left: str, right: str) -> int:
    """Negative if the left is more specific: the rules in the order in which the reference gives them."""
    for wildcards in ("*#", "#"):
        vague, other_vague = (any(character in match for character in wildcards) for match in (left, right))
        if vague != other_vague:
            return 1 if vague else -1
    if "#" in left and len(left) != len(right):
        return len(right) - len(left)
    for mine, theirs in zip(left.split("."), right.split("."), strict=False):
        if (mine == "*") != (theirs == "*"):
            return 1 if mine == "*" else -1
    return len(left) - len(right) or (1 if left > right else -1)


WORD = st.text("ab*", min_size=0, max_size=3)
MATCH = st.tuples(st.lists(WORD, min_size=1, max_size=3), st.sampled_from(["", "#", ".#"])).map(
    lambda parts: ".".join(parts[0]) + parts[1]
)
FIELDS = st.dictionaries(st.sampled_from("xyz"), st.one_of(st.none(), st.just(""), st.integers(0, 3)))


@settings(max_examples=300, deadline=None)
@given(
    matches=st.dictionaries(st.one_of(MATCH, st.just("#")), FIELDS, max_size=6),
    names=st.lists(st.lists(st.text("ab", max_size=3), min_size=1, max_size=4).map(".".join), min_size=1, max_size=3),
)
def test_the_merge_is_the_naive_one(matches: dict[str, dict[str, object]], names: list[str]) -> None:
    defaults: dict[str, object] = {"x": "d", "y": None, "z": 0}
    merged = SettingsTable(matches.items(), defaults)
    for name in names:
        fitting = sorted((match for match in matches if fits(match, name)), key=functools.cmp_to_key(compare))
        expected = {
            field: next((matches[m][field] for m in fitting if matches[m].get(field) is not None), defaults[field])
            for field in defaults
        }
        assert merged.resolve(name) == expected


@pytest.mark.parametrize(
    ("matches", "default", "emptied"),
    [
        ([("#", {"dla": "D"})], None, []),
        ([("#", {"dla": "D"}), ("a", {"dla": ""}), ("b.#", {"dla": None})], None, ["a"]),
        ([("#", {"dla": ""}), ("a", {"dla": "D"})], None, ["#"]),
        ([("a", {"dla": "D"})], None, ["#"]),
        ([("a", {"dla": ""})], "D", ["a"]),
        ([], None, ["#"]),
    ],
)
def test_the_matches_that_leave_a_text_empty(
    matches: list[tuple[str, dict[str, object]]], default: str | None, emptied: list[str]
) -> None:
    assert SettingsTable(matches, DEFAULTS | {"dla": default}).emptied("dla") == emptied
