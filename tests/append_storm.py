"""Appends that go wrong, for as long as one likes: `python -m tests.append_storm` (part of `make failover-storm`)."""

from __future__ import annotations

import sys
from secrets import randbits

import click
from rich.console import Console

from tests.support.append_storm import breaks, stops, zombies
from tests.support.postgresql import PostgreSQL


@click.command()
@click.option("--zombies", "of_zombies", default=1_000, show_default=True, help="Appends of an owner that was fenced.")
@click.option("--stops", "stopped", default=200, show_default=True, help="Appends within which the owner is stopped.")
@click.option("--breaks", "broken", default=10_000, show_default=True, help="Appends whose connection breaks.")
@click.option("--seed", type=int, help="Repeats the choices of an earlier storm.  [default: a new one, printed]")
def main(of_zombies: int, stopped: int, broken: int, seed: int | None) -> None:
    """Append to a pair of PostgreSQL servers in every wrong way; exit status 1 when something is lost or invented."""
    console = Console()
    seed = randbits(32) if seed is None else seed
    console.print(f"to repeat it: --zombies {of_zombies} --stops {stopped} --breaks {broken} --seed {seed}")
    with PostgreSQL() as place, place.pair() as pair:
        try:
            zombies(pair.dsn, "zombies", of_zombies)
            console.print(f"{of_zombies:,} appends of a zombie were refused")
            outcomes = stops(pair.dsn, "stops", stopped)
            said = "; ".join(f"{name}: {times:,}" for name, times in sorted(outcomes.items()))
            console.print(f"{outcomes.total():,} appends within which the owner was stopped: {said}")
            confirmed, doubtful = breaks(pair, "breaks", broken, seed, failovers=max(1, broken // 1_000))
            console.print(f"{confirmed:,} appends whose connection broke: all there once; in doubt {doubtful:,} times")
        except AssertionError as wrong:
            console.print(str(wrong), style="red", markup=False)
            sys.exit(1)
    console.print("nothing was confirmed wrongly, nothing is lost", style="green")


if __name__ == "__main__":
    main()
