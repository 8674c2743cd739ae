"""The names of addresses and queues (Artemis semantics 1.3), rule by rule."""

from __future__ import annotations

import pytest

from broker.engine.model import names
from broker.engine.model.errors import InvalidName
from broker.engine.model.names import NAME_BYTES_MAX, WildcardSyntax


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", ("orders", None)),
        ("orders::eu", ("orders", "eu")),
        ("a.b::c.d", ("a.b", "c.d")),
        ("Orders::EU", ("Orders", "EU")),
        ("a:b", ("a:b", None)),
        ("a:b::c:d", ("a:b", "c:d")),
        ("news.#::sport", ("news.#", "sport")),
        ("", ("", None)),
    ],
)
def test_full_names_are_split(name: str, expected: tuple[str, str | None]) -> None:
    assert names.split_fqqn(name) == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [("::q", "no address"), ("a::", "no queue name"), ("::", "no address"), ("a::b::c", "more than one")],
)
def test_broken_full_names_are_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        names.split_fqqn(name)


@pytest.mark.parametrize(
    "name",
    ["a", "a.b", ".", "a..b", "with space", "a&b", "a,b", "a?b", "a>b", "größe", "/queue/a", "a.*", "#", "$sys.x"],
)
def test_names_accepted(name: str) -> None:
    names.check_name(name)
    names.check_queue_name(name)


@pytest.mark.parametrize(
    ("name", "reason"), [("", "is empty"), ("a::b", "contains ::"), ("a\ud800", "not valid Unicode")]
)
def test_names_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        names.check_name(name)
    with pytest.raises(InvalidName, match=reason):
        names.check_queue_name(name)


@pytest.mark.parametrize("character", ["a", "ä"])
def test_the_length_of_a_name_is_limited_in_bytes(character: str) -> None:
    name = character * (NAME_BYTES_MAX // len(character.encode()))
    names.check_name(name)
    with pytest.raises(InvalidName, match="longer than 1024 bytes") as caught:
        names.check_name(name + character)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("address", ["a.*", "*", "#", "a.#", "a.#.b", "foo*", "a\\\\*"])
def test_nothing_is_sent_to_a_wildcard(address: str) -> None:
    with pytest.raises(InvalidName, match="has a wildcard"):
        names.check_sendable(address)


@pytest.mark.parametrize("address", ["a", "a.b", "a.\\*", "\\#", "a\\.b", "a\\\\\\*"])
def test_an_escaped_wildcard_is_part_of_a_name(address: str) -> None:
    names.check_sendable(address)
    assert not names.DEFAULT_SYNTAX.is_wildcard(address)


@pytest.mark.parametrize(
    ("name", "temporary"),
    [
        ("temporary-0f8fad5b-d9cb-469f-a165-70867728950e", True),
        ("temporary-0f8fad5b-d9cb-469f-a165-70867728950e.x", False),
        ("temporary-orders", False),
        ("0f8fad5b-d9cb-469f-a165-70867728950e", False),
    ],
)
def test_names_of_temporary_destinations(name: str, temporary: bool) -> None:
    assert names.is_temporary(name) is temporary


def test_nothing_is_sent_to_no_address() -> None:
    with pytest.raises(InvalidName, match="is empty"):
        names.check_sendable("")


def test_another_syntax() -> None:
    syntax = WildcardSyntax(delimiter="/", any_words=">", single_word="+")
    assert syntax.words("a/b.c") == ["a", "b.c"]
    assert syntax.is_wildcard("a/+")
    assert not syntax.is_wildcard("a/*")
    with pytest.raises(InvalidName, match="has a wildcard"):
        names.check_sendable("a/>", syntax)
    names.check_sendable("a.#", syntax)


@pytest.mark.parametrize(
    ("delimiter", "any_words", "single_word"),
    [("", "#", "*"), ("..", "#", "*"), (".", "#", "#"), (".", ".", "*"), ("\\", "#", "*")],
)
def test_impossible_syntaxes(delimiter: str, any_words: str, single_word: str) -> None:
    with pytest.raises(ValueError, match="single-word"):
        WildcardSyntax(delimiter, any_words, single_word)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", [""]),
        ("a.b", ["a", "b"]),
        (".a.", ["", "a", ""]),
        ("x\\.y.z", ["x\\.y", "z"]),
        ("x\\\\.y", ["x\\\\", "y"]),
        ("a.\\", ["a", "\\"]),
    ],
)
def test_words(name: str, words: list[str]) -> None:
    assert WildcardSyntax().words(name) == words
