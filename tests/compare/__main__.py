"""`python -m tests.compare --artemis DIR`: the scenarios against Artemis and Bartleby, and where they differ.

DIR is an unpacked apache-artemis-VERSION-bin.tar.gz (Maven Central, org.apache.artemis:apache-artemis).  --record keeps
what was seen in recorded.json, which the tests compare Bartleby with.  Without --artemis only Bartleby runs, and
Artemis's answers are the recorded ones.  Exit status: 1 if there is a difference that docs/artemis-differences.md does
not name, or an answer of Bartleby that is not the recorded one.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tests.compare.configuration import artemis, bartleby
from tests.compare.recorded import DIFFERENCES, RECORDED, differences, load, observe, save
from tests.support.peers import Artemis
from tests.support.process import started


@click.command()
@click.option(
    "--artemis", "home", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Artemis's home."
)
@click.option("--record", is_flag=True, help=f"Keep what was seen in {RECORDED.name}.")
@click.option("--only", multiple=True, metavar="SCENARIO", help="Only these scenarios.  Repeatable.")
@click.option("--quiet-ms", default=500, show_default=True, help="Silence after which a STOMP client expects no more.")
@click.pass_context
def main(context: click.Context, home: Path | None, record: bool, only: tuple[str, ...], quiet_ms: int) -> None:
    """Run the scenarios and show a table of the differences."""
    before = load()
    with tempfile.TemporaryDirectory() as directory, started(bartleby(Path(directory))) as broker:
        ours = observe(broker.ports, quiet_ms / 1000, only)
    theirs = before["artemis"]
    version = before["version"]
    if home is not None:
        version = Artemis.version(home)
        with tempfile.TemporaryDirectory() as directory, started(artemis(Path(directory), home)) as peer:
            theirs = observe(peer.ports, quiet_ms / 1000, only)
    if record and not only:
        save(version, artemis=theirs, bartleby=ours)
    named = DIFFERENCES.read_text()
    found = list(differences(theirs, ours))
    _show(version, found, named)
    unnamed = [key for key, *_ in found if f"`{key}`" not in named]
    changed = [] if record else [key for key, *_ in differences(before["bartleby"], ours)]
    click.echo(f"{len(ours)} answers, {len(found)} differences, {len(unnamed)} of them without a reason in the docs")
    for key in changed:
        click.echo(f"not as recorded: {key}")
    context.exit(1 if unnamed or changed else 0)


def _show(version: str, found: Iterable[tuple[str, Any, Any]], named: str) -> None:
    table = Table("scenario", f"Artemis {version}", "Bartleby", "in the docs", show_lines=True)
    for key, artemis_saw, bartleby_saw in found:
        table.add_row(key, json.dumps(artemis_saw), json.dumps(bartleby_saw), "yes" if f"`{key}`" in named else "NO")
    Console(width=160).print(table)


if __name__ == "__main__":
    main(prog_name="python -m tests.compare")
