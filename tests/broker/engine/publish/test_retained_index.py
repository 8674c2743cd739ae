"""The index of retained messages: what a search finds, in which order, whatever happens in its middle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.message import Message
from broker.engine.model.names import DEFAULT_SYNTAX
from broker.engine.model.topics import Topics
from broker.engine.publish import retained_index
from broker.engine.publish.retained_index import LOOKED_AT_MAX, WALKED_MAX, RetainedIndex
from tests.broker.engine.queues.parts import message


class Index:
    """An index, and what is in it by name."""

    def __init__(self) -> None:
        self.index = RetainedIndex(DEFAULT_SYNTAX)
        self.there: dict[str, Message] = {}
        self.id = 0

    def put(self, name: str) -> None:
        self.id += 1
        put = message(self.id, address=name)
        assert self.index.put(put) is self.there.pop(name, None)
        self.there[name] = put

    def remove(self, name: str) -> None:
        self.index.remove(self.there.pop(name))

    def search(self, pattern: str) -> Iterator[Message | None]:
        return self.index.search(pattern, self.id + 1)

    def found(self, pattern: str) -> list[str]:
        return [each.header.address for each in self.search(pattern) if each is not None]


def matching(names: list[str], pattern: str) -> list[str]:
    topics: Topics[None] = Topics()
    topics.add(pattern, None)
    return [name for name in names if topics.match(name)]


WORD = st.sampled_from(["a", "b", "$a", ""])
NAME = st.lists(WORD, min_size=1, max_size=3).map(".".join).filter(bool)
PATTERN = st.lists(WORD | st.sampled_from(["*", "#"]), min_size=1, max_size=4).map(".".join).filter(bool)
CHANGES = st.lists(st.tuples(st.integers(0, 12), st.booleans(), NAME), max_size=12)


@pytest.mark.parametrize("walked_max", [WALKED_MAX, 3, 0])
@given(st.lists(NAME, max_size=12), PATTERN, CHANGES)
def test_a_search_finds_what_was_there_and_still_is_in_order(
    walked_max: int, names: list[str], pattern: str, changes: list[tuple[int, bool, str]]
) -> None:
    index = Index()
    for name in names:
        index.put(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retained_index, "WALKED_MAX", walked_max)
        patch.setattr(retained_index, "LOOKED_AT_MAX", 1)
        expected = matching(list(index.there), pattern)
        assert index.found(pattern) == expected
        before = dict(index.there)
        search, found = index.search(pattern), list[str]()
        for steps, put, name in changes:
            for each in islice(search, steps):
                if each is not None:
                    assert index.there[each.header.address] is each
                    found.append(each.header.address)
            if put:
                index.put(name)
            elif name in index.there:
                index.remove(name)
        found += [each.header.address for each in search if each is not None]
    left = [name for name in expected if index.there.get(name) is before[name]]
    assert [name for name in found if name in left] == left
    assert found == [name for name in expected if name in found]
    assert not index.index._searches


def test_a_pattern_of_few_messages_looks_at_few() -> None:
    """By the words that it names; the others are not looked at."""
    index = Index()
    for n in range(2_000):
        index.put(f"a.{n % 50}.{n}")
    assert index.found("a.7.7") == ["a.7.7"]
    assert index.found("*.7.*") == [f"a.7.{n}" for n in range(7, 2_000, 50)]
    assert list(index.search("a.7.none.*")) == []
    assert None not in list(index.search("a.7.#"))


def test_a_search_in_vain_is_interrupted_now_and_then() -> None:
    index = Index()
    for n in range(10 * LOOKED_AT_MAX // 2):
        index.put(f"a.{n}")  # two words each
    assert list(index.search("#.x")) == [None] * 10
    assert not index.index._searches


def test_a_pattern_of_many_words_does_not_walk_all_of_them() -> None:
    """200 messages of 127 words each, and 500 such patterns, took a tick of more than 25 seconds."""
    index = Index()
    for n in range(200):
        index.put(f"r{n}" + ".x" * 100)
    assert index.index._reached("*" + ".*" * 100) is None
    assert list(index.search("*" + ".*" * 99 + ".none")) == [None] * (200 // (LOOKED_AT_MAX // 101 + 1))
    assert index.found("*" + ".*" * 100) == list(index.there)
    assert index.index._reached("r7.*.*.x.none") is not None


def test_searches_that_stand_where_a_message_goes_stand_behind_it() -> None:
    index = Index()
    for n in range(WALKED_MAX + 10):
        index.put(f"{n}")
    searches = [index.search("#") for _ in range(3)]
    for search in searches:
        assert next(search) is index.there["0"]
    index.remove("1")
    index.put("2")  # now the newest
    for search in searches[:2]:
        assert next(search) is index.there["3"]
    del searches, search  # one is given up
    assert not index.index._searches


def test_a_search_that_is_given_up_leaves_nothing_behind() -> None:
    index, random = Index(), Random(7)
    for n in range(WALKED_MAX + 10):
        index.put(f"{n}")
    for _ in range(50):
        search = index.search("#")
        for _ in range(random.randrange(20)):
            next(search)
        del search
    assert not index.index._searches
    for name in list(index.there):
        index.remove(name)
    assert not index.index._root.words
