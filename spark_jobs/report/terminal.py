"""A result for a terminal: first the verdict and its coverage, then the sections as tables.

A pipe gets every row in one line, however wide, and no colours.  On a terminal, a table that is too wide first loses
the columns that are 0 in every row (they are named below it); if it is still too wide, each row is written as a list of
names and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spark_jobs.report import text
from spark_jobs.report.tables import Column, columns
from spark_jobs.results import Coverage, Figure, Result, Section

#: Width of output that does not go to a terminal: nothing is cut or wrapped for a program that reads it.
WIDE: Final = 100_000

#: Maximum number of damaged places listed; the JSON has them all.
DAMAGE_SHOWN: Final = 20

#: Up to this number of figures, each has its own line, even if it is 0.
FIGURES_MAX: Final = 10

#: Minimum width of text columns: a few words per line.  A table that needs more room is shown as rows.
TEXT_WIDTH: Final = 28

#: Spaces between two columns of a table.
GAP: Final = 2

_STYLES: Final = {text.Tone.GOOD: "bold green", text.Tone.WARN: "bold yellow", text.Tone.BAD: "bold red"}


def console_for(file: TextIO) -> Console:
    """A console that writes to this file; as wide as the terminal, if it is one."""
    width = None if file.isatty() else WIDE
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def print_result(result: Result, console: Console) -> None:
    """Print the whole result."""
    print_head(result, console)
    for section in result.sections:
        console.print()
        _print_section(section, console)


def print_head(result: Result, console: Console) -> None:
    """Print the verdict, the problems, the coverage and the figures: as much as fits on one screen."""
    said = text.headline(result)
    first = Text(f"{text.title(result)}: ", "bold")
    first.append(said.word, _STYLES[said.tone])
    console.print(first)
    console.print(Text(said.sentence))
    for problem in result.problems:
        console.print(Text(f"  - {text.clean(problem)}", "" if said.tone is text.Tone.GOOD else _STYLES[said.tone]))
    console.print()
    fields = text.covered(result.coverage)
    if result.options:
        fields["options"] = ", ".join(
            f"{text.clean(name)} {text.clean(value)}" for name, value in result.options.items()
        )
    _print_fields(fields, console)
    _print_damage(result.coverage, console)
    if result.summary:
        console.print()
        _print_fields(_figures(result.summary), console)


def _figures(summary: Mapping[str, Figure]) -> dict[str, str]:
    """The figures; if there are many, those that are 0 share one line."""
    zero = [text.heading(name) for name, value in summary.items() if value == 0]
    shown = summary if len(summary) <= FIGURES_MAX else {name: value for name, value in summary.items() if value != 0}
    fields = {text.heading(name): text.figure(name, value) for name, value in shown.items()}
    return fields if shown is summary or not zero else fields | {"0": ", ".join(zero)}


def _print_damage(coverage: Coverage, console: Console) -> None:
    shown = coverage.damage[:DAMAGE_SHOWN]
    for place in shown:
        console.print(Text(f"  - {text.described(place)}", _STYLES[text.Tone.WARN]))
    if len(coverage.damage) > len(shown):
        console.print(Text(f"  - and {len(coverage.damage) - len(shown):,} more; --format json lists all of them"))


def _print_fields(fields: Mapping[str, str], console: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields.items():
        grid.add_row(Text(name, "dim"), Text(value))
    console.print(grid)


def _print_section(section: Section, console: Console) -> None:
    console.print(Text(text.clean(section.title), "bold"))
    if section.table.num_rows:
        _print_table(columns(section.table), console)
    elif not section.note:
        console.print(Text("none", "dim"))
    if section.note:
        console.print(Text(text.clean(section.note), "dim"))


def _print_table(found: Sequence[Column], console: Console) -> None:
    shown, left_out = list(found), ""
    if _needed(found, TEXT_WIDTH) > console.width:
        shown = [column for column in found if not column.zero]
        left_out = ", ".join(column.heading for column in found if column.zero)
    if _needed(shown) <= console.width:
        _print_lines(shown, console)
    elif _needed(shown, TEXT_WIDTH) <= console.width:
        console.print(_table(shown))
    else:
        _print_rows(shown, console)
    if left_out:
        console.print(Text(f"0 in every row: {left_out}", "dim"))


def _needed(shown: Sequence[Column], text_max: int = WIDE) -> int:
    """The width of a table with these columns, if its texts are wrapped to `text_max`."""
    widths = map(_width, shown)
    fitted = [
        max(cell_len(column.heading), min(width, text_max)) if column.kind == "text" else width
        for column, width in zip(shown, widths, strict=True)
    ]
    return sum(fitted) + GAP * (len(fitted) - 1)


def _width(column: Column) -> int:
    return max(map(cell_len, [column.heading, *column.cells]))


def _print_lines(shown: Sequence[Column], console: Console) -> None:
    """Print without rich's layout, which takes a millisecond per row: some tables have ten thousand rows."""
    widths = list(map(_width, shown))
    headings, *lines = (
        (" " * GAP).join(map(_padded, row, widths, shown)).rstrip()
        for row in zip(*([column.heading, *column.cells] for column in shown), strict=True)
    )
    console.print(Text(headings, "bold"))
    console.out("\n".join(lines), highlight=False)


def _padded(cell: str, width: int, column: Column) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if column.kind == "number" else cell + space


def _table(shown: Sequence[Column]) -> Table:
    """A table with wrapped texts."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        table.add_column(
            Text(column.heading),
            justify="right" if column.kind == "number" else "left",
            overflow="fold",
            no_wrap=column.kind != "text",
        )
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _print_rows(shown: Sequence[Column], console: Console) -> None:
    """Print each row as a list of names and values; empty values are left out."""
    for number, row in enumerate(zip(*(column.cells for column in shown), strict=True), 1):
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for column, cell in zip(shown, row, strict=True):
            if cell:
                grid.add_row(Text(column.heading, "dim"), Text(cell))
        console.print(Text(f"{number}.", "bold"))
        console.print(Padding(grid, (0, 0, 0, 2)))
