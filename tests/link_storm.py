"""The storm of links for as long as one likes: `python -m tests.link_storm --kills 100` (or `make link-storm`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from secrets import randbits

import click
from rich.console import Console
from rich.progress import Progress

from tests.support.link_storm import rage


@click.command()
@click.option("--kills", default=100, show_default=True, help="How often a broker is killed.")
@click.option("--seed", type=int, help="Repeats the choices of an earlier storm.  [default: a new one, printed]")
def main(kills: int, seed: int | None) -> None:
    """Kill one of three linked brokers again and again; exit status 1 when a message is lost or doubled."""
    console = Console()
    seed = randbits(32) if seed is None else seed
    console.print(f"seed {seed}: to repeat it, --kills {kills} --seed {seed}")
    with tempfile.TemporaryDirectory(prefix="link-storm-") as directory, Progress(console=console) as progress:
        task = progress.add_task("kills", total=kills)
        try:
            figures = rage(Path(directory), kills=kills, seed=seed, tell=lambda _: progress.advance(task))
        except AssertionError as wrong:
            progress.stop()
            console.print(str(wrong), style="red", markup=False)
            sys.exit(1)
    console.print("no message is lost, none is doubled, and the journals agree on what passed", style="green")
    console.print(
        f"{figures.kills:,} kills, {figures.sent:,} messages sent, {figures.confirmed:,} of them confirmed, "
        f"{figures.arrived:,} arrived, {figures.forwarded:,} forwarded in the journals, "
        f"{figures.rivals:,} taken by other readers of queues that links read"
    )


if __name__ == "__main__":
    main()
