"""What keeps the rooms apart and small: rules over the sources, each a function from a source to its violations.

The rules themselves are tables: who may import whom, where the outside world may be touched, how long things may be,
which words must not stand anywhere and what to do instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
PRODUCT: Final = ("broker", "protocols", "spark_jobs", "store")

FUNCTION_LINES_MAX: Final = 70

#: What starts Spark, and what it reads the journal with: two rooms of several modules.
SPARK_SESSION: Final = ("spark_jobs.java", "spark_jobs.jvm", "spark_jobs.priority", "spark_jobs.progress")
SPARK_SOURCE: Final = (
    "spark_jobs.journal",
    "spark_jobs.moment",
    "spark_jobs.partition",
    "spark_jobs.pyfiles",
    "spark_jobs.reading",
    "spark_jobs.results",
    "spark_jobs.source",
    "spark_jobs.source_options",
    "spark_jobs.stream",
    "store.record",
)

#: Which of our modules each room may import, a prefix meaning all below it; the most specific room counts.  A module of
#: the product that is in no room has to be entered here.
MAY_IMPORT: Final[dict[str, tuple[str, ...]]] = {
    "protocols.amqp": ("protocols.amqp",),
    "protocols.mqtt": ("protocols.mqtt",),
    "protocols.stomp": ("protocols.stomp",),
    "protocols": (),
    "store": ("store",),
    # the engine knows the store's interface: not its files, its thread, nor its segments
    "broker.engine": (
        "broker.engine",
        "store.bodies",
        "store.body",
        "store.decode",
        "store.errors",
        "store.journal",
        "store.pages",
        "store.record",
        "store.space",
    ),
    "broker.sessions": ("broker.sessions", "broker.engine", "protocols"),
    "broker.net": ("broker.net", "broker.security", "broker.sessions", "broker.engine", "broker.log"),
    "broker.management": (
        "broker.management",
        "broker.sessions",
        "broker.engine",
        "broker.log",
        "broker.clock",
        "broker.__version__",
        "broker.build",
        "broker.net.handshake",
        "broker.net.tasks",
        "broker.net.tls",
        "broker.offline.lines",
        "broker.security.certificates",
        "broker.security.throttle",
        "store.log",
    ),
    "broker.config": ("broker.config", "broker.engine", "broker.security.certificates"),
    "broker.importing": ("broker.importing", "broker.config", "broker.engine"),
    "broker.offline": (
        "broker.offline",
        "broker.clock",
        "broker.config",
        "broker.engine",
        "broker.daemon.machine",
        "broker.daemon.wiring",
        "broker.__version__",
        "store",
    ),
    "broker.security.checks": (
        "broker.config",
        "broker.security.reload",
        "broker.security.policy",
        "broker.net.fetch",
        "broker.security",
    ),
    "broker.cli": (
        "broker.build",
        "broker.security.checks",
        "broker.cli",
        "broker.clock",
        "broker.config",
        "broker.daemon",
        "broker.importing",
        "broker.security.policy",
        "broker.log",
        "broker.management.runtime",
        "broker.offline",
        "broker.security",
        "broker.sessions.sasl",
        "broker.__version__",
        "spark_jobs.command",
        "spark_jobs.priority",
        "store",
    ),
    "broker.build": ("broker.__version__",),
    "broker.clock": (),
    "broker.daemon": (),
    "broker.daemon.memory": (),
    "broker.daemon.machine": ("broker.clock", "broker.engine.model.report", "broker.daemon.wiring", "store.files"),
    "broker.security.audit_log": (),
    "broker.log": ("broker.security.audit_log", "broker.clock"),
    "broker.daemon.start_errors": ("store.errors",),
    "broker.daemon.systemd": ("broker.clock", "broker.log"),
    "broker.security": ("broker.security", "broker.sessions.login", "broker.sessions.sasl", "broker.engine"),
    "broker.security.policy": ("broker.config", "broker.engine", "broker.security"),
    "broker.security.reload": (
        "broker.config",
        "broker.engine",
        "broker.security.policy",
        "broker.net",
        "broker.security",
        "broker.sessions",
    ),
    "broker.daemon.accepting": (
        "broker.config",
        "broker.engine",
        "broker.net",
        "broker.sessions",
        "broker.__version__",
        "protocols",
    ),
    "broker.daemon.wiring": (
        "broker.config",
        "broker.engine",
        "broker.security.policy",
        "broker.sessions",
        "broker.__version__",
        "protocols",
        "store",
    ),
    "broker.daemon.run": ("broker", "store"),
    "broker.__main__": ("broker.cli",),
    "broker": (),
    # the decoder of segments knows no Spark; what audits find is apart from how it is shown
    "spark_jobs.journal": ("spark_jobs.journal", "spark_jobs.priority", "spark_jobs.results", "store"),
    "spark_jobs.moment": (),
    "spark_jobs.priority": (),
    "spark_jobs.results": (),
    "spark_jobs.report": ("spark_jobs.report", "spark_jobs.results"),
    **dict.fromkeys(("spark_jobs.session", "spark_jobs.jvm", "spark_jobs.java", "spark_jobs.progress"), SPARK_SESSION),
    **dict.fromkeys(
        ("spark_jobs.source", "spark_jobs.source_options", "spark_jobs.stream", "spark_jobs.reading"), SPARK_SOURCE
    ),
    "spark_jobs.partition": SPARK_SOURCE,
    "spark_jobs.pyfiles": (),
    "spark_jobs.audits": ("spark_jobs.audits", *SPARK_SOURCE),
    "spark_jobs.command": ("spark_jobs",),
    "spark_jobs.job": ("spark_jobs.command", "spark_jobs.session"),
    "spark_jobs": (),
}

#: Rooms of the audits that touch the operating system: for Java, starting Spark, journals and reports.
SPARK_OUTSIDE: Final = (
    "spark_jobs.java",
    "spark_jobs.journal.files",
    "spark_jobs.journal.page_cache",
    "spark_jobs.jvm",
    "spark_jobs.priority",
    "spark_jobs.pyfiles",
    "spark_jobs.report.output",
    "spark_jobs.session",
)

#: The outside world, and the rooms that may touch it.
OUTSIDE: Final[dict[str, tuple[str, ...]]] = {
    "asyncio": ("broker.net", "broker.daemon.run", "broker.management"),
    "multiprocessing": (),
    "os": (
        "store.files",
        "broker.security.checks",
        "broker.config",
        "broker.daemon",
        "broker.cli",
        "broker.daemon.machine",
        "broker.offline",
        "broker.security",
        "broker.daemon.start_errors",
        *SPARK_OUTSIDE,
    ),
    "random": ("broker.clock",),
    "secrets": ("broker.management", "broker.security.reload", "broker.cli.user"),
    "select": (),
    "selectors": (),
    "shutil": ("broker.management", "spark_jobs.java"),
    "signal": ("broker.__main__", "broker.daemon.run", "spark_jobs.jvm"),
    "socket": ("broker.net", "broker.management", "broker.daemon.start_errors", "broker.daemon.systemd"),
    "subprocess": ("spark_jobs.java",),
    "tempfile": ("spark_jobs.pyfiles", "spark_jobs.session"),
    "threading": ("store.writer", "broker.log", "spark_jobs.jvm"),
    "time": ("broker.clock",),
    "uvloop": ("broker.daemon.run",),
}
#: Types, which do nothing by themselves: what is handed in has to be named.
TYPES_OF_THE_OUTSIDE: Final = frozenset({("random", "Random")})

#: Calls of the outside world that need no import to be recognised.
CALLS: Final[dict[str, tuple[str, ...]]] = {
    "open": ("store.files", "broker.config", "spark_jobs.journal.files"),
    "print": ("broker.cli",),
    "input": (),
    "datetime.now": ("broker.clock",),
    "datetime.today": ("broker.clock",),
    "datetime.utcnow": ("broker.clock",),
    "date.today": ("broker.clock",),
    "uuid.uuid1": (),
    "uuid.uuid4": (),
    "uuid1": (),
    "uuid4": (),
}

#: Words that must stand in no text file, with what to do instead.  In two parts, so that this file has none either.
BANNED: Final = {
    "TO" + "DO": "do it, or file it",
    "FIX" + "ME": "mend it, or file it",
    "XX" + "X": "say what is meant",
}
_BANNED: Final = re.compile(rf"\b({'|'.join(BANNED)})\b")
_TEXT: Final = frozenset({".cfg", ".js", ".json", ".md", ".py", ".service", ".toml", ".yml"})
_TEXT_NAMES: Final = frozenset({"Dockerfile", "Makefile", "run"})


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: where it is, its dotted name, its text."""

    path: str
    text: str

    @property
    def module(self) -> str:
        """The dotted name."""
        return self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def tree(self) -> ast.Module:
        """What it says."""
        return ast.parse(self.text, self.path)


