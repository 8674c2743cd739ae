"""The books of a story as its journals have them: `bartleby audit` in one Spark session."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from broker.cli.main import cli
from spark_jobs.session import spark_session

#: For a journal of some ten kilobytes: a small heap, a collector without threads, one task where things are grouped.
SETTINGS: Final = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}

#: The ways out that occur in the story, as the ledger calls them, and how the table does.
WAYS: Final = {"consumed": "consumed", "expired": "expired", "dead-lettered": "died", "moved": "moved"}

Json = dict[str, Any]


class Audits:
    """Audits of some journals; what they find is JSON, as any program could have it.

    `journals`: the arguments that name them.
    """

    def __init__(self, journals: Sequence[str], directory: Path) -> None:
        self._journals = journals
        self._directory = directory

    @contextmanager
    def started(self) -> Iterator[None]:
        """With Spark running: what takes longest is done once."""
        with spark_session("bartleby demo", master="local[2]", conf=SETTINGS, brief=True):
            yield

    def run(self, *arguments: str) -> Json:
        """`bartleby audit ARGUMENTS`.  Raises RuntimeError when the audit itself fails."""
        out = self._directory / f"{arguments[0]}.json"
        command = ["audit", *arguments, *self._journals, "--format", "json", "--out", str(out)]
        command += ["--priority", "normal"]  # the story goes on in this process, with nobody else's broker beside it
        said = io.StringIO()
        with redirect_stderr(said):
            status = cli(command, standalone_mode=False)
        if not out.exists():
            raise RuntimeError(f"bartleby {' '.join(command)} ended with {status}: {said.getvalue()}")
        found: Json = json.loads(out.read_text())
        return found


def print_ledger(console: Console, ledger: Json) -> None:
    """Of each queue: what came is what left, by whatever way, and what is there."""
    table = Table(header_style="bold", pad_edge=False)
    table.add_column("queue")
    for title in ("came =", *(f"{way} +" for way in WAYS.values()), "present"):
        table.add_column(title, justify="right")
    for row in ledger["sections"]["queues"]["rows"]:
        table.add_row(row["queue"], *(str(row[name] or "") for name in ("enqueued", *WAYS, "present")))
    console.print(table)
    right = ledger["verdict"] == "balanced"
    text = f"{ledger['verdict'].capitalize()}, with {ledger['summary']['faults']} faults"
    compared = "; the running broker has counted the same." if right else "."
    console.print(text + compared, style="bold green" if right else "bold red")


def print_dead_letters(console: Console, audit: Json) -> None:
    """Why they died, and what became of them."""
    summary = audit["summary"]
    reasons = [f"{row['dead letters']} {row['reason']}" for row in audit["sections"]["reasons"]["rows"]]
    console.print(
        f"{summary['dead letters and killed']} died ({', '.join(reasons)}): {summary['still waiting']} still wait,\n"
        f"{summary['brought back']} brought back, of which {summary['brought back and consumed']} consumed then."
    )


def print_expired(console: Console, audit: Json) -> None:
    """What nobody read in time."""
    summary = audit["summary"]
    for row in audit["sections"]["waiting"]["rows"]:
        console.print(
            f"{row['expired']} expired on {row['address']} after {row['median (s)']:.1f} s: "
            f"{summary['never delivered']} never delivered, {summary['with no consumer']} with no consumer there."
        )
