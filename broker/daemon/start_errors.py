"""Why the broker does not start, for the log: what the system said, whose it is, and what to do."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from store.errors import JournalError, JournalFull, LogFull
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


def cannot_listen(name: str, error: OSError | UnicodeError) -> str:
    """Why the acceptor cannot listen."""
    if isinstance(error, UnicodeError):  # of RFC 3490, which Python applies to names
        return f"this is not a valid host name: correct acceptors.{name}.host"
    if error.filename is not None:  # the files for the command line, which are made at the same time
        full = error.errno in NO_ROOM
        advice = "free space on that disk" if full else "the broker's user must be able to write it"
        return f"{error.filename}: {error.strerror}: {advice}"
    what = os.strerror(error.errno).lower() if error.errno in _LISTENING else (error.strerror or str(error))
    if isinstance(error, socket.gaierror):
        advice = "the host name is unknown: correct acceptors.{name}.host"
    else:
        advice = _LISTENING.get(error.errno or 0, "correct acceptors.{name}")
    return f"{what}: {advice.format(name=name)}"


def cannot_open(directory: Path, error: JournalError) -> str:
    """Why the journal in a data directory cannot be opened or begun."""
    cause = error.__cause__
    if isinstance(error, JournalFull | LogFull):
        advice = _NO_ROOM
    else:
        advice = _JOURNAL.get(cause.errno or 0, "") if isinstance(cause, OSError) else ""
    told = advice.format(directory=directory, user=os.geteuid())
    return f"{error}: {told}" if told else str(error)
