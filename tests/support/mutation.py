"""Whether the tests find a mutant: which of them execute the line, and what they say to the fault in it.

First all tests run once, each noted with its seconds and the lines that it executes.  Then for each mutant a process
is forked that has loaded the test tools and nothing of ours; it imports the module with the fault in it, and runs the
tests that execute the line, cheapest first, up to the first that fails.  The tree is not touched.

A line that runs while modules are imported, a constant perhaps, is executed by no test: then those are taken that
execute the lines that name it, or else the whole function, or all of the module's.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

from tests.support.mutants import Mutant
from tests.support.tidy import OURS

ROOT: Final = Path(__file__).parents[2]

#: Seconds of the processor that a mutant's tests may take beyond those that they take without it: loops without an end.
SECONDS_MORE: Final = 20

#: Bytes of memory that they may take: the same.
MEMORY_BYTES_MAX: Final = 4 << 30

#: So many files of tests are collected before any others: most mutants are found in the first.
FILES_FIRST: Final = 3

#: No option of the project is lost, but what a mutant leaves behind is nobody's business.
_OPTIONS: Final = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    ENDLESS = "endless"  # ended by one of the limits: found too
    UNSEEN = "unseen"  # no test executes the line


@dataclass(slots=True)
class Seen:
    """What the tests do without a fault: seconds of each, and per file and line which of them execute it, by place."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[int]]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Seen:
        """The inverse."""
        found = json.loads(path.read_text())
        lines = {name: {int(line): tests for line, tests in by.items()} for name, by in found["lines"].items()}
        return cls(found["seconds"], lines)


# -- without a fault ---------------------------------------------------------------------------------------------------


class _Watch:
    """A plugin: tells coverage which test runs, and takes the time."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterable[None]:
        """See pytest."""
        self._coverage.switch_context(item.nodeid)
        begun = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - begun


def watch(sources: Sequence[str], tests: Sequence[str], save: Path) -> int:
    """Run the tests once and note what they execute of the sources; returns pytest's exit status."""

    def run() -> int:
        coverage = Coverage(data_file=None, include=[str(ROOT / source) for source in sources], config_file=False)
        coverage.start()
        plugin = _Watch(coverage)
        status = int(pytest.main([*_OPTIONS, *tests], plugins=[plugin]))
        coverage.stop()
        seen = Seen(plugin.seconds)
        data = coverage.get_data()
        places = {test: place for place, test in enumerate(plugin.seconds)}
        for source in sources:
            by_line = data.contexts_by_lineno(str(ROOT / source))
            seen.lines[source] = {line: [places[test] for test in tests if test] for line, tests in by_line.items()}
        seen.save(save)
        return status

    return os.waitstatus_to_exitcode(os.waitpid(_fork(run), 0)[1])


# -- which tests -------------------------------------------------------------------------------------------------------


def which_tests(seen: Seen, source: str, text: str, line: int, seconds_max: float) -> list[str]:
    """The tests that may find a fault in this line, cheapest first, as far as they take so many seconds together."""
    by_line = seen.lines[source]
    names = list(seen.seconds)
    found: set[str] = set()
    for lines in _lines_for(ast.parse(text), line):
        found = {names[place] for each in lines for place in by_line.get(each, ())}
        if found:
            break
    own = f"test_{Path(source).name}"
    chosen, left = [], seconds_max
    for test in sorted(found, key=lambda test: (own not in test, seen.seconds[test])):
        if seen.seconds[test] <= left:
            chosen.append(test)
            left -= seen.seconds[test]
    return chosen


def _lines_for(tree: ast.Module, line: int) -> Iterable[Iterable[int]]:
    yield (line,)
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.end_lineno is not None and node.lineno <= line <= node.end_lineno
    ]
    names = {
        target.id
        for node in inside
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    yield [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names]
    for node in sorted(inside, key=lambda node: -node.lineno):
        if isinstance(node, ast.FunctionDef):
            yield range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    yield range(1, 1 + max((node.end_lineno or 0 for node in tree.body), default=0))


# -- with one ----------------------------------------------------------------------------------------------------------


def load_tools(tests: Sequence[str]) -> None:
    """Import what these tests import, but nothing of ours: the processes of mutants need not do it then."""
    receiver, sender = os.pipe()

    def run() -> int:
        status = int(pytest.main([*_OPTIONS, "--collect-only", *tests]))
        names = [name for name in sys.modules if name.partition(".")[0] not in OURS]
        with os.fdopen(sender, "w") as pipe:
            pipe.write("\n".join(names))
        return status

    child = _fork(run)
    os.close(sender)
    with os.fdopen(receiver) as pipe:
        names = pipe.read().split()
    os.waitpid(child, 0)
    for name in names:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.freeze()


class _Loader(SourceFileLoader):
    """Loads a module from other bytes than are in its file."""

    def __init__(self, source: str, text: bytes) -> None:
        super().__init__(source.removesuffix(".py").replace("/", "."), str(ROOT / source))
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        """See importlib."""
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Faulty(MetaPathFinder):
    """Finds this one module."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib."""
        loader = self._loader
        return spec_from_file_location(fullname, loader.path, loader=loader) if fullname == loader.name else None


class _Chosen:
    """A plugin: only these tests, in the order of their files; the first example that fails will do."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._places = {test: place for place, test in enumerate(tests)}

    def pytest_configure(self) -> None:
        """See pytest."""
        settings.register_profile(
            "mutants", settings.get_profile("bartleby"), phases=[Phase.explicit, Phase.generate], print_blob=False
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """See pytest."""
        items[:] = [item for item in items if item.nodeid in self._places]
        first: dict[Path, int] = {}
        for item in items:
            first[item.path] = min(first.get(item.path, len(self._places)), self._places[item.nodeid])
        items.sort(key=lambda item: (first[item.path], self._places[item.nodeid]))


def begin(source: str, mutant: Mutant, tests: Sequence[str], seconds: float) -> int:
    """Fork a process that runs the tests on the mutant, and take its id; `ended` says what its exit status means."""
    faulty = _Faulty(_Loader(source, mutant.apply((ROOT / source).read_bytes())))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))

    def run() -> int:
        limit = int(seconds) + SECONDS_MORE
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.meta_path.insert(0, faulty)
        status = 0
        for some in (files[:FILES_FIRST], files[FILES_FIRST:]):
            if some and not status:
                status = int(pytest.main([*_OPTIONS, "-x", "--tb=no", *some], plugins=[_Chosen(tests)]))
        return status

    return _fork(run)


def ended(status: int) -> Outcome:
    """What a wait status means."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return Outcome.ENDLESS
    return Outcome.SURVIVED if code == 0 else Outcome.KILLED


def _fork(run: Callable[[], int]) -> int:
    """A child that runs this, in the project's directory, silent, and ends with what it returns."""
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        os.chdir(ROOT)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nowhere, each)
        status = run()
    finally:
        os._exit(status)
