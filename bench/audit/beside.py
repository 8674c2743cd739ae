"""What an audit costs the broker beside it: STOMP, durable, with one running and without, in turns.

The broker has one core and the generator another, as far as there are two, or the same one, so that a core is left to
spare; the audit may use all.  A ledger of a large journal is drawn up over and over by the real command.  For the
rounds without it, it is stopped where it is (SIGSTOP).  A pair of rounds is one with it and one without; which is first
changes, so that what else the machine does meets both alike.  What counts is the median of the pairs' ratios.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Final

from rich.table import Table

from bench.brokers import Bartleby
from bench.generator import Load, Outcome, Target, run
from bench.messages import FrameTemplate, Pool
from tests.support.process import cpu_seconds

#: The part of its throughput that a broker keeps at least beside an audit.
TARGET: Final = 0.95

#: CPU seconds after which an audit is past the start of Spark, and reads; and how many looks at it, at most.
STARTED_S: Final = 15.0
LOOKS_MAX: Final = 60

#: Seconds between two looks at an audit that starts.
LOOK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A round alone and a round beside an audit; `audit_cpu_s` is what that had of the processor in its round."""

    alone: Outcome
    beside: Outcome
    audit_cpu_s: float

    @property
    def throughput(self) -> float:
        """What is left of it."""
        return self.beside.rate / self.alone.rate

    @property
    def cpu(self) -> float:
        """The broker's CPU time a message, against that alone."""
        assert self.alone.broker_us is not None
        assert self.beside.broker_us is not None
        return self.beside.broker_us / self.alone.broker_us

    @property
    def audit_cores(self) -> float:
        """How many cores the audit had."""
        return self.audit_cpu_s / self.beside.seconds


def audit_command(journal: Path, priority: str, cgroup: Path | None = None) -> list[str]:
    """The real command; `cgroup` is the directory of the control group in which it runs, of either version."""
    command = [
        sys.executable, "-m", "broker", "audit", "ledger", str(journal), "--format", "json", "--priority", priority,
    ]  # fmt: skip
    if cgroup is None:
        return command
    # The shell moves itself and becomes the audit.
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup / "cgroup.procs"), *command]


class Auditor(Thread):
    """Audits over and over; `audits` counts those that have ended well, `failure` says why it has ended."""

    def __init__(self, command: Sequence[str], output: Path) -> None:
        super().__init__(name="auditor")
        self.audits = 0
        self.failure = ""
        self._command = command
        self._output = output
        self._enough = Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """See the class."""
        while not self._enough.is_set():
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
                status = self._process.wait()
            if self._enough.is_set():
                return
            if status:
                self.failure = f"the audit ended with {status}: {self._output.read_text()[-2000:]}"
                return
            self.audits += 1

    def signal(self, number: signal.Signals) -> None:
        """To the audit that runs, and all that it has started."""
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def cpu_seconds(self) -> float:
        """What the audit that runs has used so far."""
        spent = 0.0
        for pid in self._processes():
            with suppress(ProcessLookupError):
                spent += cpu_seconds(pid)
        return spent

    def _processes(self) -> set[int]:
        parents: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        found: set[int] = set()
        more = set() if self._process is None else {self._process.pid} & parents.keys()
        while more:
            found |= more
            more = {pid for pid, parent in parents.items() if parent in more}
        return found

    def end(self) -> None:
        """Kill the audit, wherever it is."""
        self._enough.set()
        self.signal(signal.SIGKILL)
        self.join()


@contextmanager
def audited(command: Sequence[str], output: Path) -> Iterator[Auditor]:
    """Somebody audits, and is stopped in the beginning."""
    auditor = Auditor(command, output)
    auditor.start()
    try:
        for _ in range(LOOKS_MAX):
            if auditor.cpu_seconds() > STARTED_S or auditor.audits or not auditor.is_alive():
                break
            auditor.join(LOOK_S)
        auditor.signal(signal.SIGSTOP)
        yield auditor
    finally:
        auditor.end()


def measure(
    command: Sequence[str], pairs: int, load: Load, say: Callable[[str], None], *, spare: bool = False
) -> list[Pair]:
    """The pairs.  `command` audits once; `spare`: the generator has the broker's core.

    Raises BrokerFailed, NotAvailable; RuntimeError if the audit fails.
    """
    cores = sorted(os.sched_getaffinity(0))
    broker = Bartleby(None, Path(__file__).parents[2] / "etc" / "broker.toml")
    pool = Pool(FrameTemplate(durable=True))
    found: list[Pair] = []
    try:
        os.sched_setaffinity(0, cores[:1])
        broker.start()
        os.sched_setaffinity(0, cores)
        target = broker.target("stomp")
        with audited(command, broker.data / "audit.json") as auditor:
            os.sched_setaffinity(0, cores[:1] if spare else cores[1:2] or cores)
            run(target, pool, load)
            while len(found) < pairs:
                pair = _pair(auditor, target, pool, load, alone_first=len(found) % 2 == 0)
                if auditor.failure:
                    raise RuntimeError(auditor.failure)
                found.append(pair)
                say(f"{len(found)}: {pair.alone.rate:,.0f}/s alone, {pair.beside.rate:,.0f}/s beside an audit")
    finally:
        os.sched_setaffinity(0, cores)
        broker.stop()
    return found


def _pair(auditor: Auditor, target: Target, pool: Pool, load: Load, *, alone_first: bool) -> Pair:
    alone = run(target, pool, load) if alone_first else None
    audits, before = auditor.audits, auditor.cpu_seconds()
    auditor.signal(signal.SIGCONT)
    beside = run(target, pool, load)
    auditor.signal(signal.SIGSTOP)
    spent = auditor.cpu_seconds() - (before if auditor.audits == audits else 0)
    return Pair(alone or run(target, pool, load), beside, spent)


def table(pairs: list[Pair]) -> Table:
    """Medians."""
    made = Table("", "alone", "beside an audit", "ratio", title=f"medians of {len(pairs)} pairs of rounds")
    for column in made.columns[1:]:
        column.justify = "right"
    alone, beside = [pair.alone for pair in pairs], [pair.beside for pair in pairs]
    rates = [median(each.rate for each in rounds) for rounds in (alone, beside)]
    costs = [median(each.broker_us or 0 for each in rounds) for rounds in (alone, beside)]
    ratios = sorted(pair.throughput for pair in pairs)
    middle = f"{median(ratios):.3f} ({ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f})"
    made.add_row("messages/s", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", middle)
    made.add_row("us of CPU a message", f"{costs[0]:.2f}", f"{costs[1]:.2f}", f"{median(p.cpu for p in pairs):.3f}")
    made.add_row("cores that the audit had", "", f"{median(pair.audit_cores for pair in pairs):.2f}", "")
    return made


def missed(pairs: list[Pair]) -> list[str]:
    """The target, if it is not met."""
    left = median(pair.throughput for pair in pairs)
    return [] if left >= TARGET else [f"throughput beside an audit: {left:.3f} of that alone, at least {TARGET}"]
