"""The exit statuses of all commands: one set of numbers, each with one meaning."""

from __future__ import annotations

from enum import IntEnum

from broker.reasons.reason import Text


class ExitStatus(IntEnum):
    """The exit statuses.  Audits use spark_jobs.results, a subset of these."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    DENIED = 4
    PARTIAL = 5
    NO_JOURNAL = 6
    DAMAGED = 7
    VIOLATED = 8
    EXCEEDED = 9
    FAULT = 70  # EX_SOFTWARE
    DISK_FAILED = 74  # EX_IOERR
    IN_USE = 75  # EX_TEMPFAIL
    INTERRUPTED = 130  # 128 + SIGINT

    @property
    def word(self) -> str:
        """The status as a word for people."""
        return self.name.lower().replace("_", "-")


TEXTS = {
    ExitStatus.OK: Text("The command succeeded, or the check found nothing wrong."),
    ExitStatus.FAILED: Text(
        "The command or a check failed: the broker is not ready, the broker refused, Spark failed, a file cannot "
        "be written; `run`: an acceptor could not listen.",
        "Read what standard error says.",
    ),
    ExitStatus.USAGE: Text(
        "The command or the configuration is wrong, or something it needs is missing: an extra, Java, a file.",
        "Correct what standard error names; `--help` lists the options.",
    ),
    ExitStatus.UNREACHABLE: Text(
        "The broker cannot be reached.",
        "Check that it runs, and where: give `--data` or `--config` on its machine, `--url` elsewhere.",
    ),
    ExitStatus.DENIED: Text(
        "The token or login is wrong, the token cannot be read, or the user lacks the permission.",
        "Run the command as the broker's user, or log in with `--user` as a user with the permission `manage`.",
    ),
    ExitStatus.PARTIAL: Text(
        "Partly done: messages stay, no queue took a message, or a queue was too long to search.",
        "Standard error says how many and why; remove the cause and repeat the command.",
    ),
    ExitStatus.NO_JOURNAL: Text(
        "There is no journal, or it cannot be read.",
        "Name the broker's data directory, and run the command as the broker's user.",
    ),
    ExitStatus.DAMAGED: Text(
        "The journal is damaged or incomplete; a ledger cannot be proved.",
        "Standard error or the report names the place: `bartleby journal verify`, then `bartleby journal repair`.",
    ),
    ExitStatus.VIOLATED: Text(
        "The ledger is violated: messages vanished, or appeared from nowhere.",
        "Follow the messages that the report names with `bartleby audit trace`, and report the bug with them.",
    ),
    ExitStatus.EXCEEDED: Text(
        "More messages died, expired or are still on the queues than `--fail-over` allows.",
        "Find out from the report what keeps consumers from handling them.",
    ),
    ExitStatus.FAULT: Text(
        "`run`: a bug in the broker left its state in doubt, so it ended.",
        "Restart it, as a service manager does; report the traceback in the last line of the log.",
    ),
    ExitStatus.DISK_FAILED: Text(
        "`run`: the disk failed, or the journal cannot be read.",
        "Look up the last code of the log (`journal.failed`, `start.corrupt`, `start.journal`) before you start it "
        "again.",
    ),
    ExitStatus.IN_USE: Text(
        "`run`: another broker uses the data directory.",
        "Stop that process, which `start.locked` in the log names, or give this broker a directory of its own.",
    ),
    ExitStatus.INTERRUPTED: Text("The command was interrupted (Ctrl-C)."),
}
