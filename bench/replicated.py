"""What replication costs: confirmations with the journal in PostgreSQL, beside files and other replicated brokers.

    python -m bench.replicated [--rounds 3] [--duration 2] [--artemis HOME] [--broker ...]

Durable STOMP with receipts, MQTT QoS 1 and unsettled AMQP to 16 destinations, with 1, 16 and 128 producers that have
one message under way each (`confirming`), and a consumer that takes them all.  Bodies are half as large as the size
says up to one and a half times.  All brokers (`replicas`) run all the time, and take turns case by case; the order of
the turns changes from round to round.  A broker that is not installed is left out.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from bench.confirming import Confirmed, Messages, run
from bench.link import BrokerFailed
from bench.messages import FrameTemplate
from bench.replicas import COUNT, QUEUES, ArtemisPair, Files, Pair, Quorum, Replicated
from bench.report import Verdict, machine
from tests.support.process import NotAvailable

FAILED: Final = 1  # exit status: a target was missed (with --check), or Bartleby misbehaved
UNUSABLE: Final = 2  # exit status: bad options, or a broker that was asked for cannot be started
PROTOCOLS: Final = ("stomp", "mqtt", "amqp")
BROKERS: Final = ("bartleby", "files", "rabbitmq", "artemis")
OURS: Final = ("bartleby", "files")
SIZES: Final = (100, 1024)  # bytes of a body on the average
PRODUCERS: Final = (1, 16, 128)
WARMING: Final = 16  # producers
LOCAL_MS: Final = 2.0  # that a confirmation by the database may take longer than one by the disk

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the report."""

    protocol: str
    size: int
    producers: int

    def __str__(self) -> str:
        return f"{self.protocol}, {self.size} bytes, {self.producers} producer{'s' if self.producers > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Row:
    """One round of one case on one broker."""

    case: Case
    broker: str
    round: int
    outcome: Confirmed


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.  warm_up_s: in place of the brokers' own."""

    cases: Sequence[Case]
    rounds: int
    seconds: float
    seed: int
    warm_up_s: float | None = None


class Measurement:
    """All rounds, on brokers that run.  Of a peer that misbehaves, the protocol is left out from then on."""

    def __init__(self, plan: Plan, brokers: Sequence[Replicated], say: Say) -> None:
        self._plan = plan
        self._brokers = brokers
        self._say = say
        self._messages: dict[tuple[str, int], Messages] = {}
        self._failed: set[tuple[str, str]] = set()
        self.rows: list[Row] = []

    def run(self) -> None:
        """Warm up, and measure.  Raises BrokerFailed when Bartleby misbehaves."""
        cases = self._plan.cases
        warming = [Case(each, cases[0].size, WARMING) for each in dict.fromkeys(case.protocol for case in cases)]
        for broker, case in product(self._brokers, warming):
            seconds = broker.warm_up_s if self._plan.warm_up_s is None else self._plan.warm_up_s
            if seconds:
                self._measure(broker, case, 0, seconds)
        for number in range(1, self._plan.rounds + 1):
            for case in cases:
                for broker in self._brokers if number % 2 else self._brokers[::-1]:
                    outcome = self._measure(broker, case, number, self._plan.seconds)
                    if outcome is not None:
                        self.rows.append(Row(case, broker.name, number, outcome))

    def _measure(self, broker: Replicated, case: Case, number: int, seconds: float) -> Confirmed | None:
        if (broker.name, case.protocol) in self._failed:
            return None
        messages = self._messages_of(broker, case.size)
        try:
            target = broker.target(case.protocol)
            outcome = run(target, case.protocol, messages, case.producers, seconds, broker.clocks)
        except BrokerFailed as error:
            if broker.name in OURS:
                raise
            self._failed.add((broker.name, case.protocol))
            self._say(f"left out from here on: {case.protocol} of {broker.name}: {error} ({case})")
            return None
        what = f"round {number}" if number else "warmed up"
        self._say(f"{what}: {case} on {broker.name}: {outcome.rate:,.0f}/s, {outcome.latency} ms")
        return outcome

    def _messages_of(self, broker: Replicated, size: int) -> Messages:
        found = self._messages.get((broker.prefix, size))
        if found is None:
            shape = FrameTemplate(
                size // 2,
                size + size // 2,
                COUNT,
                broker.prefix,
                delivered="" if broker.prefix == QUEUES else QUEUES,
                durable=True,
                receipt_every=1,
                seed=self._plan.seed,
            )
            found = self._messages[broker.prefix, size] = Messages(shape)
        return found


def started(brokers: Sequence[Replicated], wanted: Sequence[str], stack: ExitStack, say: Say) -> list[Replicated]:
    """Those that could be started; the stack stops them all.  Raises NotAvailable for one that is `wanted`."""
    found = []
    for broker in brokers:
        stack.callback(broker.stop)
        try:
            broker.start()
        except NotAvailable as error:
            if broker.name in wanted:
                raise
            say(f"{broker.name} is left out: {str(error).splitlines()[0]}")
            continue
        say(f"{broker.name} runs")
        found.append(broker)
    return found


