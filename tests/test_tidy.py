"""The rules of the house that no linter can say.

Each rule is held twice: over the sources as they are, and over a small one that breaks it, so that a rule that no
longer sees anything is noticed.
"""

from __future__ import annotations

import pytest

from tests.support import tidy
from tests.support.tidy import ROOT, Source


@pytest.mark.parametrize("name", tidy.TOP_LEVEL)
def test_top_level_names(name: str) -> None:
    assert (ROOT / name).exists()


def test_tests_do_not_sleep() -> None:
    assert tidy.violations(tidy.sleeps, "tests") == []


def test_test_modules_import_nothing_from_each_other() -> None:
    assert tidy.violations(tidy.borrows, "tests", "bench", "demo") == []


@pytest.mark.parametrize(
    ("text", "seen"),
    [("from tests.a.test_b import c", 1), ("from tests.a.harness import test_b", 0), ("import pytest", 0)],
)
def test_a_borrowed_helper_is_seen(text: str, seen: int) -> None:
    assert len(tidy.borrows(Source("tests/test_x.py", text))) == seen


def test_functions_are_short() -> None:
    assert tidy.violations(tidy.too_long, *tidy.OURS) == []


def test_nothing_asks_the_terminal() -> None:
    assert tidy.violations(tidy.asks, *tidy.OURS) == []


def test_sessions_act_in_the_name_of_their_peers() -> None:
    assert len(tidy.paths("broker/sessions")) > 40, "they are found"
    assert tidy.violations(tidy.without_access, "broker/sessions") == []


def test_no_banned_words() -> None:
    assert [found for name, text in tidy.texts() for found in tidy.banned_words(name, text)] == []


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("await asyncio.sleep(0.1)", 1),
        ("await asyncio.sleep(period)", 1),
        ("await asyncio.sleep(0)", 0),
        ("asyncio.wait_for(x, 1)", 0),
    ],
)
def test_a_sleep_is_seen(text: str, seen: int) -> None:
    assert len(tidy.sleeps(Source("tests/test_x.py", text))) == seen


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("producers.destination(name, None)", 1),
        ("producers.destination(name, None, access=self.access)", 0),
        ("SubscribeRequest(name)", 1),
        ("Send(name, None, header)", 1),
    ],
)
def test_an_act_in_nobodys_name_is_seen(text: str, seen: int) -> None:
    assert len(tidy.without_access(Source("broker/sessions/x.py", text))) == seen


def test_a_question_is_seen() -> None:
    assert len(tidy.asks(Source("broker/x.py", "name = input('who? ')"))) == 1


@pytest.mark.parametrize(("lines", "seen"), [(tidy.FUNCTION_LINES_MAX, 0), (tidy.FUNCTION_LINES_MAX + 1, 1)])
@pytest.mark.parametrize("head", ["def f():", "async def f():"])
def test_a_long_function_is_seen(head: str, lines: int, seen: int) -> None:
    assert len(tidy.too_long(Source("broker/x.py", head + "\n    pass" * (lines - 1)))) == seen


@pytest.mark.parametrize("word", tidy.BANNED)
def test_a_banned_word_is_seen(word: str) -> None:
    [found] = tidy.banned_words("x.md", f"fine\n# {word}: later\n{word}S {word.lower()}\n")
    assert found == f"x.md:2: {word}: {tidy.BANNED[word]}"
