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
    help="The configuration.  [default: what etc/broker.toml says as shipped]",
)


@click.command()
@_CONFIG
@click.option("--data", type=DIRECTORY, help="Where journal, lock and token are.")
@click.option(
    "--listen",
    multiple=True,
    metavar="ACCEPTOR=HOST:PORT",
    help="Where an acceptor listens; port 0 takes a free one.  Repeatable.",
)
@click.pass_context
def run(context: click.Context, file: Path | None, data: Path | None, listen: tuple[str, ...]) -> None:
    """Run the broker in the foreground until it is told to stop (SIGTERM, or Ctrl-C)."""
    # Imported here: the other commands do without the engine and its event loop, and start faster.
    from broker.daemon import run as daemon

    config = load_config(file, data, listen)
    context.exit(daemon.run(config, lambda: read_config(file, data, listen)))


@click.group()
def config() -> None:
    """Look at a configuration."""


@config.command()
@_CONFIG
def check(file: Path | None) -> None:
    """Check a configuration and the files that it names; exit status 2 and all problems if it cannot be used.

    Run it as the broker's user, who has to be able to read them.
    """
    from broker.security import checks  # as above

    found = load_config(file)
    source = str(file or AS_SHIPPED)
    if problems := checks.problems(found, source):
        raise Failure(USAGE, *map(str, problems))
    for warning in checks.warnings(found, source, datetime.fromtimestamp(wall_ms() / 1000, UTC)):
        click.echo(f"warning: {printable(str(warning))}", err=True)
    click.echo(f"{source}: ok")
