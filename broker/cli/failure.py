"""How a command ends: with a sentence and a number, never with a traceback for what an operator got wrong.

    0  ok
    1  a check failed: the broker is not ready, the journal has problems, the broker refused
    2  the command or the configuration is wrong
    3  the broker cannot be reached
    4  the broker denied it: no token, or the wrong one
    5  partly done: the answer or the work is incomplete

`bartleby run` ends with the broker's own status: see docs/operations.md.
"""

from __future__ import annotations

from typing import IO, Any, Final

import click

from broker.build import how_to_install, missing_of
from broker.log import printable

OK: Final = 0
CHECK_FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
DENIED: Final = 4
PARTIAL: Final = 5


class Failure(click.ClickException):
    """Ends the command.  `lines` go to standard error; what they quote cannot steer a terminal."""

    def __init__(self, exit_code: int, *lines: str) -> None:
        super().__init__("\n".join(map(printable, lines)))
        self.exit_code = exit_code  # type: ignore[misc]  # click looks at the instance, whatever it declares

    def show(self, file: IO[Any] | None = None) -> None:
        """Every line, the first with the command's name."""
        click.echo(f"bartleby: {self.message}", err=True, file=file)


def need(what: str, extra: str) -> None:
    """Raises Failure if an extra that a command needs is not installed."""
    missing = missing_of(extra)
    if missing:
        raise Failure(
            USAGE, f"`{what}` needs packages that are not installed: {', '.join(missing)}", how_to_install(extra)
        )
