"""That the tool which puts faults into sources does so, and tells which of them no test finds."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mutants import Mutant, mutants
from tests.support.mutation import ROOT, Outcome, Seen, which_tests


def texts(source: str) -> list[str]:
    """The lines that the mutants of a source of one line have."""
    data = source.encode()
    return [mutant.lines(data)[1] for mutant in mutants(data)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = (a <= b)"]),
        ("x = a is not b", ["x = (a is b)"]),
        ("x = a in b", ["x = (a not in b)"]),
        ("x = a and b", ["x = (a or b)"]),
        ("x = not a", ["x = (a)"]),
        ("x = a << b", ["x = (a >> b)"]),
        ("x = 7", ["x = 8"]),
        ("x = True", ["x = False"]),
        ("x: int | None = 1", ["x: int | None = 2"]),
        ("x = b if a else c", ["x = b if (not a) else c"]),
        ("x = [b for b in c if b]", ["x = [b for b in c if (not b)]"]),
        ("f(x)", ["pass"]),
        ("del x", ["pass"]),
        ("x.y = z", ["pass"]),
        ("x[0] = z", ["pass", "x[1] = z"]),
        ("x -= y", ["pass", "x += y"]),
        ("raise ValueError(x)", ["pass"]),
        ("while f(x): break", ["while (not f(x)): break", "while f(x): pass"]),
        ("def f(a=1): return a", ["def f(a=2): return a", "def f(a=1): return None"]),
    ],
)
def test_what_is_changed(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is for: 7."""',
        "assert x == 1",
        "raise AssertionError(7)",
        '__slots__ = ("a", 1)',
        "@wraps(1)\ndef f(x: Literal[1]) -> Literal[1]: ...",
        "if TYPE_CHECKING: import x",
        'x = f"{1 + 2}"',
        "x = isinstance(y, Message | Copied)",
        "def f(): return None",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert [text for text in texts(source) if "isinstance" not in text and text != "pass"] == []


def test_every_mutant_of_a_source_of_ours_is_another_program() -> None:
    source = (ROOT / "store" / "segment.py").read_bytes()
    original = ast.dump(ast.parse(source))
    found = mutants(source)
    assert len(found) > 100
    assert all(ast.dump(ast.parse(mutant.apply(source))) != original for mutant in found)


SOURCE = """LIMIT = 3

def f(x):
    a = x
    return a < LIMIT

def g(x, y=1):
    return x
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (4, ["tests/test_f.py::first", "tests/test_other.py::slow"]),
        (1, ["tests/test_f.py::first"]),
        (7, ["tests/test_other.py::other"]),
        (2, ["tests/test_f.py::first", "tests/test_other.py::other", "tests/test_other.py::slow"]),
    ],
)
def test_which_tests_are_asked(line: int, expected: list[str]) -> None:
    """Those of the line; for what runs at the import, of the lines that name it, of the function, or of all."""
    seen = Seen(
        {"tests/test_other.py::slow": 0.5, "tests/test_f.py::first": 2.0, "tests/test_other.py::other": 0.25},
        {"f.py": {1: [], 4: [0, 1], 5: [1], 8: [2]}},
    )
    assert which_tests(seen, "f.py", SOURCE, line, 10.0) == expected
    assert which_tests(seen, "f.py", SOURCE, 4, 1.0) == ["tests/test_other.py::slow"], "as far as the time goes"


ASK = """
import os
from pathlib import Path
from tests.support.mutants import Mutant, mutants
from tests.support.mutation import ROOT, SECONDS_MORE, Seen, begin, ended, watch, which_tests

source, saved = "store/space.py", Path({saved!r})
tests = ["tests/store/test_space.py::test_a_pinned_segment_stays_until_all_of_it_is_unpinned"]
assert watch([source], tests, saved) == 0
seen = Seen.load(saved)
text = (ROOT / source).read_bytes()
for mutant, seconds in (
    (Mutant(1, 0, 0, ""), 60),
    (next(each for each in mutants(text) if "get(segment, 0) - nbytes" in each.lines(text)[1]), 60),
    (Mutant(1, len(text), len(text), "while True: pass"), 2 - SECONDS_MORE),
):
    tests = which_tests(seen, source, text.decode(), mutant.line, 10)
    print(ended(os.waitpid(begin(source, mutant, tests, seconds), 0)[1]))
"""


@pytest.mark.timeout(600)
def test_a_fault_is_found_and_none_is_not(tmp_path: Path) -> None:
    """In a process of its own, since it forks."""
    code = ASK.format(saved=str(tmp_path / "seen.json"))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [Outcome.SURVIVED, Outcome.KILLED, Outcome.ENDLESS]


def test_the_lines_of_a_fault_in_the_middle() -> None:
    source = b"if a:\n    x = (1,\n        2)\ny = 3\n"
    assert Mutant(2, 15, 16, "9").lines(source) == ("x = (1,", "x = (9,")