def table(rows: Sequence[Row]) -> Table:
    """Medians over the rounds, a line a case and broker."""
    result = Table("case", "broker", title="medians over the rounds; CPU in us a message")
    for heading in ("messages/s", "lowest-highest", "p50 ms", "p99 ms", "broker", "database", "generator"):
        result.add_column(heading, justify="right")
    for case, broker in dict.fromkeys((row.case, row.broker) for row in rows):
        outcomes = _of(rows, case, broker)
        rates = [outcome.rate for outcome in outcomes]
        cpu = {name: median(one.cpu_us[name] for one in outcomes) for name in outcomes[0].cpu_us}
        result.add_row(
            str(case),
            broker,
            f"{median(rates):,.0f}",
            f"{min(rates):,.0f}-{max(rates):,.0f}",
            f"{median(outcome.latency.p50 for outcome in outcomes):.2f}",
            f"{median(outcome.latency.p99 for outcome in outcomes):.2f}",
            *(f"{cpu[name]:.1f}" if name in cpu else "" for name in ("broker", "database", "generator")),
        )
    return result


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """What is wanted: ahead of the others with most producers, and near the disk with one."""
    found = []
    for case in dict.fromkeys(row.case for row in rows):
        if case.producers == max(PRODUCERS):
            for peer in BROKERS[len(OURS) :]:
                ratio = _compared(rows, case, peer, lambda ours, theirs: ours.rate / theirs.rate)
                found.append(Verdict(f"{case}", ratio, 1.0, True, f"x {peer}"))
        if case.producers == 1:
            more = _compared(rows, case, "files", lambda ours, theirs: ours.latency.p50 - theirs.latency.p50)
            found.append(Verdict(f"{case}: p50 beyond that of files", more, LOCAL_MS, False, "ms"))
    return found


def _compared(
    rows: Sequence[Row], case: Case, peer: str, compare: Callable[[Confirmed, Confirmed], float]
) -> float | None:
    """The median over the rounds in which both ran; None: none."""
    others = {row.round: row.outcome for row in rows if (row.case, row.broker) == (case, peer)}
    mine = {row.round: row.outcome for row in rows if (row.case, row.broker) == (case, "bartleby")}
    values = [compare(mine[number], others[number]) for number in mine if number in others]
    return median(values) if values else None


def _of(rows: Sequence[Row], case: Case, broker: str) -> list[Confirmed]:
    return [row.outcome for row in rows if (row.case, row.broker) == (case, broker)]


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--broker", "names", type=click.Choice(BROKERS), multiple=True, help="Which; repeatable. Default: all.")
@click.option("--protocol", "protocols", type=click.Choice(PROTOCOLS), multiple=True, help="Which. Default: all.")
@click.option("--size", "sizes", type=int, multiple=True, help=f"Bytes of a body on the average. Default: {SIZES}.")
@click.option("--producers", type=int, multiple=True, help=f"How many. Default: {PRODUCERS}.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Medians are reported.")
@click.option("--duration", type=float, default=2.0, show_default=True, help="Seconds of a round.")
@click.option(
    "--warm-up", type=float, help="Seconds of load, in each protocol. Default: 10 for artemis, 5 for rabbitmq, else 1."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("etc/broker.toml"),
    show_default=True,
    help="Bartleby's configuration.",
)
@click.option("--python", default=sys.executable, help="Interpreter for Bartleby. Default: this one.")
@click.option("--heap", default="1g", show_default=True, help="The heap of each ActiveMQ Artemis.")
@click.option(
    "--artemis",
    type=click.Path(path_type=Path),
    envvar="ARTEMIS_HOME",
    show_envvar=True,
    help="Where ActiveMQ Artemis is unpacked.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where brokers keep their data, but for PostgreSQL, which has it in /tmp.",
)
@click.option("--seed", type=int, help="Seed of the messages. Default: a new one, printed.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures here.")
@click.option("--check", is_flag=True, help="Exit status 1 when something wanted was missed.")
def main(
    names: tuple[str, ...], protocols: tuple[str, ...], sizes: tuple[int, ...], producers: tuple[int, ...], rounds: int,
    duration: float, warm_up: float | None, config: Path, python: str, heap: str, artemis: Path | None,
    data: Path | None, seed: int | None, json_path: Path | None, check: bool,
) -> None:  # fmt: skip
    """The command."""
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    cases = [Case(*each) for each in product(protocols or PROTOCOLS, sizes or SIZES, producers or PRODUCERS)]
    plan = Plan(cases, rounds, duration, seed, warm_up)
    makers: dict[str, Callable[[], Replicated]] = {
        "bartleby": lambda: Pair(data, config, python),
        "files": lambda: Files(data, config, python),
        "rabbitmq": lambda: Quorum(data),
        "artemis": lambda: ArtemisPair(data, artemis, heap),
    }
    where = machine(data or Path(tempfile.gettempdir()))
    click.echo(", ".join(f"{name} {value}" for name, value in where.items()) + f"; seed {seed}")
    rows: list[Row] = []
    with ExitStack() as stack:
        try:
            brokers = started([makers[name]() for name in names or BROKERS], names, stack, click.echo)
            measurement = Measurement(plan, brokers, click.echo)
            rows = measurement.rows
            measurement.run()
        except NotAvailable as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(UNUSABLE)
        except BrokerFailed as error:
            click.echo(f"error: {error} (seed {seed})", err=True)
            sys.exit(FAILED)
    Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    found = verdicts(rows)
    for verdict in found:
        click.echo(str(verdict))
    if json_path:
        document = {"machine": where, "plan": asdict(plan), "rounds": [asdict(row) for row in rows]}
        json_path.write_text(json.dumps(document, indent=1) + "\n")
    if check and not all(verdict.met for verdict in found):
        sys.exit(FAILED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the brokers are stopped, too
    main()
