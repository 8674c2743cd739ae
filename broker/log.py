"""The broker's log: one line per event, with a stable code and UTC time, without payloads.

Much of what is logged was chosen by a peer: client ids, queue names, error texts.  None of it may forge a line or a
field: unprintable characters are escaped, values other than a plain word are quoted, and long ones are cut.  Nor may a
peer fill the disk: codes that peers can provoke at will are limited to some lines a second; the rest are counted and
reported in one line (`log.suppressed`).

The engine calls `report`; operators look up `EVENTS` with `bartleby explain` or in docs/reasons.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Final, Literal, TextIO

from broker.clock import monotonic_ms, wall_ms
from broker.log_events import EVENTS, Counted, Event, Level
from broker.security.audit_log import AuditLog
from broker.security.repeats import Repeats

LogFormat = Literal["console", "json"]

#: Characters logged of one value: enough for the longest names, not for a body.
VALUE_CHARS_MAX: Final = 512

#: Characters logged of a traceback: some thirty frames.
TRACEBACK_CHARS_MAX: Final = 4096

#: Lines of one limited code per period: enough to see what happens, 20 KB/s at most.
LINES_PER_PERIOD_MAX: Final = 20
PERIOD_MS: Final = 1_000


#: For a code outside the table, so that it is logged anyway; a test makes sure that there is none.
_UNLISTED: Final = Event("warning", "")

_LEVELS: Final[dict[str, int]] = logging.getLevelNamesMapping()


def printable(text: str) -> str:
    """The text with everything unprintable (controls, escapes, line and direction marks) escaped."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text])


def cut(text: str, chars_max: int = VALUE_CHARS_MAX) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= chars_max else text[:chars_max] + "…"


def _cut_field(name: str, value: str | int, chars_max: int) -> str | int:
    if not isinstance(value, str):
        return value
    return cut(value, TRACEBACK_CHARS_MAX if name == "traceback" else chars_max)


