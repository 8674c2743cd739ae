"""What can go wrong with the journal.

JournalError
+-- JournalFull       refused before anything changed: no room on the disk; try again when there is
+-- DirectoryLocked   another broker owns the directory
+-- DatabaseUnfit     the database that is to keep the log would not keep it safe, or not at all: the start stops
+-- IsCopy            the directory is a copy of a log that is elsewhere: the start stops
+-- CopyAhead         the copy has confirmed entries that the database has lost: the start stops
+-- Corrupt           damage that recovery must not repair by itself: the start stops
+-- BodyUnreadable    the file of one body cannot be read: its message cannot be delivered, all others can
+-- LogError          the log cannot go on
    +-- LogFailed     a write or sync failed: what was submitted may or may not be on disk, nothing more is confirmed
    +-- LogFull       no room even for what must not be refused
    +-- LogFenced     another writer has taken over (replicated logs)
    +-- LogUnknown    the outcome of an append is not known and cannot be asked (replicated logs)
"""

from __future__ import annotations


class JournalError(Exception):
    """Base of everything this package raises on purpose."""


class JournalFull(JournalError):
    """There is no room for what was to be stored.  Nothing has changed; removals are still accepted."""


class DirectoryLocked(JournalError):
    """Another process owns the journal directory.  `pid` is its process id, 0 if it could not be read."""

    def __init__(self, directory: str, pid: int) -> None:
        super().__init__(f"journal directory {directory} is in use by process {pid or 'unknown'}")
        self.directory = directory
        self.pid = pid


class DatabaseUnfit(JournalError):
    """The log must not be kept in this database as it is set up; the message says why, and what to do."""


class IsCopy(JournalError):
    """The directory is a copy of a log that is elsewhere: written by itself, it would no longer be one."""


class CopyAhead(JournalError):
    """The copy of a replicated log has entries that are not in the database, although they were confirmed.

    So the database has lost them: a standby was promoted that was not synchronous, or a backup was restored.
    """


class Corrupt(JournalError):
    """A segment is damaged in a way that recovery must not hide.

    `path` and `offset` (bytes) say where, `what` says what was found, `command` what to run to repair it.
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
    """A newer version of this software wrote the journal: nothing is damaged, and to repair it would destroy it."""

    def __str__(self) -> str:
        return f"{self.path}, byte {self.offset}: {self.what}; nothing is damaged: start that version"


class BodyUnreadable(JournalError):
    """The file of a body, `path`, cannot be read, for the reason `what`.

    `passing`: the system refused it, and may not the next time; nothing is known to be damaged.
    """

    def __init__(self, path: str, what: str, *, passing: bool = False) -> None:
        super().__init__(f"{path}: {what}")
        self.path = path
        self.what = what
        self.passing = passing


class ReadFailed(JournalError):
    """The system did not give what was to be read (no more files, an error of the disk): it may the next time.

    Nothing is known to be damaged.
    """


class LogError(JournalError):
    """The log cannot go on: the broker must stop without confirming anything more."""


class LogFailed(LogError):
    """A write or sync failed, now or earlier.  It is never retried: a second sync may succeed without the data."""


class LogFull(LogError):
    """There is no room for records that were not refused beforehand."""


class LogFenced(LogError):
    """Another writer has taken over the log.  Files never raise it; a replicated log does."""


class LogUnknown(LogError):
    """Whether an append happened cannot be known.  Files never raise it; a replicated log does."""
