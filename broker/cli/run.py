"""`bartleby run` and `bartleby config`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from broker.cli.failure import USAGE, Failure
from broker.cli.settings import DIRECTORY, load_config, read_config
from broker.clock import wall_ms
from broker.config.load import AS_SHIPPED
from broker.log import printable

_CONFIG = click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BARTLEBY_CONFIG",
    help="The configuration.  [default: etc/broker.toml as shipped]",
)


@click.command()
@_CONFIG
@click.option("--data", type=DIRECTORY, help="The data directory: journal, users, token.")
@click.option(
    "--listen",
    multiple=True,
    metavar="ACCEPTOR=HOST:PORT",
    help="Where an acceptor listens; port 0 takes a free port.  Repeatable.",
)
@click.pass_context
def run(context: click.Context, file: Path | None, data: Path | None, listen: tuple[str, ...]) -> None:
    """Run the broker in the foreground until SIGTERM or Ctrl-C."""
    # Imported here: other commands do without the engine and its event loop and start faster.
    from broker.daemon import run as daemon

    config = load_config(file, data, listen)
    context.exit(daemon.run(config, lambda: read_config(file, data, listen)))


@click.group()
def config() -> None:
    """Check a configuration."""


@config.command()
@_CONFIG
def check(file: Path | None) -> None:
    """Check a configuration and the files it names, and print all problems; exit status 2 if there are any.

    Run it as the broker's user, which must be able to read these files.
    """
    from broker.security import checks  # as above

    found = load_config(file)
    source = str(file or AS_SHIPPED)
    if problems := checks.problems(found, source):
        raise Failure(USAGE, *map(str, problems))
    warnings = checks.warnings(found, source, datetime.fromtimestamp(wall_ms() / 1000, UTC))
    for warning in warnings:
        click.echo(f"warning: {printable(str(warning))}", err=True)
    click.echo(f"{source}: ok")
