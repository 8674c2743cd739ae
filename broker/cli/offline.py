"""`bartleby journal compact|export|import`: commands on the journal of a stopped broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from broker.cli.failure import CHECK_FAILED, Failure
from broker.cli.output import progress_bar
from broker.cli.owner import left_to_owner
from broker.cli.settings import JOURNAL, broker_options, journal_there, load_config
from broker.log import printable
from store.counted import counted


def _report(code: str, /, **fields: str | int) -> None:
    """Drop log events: commands print their own messages."""


@contextmanager
def _opened(config: Path | None, data: Path | None, *, new: bool = False) -> Iterator[Any]:
    """The stopped broker, with `new` also one without a journal; a problem with it ends the command."""
    # Imported here: other commands do without the engine and start faster.
    from broker.offline.parts import Unusable, stopped

    found = load_config(config, data)
    if not new and found.journal.log == "files":
        journal_there(found.broker.data_directory)
    try:
        with left_to_owner(Path(found.broker.data_directory)), stopped(found, _report) as broker:
            yield broker
    except Unusable as unusable:
        raise Failure(CHECK_FAILED, str(unusable)) from None


@click.command()
@broker_options
def compact(config: Path | None, data: Path | None) -> None:
    """Free disk space: copy all live records together and delete the other segments.

    The broker must be stopped.
    """
    from broker.offline.compacting import compact as run

    with _opened(config, data) as broker, progress_bar("segments") as bar:

        def progress(done: int, of: int) -> None:
            bar.length = of
            bar.update(done - bar.pos)

        found = run(broker, progress)
    copied = counted(found.messages, "message was copied", "messages were copied")
    click.echo(f"{counted(found.before, 'segment')}, now {found.after:,}; {copied}")


@click.command("export")
@click.argument("directory", metavar="DIR", type=JOURNAL)
@click.option(
    "-o",
    "--output",
    type=click.File("w", encoding="utf-8", lazy=True),
    default="-",
    help="The file to write.  [default: standard output]",
)
def export_(directory: Path, output: IO[str]) -> None:
    """Write a journal's addresses, queues, sessions and messages as lines of JSON.

    DIR is the journal or the broker's data directory.  It is only read; the broker may be running.
    """
    from broker.offline.exporting import export_directory
    from broker.offline.parts import Unusable

    journal = journal_there(directory)
    count = 0
    try:
        for line in export_directory(journal):
            output.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            count += line["kind"] == "message"
    except Unusable as unusable:
        raise Failure(CHECK_FAILED, str(unusable)) from None
    click.echo(counted(count, "message"), err=True)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--first", type=click.IntRange(min=1), default=1, help="Import only messages from this line on.")
@broker_options
def import_(file: IO[bytes], first: int, config: Path | None, data: Path | None) -> None:
    """Add an export's messages to the journal of a stopped broker, or to a new directory."""
    from broker.offline.importing import BadLine, import_lines

    with _opened(config, data, new=True) as broker:
        try:
            made = import_lines(broker, file, first=first)
        except BadLine as bad:
            again = f"correct it and continue with --first {bad.number}"
            raise Failure(CHECK_FAILED, printable(f"{bad}; the lines before are imported: {again}")) from None
    click.echo(
        f"{counted(made.messages, 'message')}, {counted(made.addresses, 'address', 'addresses')},"
        f" {counted(made.queues, 'queue')}, {counted(made.diverts, 'divert')} and"
        f" {counted(made.sessions, 'session')} were added; {made.present:,} existed already"
    )
