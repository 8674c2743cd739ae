"""The command `bartleby`.

A command's module is imported only when the command is called, so that no command waits for another one's imports; the
lines for `--help` are here.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from broker.build import VERSION_SHOWN
from broker.cli.failure import CHECK_FAILED, INTERRUPTED, is_interrupt


class Place(NamedTuple):
    """Where a command is, as MODULE:NAME, and its line in `bartleby --help`."""

    where: str
    line: str


#: The commands; a test compares the lines with the commands' own help.
PLACES: Final = {
    "address": Place(
        "broker.cli.address:address",
        "Show, create, delete and pause addresses of the running broker, and send to them.",
    ),
    "audit": Place("broker.cli.audit:audit", "Account for every message in a journal."),
    "completion": Place(
        "broker.cli.completion:completion", "Print the script that completes commands, options and queues."
    ),
    "config": Place("broker.cli.run:config", "Check a configuration."),
    "connection": Place(
        "broker.cli.peers:connection", "List the clients of the running broker, and close their connections."
    ),
    "consumer": Place("broker.cli.peers:consumer", "List the consumers of the running broker, and close them."),
    "dead-letters": Place(
        "broker.cli.dead_letters:dead_letters", "Count dead letters by group; check and try the rules for them."
    ),
    "definitions": Place(
        "broker.cli.definitions:definitions",
        "Export and import addresses, queues and diverts; compare settings, permissions and users.",
    ),
    "divert": Place("broker.cli.divert:divert", "List, add and remove diverts of the running broker."),
    "explain": Place(
        "broker.cli.explain:explain", "Explain a word or number that the broker, a client or a command shows."
    ),
    "import": Place(
        "broker.cli.importing:import_",
        "Make a broker.toml from the configuration of ActiveMQ or Mosquitto, or from IBM MQ's rules for dead letters.",
    ),
    "failover": Place(
        "broker.cli.status:failover",
        "Hand over to the other broker of a pair: this one confirms what is in flight, then becomes the standby.",
    ),
    "journal": Place("broker.cli.journal:journal", "Inspect, repair, export and replay a journal."),
    "link": Place(
        "broker.cli.link:link",
        "List, start, stop and pause the links to other brokers, and resolve routes in doubt.",
    ),
    "message": Place("broker.cli.message:message", "Show what became of a message of the running broker."),
    "queue": Place(
        "broker.cli.queue_import:queue",
        "Show, create, change and delete queues of the running broker; move, purge, export and import messages.",
    ),
    "run": Place("broker.cli.run:run", "Run the broker in the foreground until SIGTERM or Ctrl-C."),
    "status": Place("broker.cli.status:status", "Show the running broker; exit status 1 if it is not ready."),
    "task": Place(
        "broker.cli.task:task",
        "List, follow, pause, resume and cancel tasks, such as retries, moves and exports of many messages.",
    ),
    "user": Place("broker.cli.user:user", "List and change the broker's users."),
}


class _Commands(click.Group):
    """A group whose commands are imported when they are called (click's documentation, Lazily Loading Subcommands)."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as error:
            if is_interrupt(error):
                ctx.exit(INTERRUPTED)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *PLACES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PLACES:
            return super().get_command(ctx, cmd_name)
        module, _, name = PLACES[cmd_name].where.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = {name: click.Command(name, help=place.line) for name, place in PLACES.items()}
        click.Group(commands={**self.commands, **lines}).format_commands(ctx, formatter)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(VERSION_SHOWN, prog_name="bartleby", message="%(prog)s %(version)s")
def cli() -> None:
    """A message broker that can account for every message it ever accepted.

    `bartleby explain` says what an exit status, a log event, a dead-letter reason or a client's error means.
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"bartleby {VERSION_SHOWN}")


def _open_streams() -> None:
    """Open the standard streams that a shell has closed (`<&-`), before any file gets their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for the rest of the process


def main() -> None:
    """The command, as broker/__main__.py starts it."""
    _open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack characters of names; standard error escapes them
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="bartleby")
    except OSError as error:  # commands handle errors of files, and click a closed pipe
        with contextlib.suppress(OSError):
            sys.stdout.close()  # its buffer cannot be written either
        click.echo(f"bartleby: the output cannot be written: {error.strerror or error}", err=True)
        sys.exit(CHECK_FAILED)
