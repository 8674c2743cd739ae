"""Stories by the thousand: `python -m tests.steps_storm --seeds 10000` (or `make steps-storm`).

What is told, and compared: tests/simulation/stories.py.
"""

from __future__ import annotations

import sys
from secrets import randbits
from time import process_time

import click

from tests.simulation.stories import KINDS, Story


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many stories of each kind.")
@click.option("--seed", type=int, help="The first one, to repeat it.  [default: a new one, printed]")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only these.  [default: all]")
@click.option("--losses", default=0.1, show_default=True, help="The probability of a power loss at an operation.")
def main(seeds: int, seed: int | None, kinds: tuple[str, ...], losses: float) -> None:
    """Let the power fail within long commits and wide fan-outs; exit status 1 and the story that went wrong."""
    first = randbits(30) if seed is None else seed
    begun, points = process_time(), 0
    for kind in kinds or tuple(KINDS):
        for number in range(first, first + seeds):
            story = Story(number, KINDS[kind], losses=losses)
            try:
                story.play()
            except Exception as wrong:
                click.echo(f"{wrong!r}: to repeat it, --seeds 1 --seed {number} --kind {kind} --losses {losses}")
                sys.exit(1)
            points += story.points
    click.echo(f"{points:,} power losses, nothing lost, nothing back, nothing twice; {process_time() - begun:,.0f} s")


if __name__ == "__main__":
    main()
