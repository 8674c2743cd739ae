"""The log: one line an event, nothing forged, nothing flooded, every code explained."""

from __future__ import annotations

import ast
import errno
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import log
from broker.daemon import start_errors
from broker.log import (
    LINES_PER_PERIOD_MAX,
    PERIOD_MS,
    TRACEBACK_CHARS_MAX,
    VALUE_CHARS_MAX,
    Log,
    LogFormat,
    cut,
    printable,
)
from broker.log_events import EVENTS, Level

ROOT = Path(__file__).parents[2]
NOW = 1_700_000_000_123
TIME = "2023-11-14T22:13:20.123Z"


class Bench:
    """A log on a string, with a clock that stands still."""

    def __init__(self, format: LogFormat = "json", level: Level = "info") -> None:
        self.stream = io.StringIO()
        self.monotonic = 0
        self.log = Log(level, format, self.stream, wall=lambda: NOW, monotonic=lambda: self.monotonic)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`configure` changes the process: undo it."""
    before = logging.root.handlers
    monkeypatch.setattr(log, "_current", None)
    yield
    logging.root.handlers = before


def test_a_json_line_has_time_level_code_and_fields() -> None:
    bench = Bench()
    bench.log("queue.deleted", queue="a", messages=3)
    assert json.loads(bench.stream.getvalue()) == {
        "time": TIME,
        "level": "warning",
        "code": "queue.deleted",
        "queue": "a",
        "messages": 3,
    }


def test_a_console_line_is_read_by_eye() -> None:
    bench = Bench("console")
    bench.log("queue.deleted", queue="orders.eu", client="two words", empty="", messages=3)
    assert bench.stream.getvalue() == (
        f'{TIME} WARNING  queue.deleted queue=orders.eu client="two words" empty="" messages=3\n'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", r'"a\nb"'),
        ("\x1b[31mred", r'"\x1b[31mred"'),
        ("a=b", '"a=b"'),
        ('say "x"', r'"say \"x\""'),
        ("back\\slash", r'"back\\slash"'),
        ("\\n", r'"\\n"'),
        ("\u202egnp", r'"\u202egnp"'),
        ("\x00\x7f\x85\u2028", r'"\x00\x7f\x85\u2028"'),
        ("ü€", "ü€"),
        ("\ud800", r'"\ud800"'),
    ],
)
def test_a_value_cannot_forge_a_field_or_a_line(value: str, shown: str) -> None:
    bench = Bench("console")
    bench.log("queue.deleted", queue=value)
    assert bench.stream.getvalue() == f"{TIME} WARNING  queue.deleted queue={shown}\n"


@pytest.mark.parametrize("format", ["console", "json"])
@given(value=st.text(max_size=50))
def test_one_event_is_one_printable_line(format: LogFormat, value: str) -> None:
    bench = Bench(format)
    bench.log("queue.deleted", queue=value, last="end")
    text = bench.stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if format == "json":
        assert json.loads(text)["queue"] == value


@given(value=st.text(max_size=50))
def test_a_console_value_can_be_taken_apart_again(value: str) -> None:
    bench = Bench("console")
    bench.log("queue.deleted", queue=value, last="end")
    found = re.fullmatch(r'.* queue=([^ "=\\]+|"(?:[^"\\]|\\.)*") last=end\n', bench.stream.getvalue())
    assert found is not None


@pytest.mark.parametrize(
    ("length", "logged"), [(VALUE_CHARS_MAX, VALUE_CHARS_MAX), (VALUE_CHARS_MAX + 1, VALUE_CHARS_MAX + 1)]
)
def test_a_long_value_is_cut_and_marked(length: int, logged: int) -> None:
    bench = Bench()
    bench.log("queue.deleted", queue="x" * length)
    shown = json.loads(bench.stream.getvalue())["queue"]
    assert len(shown) == logged
    assert shown.endswith("…") == (length > VALUE_CHARS_MAX)


def test_cut_and_printable() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "abc…"
    assert printable("plain ü") == "plain ü"
    assert printable("a\tb") == r"a\tb"


@pytest.mark.parametrize(("level", "written"), [("info", 2), ("warning", 1), ("error", 0)])
def test_lower_levels_are_not_written(level: Level, written: int) -> None:
    bench = Bench(level=level)
    bench.log("queue.auto_deleted", queue="a")
    bench.log("queue.deleted", queue="a")
    assert len(bench.lines) == written


def test_the_level_can_be_changed() -> None:
    bench = Bench(level="error")
    bench.log("queue.deleted", queue="a")
    bench.log.set_level("info")
    bench.log("queue.deleted", queue="a")
    assert len(bench.lines) == 1


def test_an_unlisted_code_is_a_warning_rather_than_lost() -> None:
    bench = Bench()
    bench.log("no.such_code", a=1)
    assert json.loads(bench.lines[0])["level"] == "warning"


# -- repetitions -------------------------------------------------------------------------------------------------------


def test_events_that_peers_provoke_are_limited_and_counted() -> None:
    bench = Bench()
    for _ in range(LINES_PER_PERIOD_MAX + 5):
        bench.log("stomp.error", remote="a")
    assert len(bench.lines) == LINES_PER_PERIOD_MAX
    bench.monotonic = PERIOD_MS - 1
    bench.log("queue.deleted", queue="a")
    assert len(bench.lines) == LINES_PER_PERIOD_MAX + 1, "the period is not over"
    bench.monotonic = PERIOD_MS
    bench.log("stomp.error", remote="a")
    told, last = (json.loads(line) for line in bench.lines[-2:])
    assert (told["code"], told["of"], told["lines"]) == ("log.suppressed", "stomp.error", 5)
    assert last["code"] == "stomp.error"


def test_one_code_does_not_limit_another() -> None:
    bench = Bench()
    for _ in range(LINES_PER_PERIOD_MAX):
        bench.log("stomp.error", remote="a")
    bench.log("login.refused", remote="a")
    assert json.loads(bench.lines[-1])["code"] == "login.refused"


def test_events_of_the_broker_itself_are_never_suppressed() -> None:
    bench = Bench()
    for _ in range(3 * LINES_PER_PERIOD_MAX):
        bench.log("queue.deleted", queue="a")
    assert len(bench.lines) == 3 * LINES_PER_PERIOD_MAX


def test_suppressed_events_are_reported_before_the_end() -> None:
    bench = Bench()
    for _ in range(LINES_PER_PERIOD_MAX + 1):
        bench.log("stomp.error", remote="a")
    bench.log.tell_suppressed(now=True)
    assert json.loads(bench.lines[-1])["lines"] == 1
    bench.log.tell_suppressed(now=True)
    assert len(bench.lines) == LINES_PER_PERIOD_MAX + 1


# -- a stream that fails -----------------------------------------------------------------------------------------------


class _Failing(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    Log("info", "json", _Failing())("queue.deleted", queue="a")
    closed = io.StringIO()
    closed.close()
    Log("info", "json", closed)("queue.deleted", queue="a")


def test_a_terminal_without_unicode_gets_escapes() -> None:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, "ascii")
    Log("info", "console", terminal, wall=lambda: NOW)("queue.deleted", queue="ü")
    assert raw.getvalue().endswith(b"queue=\\xfc\n")


# -- the process's log -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("handlers")
def test_report_goes_to_what_was_configured_last() -> None:
    log.report("queue.deleted", queue="nobody listens")
    first, second = io.StringIO(), io.StringIO()
    log.configure("info", "json", first)
    for _ in range(LINES_PER_PERIOD_MAX + 1):
        log.report("stomp.error", remote="a")
    log.configure("error", "console", second)
    log.report("queue.deleted", queue="a")
    log.report("move.no_queue", address="a")
    assert json.loads(first.getvalue().splitlines()[-1])["code"] == "log.suppressed"
    assert [line.split()[1:3] for line in second.getvalue().splitlines()] == [["ERROR", "move.no_queue"]]


@pytest.mark.usefixtures("handlers")
def test_libraries_log_in_our_lines() -> None:
    stream = io.StringIO()
    log.configure("info", "json", stream)
    library = logging.getLogger("some.library")
    library.warning("two\nlines of %s", "text")
    library.info("too little")
    library.warning("%d numbers", "no")
    try:
        raise ValueError("x" * 2 * TRACEBACK_CHARS_MAX)
    except ValueError:
        library.exception("failed")
    first, misfit, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert misfit["text"] == "%d numbers"
    assert (first["level"], first["code"], first["logger"]) == ("warning", "library.message", "some.library")
    assert first["text"] == "two\nlines of text"
    assert second["level"] == "error"
    assert second["traceback"].startswith("Traceback")
    assert len(second["traceback"]) == TRACEBACK_CHARS_MAX + 1


# -- the table ---------------------------------------------------------------------------------------------------------

#: Names under which code reports, as methods or functions.
_REPORTERS = {"report", "_report", "log", "_log"}

#: What operators' actions are logged by; a function of management, to which the request comes first, and methods.
_LOG_ACTION = "log_action"

#: Fields that the line itself has.
_OWN_FIELDS = {"time", "level", "code", "event"}


def _calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted((ROOT / "broker").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name == _LOG_ACTION and node.args and not _codes(node.args[0]):
                node.args.pop(0)
            if name in {*_REPORTERS, _LOG_ACTION} and node.args:
                yield path, node


def _codes(argument: ast.expr) -> list[str]:
    """The codes that a first argument may be: a literal, or a choice between two."""
    if isinstance(argument, ast.IfExp):
        return _codes(argument.body) + _codes(argument.orelse)
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return [argument.value]
    return []


def test_every_code_is_in_the_table_and_every_entry_is_used() -> None:
    reported = {code for _, call in _calls() for code in _codes(call.args[0])}
    reported |= {code for _, code in start_errors.CODES.values()}
    own = {"audit.failed", "library.message", "log.suppressed"}
    assert reported - set(EVENTS) == set()
    assert set(EVENTS) - reported - own == set()


#: What no peer can provoke at will: it happens at the start, at an operator's wish, once in an episode of the disk or
#: the database, or ends the process.
_UNPROVOKED = re.compile(
    r"(broker\.failed|broker\.task_died|clock|config|descriptors|disk|journal|replication|security|settings|start)\b"
    r"|link\.password_readable|listening|log\.suppressed|paging\.unreadable|reload|rule\.failed|stopping|task\.stuck"
)

#: Changes that need the permission to manage, each of which auditors want to see.
_CHANGES = {"address.sent", "management.called"}


def test_events_that_peers_can_provoke_fill_neither_the_log_nor_the_audit_log() -> None:
    for code, entry in EVENTS.items():
        harmless = entry.limited or entry.audited or entry.level == "debug" or _UNPROVOKED.match(code)
        assert harmless, f"{code}: who can provoke it?"
        if entry.limited and entry.audited:
            assert entry.counted or code in _CHANGES, code


def test_no_field_hides_a_part_of_the_line() -> None:
    for path, call in _calls():
        names = {keyword.arg for keyword in call.keywords}
        assert not names & _OWN_FIELDS, f"{path}:{call.lineno}"


def test_codes_look_alike_and_meanings_are_one_sentence() -> None:
    assert list(EVENTS) == sorted(EVENTS)
    for code, entry in EVENTS.items():
        assert re.fullmatch(r"[a-z]+(\.[a-z_]+){0,2}", code)
        assert re.fullmatch(r"[A-Z][^.\n]+\.", entry.meaning), code
