"""Does anything grow?  `python -m tests.soak --days 90`, simulated; `python -m tests.soak --minutes 60`, for real."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from tests.support.soak import Months, Sample, grown, soak

#: The part of a real soak that counts as warm-up.
WARM_UP: float = 0.3


@click.command()
@click.option("--days", type=click.IntRange(min=4), help="So many simulated days.")
@click.option("--minutes", type=float, help="So many real minutes.")
def main(days: int | None, minutes: float | None) -> None:
    """Use a broker for long; exit status 1 if something grew (simulated), the figures (real)."""
    console = Console()
    if days is not None:
        months = Months()
        seen = []
        for number in range(1, days + 1):
            seen.append(months.day())
            if number % 10 == 0 or number == days:
                console.print(f"day {number}: {seen[-1]}")
        wrong = grown(seen)
        console.print(
            "\n".join(wrong) or f"nothing has grown; {months.sent:,} messages", style="red" if wrong else "green"
        )
        sys.exit(1 if wrong else 0)
    if minutes is None:
        raise click.UsageError("give --days or --minutes")

    def tell(sample: Sample) -> None:
        console.print(
            f"{sample.at:6.0f} s  rss {sample.rss / (1 << 20):6.1f} MiB  {sample.files} files"
            f"  journal {sample.journal / (1 << 20):5.1f} MiB"
        )

    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        done = soak(Path(directory), minutes * 60, look_s=10, tell=tell)
    files = {sample.files for sample in done.samples}
    largest = max(sample.journal for sample in done.samples)
    slope = done.slope(minutes * 60 * WARM_UP)
    console.print(f"{done.messages:,} messages; rss {slope / (1 << 20):+.2f} MiB an hour after the warm-up")
    console.print(f"open files {min(files)} to {max(files)}; journal at most {largest / (1 << 20):.1f} MiB")


if __name__ == "__main__":
    main()
