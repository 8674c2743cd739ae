"""How a command fails: with a sentence and an exit status, never with a traceback for an operator's mistake.

All commands use the statuses of broker.reasons.exit_status.
"""

from __future__ import annotations

from typing import IO, Any, Final

import click

from broker.build import how_to_install, missing_of
from broker.log import printable
from broker.reasons.exit_status import ExitStatus

CHECK_FAILED: Final = ExitStatus.FAILED
USAGE: Final = ExitStatus.USAGE
UNREACHABLE: Final = ExitStatus.UNREACHABLE
DENIED: Final = ExitStatus.DENIED
PARTIAL: Final = ExitStatus.PARTIAL
NO_JOURNAL: Final = ExitStatus.NO_JOURNAL
DAMAGED: Final = ExitStatus.DAMAGED
INTERRUPTED: Final = ExitStatus.INTERRUPTED


class Failure(click.ClickException):
    """Ends the command.  `lines` go to standard error, made safe to print on a terminal."""

    def __init__(self, exit_code: int, *lines: str) -> None:
        super().__init__("\n".join(map(printable, lines)))
        self.exit_code = int(exit_code)  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print all lines, the first with the command's name."""
        click.echo(f"bartleby: {self.message}", err=True, file=file)


def is_interrupt(error: BaseException) -> bool:
    """Whether a command ends because of Ctrl-C, of which click makes an Abort at a prompt."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt)


def confirm(question: str, done: str) -> None:
    """Ask at the terminal; raise Failure, "nothing was `done`", if the answer is no or there is no terminal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort as error:
        if is_interrupt(error):
            raise
        raise Failure(USAGE, f"nothing was {done}: there is no terminal to ask on, so give --yes") from None
    if not agreed:
        raise Failure(CHECK_FAILED, f"nothing was {done}")


def need(what: str, extra: str) -> None:
    """Raises Failure if an extra that a command needs is not installed."""
    missing = missing_of(extra)
    if missing:
        raise Failure(
            USAGE, f"`{what}` needs packages that are not installed: {', '.join(missing)}", how_to_install(extra)
        )
