"""The configuration as the command line finds it: a file, the environment, and the options that override both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from broker.cli.failure import DAMAGED, NO_JOURNAL, USAGE, Failure

if TYPE_CHECKING:  # its models take a while to load, and commands with --url or --data need none
    from broker.config import Config

Command = TypeVar("Command", bound=Callable[..., object])


class _Directory(click.Path):
    """A directory; an empty name, say of an unset variable, is an error and not the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


#: Not checked here for being readable: its reader reports that with a hint.
DIRECTORY: Final = _Directory(file_okay=False, readable=False, path_type=Path)

#: A journal, or a data directory; its reader reports what is wrong with it.
JOURNAL: Final = _Directory(readable=False, path_type=Path)


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several options as one decorator, which shows them in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


#: The options that choose a broker: --config, --data.
broker_options: Final = together(
    click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="BARTLEBY_CONFIG",
        help="The broker's configuration.",
    ),
    click.option("--data", type=DIRECTORY, help="The broker's data directory."),
)


def read_config(config: Path | None, data: Path | None = None, listen: Sequence[str] = ()) -> Config:
    """The configuration.  Raises ConfigError."""
    from broker.config import load

    return load(config, os.environ, data=data, listen=listen)


def load_config(config: Path | None, data: Path | None = None, listen: Sequence[str] = ()) -> Config:
    """The configuration; problems end the command, which reports all of them at once."""
    from broker.config import ConfigError

    try:
        return read_config(config, data, listen)
    except ConfigError as error:
        raise Failure(USAGE, *map(str, error.problems)) from None


def data_directory(config: Path | None, data: Path | None) -> Path:
    """The broker's data directory; the configuration is read only if the option is not given."""
    return data if data is not None else load_config(config).broker.data_directory


def journal_in(directory: Path) -> Path:
    """The journal in a directory: itself, or, if it is a broker's data directory, the `journal` in it."""
    within = directory / "journal"
    try:
        return within if within.is_dir() else directory
    except OSError as error:
        raise Failure(NO_JOURNAL, f"{directory}: {error.strerror}") from None


@contextmanager
def journal_read() -> Iterator[None]:
    """Turn errors of the directory or the journal into a Failure."""
    from store.errors import Corrupt

    try:
        yield
    except Corrupt as corrupt:
        raise Failure(DAMAGED, str(corrupt)) from None
    except OSError as error:
        if error.filename is None:  # from printing, not from the journal
            raise
        raise Failure(NO_JOURNAL, f"{error.filename}: {error.strerror}") from None


def journal_there(directory: Path) -> str:
    """Like `journal_in`, but the journal must have segments.  Raises Failure."""
    from store.files import OsFiles
    from store.reading import Segments

    journal = str(journal_in(directory))
    with journal_read():
        found = Segments(OsFiles(), journal).numbers()
    if not found:
        raise Failure(NO_JOURNAL, f"{journal}: there is no journal: it has no segments")
    return journal
