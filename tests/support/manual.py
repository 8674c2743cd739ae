"""Writes the man pages of etc/man from the command line itself: `make reference`.

One page for `bartleby`, and one for each of its commands, with subcommands as sections.  click-man would write them,
but without support for arguments, quotes at the beginning of a line, commands that are imported when they are called,
and exit statuses.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from broker import __version__
from broker.cli.main import cli
from broker.reasons.exit_status import TEXTS

DIRECTORY: Final = Path(__file__).parents[2] / "etc" / "man"


def pages() -> dict[Path, str]:
    """Return the pages, by their files."""
    found = {}
    root = click.Context(cli, info_name="bartleby", **cli.context_settings)
    for context in (root, *_below(root)):
        name = context.command_path.replace(" ", "-")
        found[DIRECTORY / f"{name}.1"] = "\n".join(_page(name, context)) + "\n"
    return found


def _below(context: click.Context) -> Iterator[click.Context]:
    """Return the commands of a group."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield click.Context(command, parent=context, info_name=name)


def _page(name: str, context: click.Context) -> Iterator[str]:
    yield f'.TH {name.upper()} 1 "" "bartleby {__version__}" "Bartleby"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(context.command.get_short_help_str(1_000).rstrip('.'))}")
    yield from (".SH SYNOPSIS", _usage(context))
    yield from (".SH DESCRIPTION", *_prose(context.command.help))
    yield from _options(".SH OPTIONS", context)
    if isinstance(context.command, click.Group):
        yield ".SH COMMANDS"
        for below in _below(context):
            if context.parent is None:
                yield from (".TP", f".BR {_text(f'{name}-{below.info_name}')} (1)")
                yield _text(below.command.get_short_help_str(1_000))
            else:
                yield from _section(below)
    if context.parent is None:
        yield ".SH EXIT STATUS"
        for status, text in TEXTS.items():
            yield from (".TP", f".B {int(status)}", _text(text.meaning))
        yield from (".SH SEE ALSO", "The pages of docs/, and")
        yield ".BR bartleby\\-explain (1)."
    else:
        yield from (".SH SEE ALSO", ".BR bartleby (1)")


def _section(context: click.Context) -> Iterator[str]:
    """Return the section of a command without a page of its own, and of its subcommands."""
    title = " ".join(context.command_path.split()[2:])
    yield from (f".SS {_text(title)}", _usage(context), ".PP", *_prose(context.command.help))
    yield from _options("", context)
    if isinstance(context.command, click.Group):
        for below in _below(context):
            yield from _section(below)


def _usage(context: click.Context) -> str:
    pieces = context.command.collect_usage_pieces(context)
    return f"\\fB{_text(context.command_path)}\\fR {_text(' '.join(pieces))}"


def _prose(help: str | None) -> Iterator[str]:
    """Format the paragraphs of a help text; those that click does not wrap, line by line."""
    for at, paragraph in enumerate(inspect.cleandoc(help or "").split("\n\n")):
        if at:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from (".nf", *map(_text, paragraph.removeprefix("\b").strip("\n").split("\n")), ".fi")
        else:
            yield _text(" ".join(paragraph.split()))


def _options(heading: str, context: click.Context) -> Iterator[str]:
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    records = [record for each in options if (record := each.get_help_record(context))]
    if records and heading:
        yield heading
    for names, help in records:
        yield from (".TP", f"\\fB{_text(names)}\\fR", _text(" ".join(help.split())))


def _text(text: str) -> str:
    """Escape text for roff, and make `CODE` bold."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    shown = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", shown)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown
