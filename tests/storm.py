"""The kill -9 loop for as long as one likes: `python -m tests.storm --kills 500 --seed 7` (or `make storm`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from secrets import randbits

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support.storm import Figures, rage


@click.command()
@click.option("--kills", default=200, show_default=True, help="How often the broker is killed.")
@click.option("--audit-every", default=500, show_default=True, help="Kills from one audit to the next.")
@click.option("--seed", type=int, help="Repeats the choices of an earlier storm.  [default: a new one, printed]")
def main(kills: int, audit_every: int, seed: int | None) -> None:
    """Kill a broker under load again and again; exit status 1 and the reason when it loses or repeats something."""
    console = Console()
    seed = randbits(32) if seed is None else seed
    console.print(f"seed {seed}: to repeat it, --kills {kills} --seed {seed}")
    with tempfile.TemporaryDirectory(prefix="storm-") as directory, Progress(console=console) as progress:
        task = progress.add_task("kills", total=kills)
        try:
            figures = rage(
                Path(directory), kills=kills, seed=seed, audit_every=audit_every, tell=lambda _: progress.advance(task)
            )
        except AssertionError as wrong:
            progress.stop()
            console.print(str(wrong), style="red", markup=False)
            sys.exit(1)
    console.print("nothing that was confirmed is lost, nothing that was acknowledged came back", style="green")
    console.print("every message is accounted for: the ledger of the journal balances", style="green")
    console.print(_table(figures))


def _table(figures: Figures) -> Table:
    table = Table("figure", "value")
    for name in figures.__slots__:
        table.add_row(name.replace("_", " "), f"{getattr(figures, name):,}")
    return table


if __name__ == "__main__":
    main()
