"""Power losses by the million: `python -m tests.torture --points 1000000 --seed 7` (or `make torture`).

What is tried at each point: tests/support/torture.py.
"""

from __future__ import annotations

import sys
from secrets import randbits
from time import process_time

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support.damage import KINDS, Whole, hurt
from tests.support.torture import SCENES, Wrong, torture


@click.command()
@click.option("--points", default=100_000, show_default=True, help="How many power losses at least.")
@click.option("--seed", type=int, help="Repeats an earlier run.  [default: a new one, printed]")
@click.option("--scene", "scenes", multiple=True, type=click.Choice(list(SCENES)), help="Only these.  [default: all]")
@click.option("--disks", default=3, show_default=True, help="Copies of the disk before each operation.")
@click.option("--short", is_flag=True, help="Journals of a few entries: most points a second.")
@click.option("--every-byte", is_flag=True, help="Instead: every byte of a journal flipped, every beginning, ...")
@click.option("--number", type=int, help="Only the one scene of this number, as a failure names it.")
def main(
    points: int,
    seed: int | None,
    scenes: tuple[str, ...],
    disks: int,
    *,
    short: bool,
    every_byte: bool,
    number: int | None,
) -> None:
    """Let the power go at every disk operation of random workloads; exit status 1 and the reason when it costs any."""
    console = Console()
    chosen = scenes or tuple(SCENES)
    seed = randbits(32) if seed is None else seed
    if every_byte:
        _damage(console)
        return
    like = f"--disks {disks}" + (" --short" if short else "")
    begun = process_time()
    try:
        if number is not None:
            scene = SCENES[chosen[0]](number, disks, short=short)
            scene.play()
            tried = {scene.name: scene.points}
        else:
            console.print(f"seed {seed}: to repeat it, --points {points} --seed {seed} {like}")
            with Progress(console=console) as progress:
                task = progress.add_task("points", total=points)
                told = lambda name, done: progress.advance(task, done)  # noqa: E731
                tried = torture(points, seed, scenes=chosen, disks=disks, short=short, tell=told)
    except Wrong as wrong:
        console.print(f"{wrong} {like}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    seconds = process_time() - begun
    table = Table("scene", "points")
    for name, count in tried.items():
        table.add_row(name, f"{count:,}")
    console.print(table)
    total = sum(tried.values())
    console.print(f"{total:,} points, nothing lost, nothing back, nothing twice", style="green")
    console.print(f"{seconds:,.0f} s of CPU, {total / seconds:,.0f} points a second")


def _damage(console: Console) -> None:
    """Every wound that tests/support/damage.py knows, at every byte."""
    whole = Whole()
    console.print(f"a journal of {whole.nbytes:,} bytes in {len(whole.segments)} segments")
    for kind in KINDS:
        begun = process_time()
        tried, told = hurt(whole, kind, stride=1 if kind in ("flipped", "cut") else 8, seed=1)
        seconds = process_time() - begun
        console.print(f"{kind}: {tried:,} wounds, {told:,} told, the others harmless; {seconds:,.0f} s of CPU")


if __name__ == "__main__":
    main()
