"""`bartleby journal`: reading the journal on disk, with or without a running broker; `repair` and `offline` write."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from broker.cli.failure import DAMAGED, USAGE, Failure
from broker.cli.offline import compact, export_, import_
from broker.cli.output import (
    OutputFormat,
    format_size,
    format_time,
    format_value,
    output_option,
    print_fields,
    print_json,
    print_table,
)
from broker.cli.repair import repair
from broker.cli.replay import replay
from broker.cli.settings import JOURNAL, journal_read, journal_there
from broker.log import cut
from store import inspect
from store.files import OsFiles
from store.record import RecordType

#: Characters of one field in a printed line.
FIELD_CHARS_MAX: Final = 200

_directory: Final = click.argument("directory", metavar="DIR", type=JOURNAL)


def _fields(value: inspect.Report | inspect.SegmentReport | inspect.Line | inspect.Stat) -> dict[str, Any]:
    """The fields by name (`dataclasses.asdict` cannot copy a Counter)."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


@click.group()
def journal() -> None:
    """Inspect, repair, export and replay a journal.

    DIR is the journal or the broker's data directory.  Stop the broker for compact, import and repair; the other
    commands also work while it runs.
    """


@journal.command()
@_directory
@output_option
def verify(directory: Path, output: OutputFormat) -> None:
    """Check every segment; exit status 7 if a broker would not start on it."""
    with journal_read():
        report = inspect.verify(OsFiles(), journal_there(directory))
    if output == "json":
        segments = [_fields(segment) | {"status": segment.status.value} for segment in report.segments]
        bodies = asdict(report.bodies)
        print_json(_fields(report) | {"segments": segments, "bodies": bodies, "ok": report.ok, "torn": report.torn})
    else:
        _print_report(report)
    if not report.ok:
        raise Failure(DAMAGED, *report.problems)


def _print_report(report: inspect.Report) -> None:
    columns = ["segment", "status", "used", "entries", "records", "positions", "from", "to", "error"]
    rows = [
        [
            f"{segment.number}{' (kept)' if segment.kept else ''}",
            segment.status.value,
            format_size(segment.used),
            segment.entries,
            segment.records,
            f"{segment.first_position}-{segment.last_position}" if segment.records else "",
            format_time(segment.first_timestamp),
            format_time(segment.last_timestamp),
            f"{segment.error} at byte {segment.error_offset}" if segment.error else "",
        ]
        for segment in report.segments
    ]
    print_table(columns, rows, right=["segment", "used", "entries", "records"])
    if report.torn:
        click.echo("the newest segment has a torn tail: a broker is writing it, or crashed; the next start cuts it off")
    if report.leftovers:
        click.echo("no longer needed; the next start removes: " + ", ".join(map(str, report.leftovers)))
    if report.kept_missing:
        numbers = ", ".join(map(str, report.kept_missing))
        click.echo(f"kept, but no longer there: {numbers}; a broker does not need them, but an audit would")
    if report.bodies.files:
        needless = f", {len(report.bodies.needless)} not needed" if report.bodies.needless else ""
        click.echo(f"{report.bodies.files} large bodies in files, {format_size(report.bodies.nbytes)}{needless}")
    if report.ok:
        click.echo("ok, closed cleanly" if report.closed else "ok")


@journal.command("print")
@_directory
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only records of this type.  Repeatable.")
@click.option("--from", "start", type=int, default=0, metavar="POSITION", help="Only records from this position on.")
@click.option("--limit", type=click.IntRange(min=1, max=sys.maxsize), metavar="N", help="At most this many records.")
@click.option("--bodies", is_flag=True, help="Include headers and bodies of messages.")
@output_option
def print_records(
    directory: Path, types: tuple[str, ...], start: int, limit: int | None, bodies: bool, output: OutputFormat
) -> None:
    """Print every record, one per line, oldest first."""
    wanted = {name.upper().replace("-", "_") for name in types}
    unknown = wanted - set(RecordType.__members__)
    if unknown:
        known = ", ".join(RecordType.__members__)
        raise Failure(USAGE, f"no such type: {', '.join(sorted(unknown))}; there are {known}")
    with journal_read():
        lines = inspect.iter_records(OsFiles(), journal_there(directory), bodies=bodies)
        chosen = (line for line in lines if line.position >= start and (not wanted or line.type in wanted))
        for line in islice(chosen, limit):
            click.echo(json.dumps(_fields(line)) if output == "json" else _readable(line))


def _readable(line: inspect.Line) -> str:
    fields = " ".join(f"{name}={cut(_value(value), FIELD_CHARS_MAX)}" for name, value in line.fields.items())
    return f"{line.position} {format_time(line.timestamp)} {line.segment}:{line.offset} {line.type} {fields}"


def _value(value: object) -> str:
    """A field in a line: as JSON if it has spaces or structure, so that the line can be parsed."""
    text = format_value(value)
    if isinstance(value, dict | list) or (isinstance(value, str) and (not text or " " in text or "=" in text)):
        return json.dumps(value)
    return text


@journal.command()
@_directory
@output_option
def stat(directory: Path, output: OutputFormat) -> None:
    """Show sizes and counts of a whole journal."""
    with journal_read():
        found = inspect.stat(OsFiles(), journal_there(directory))
    if output == "json":
        print_json(_fields(found))
        return
    print_fields(
        {
            "segments": f"{found.segments}, {format_size(found.bytes)}, of which used {format_size(found.used)}",
            "kept": f"{found.kept_segments}, {format_size(found.kept_bytes)}",
            "large bodies": f"{found.bodies}, {format_size(found.body_bytes)}",
            "copies of torn tails": found.torn_copies,
            "records": found.records,
            "positions": f"{found.first_position} to {found.last_position}" if found.records else "",
            "from": format_time(found.first_timestamp),
            "to": format_time(found.last_timestamp),
        }
    )
    _print_counts("record", found.types)
    _print_counts("removed because", found.removals)


for _command in (repair, compact, export_, import_, replay):
    journal.add_command(_command)


def _print_counts(heading: str, counts: Counter[str]) -> None:
    if counts:
        click.echo()
        rows: list[list[Any]] = [[name.lower().replace("_", " "), n] for name, n in counts.most_common()]
        print_table([heading, "count"], rows, right=["count"])
