"""Inputs that nobody meant, as many as one likes: `python -m tests.fuzz --target stomp --inputs 10000000 --seed 7`.

They are made by chance out of valid ones (`mutation`), since the readers are pure functions of some thousand inputs a
second: what matters is how many are tried, and that a failure can be repeated from its seed.
"""

from __future__ import annotations

import sys
import time
from secrets import randbits

import click
from rich.console import Console
from rich.table import Table

from tests.fuzz.fuzzing import Failed, Figures, fuzz
from tests.fuzz.targets import targets

NAMES = tuple(targets())


@click.command()
@click.option("--target", "names", type=click.Choice(NAMES), multiple=True, help="Which reader.  [default: all]")
@click.option("--inputs", default=100_000, show_default=True, help="How many inputs each gets.")
@click.option("--seed", type=int, help="Repeats an earlier run.  [default: a new one, printed]")
def main(names: tuple[str, ...], inputs: int, seed: int | None) -> None:
    """Feed the readers; exit status 1 with the input that crashes one, takes long, or makes it grow."""
    console = Console()
    seed = randbits(32) if seed is None else seed
    console.print(f"seed {seed}: to repeat it, --inputs {inputs} --seed {seed}")
    for name in names or NAMES:
        begun = time.monotonic()
        try:
            figures = fuzz(targets()[name], inputs=inputs, seed=seed)
        except Failed as failed:
            console.print(f"{name}: {failed}", style="red", markup=False)
            sys.exit(1)
        console.print(_table(name, figures, time.monotonic() - begun))


def _table(name: str, figures: Figures, seconds: float) -> Table:
    table = Table(name, "value")
    table.add_row("inputs", f"{figures.inputs:,}")
    table.add_row("minutes", f"{seconds / 60:.1f}")
    table.add_row("inputs a second of the processor", f"{figures.inputs / figures.seconds:,.0f}")
    table.add_row("slowest input, ms", f"{figures.slowest_ms:.1f} ({len(figures.slowest)} bytes)")
    table.add_row("growth since caches were full, KiB", f"{figures.grown_bytes >> 10:,}")
    return table


if __name__ == "__main__":
    main()
