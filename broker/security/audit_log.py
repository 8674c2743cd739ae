"""The audit log: logins, denials, and operators' actions, as JSON lines in a file of its own.

It has the fields that the log has for the same events, whatever the log's level, and leaves out none but repeated
logins and refusals, which it has as numbers (`repeats`).  It is readable only by its owner, and bounded: a full file is
rotated to `FILE.1` and so on, and the oldest one deleted.

A thread of its own writes the lines, in their order, so that no disk delays the event loop.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Condition, Thread
from typing import Final

#: Bytes of one file, and how many rotated files are kept: some 10 million events.
FILE_BYTES_MAX: Final = 64 << 20
FILES_MAX: Final = 16

#: Lines that may wait for the disk, some 3 MB; of others the log says that they are missing.
LINES_WAITING_MAX: Final = 10_000

#: Seconds that a stop waits for a disk which does not take the last lines.
FLUSH_SECONDS_MAX: Final = 5


class _File(RotatingFileHandler):
    """The file, which only the thread writes."""

    def __init__(self, path: Path, bytes_max: int, files_max: int) -> None:
        super().__init__(path, maxBytes=bytes_max, backupCount=files_max, encoding="utf-8")
        self.failed = False

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:  # the standard library's name
        """Note the failure: a failing disk must not stop audited actions."""
        self.failed = True


class AuditLog:
    """The audit log; `failed` is called, on any thread, with why a line is missing.  Raises OSError."""

    def __init__(
        self,
        path: Path,
        failed: Callable[[str], None],
        *,
        bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        self._file = _File(path, bytes_max, files_max)
        self._failed = failed
        self._lines: deque[str] = deque()
        self._writing = False
        self._closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, time: str, code: str, fields: Mapping[str, str | int]) -> None:
        """Have one event written."""
        line = json.dumps({"time": time, "code": code, **fields}, ensure_ascii=True)
        with self._changed:
            full = len(self._lines) >= LINES_WAITING_MAX
            if not full:
                self._lines.append(line)
                self._changed.notify_all()
        if full:
            self._failed(f"the disk of {self._file.baseFilename} is too slow: {LINES_WAITING_MAX} lines wait")

    def flush(self) -> bool:
        """Wait until all events are written, at most FLUSH_SECONDS_MAX; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._writing), FLUSH_SECONDS_MAX)

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.flush()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(FLUSH_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines or self._closed)
                if not self._lines:
                    break
                lines = list(self._lines)
                self._lines.clear()
                self._writing = True
            for line in lines:
                self._file.emit(logging.LogRecord("audit", logging.INFO, "", 0, line, (), None))
                if self._file.failed:
                    self._file.failed = False
                    self._failed(f"the audit log {self._file.baseFilename} cannot be written")
        self._file.close()
