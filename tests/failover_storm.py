"""The storm of failovers for as long as one likes: `python -m tests.failover_storm --rounds 100`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from secrets import randbits
from statistics import median, quantiles

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support.failover_storm import FAULTS, LEASE_MS, rage
from tests.support.postgresql import PostgreSQL


@click.command()
@click.option("--rounds", default=10, show_default=True, help="How often each fault happens.")
@click.option("--fault", "faults", type=click.Choice([*FAULTS]), multiple=True, help="Only this one.  [default: all]")
@click.option("--lease", default=LEASE_MS, show_default=True, help="The brokers' lease, in ms.")
@click.option("--seed", type=int, help="Repeats the choices of an earlier storm.  [default: a new one, printed]")
def main(rounds: int, faults: tuple[str, ...], lease: int, seed: int | None) -> None:
    """Let a pair of brokers and its servers fail under load; exit status 1 when something is lost or repeated."""
    console = Console()
    seed = randbits(32) if seed is None else seed
    chosen = {name: rounds for name in faults or FAULTS}
    only = "".join(f" --fault {name}" for name in faults)
    console.print(f"seed {seed}: to repeat it, --rounds {rounds}{only} --lease {lease} --seed {seed}")
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    with (
        PostgreSQL() as place,
        tempfile.TemporaryDirectory(prefix="failover-storm-") as directory,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("rounds", total=rounds * len(chosen))

        def tell(fault: str, lasted: float) -> None:
            seconds[fault].append(lasted)
            progress.advance(task)

        try:
            figures = rage(Path(directory), place, chosen, seed=seed, lease_ms=lease, tell=tell).figures
        except (AssertionError, KeyboardInterrupt) as wrong:
            progress.stop()
            console.print(_table(seconds))
            console.print(str(wrong) or "interrupted: nothing is known of the last round", style="red", markup=False)
            sys.exit(1)
    console.print("nothing that was confirmed is lost, nothing that was acknowledged came back", style="green")
    console.print("the ledger balances, and the copies of the journal have the same bytes", style="green")
    console.print(_table(seconds))
    console.print(
        f"{figures.sent:,} sent, {figures.confirmed:,} confirmed: {figures.consumed:,} consumed, {figures.dead:,} dead,"
        f" {figures.expired:,} expired"
    )


def _table(seconds: Mapping[str, list[float]]) -> Table:
    """How long it took from each fault to the first message that was confirmed."""
    table = Table("fault", "rounds", "to the first confirmation, p50", "p99", "most")
    for name, lasted in seconds.items():
        if lasted:
            p99 = quantiles(lasted, n=100, method="inclusive")[98] if len(lasted) > 1 else lasted[0]
            table.add_row(name, str(len(lasted)), f"{median(lasted):.2f} s", f"{p99:.2f} s", f"{max(lasted):.2f} s")
    return table


if __name__ == "__main__":
    main()
