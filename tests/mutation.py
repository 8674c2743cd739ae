"""Do the tests find faults?  `python -m tests.mutation --mutants 480 --seed 1` (or `make mutation`).

What is changed: tests/support/mutants.py; how the tests are asked: tests/support/mutation.py.  The sources are those on
which it depends that nothing is lost: the store, and the way of a message from its arrival to its acknowledgement.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from random import Random
from secrets import randbits
from time import process_time
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support.mutants import Mutant, mutants
from tests.support.mutation import ROOT, Outcome, Seen, begin, ended, load_tools, watch, which_tests

SOURCES: Final = (
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "store").glob("*.py")),
    "broker/engine/queues/arrival.py",
    "broker/engine/queues/clearing.py",
    "broker/engine/queues/consumer.py",
    "broker/engine/moves/dead_letter.py",
    "broker/engine/delivery/dispatch.py",
    "broker/engine/moves/dead_letter_queues.py",
    "broker/engine/moves/move.py",
    "broker/engine/queues/queue.py",
    "broker/engine/delivery/redelivery.py",
    "broker/engine/queues/removal.py",
    "broker/engine/delivery/transaction.py",
)

#: Tests of these sources.  The others, of whole brokers, find more, and take minutes for each mutant.
TESTS: Final = (
    "tests/store",
    "tests/broker/engine",
    "tests/simulation/test_amq_6059.py",
    "tests/simulation/test_named_bugs.py",
    "tests/simulation/test_named_bugs_of_queues.py",
    "tests/simulation/test_strict.py",
)

#: Where what the tests execute is kept for `--reuse`.
SEEN: Final = ROOT / "build" / "mutation.json"


class Run:
    """Some mutants, tried in some processes at a time; `outcomes` are by source."""

    def __init__(self, console: Console, seen: Seen, seconds: float) -> None:
        self.outcomes: dict[str, Counter[Outcome]] = {}
        self._console = console
        self._seen = seen
        self._seconds = seconds
        self._running: dict[int, tuple[str, Mutant, str]] = {}

    def all(self, chosen: list[tuple[str, Mutant]], jobs: int) -> None:
        """Try them."""
        waiting = deque(chosen)
        with Progress(console=self._console) as progress:
            task = progress.add_task("mutants", total=len(chosen))
            while waiting or self._running:
                while waiting and len(self._running) < jobs:
                    self._begin(*waiting.popleft())
                if self._running:
                    self._wait()
                progress.update(task, completed=len(chosen) - len(waiting) - len(self._running))

    def _begin(self, source: str, mutant: Mutant) -> None:
        text = (ROOT / source).read_bytes()
        tests = which_tests(self._seen, source, text.decode(), mutant.line, self._seconds)
        if not tests:
            self._tell(source, mutant, Outcome.UNSEEN, "")
            return
        seconds = sum(self._seen.seconds[test] for test in tests)
        child = begin(source, mutant, tests, seconds)
        self._running[child] = source, mutant, f"{len(tests)} tests, {seconds:.1f} s"

    def _wait(self) -> None:
        child, status = os.wait()
        source, mutant, asked = self._running.pop(child)
        self._tell(source, mutant, ended(status), asked)

    def _tell(self, source: str, mutant: Mutant, outcome: Outcome, asked: str) -> None:
        self.outcomes.setdefault(source, Counter())[outcome] += 1
        if outcome in (Outcome.SURVIVED, Outcome.UNSEEN):
            text = (ROOT / source).read_bytes()
            before, after = mutant.lines(text)
            tried = sum(outcomes.total() for outcomes in self.outcomes.values())
            told = f"{tried}: {outcome}: {source}:{mutant.line} ({asked})\n- {before}\n+ {after}"
            self._console.print(told, markup=False, highlight=False)


@click.command()
@click.option("--mutants", "count", default=480, show_default=True, help="How many; 0: all.")
@click.option("--seed", type=int, help="Which ones.  [default: a new one, printed]")
@click.option("--source", "sources", multiple=True, type=click.Choice(SOURCES), help="Only of these.")
@click.option("--line", type=int, help="Only of this line.")
@click.option("--seconds", default=10.0, show_default=True, help="Of the processor, for the tests of a mutant.")
@click.option("--jobs", default=2, show_default=True, help="Mutants at a time.")
@click.option("--reuse", is_flag=True, help="What the tests execute is known from an earlier run.")
def main(
    count: int, seed: int | None, sources: tuple[str, ...], line: int | None, seconds: float, jobs: int, *, reuse: bool
) -> None:
    """Put one fault at a time into the sources, run the tests that execute its line, and say which are not found."""
    console = Console(soft_wrap=True)
    if not reuse or not SEEN.exists():
        console.print("the tests run once without a fault")
        if watch(SOURCES, TESTS, SEEN):
            raise click.ClickException(f"a test fails without any fault: {' '.join(TESTS)}")
    seed = randbits(32) if seed is None else seed
    everything = [
        (source, mutant)
        for source in sources or SOURCES
        for mutant in mutants((ROOT / source).read_bytes())
        if line is None or mutant.line == line
    ]
    chosen = Random(seed).sample(everything, min(count, len(everything)) if count else len(everything))
    console.print(f"{len(chosen)} of {len(everything)} mutants; to repeat it: --mutants {count} --seed {seed}")
    load_tools(TESTS)
    run = Run(console, Seen.load(SEEN), seconds)
    run.all(chosen, jobs)
    table = Table("source", *Outcome)
    total: Counter[Outcome] = Counter()
    for source, outcomes in sorted(run.outcomes.items()):
        total += outcomes
        table.add_row(source, *(str(outcomes[each]) for each in Outcome))
    console.print(table)
    found = total[Outcome.KILLED] + total[Outcome.ENDLESS]
    console.print(f"{found} of {total.total()} found: {found * 100 / max(total.total(), 1):.1f} %")
    spent = os.times()
    console.print(f"{process_time() + spent.children_user + spent.children_system:,.0f} s of CPU")


if __name__ == "__main__":
    main()
