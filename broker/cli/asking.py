"""Confirmation before something is deleted for good."""

from __future__ import annotations

import click

from broker.cli.failure import CHECK_FAILED, USAGE, Failure


def confirm(question: str, done: str) -> None:
    """Ask at the terminal; raise Failure, "nothing was `done`", if the answer is no or there is no terminal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:  # no terminal
        raise Failure(USAGE, f"nothing was {done}: there is no terminal to ask on, so give --yes") from None
    if not agreed:
        raise Failure(CHECK_FAILED, f"nothing was {done}")
