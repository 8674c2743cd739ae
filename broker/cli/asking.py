"""Questions before something is gone for good."""

from __future__ import annotations

import click

from broker.cli.failure import CHECK_FAILED, USAGE, Failure


def confirm(question: str, done: str) -> None:
    """Ask at the terminal; `done` is what has not been done if the answer is no, or if there is nobody."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:  # nobody sits there
        raise Failure(USAGE, f"nothing was {done}: there is no terminal to ask on, so give --yes") from None
    if not agreed:
        raise Failure(CHECK_FAILED, f"nothing was {done}")
