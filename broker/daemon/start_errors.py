"""Explains in the log why the broker does not start: the system's error, what it concerns, and what to do."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.engine import UnknownFormat
from broker.engine.model.errors import EngineError
from broker.engine.model.report import Report
from broker.reasons.exit_status import ExitStatus
from broker.security.users_file import UnusableFile
from store.errors import (
    CopyAhead,
    Corrupt,
    DatabaseUnfit,
    DirectoryLocked,
    JournalError,
    JournalFull,
    LogFull,
    NewerFormat,
)
from store.files import NO_ROOM

_LISTENING: Final = {
    errno.EADDRINUSE: "another process uses this port (`ss -ltnp` shows which): stop it, or choose another port with"
    " acceptors.{name}.port or --listen {name}=HOST:PORT",
    errno.EADDRNOTAVAIL: "this machine does not have that address: set acceptors.{name}.host to one that it has, or to"
    " 0.0.0.0 for all",
    errno.EACCES: "ports below 1024 need a privilege: choose another with acceptors.{name}.port, or grant"
    " CAP_NET_BIND_SERVICE",
}

_JOURNAL: Final = {
    errno.EACCES: "user {user} may not do that: run the broker as the owner of {directory}, or chown it to that user",
    errno.EPERM: "user {user} may not do that: run the broker as the owner of {directory}, or chown it to that user",
    errno.EROFS: "choose a writable directory with --data or broker.data-directory",
    errno.ENOTDIR: "choose a directory with --data or broker.data-directory",
}

_NO_ROOM: Final = "free space on the disk of {directory}, or choose a directory on another disk with --data"

_COPY_AHEAD: Final = (
    "the database has lost entries that were confirmed (was a standby promoted that was not synchronous, or a backup"
    " restored?); docs/high-availability.md says how to go on from either"
)


class CannotListen(Exception):
    """An acceptor cannot listen at an address; the text says why and what to do."""

    def __init__(self, acceptor: str, address: str, why: str) -> None:
        super().__init__(why)
        self.acceptor = acceptor
        self.address = address


#: The exit status and log code for each error that keeps a broker from starting.  The first match counts.
CODES: Final[Mapping[type[Exception], tuple[ExitStatus, str]]] = {
    CannotListen: (ExitStatus.FAILED, "start.listen"),
    UnusableFile: (ExitStatus.USAGE, "start.security"),
    EngineError: (ExitStatus.USAGE, "start.refused"),
    DirectoryLocked: (ExitStatus.IN_USE, "start.locked"),
    DatabaseUnfit: (ExitStatus.USAGE, "start.database"),
    CopyAhead: (ExitStatus.DISK_FAILED, "start.database"),
    NewerFormat: (ExitStatus.DISK_FAILED, "start.newer"),
    Corrupt: (ExitStatus.DISK_FAILED, "start.corrupt"),
    JournalError: (ExitStatus.DISK_FAILED, "start.journal"),
    UnknownFormat: (ExitStatus.DISK_FAILED, "start.journal"),
    OSError: (ExitStatus.DISK_FAILED, "start.journal"),
}
START_ERRORS: Final = tuple(CODES)


def report_start_error(report: Report, directory: Path, error: Exception) -> ExitStatus:
    """Log the error that keeps the broker from starting.  Returns the exit status."""
    status, code = next(found for kind, found in CODES.items() if isinstance(error, kind))
    report(code, **fields(directory, error))
    return status


@contextmanager
def opening(name: str, host: str, port: int) -> Iterator[None]:
    """Convert the system's errors while an acceptor is opened.  Raises CannotListen."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise CannotListen(name, f"{host}:{port}", cannot_listen(name, error)) from error


def cannot_listen(name: str, error: OSError | UnicodeError) -> str:
    """Explain why an acceptor cannot listen, and what to do."""
    if isinstance(error, UnicodeError):  # of RFC 3490, which Python applies to names
        return f"this is not a valid host name: correct acceptors.{name}.host"
    what = os.strerror(error.errno).lower() if error.errno in _LISTENING else (error.strerror or str(error))
    if isinstance(error, socket.gaierror):
        advice = "the host name is unknown: correct acceptors.{name}.host"
    else:
        advice = _LISTENING.get(error.errno or 0, "correct acceptors.{name}")
    return f"{what}: {advice.format(name=name)}"


def fields(directory: Path, error: Exception) -> dict[str, str | int]:
    """Return the fields of the log event for an error that keeps the broker from starting."""
    match error:
        case DirectoryLocked():
            advice = "stop that process, or give this broker another directory with --data"
            return {"directory": error.directory, "pid": error.pid, "advice": advice}
        case CannotListen():
            return {"acceptor": error.acceptor, "address": error.address, "error": str(error)}
    return {"error": cannot_open(directory, error)}


def cannot_open(directory: Path, error: Exception) -> str:
    """Explain why the journal cannot be opened or created, or a file beside it cannot be written, and what to do."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno or 0 if isinstance(cause, OSError) else 0
    if isinstance(error, CopyAhead):
        advice = _COPY_AHEAD
    elif isinstance(error, JournalFull | LogFull) or number in NO_ROOM:
        advice = _NO_ROOM
    else:
        advice = _JOURNAL.get(number, "")
    what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return f"{what}: {advice.format(directory=directory, user=os.geteuid())}" if advice else what
