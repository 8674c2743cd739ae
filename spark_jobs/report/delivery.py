"""Where a result goes, and in which format."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import click

from spark_jobs.report import machine, output, text
from spark_jobs.report.page import to_html
from spark_jobs.report.terminal import console_for, print_result
from spark_jobs.results import Result

#: The first is the default.
FORMATS: Final = ("table", "json", "csv", "parquet", "html")

#: Formats with more than one file, or unsuitable for a terminal.
TO_A_PATH: Final = ("csv", "parquet", "html")

_TO_A_DIRECTORY: Final = ("csv", "parquet")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A format and a path (None: standard output)."""

    format: str
    out: Path | None

    def check(self) -> None:
        """Check that the path is writable, before anything is computed.  Raises OSError."""
        if self.out is not None:
            output.check_target(self.out, directory=self.format in _TO_A_DIRECTORY)

    def deliver(self, result: Result) -> None:
        """Write the result; if it goes to a path, also print a few lines to standard error.  Raises OSError."""
        if self.out is None:
            self._write(result, sys.stdout)
            return
        if self.format == "csv":
            machine.write_csv(result, self.out)
        elif self.format == "parquet":
            machine.write_parquet(result, self.out)
        else:
            file = io.StringIO()
            self._write(result, file)
            output.write_text(self.out, file.getvalue())
        _print_summary(result, self.out)

    def _write(self, result: Result, file: TextIO) -> None:
        if self.format == "json":
            click.echo(machine.to_json(machine.document(result)), file, nl=False)
        elif self.format == "html":
            click.echo(to_html(result), file, nl=False)
        else:
            print_result(result, console_for(file))


def _print_summary(result: Result, out: Path) -> None:
    said = text.headline(result)
    lines = [
        f"{text.title(result)}: {said.word}. {said.sentence}",
        *map(text.clean, result.problems),
        f"written: {out}",
    ]
    for line in lines:
        click.echo(line, err=True)
