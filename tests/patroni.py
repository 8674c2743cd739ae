"""How long PostgreSQL that is run by Patroni confirms nothing after a failure: `python -m tests.patroni --help`."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from tests.support.patroni import Cluster, Inserts, fail_over
from tests.support.postgresql import PostgreSQL


@click.command()
@click.option("--patroni", type=click.Path(path_type=Path), default="/usr/bin/patroni", show_default=True)
@click.option("--machines", type=click.IntRange(2, 3), default=3, show_default=True)
@click.option("--times", default=10, show_default=True)
@click.option("--crash", type=click.Choice(["postgresql", "machine"]), default="machine", show_default=True)
def main(patroni: Path, machines: int, times: int, crash: str) -> None:
    """Kill the primary so many times under a client that inserts, and count what it was told is there."""
    if machines == 2 and crash == "machine":
        raise click.UsageError("one server alone confirms nothing: the other machine has to come back first")
    with PostgreSQL() as place, Cluster(place, patroni, machines) as cluster:
        cluster.await_whole().sql("CREATE TABLE probe (number int PRIMARY KEY)")
        with Inserts(cluster.dsn) as client:
            stalls = []
            for _ in range(times):
                stalls.append(fail_over(cluster, client, machine=crash == "machine"))
                click.echo(f"{stalls[-1]:.1f} s")
        kept = {number for (number,) in cluster.await_whole().sql("SELECT number FROM probe")}
    lost = [number for _, number in client.confirmed if number not in kept]
    table = Table("figure", "value")
    table.add_row(
        "without a confirmation: least, median, most", f"{min(stalls):.1f}, {median(stalls):.1f}, {max(stalls):.1f} s"
    )
    table.add_row("confirmed", f"{len(client.confirmed):,}")
    table.add_row("of these lost", f"{len(lost):,}")
    Console().print(table)
    raise SystemExit(bool(lost))


if __name__ == "__main__":
    main()
