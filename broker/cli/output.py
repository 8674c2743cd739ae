"""What commands print: tables for people, JSON for programs.

Tables show text that clients chose (names, bodies), so nothing in them may control the terminal: everything goes
through `printable`.  JSON is escaped to ASCII.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import click

from broker.log import printable

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar
    from rich.console import Console

OutputFormat = Literal["table", "json"]

#: Between two columns of a table.
_GAP: Final = "  "

Entry = TypeVar("Entry")

#: -o table|json
output_option: Final = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
)


def print_json(value: object) -> None:
    """One JSON value, indented."""
    click.echo(json.dumps(value, indent=2))


def print_answer(output: OutputFormat, answer: object, sentence: str) -> None:
    """An answer: as JSON, or as this sentence."""
    if output == "json":
        print_json(answer)
    else:
        click.echo(sentence)


def print_list(
    output: OutputFormat,
    entries: Iterable[Entry],
    columns: Sequence[str],
    row: Callable[[Entry], Sequence[object]],
    *,
    right: Sequence[str] = (),
) -> None:
    """A list: as JSON, or as a table with a row for each entry."""
    found = list(entries)
    if output == "json":
        print_json(found)
    else:
        print_table(columns, map(row, found), right=right)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Rows under headings; the columns named in `right` hold numbers.

    Cells are folded if the terminal is too narrow, and never for programs.
    """
    from rich.cells import cell_len  # here, since most commands print no table

    cells = [[format_value(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sys.stdout.isatty() and sum(widths) + len(_GAP) * (len(widths) - 1) > _screen().width:
        _print_folded(columns, cells, right)
        return
    for row in (columns, *cells):
        padding = [" " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
        aligned = [
            pad + cell if name in right else cell + pad for name, cell, pad in zip(columns, row, padding, strict=True)
        ]
        line = _GAP.join(aligned)
        click.echo(click.style(line, bold=True) if row is columns else line, file=sys.stdout)


def _screen() -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def _print_folded(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    _screen().print(table)


def print_fields(header: Mapping[str, object]) -> None:
    """Names and values, one a line."""
    width = max(map(len, header)) + 2
    for name, value in header.items():
        click.echo(f"{name:{width}}{format_value(value)}".rstrip())


def format_value(value: object) -> str:
    """A value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    return printable(str(value))


def progress_bar(label: str, *, hidden: bool = False) -> AbstractContextManager[ProgressBar[int]]:
    """A progress bar on standard error, hidden unless that is a terminal."""
    stream = sys.stderr
    return click.progressbar(length=1, label=label, show_pos=True, file=stream, hidden=hidden or not stream.isatty())


def format_time(ms: int) -> str:
    """A time in UTC; empty for 0."""
    if not ms:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a client's expiration may lie beyond the calendar
        return str(ms)


def format_size(nbytes: int) -> str:
    """A size with a binary unit."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_duration(ms: int) -> str:
    """A duration in the two largest of days, hours, minutes and seconds."""
    seconds = max(ms, 0) // 1000
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{n}{unit}" for n, unit in parts[:2])
