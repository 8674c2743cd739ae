"""Rules about the sources that no linter has, each a function from a source to its violations.

import-linter (pyproject.toml) checks imports and access to the outside world; ruff checks complexity, prints, and
banned calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final, cast

ROOT: Final = Path(__file__).parents[2]

#: Names that the project's users rely on.
TOP_LEVEL: Final = (
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "broker",
    "docker-compose.yml",
    "etc/bartleby.service",
    "etc/broker.toml",
    "protocols",
    "pyproject.toml",
    "spark_jobs",
    "store",
    "tests",
)

OURS: Final = ("bench", "broker", "demo", "protocols", "spark_jobs", "store", "tests")

#: Words that no text file may contain, with what to do instead.  In two parts, so that this file has none either.
BANNED: Final = {
    "TO" + "DO": "do it, or file it",
    "FIX" + "ME": "mend it, or file it",
    "XX" + "X": "say what is meant",
}
_BANNED: Final = re.compile(rf"\b({'|'.join(BANNED)})\b")
_TEXT: Final = frozenset({".cfg", ".js", ".json", ".md", ".py", ".service", ".toml", ".yml"})
_TEXT_NAMES: Final = frozenset({"Dockerfile", "Makefile", "run"})


_ASKED: Final = (ast.Call, ast.FunctionDef, ast.AsyncFunctionDef, ast.ImportFrom)


@dataclass(frozen=True)
class Source:
    """A Python file: its path, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> Mapping[type[ast.AST], list[ast.AST]]:
        """Those of its syntax tree that rules ask for, by type: walking the tree takes longer than all rules."""
        found: dict[type[ast.AST], list[ast.AST]] = {kind: [] for kind in _ASKED}
        for node in ast.walk(self.tree):
            if type(node) in found:
                found[type(node)].append(node)
        return found

    @property
    def calls(self) -> list[ast.Call]:
        """Its calls."""
        return cast("list[ast.Call]", self.nodes[ast.Call])

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Its functions, and those within them and within classes."""
        both = self.nodes[ast.FunctionDef] + self.nodes[ast.AsyncFunctionDef]
        return cast("list[ast.FunctionDef | ast.AsyncFunctionDef]", both)

    @property
    def froms(self) -> list[ast.ImportFrom]:
        """Its `from ... import`."""
        return cast("list[ast.ImportFrom]", self.nodes[ast.ImportFrom])


Rule = Callable[[Source], list[str]]


def paths(*rooms: str) -> list[Path]:
    """Return the paths of the Python files below these folders."""
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


def source(path: Path) -> Source:
    """Read a file."""
    return Source(str(path.relative_to(ROOT)), path.read_text())


def violations(rule: Rule, *rooms: str) -> list[str]:
    """Return what breaks a rule below these folders."""
    return [found for path in paths(*rooms) for found in _violations(path)[rule]]


@cache
def _violations(path: Path) -> Mapping[Rule, list[str]]:
    """What breaks each rule in a file.

    All rules look at it at once, and its tree goes again: kept trees would slow all later garbage collections.
    """
    looked_at = source(path)
    return {rule: rule(looked_at) for rule in RULES}


def texts() -> Iterator[tuple[str, str]]:
    """Yield name and content of the text files of the project."""
    folders = (*OURS, "docs", "etc", ".ci", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in sorted([*ROOT.iterdir(), *paths]):
        named = path.suffix in _TEXT or path.name in _TEXT_NAMES
        if named and path.is_file() and "node_modules" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text()


def sleeps(source: Source) -> list[str]:
    """Return a test's sleeps on the event loop, except `asyncio.sleep(0)`, which only lets other tasks run."""
    return [
        f"{source.path}:{node.lineno}: a test waits for what happens, it does not sleep"
        for node in source.calls
        if isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and ast.unparse(node.func) in ("asyncio.sleep", "anyio.sleep")
        and ast.unparse(node) != "asyncio.sleep(0)"
    ]


def borrows(source: Source) -> list[str]:
    """Return imports from test modules: shared code belongs in a module of its own, or a fixture."""
    return [
        f"{source.path}:{node.lineno}: {node.module}: what tests share is in no test module"
        for node in source.froms
        if (node.module or "").rpartition(".")[2].startswith("test_")
    ]


#: The most lines of a function, with its docstring.
FUNCTION_LINES_MAX: Final = 70


def too_long(source: Source) -> list[str]:
    """Return the functions of more than `FUNCTION_LINES_MAX` lines."""
    return [
        f"{source.path}:{node.lineno}: {node.name} has {lines} lines, {FUNCTION_LINES_MAX} are the most"
        for node in source.functions
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def asks(source: Source) -> list[str]:
    """Return calls of `input()`, which ruff cannot ban: a broker never prompts, and commands prompt with click."""
    return [
        f"{source.path}:{node.lineno}: input(): ask with click, in broker/cli"
        for node in source.calls
        if isinstance(node.func, ast.Name) and node.func.id == "input"
    ]


#: Calls of the engine on behalf of a peer: each needs the peer's access.
_FOR_A_PEER: Final = frozenset({"Send", "SubscribeRequest", "browse", "delete_subscription", "destination"})


def without_access(source: Source) -> list[str]:
    """Return a session's calls without its peer's access; the engine would act as the broker itself."""
    return [
        f"{source.path}:{node.lineno}: {name} without access: say as whom"
        for node in source.calls
        if (name := getattr(node.func, "attr", None) or getattr(node.func, "id", "")) in _FOR_A_PEER
        and all(keyword.arg != "access" for keyword in node.keywords)
    ]


#: All rules about Python's syntax.
RULES: Final = (sleeps, borrows, too_long, asks, without_access)


def banned_words(name: str, text: str) -> list[str]:
    """Return the lines of a text with a banned word."""
    return [
        f"{name}:{number}: {match[1]}: {BANNED[match[1]]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in _BANNED.finditer(line)
    ]
