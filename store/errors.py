"""The journal's errors."""

from __future__ import annotations


class JournalError(Exception):
    """Base of all errors that this package raises on purpose."""


class JournalFull(JournalError):
    """There is no room for new records.  Nothing has changed; removals are still accepted."""


class DirectoryLocked(JournalError):
    """Another process owns the journal directory.  `pid` is its process id, 0 if it could not be read."""

    def __init__(self, directory: str, pid: int) -> None:
        super().__init__(f"journal directory {directory} is in use by process {pid or 'unknown'}")
        self.directory = directory
        self.pid = pid


class DatabaseUnfit(JournalError):
    """The database's set-up is unfit for storing the log; the message says why, and what to do."""


class IsCopy(JournalError):
    """The directory is a copy of a log that is elsewhere: a broker that writes to it would make it differ."""


class CopyAhead(JournalError):
    """The copy of a replicated log has confirmed entries that are not in the database.

    So the database has lost them: a standby was promoted that was not synchronous, or a backup was restored.
    """


class Corrupt(JournalError):
    """A segment is damaged in a way that recovery must not hide.

    `path` and `offset` (bytes) say where, `what` describes the damage, `command` repairs it.
    """

    def __init__(self, path: str, offset: int, what: str) -> None:
        directory = path.rpartition("/")[0].removesuffix("/bodies") or "."
        self.path = path
        self.offset = offset
        self.what = what
        self.command = f"bartleby journal repair {directory}"
        look = f"bartleby journal verify {directory}"
        super().__init__(f"{path}: {what} at byte {offset}; inspect it with: {look}; repair it with: {self.command}")


class NewerFormat(Corrupt):
    """A newer version of this software wrote the journal: nothing is damaged, and a repair would destroy it."""

    def __str__(self) -> str:
        return f"{self.path}, byte {self.offset}: {self.what}; nothing is damaged: start that version"


class BodyUnreadable(JournalError):
    """The file of a body, `path`, cannot be read, for the reason `what`.

    `passing`: an error of the system that may not recur; no damage is known.
    """

    def __init__(self, path: str, what: str, *, passing: bool = False) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what
        self.passing = passing


class ReadFailed(JournalError):
    """The system refused a read (too many open files, a disk error); the next attempt may succeed.

    No damage is known.
    """


class LogError(JournalError):
    """The log cannot continue: the broker must stop without confirming anything more."""


class LogFailed(LogError):
    """A write or sync failed, now or earlier.  It is never retried: a second sync may succeed without the data."""


class LogFull(LogError):
    """There is no room even for records that must not be refused, or no descriptor or memory to write them with.

    They wait, or are lost if the broker stops.
    """


class LogFenced(LogError):
    """Another writer has taken over the log.  Only a replicated log raises it."""


class LogUnknown(LogError):
    """It cannot be known whether an append happened.  Only a replicated log raises it."""
