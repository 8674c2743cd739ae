"""Command line: `python -m bench.audit decode`, `... spark`, `... beside`, `... generate DIR`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from bench.audit import decode as decoding
from bench.audit.books import Books, load
from bench.audit.generate import generate as generate_journal
from bench.generator import Load

FAILED = 1  # exit status: with --check, a target was missed

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def main() -> None:
    """Measures how fast a journal is audited, on a generated one."""


def _made(directory: Path, records: int, seed: int, segment_mib: int) -> Books:
    start = time.perf_counter()
    books = generate_journal(directory, records, seed, segment_mib << 20)
    took = time.perf_counter() - start
    click.echo(
        f"{books.records:,} records, {books.messages:,} messages, {books.bytes / 1e6:,.0f} MB in {books.segments} "
        f"segments, made in {took:.0f} s ({books.records / took / 1e6:.2f} million records/s)"
    )
    return books


@contextmanager
def _journal(directory: Path | None, records: int, seed: int, segment_mib: int) -> Iterator[tuple[Path, Books]]:
    """The journal in a directory, made there if there is none; without a directory in a temporary one."""
    if directory is None:
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary)
            yield path, _made(path, records, seed, segment_mib)
        return
    try:
        books = load(directory)
    except FileNotFoundError:
        books = _made(directory, records, seed, segment_mib)
    yield directory, books


def _on_a_journal(records: int) -> Callable[[_Command], _Command]:
    """The options of a command that measures something on a journal, of so many records unless it is said otherwise."""

    def with_options(command: _Command) -> _Command:
        for option in (
            click.option("--segment-mib", type=int, default=64, show_default=True, help="Size of a segment in MiB."),
            click.option("--seed", type=int, default=1, show_default=True, help="Seed of the journal."),
            click.option("--records", type=int, default=records, show_default=True, help="Records to make, at least."),
            click.option(
                "--dir",
                "directory",
                type=click.Path(path_type=Path, file_okay=False),
                help="Where the journal is; made there if there is none. Default: a temporary directory.",
            ),
        ):
            command = option(command)
        return command

    return with_options


def _tell(table: Table, problems: list[str], *, check: bool) -> None:
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for problem in problems:
        click.echo(f"missed: {problem}")
    if check and problems:
        sys.exit(FAILED)


@main.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--records", type=int, default=2_000_000, show_default=True, help="Records, at least.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the journal.")
@click.option("--segment-mib", type=int, default=64, show_default=True, help="Size of a segment in MiB.")
def generate(directory: Path, records: int, seed: int, segment_mib: int) -> None:
    """Makes a journal in DIRECTORY, with its true totals in books.json."""
    if directory.exists() and any(directory.iterdir()):
        raise click.UsageError(f"{directory} is not empty")
    _made(directory, records, seed, segment_mib)


@main.command()
@_on_a_journal(2_000_000)
@click.option("--rounds", type=int, default=3, show_default=True, help="The best of so many counts.")
@click.option("--check", is_flag=True, help="Exit status 1 when a target is missed.")
def decode(
    directory: Path | None, records: int, seed: int, segment_mib: int, rounds: int, check: bool
) -> None:  # fmt: skip
    """Measures the decoder on one core: plain reading, walking, the views."""
    with _journal(directory, records, seed, segment_mib) as (path, books):
        rows = decoding.measure(path, books, rounds)
    _tell(decoding.table(rows), decoding.missed(rows), check=check)


@main.command()
@_on_a_journal(4_000_000)
@click.option("--rounds", type=int, default=3, show_default=True, help="The best of so many counts.")
@click.option("--cores", type=int, help="Cores for Spark.  Default: all.")
@click.option("--check", is_flag=True, help="Exit status 1 when a target is missed.")
def spark(
    directory: Path | None, records: int, seed: int, segment_mib: int, rounds: int, cores: int | None, check: bool
) -> None:  # fmt: skip
    """Measures Spark on the journal, warm, and DuckDB on the same columns as Parquet."""
    from bench.audit import spark as sparking  # it needs the extra [spark]

    with _journal(directory, records, seed, segment_mib) as (path, books):
        rows = sparking.measure(path, books, rounds, cores)
    _tell(decoding.table(rows), sparking.missed(rows, cores), check=check)


@main.command()
@_on_a_journal(4_000_000)
@click.option(
    "--priority", type=click.Choice(["idle", "normal"]), default="idle", show_default=True, help="The audit's."
)
@click.option("--spare", is_flag=True, help="Broker and generator share a core, so that one is left to spare.")
@click.option(
    "--cgroup",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Control group in which the audit runs, e.g. one with a CPU quota: its directory.",
)
@click.option("--pairs", type=int, default=15, show_default=True, help="Pairs of rounds.")
@click.option("--seconds", type=float, default=2.0, show_default=True, help="Seconds of a round.")
@click.option("--check", is_flag=True, help="Exit status 1 when the target is missed.")
def beside(
    directory: Path | None, records: int, seed: int, segment_mib: int, priority: str, spare: bool,
    cgroup: Path | None, pairs: int, seconds: float, check: bool,
) -> None:  # fmt: skip
    """Measures what an audit of a journal costs a busy broker on the same machine."""
    from bench.audit import beside as besides

    with _journal(directory, records, seed, segment_mib) as (path, _):
        command = besides.audit_command(path, priority, cgroup)
        found = besides.measure(command, pairs, Load(seconds=seconds, ack="client"), click.echo, spare=spare)
    _tell(besides.table(found), besides.missed(found), check=check)


if __name__ == "__main__":
    main()