def sources(*rooms: str) -> list[Source]:
    """The Python files below these folders."""
    paths = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    return [Source(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of the text files of the project."""
    folders = (*OURS, "docs", "etc", ".ci", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in sorted([*ROOT.iterdir(), *paths]):
        named = path.suffix in _TEXT or path.name in _TEXT_NAMES
        if named and path.is_file() and "node_modules" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text()


# -- the rules ---------------------------------------------------------------------------------------------------------


def _within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported: `from store import record` is store.record."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def forbidden_imports(source: Source) -> list[str]:
    """Imports of ours that the source's room may not make."""
    rooms = [room for room in MAY_IMPORT if _within(source.module, room)]
    if not rooms or (max(rooms, key=len) == "broker" and source.module != "broker"):
        return [f"{source.path}: in no room: enter it in MAY_IMPORT"]
    allowed = MAY_IMPORT[max(rooms, key=len)]
    return [
        f"{source.path}:{line}: {source.module} must not import {name}"
        for line, name in imports(source)
        if name.startswith(".") or (name.split(".")[0] in OURS and not any(_within(name, room) for room in allowed))
    ]


def outside_touched(source: Source) -> list[str]:
    """Where the source touches the outside world although its room may not."""
    found = []
    for line, name in imports(source):
        top, _, rest = name.partition(".")
        rooms = OUTSIDE.get(top)
        if rooms is not None and (top, rest) not in TYPES_OF_THE_OUTSIDE and not _in_rooms(source, rooms):
            found.append(f"{source.path}:{line}: {top} belongs into {' or '.join(rooms) or 'no room'}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            rooms = CALLS.get(call)
            if rooms is not None and not _in_rooms(source, rooms):
                found.append(f"{source.path}:{node.lineno}: {call}() belongs into {' or '.join(rooms) or 'no room'}")
    return found


def _in_rooms(source: Source, rooms: tuple[str, ...]) -> bool:
    return any(_within(source.module, room) for room in rooms)


def too_long(source: Source) -> list[str]:
    """Functions beyond their limit.  Files have none: one that grows wants another noun, not a cut."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(f"{source.path}:{node.lineno}: {node.name} has {lines} lines of {FUNCTION_LINES_MAX}")
    return found


def sleeps(source: Source) -> list[str]:
    """Sleeps of a test, except `asyncio.sleep(0)`, which only lets others run."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            hidden = any(alias.name == "sleep" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "anyio.sleep"):
            hidden = not (ast.unparse(node.func) == "asyncio.sleep" and ast.unparse(node.args[0]) == "0")
        else:
            continue
        if hidden:
            found.append(f"{source.path}:{node.lineno}: a test waits for what happens, it does not sleep")
    return found


#: What sessions ask of the engine for their peers: each says as whom.
_IN_SOMEBODYS_NAME: Final = frozenset(
    {"SubscribeRequest", "browse", "delete_subscription", "destination", "queue_to_consume"}
)


def without_access(source: Source) -> list[str]:
    """Calls of a session that do not say what its peer may do; the engine would act as the broker itself."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and all(keyword.arg != "access" for keyword in node.keywords):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in _IN_SOMEBODYS_NAME:
                found.append(f"{source.path}:{node.lineno}: {name} without access: say as whom")
    return found


def banned_words(name: str, text: str) -> list[str]:
    """Lines of a text with a banned word."""
    return [
        f"{name}:{number}: {match[1]}: {BANNED[match[1]]}"
        for number, line in enumerate(text.splitlines(), 1)
        for match in _BANNED.finditer(line)
    ]
