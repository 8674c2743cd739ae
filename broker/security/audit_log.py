"""The audit log: accepted and refused logins, denials, and operators' actions, as JSON lines in a file of its own.

It has the fields that the log has for the same events, whatever the log's level, and leaves out none but refusals that
repeat, which it has as numbers (`refusals`).  It is readable only by its owner, and bounded: a full file is rotated to
`FILE.1` and so on, and the oldest one deleted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

#: Bytes of one file, and how many rotated files are kept: some 10 million events.
FILE_BYTES_MAX: Final = 64 << 20
FILES_MAX: Final = 16


class AuditLog(RotatingFileHandler):
    """The audit log's file.  Raises OSError."""

    def __init__(self, path: Path, *, bytes_max: int = FILE_BYTES_MAX, files_max: int = FILES_MAX) -> None:
        super().__init__(path, maxBytes=bytes_max, backupCount=files_max, encoding="utf-8")
        self.failed: OSError | None = None

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()

    def write(self, time: str, code: str, fields: Mapping[str, str | int]) -> None:
        """Write one event; an error is noted in `failed`."""
        line = json.dumps({"time": time, "code": code, **fields}, ensure_ascii=True)
        self.emit(logging.LogRecord("audit", logging.INFO, "", 0, line, (), None))

    def handleError(self, record: logging.LogRecord) -> None:  # the standard library's name
        """Note the failure: a failing disk must not stop audited actions, and the log reports it."""
        self.failed = OSError(f"the audit log {self.baseFilename} cannot be written")