def _console_value(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    if value and value.isprintable() and not any(c in ' "=\\' for c in value):
        return value
    return '"' + printable(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _console(time: str, level: Level, code: str, fields: Mapping[str, str | int]) -> str:
    head = f"{time} {level.upper():8} {code}"
    return " ".join([head, *(f"{name}={_console_value(value)}" for name, value in fields.items())])


def _json(time: str, level: Level, code: str, fields: Mapping[str, str | int]) -> str:
    # `dumps` escapes everything outside ASCII and all control characters except DEL.
    return json.dumps({"time": time, "level": level, "code": code, **fields}).replace("\x7f", "\\u007f")


class _Output:
    """A stream that may fail: a log that cannot be written must not stop the broker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> None:
        """Write one line as a whole and flush it."""
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except UnicodeEncodeError:  # a terminal without Unicode
            self.write(line.encode("ascii", "backslashreplace").decode())
        except (OSError, ValueError):  # a full disk, a closed pipe, a closed stream
            return


def _utc(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


@dataclass(slots=True, eq=False)
class _Window:
    """The lines of a limited code in the current period."""

    since: int
    lines: int = field(init=False, default=0)
    suppressed: int = field(init=False, default=0)


class Log:
    """One log: a level, a format and a stream.  Implements the engine's `Report`."""

    def __init__(
        self,
        level: Level,
        format: LogFormat,
        stream: TextIO,
        *,
        wall: Callable[[], int] = wall_ms,
        monotonic: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}
        #: How often each code was reported, whether or not its line was written.
        self.counts = dict.fromkeys(EVENTS, 0)
        self.audit: AuditLog | None = None
        # Apart, so that a flood of refusals does not take the users' names from the numbers of logins.
        self._repeats: Final[dict[Counted, Repeats]] = {"logins": Repeats(), "refusals": Repeats()}
        self._lock = RLock()  # the journal's writer thread reports too
        self._output = _Output(stream)
        self._render = _json if format == "json" else _console
        self.set_level(level)

    def open_audit(self, path: Path | None) -> None:
        """Open the audit log, or another one; None: have none.  Raises OSError."""
        audit = None if path is None else AuditLog(path, lambda error: self("audit.failed", error=error))
        before, self.audit = self.audit, audit
        if before is not None:
            before.close()

    def set_level(self, level: Level) -> None:
        """Write events of this level and above from now on."""
        self._least = _LEVELS[level.upper()]

    def __call__(self, code: str, /, **fields: str | int) -> None:
        """Log an event with its level in the table."""
        self.emit(EVENTS.get(code, _UNLISTED).level, code, fields)

    def emit(
        self, level: Level, code: str, fields: Mapping[str, str | int], *, chars_max: int = VALUE_CHARS_MAX
    ) -> None:
        """Log an event with a level of its own; text values are cut after `chars_max` characters."""
        with self._lock:
            self.tell_suppressed()
            self.counts[code] = self.counts.get(code, 0) + 1
            event = EVENTS.get(code, _UNLISTED)
            audit = self.audit if event.audited else None
            if audit is None and _LEVELS[level.upper()] < self._least and not event.limited:
                return  # the common case for events of connections and logins
            values = {name: _cut_field(name, value, chars_max) for name, value in fields.items()}
            if audit is not None and (
                event.counted is None or self._repeats[event.counted].note(code, values, self._monotonic())
            ):
                audit.write(_utc(self._wall()), code, values)
            if event.limited and not self._admit(code):
                return
            self._write(level, code, values)

    def _write(self, level: Level, code: str, fields: Mapping[str, str | int]) -> None:
        if _LEVELS[level.upper()] >= self._least:
            self._output.write(self._render(_utc(self._wall()), level, code, fields))

    def _admit(self, code: str) -> bool:
        window = self._windows.get(code)
        if window is None:
            window = self._windows[code] = _Window(self._monotonic())
        if window.lines == LINES_PER_PERIOD_MAX:
            window.suppressed += 1
            return False
        window.lines += 1
        return True

    def tell_suppressed(self, *, now: bool = False) -> None:
        """Report the lines suppressed in past periods; `now`: also in the current ones, before the log ends.

        The same for repeats that the audit log has as numbers, and `now` waits until it is written.  Call now and then.
        """
        if self.audit is not None:
            for repeats in self._repeats.values():
                if now or repeats.is_over(self._monotonic()):
                    with self._lock:
                        for code, fields in repeats.take():
                            self.audit.write(_utc(self._wall()), code, fields)
            if now:
                self.audit.flush()  # not under the lock: its thread may report a failure
        if not self._windows:
            return
        over = self._monotonic() - PERIOD_MS
        with self._lock:
            for code, window in list(self._windows.items()):
                if now or window.since <= over:
                    del self._windows[code]
                    if window.suppressed:
                        self._write("warning", "log.suppressed", {"of": code, "lines": window.suppressed})


class _Bridge(logging.Handler):
    """Turns messages that libraries log (uvicorn, asyncio) into events of the broker's log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._tracebacks = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "critical" if record.levelno >= 50 else "error" if record.levelno >= 40 else "warning"
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # the library's arguments do not fit its format
            text = str(record.msg)
        fields: dict[str, str | int] = {"logger": record.name, "text": text}
        if record.exc_info:
            fields["traceback"] = self._tracebacks.formatException(record.exc_info)
        self._log.emit(level, "library.message", fields, chars_max=TRACEBACK_CHARS_MAX)


_current: Log | None = None


def configure(level: Level, format: LogFormat, stream: TextIO) -> Log:
    """Set up the process's log, or change its level and format.  Messages of `logging` are included."""
    global _current
    if _current is not None:
        _current.tell_suppressed(now=True)
    _current = Log(level, format, stream)
    logging.root.handlers = [_Bridge(_current)]
    return _current


def report(code: str, /, **fields: str | int) -> None:
    """Log an event (see `EVENTS`); ignored before `configure`."""
    if _current is not None:
        _current(code, **fields)
