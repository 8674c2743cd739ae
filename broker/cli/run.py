"""`bartleby run` and `bartleby config`."""

from __future__ import annotations

from pathlib import Path

import click

from broker.cli.settings import load_config, read_config

_CONFIG = click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BARTLEBY_CONFIG",
    help="The configuration.  [default: what etc/broker.toml says as shipped]",
)


@click.command()
@_CONFIG
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Where journal, lock and token are.")
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
    from broker import daemon

    config = load_config(file, data, listen)
    context.exit(daemon.run(config, lambda: read_config(file, data, listen)))


@click.group()
def config() -> None:
    """Look at a configuration."""


@config.command()
@_CONFIG
def check(file: Path | None) -> None:
    """Check a configuration; exit status 2 and all problems if it cannot be used."""
    load_config(file)
    click.echo(f"{file or 'the configuration as shipped'}: ok")
