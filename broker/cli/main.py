"""The command `bartleby`."""

from __future__ import annotations

import contextlib
import sys

import click

from broker.build import VERSION_SHOWN
from broker.cli.address import address
from broker.cli.audit import audit
from broker.cli.control import queue
from broker.cli.divert import divert
from broker.cli.failure import CHECK_FAILED
from broker.cli.importing import import_
from broker.cli.journal import journal
from broker.cli.peers import connection, consumer
from broker.cli.run import config, run
from broker.cli.status import status
from broker.cli.user import user


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(VERSION_SHOWN, prog_name="bartleby", message="%(prog)s %(version)s")
def cli() -> None:
    """A message broker that can account for every message it ever accepted.

    Exit status: 0 ok, 1 a check failed, 2 usage or configuration, 3 unreachable, 4 denied, 5 partly done; audits have
    their own (bartleby audit --help).
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"bartleby {VERSION_SHOWN}")


for _command in (run, config, status, queue, address, divert, connection, consumer, journal, audit, import_, user):
    cli.add_command(_command)


def main() -> None:
    """The command, as broker/__main__.py starts it."""
    try:
        cli(prog_name="bartleby")
    except OSError as error:  # the commands tell of files; a closed pipe is click's
        with contextlib.suppress(OSError):
            sys.stdout.close()  # what it still holds cannot be written either
        click.echo(f"bartleby: the output cannot be written: {error.strerror or error}", err=True)
        sys.exit(CHECK_FAILED)
