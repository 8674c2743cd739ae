"""The configuration as the command line finds it: a file, the environment, and the options that override both."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from broker.cli.failure import USAGE, Failure

if TYPE_CHECKING:  # its models take a while to make, and commands that are told where the broker is need none
    from broker.config import Config

Command = TypeVar("Command", bound=Callable[..., object])


#: Whether it can be read is told by what reads it, with what to do about it.
_DIRECTORY: Final = click.Path(file_okay=False, readable=False, path_type=Path)


def broker_options(command: Command) -> Command:
    """Which broker: --config, --data."""
    data = click.option("--data", type=_DIRECTORY, help="The broker's data directory.")
    config = click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="BARTLEBY_CONFIG",
        help="The broker's configuration.",
    )
    return config(data(command))


def read_config(config: Path | None, data: Path | None = None, listen: Sequence[str] = ()) -> Config:
    """The configuration.  Raises ConfigError."""
    from broker.config import load

    return load(config, os.environ, data=data, listen=listen)


def load_config(config: Path | None, data: Path | None = None, listen: Sequence[str] = ()) -> Config:
    """The configuration; problems end the command, all of them told at once."""
    from broker.config import ConfigError

    try:
        return read_config(config, data, listen)
    except ConfigError as error:
        raise Failure(USAGE, *map(str, error.problems)) from None


def data_directory(config: Path | None, data: Path | None) -> Path:
    """Where the broker keeps its data; the configuration is read only if the option does not say it."""
    return data if data is not None else load_config(config).broker.data_directory
