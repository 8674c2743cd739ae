"""Command line of the benchmark: `python -m bench run`, `python -m bench generator`."""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from bench import own_cost, report
from bench.against import Other, comparisons, unpacked
from bench.brokers import ActiveMQ, Artemis, Bartleby, Broker, Connected, Mosquitto, RabbitMQ
from bench.cases import IDLE, NAMES, PROTOCOLS, RECOVERY, Plan, Recovery, Rows, idle, measure, recover
from bench.consumer import AckMode
from bench.generator import Load, Target
from bench.instructions import why_not
from bench.link import BrokerFailed
from bench.messages import LAP, FrameTemplate, Pool
from bench.mqtt_idle import Idle
from tests.support.process import NotAvailable

FAILED = 1  # exit status: a target was missed (with --check), or a broker misbehaved
UNUSABLE = 2  # exit status: bad options, or a broker that was asked for cannot be started
#: The brokers that can be started, and what they speak.
BROKERS = {
    "bartleby": Bartleby.protocols,
    "activemq": ActiveMQ.protocols,
    "mosquitto": Mosquitto.protocols,
    "rabbitmq": RabbitMQ.protocols,
    "artemis": Artemis.protocols,
}
#: What is left out, unless it is asked for, where it is not installed.
PEERS = frozenset(BROKERS) - {"bartleby"}
#: In per cent: what --against calls a loss where --loss does not say.
LOSS_SHOWN = 3.0
DRAIN_LAPS = 50  # half a million messages: long enough for steady figures


@click.group()
def main() -> None:
    """Measures brokers of STOMP, AMQP and MQTT from outside: throughput, CPU a message, and that no message is lost,
    repeated, reordered or changed meanwhile."""


def _address(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit():
        raise click.BadParameter("HOST:PORT is wanted")
    return host, int(port)


@main.command()
@click.option("--case", "cases", type=click.Choice(NAMES), multiple=True, help="Which cases; repeatable. Default: all.")
@click.option(
    "--broker",
    "brokers",
    type=click.Choice([*BROKERS]),
    multiple=True,
    help="Which brokers to start; repeatable. Default: all that speak the cases' protocols and are "
    "installed, or none with --connect.",
)
@click.option("--connect", callback=_address, metavar="HOST:PORT", help="Also measure a broker that runs already.")
@click.option(
    "--connect-protocol",
    type=click.Choice(["stomp", "amqp", "mqtt"]),
    default="stomp",
    show_default=True,
    help="What is spoken on that port.",
)
@click.option("--pid", type=int, help="Process id of that broker, for its CPU time.")
@click.option("--login", help="User for --connect.")
@click.option("--passcode", help="Password for --connect.")
@click.option("--duration", type=float, default=5.0, show_default=True, help="Seconds of sending a round.")
@click.option("--messages", type=int, help="Send so many messages a round instead.")
@click.option("--paced-duration", type=float, default=10.0, show_default=True, help="Seconds of a round of latency-...")
@click.option("--rounds", type=int, default=3, show_default=True, help="Rounds; medians are reported.")
@click.option(
    "--warm-up",
    type=float,
    help="Seconds of load before the first round. Default: 1 (bartleby, "
    "mosquitto), 5 (rabbitmq), 10 (activemq, artemis; again until they get no faster), 2 (--connect), for non-durable "
    "and durable load each.",
)
@click.option("--size-min", type=int, default=50, show_default=True, help="Bytes of the smallest body.")
@click.option("--size-max", type=int, default=150, show_default=True, help="Bytes of the largest body.")
@click.option("--destinations", type=int, default=16, show_default=True, help=f"A divisor of {LAP}.")
@click.option(
    "--destination-prefix",
    default="/queue/bench.",
    show_default=True,
    help="Names are PREFIX00, PREFIX01, ...; /topic/... works for the non-durable case. MQTT: topic/00, ...",
)
@click.option("--in-flight", type=int, default=40_000, show_default=True, help="Most messages sent and not received.")
@click.option(
    "--ack",
    type=click.Choice(["client", "client-individual"]),
    default="client",
    show_default=True,
    help="Acknowledgement of the durable cases: cumulative, or each message by itself.",
)
@click.option("--ack-every", type=int, help="Messages of one destination to an ACK. Default: 1.")
@click.option(
    "--receipt-every",
    type=int,
    default=0,
    show_default=True,
    help="Messages to a receipt; the last message always asks for one.",
)
@click.option(
    "--subscription-header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Headers of SUBSCRIBE in place of the broker's own; repeatable.",
)
@click.option("--recovery-messages", type=int, default=1_000_000, show_default=True, help="Messages to recover.")
@click.option("--recovery-peer", is_flag=True, help="Measure the recovery of activemq, too.")
@click.option("--idle-connections", type=int, default=10_000, show_default=True, help="Of the case mqtt-idle.")
@click.option("--idle-rate", type=int, default=1_000, show_default=True, help="Of these, so many come a second.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("etc/broker.toml"),
    show_default=True,
    help="Bartleby's configuration.",
)
@click.option("--python", default=sys.executable, help="Interpreter for bartleby. Default: this one.")
@click.option("--heap", default="2g", show_default=True, help="The heap of ActiveMQ and ActiveMQ Artemis.")
@click.option(
    "--artemis",
    type=click.Path(path_type=Path),
    envvar="ARTEMIS_HOME",
    show_envvar=True,
    help="Where the binary distribution of ActiveMQ Artemis is unpacked.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where brokers keep their data; must be the disk to measure. Default: temporary files' directory.",
)
@click.option("--seed", type=int, help="Seed of the messages. Default: a new one, printed.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures here.")
@click.option("--check", is_flag=True, help="Exit status 1 when a target of the chosen cases is missed.")
@click.option(
    "--against",
    metavar="REV",
    help="Also measure Bartleby as it is at a commit, in turn with this tree, and compare the cost of a message.",
)
@click.option(
    "--loss",
    type=float,
    metavar="PERCENT",
    help="With --against: exit status 1 when a message costs so much more than at that commit.",
)
def run(
    cases: tuple[str, ...], brokers: tuple[str, ...], connect: tuple[str, int] | None, connect_protocol: str,
    pid: int | None, login: str | None, passcode: str | None, duration: float, messages: int | None,
    paced_duration: float, rounds: int,
    warm_up: float | None,
    size_min: int, size_max: int, destinations: int, destination_prefix: str, in_flight: int, ack: AckMode,
    ack_every: int | None, receipt_every: int, headers: tuple[str, ...], recovery_messages: int, recovery_peer: bool,
    idle_connections: int, idle_rate: int,
    config: Path, python: str, heap: str, artemis: Path | None, data: Path | None, seed: int | None,
    json_path: Path | None, check: bool, against: str | None, loss: float | None,
) -> None:  # fmt: skip
    """Runs cases on brokers in alternating rounds and prints medians, targets, and where they stand."""
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    try:
        plan = Plan(
            cases=cases or NAMES,
            rounds=rounds,
            shape=FrameTemplate(size_min, size_max, destinations, destination_prefix, False, receipt_every, seed),
            load=Load(messages, duration if messages is None else None, in_flight),
            ack=ack,
            ack_every=ack_every if ack_every is not None else 1,
            subscription_headers=headers,
            warm_up_s=warm_up,
            recovery_messages=recovery_messages,
            idle_connections=idle_connections,
            idle_rate=idle_rate,
            paced_s=paced_duration,
        )
        if loss is not None and (against is None or loss < 0):
            raise ValueError("--loss needs --against, and is a number of per cent")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    makers = _makers(data, config, python, heap, artemis)
    spoken = {PROTOCOLS[name] for name in plan.cases}
    names = [name for name in BROKERS if name in brokers or not (brokers or connect)]
    names = [name for name in names if spoken.intersection(BROKERS[name])]
    chosen = [makers[name] for name in names]
    if connect:
        target = Target(*connect, login, passcode)
        chosen.append(lambda: Connected(target, pid, connect_protocol))
    recovering = [makers[name] for name in names if name == "bartleby" or (name == "activemq" and recovery_peer)]
    idling = [makers[name] for name in names if "mqtt" in BROKERS[name]]
    machine = report.machine(data or Path(tempfile.gettempdir()))
    click.echo(", ".join(f"{name} {value}" for name, value in machine.items()) + f"; seed {seed}")
    if why := why_not():
        click.echo(f"no instructions a message: {why}")
    other = ""
    try:
        with ExitStack() as stack:
            if against is not None:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-against-")))
                then = Other(data, *unpacked(against, directory), python)
                chosen.append(lambda: then)
                other = then.name
            rows = measure(plan, [make() for make in chosen], click.echo, () if brokers else PEERS, data)
        recoveries = [recover(plan, make(), click.echo) for make in recovering] if RECOVERY in plan.cases else []
        idles = [idle(plan, make(), click.echo) for make in idling] if IDLE in plan.cases else []
    except NotAvailable as error:
        click.echo(f"error: {error}\nGive --broker for others.", err=True)
        sys.exit(UNUSABLE)
    except BrokerFailed as error:
        click.echo(f"error: {error} (seed {seed})", err=True)
        sys.exit(FAILED)
    kept = _told(plan, rows, recoveries, idles, machine, json_path, targets=check or not other)
    cheap = _compared(rows, other, LOSS_SHOWN if loss is None else loss)
    if (loss is not None and not cheap) or (check and not kept):
        sys.exit(FAILED)


def _compared(rows: Rows, other: str, loss: float) -> bool:
    """Tells what a message costs beside the other one, if there is one; whether none costs so many per cent more."""
    compared = comparisons(rows.loaded, Bartleby.name, other) if other else []
    for one in compared:
        click.echo(f"{one.told(loss / 100)}, beside {other}")
    return not any(one.lost(loss / 100) for one in compared)


def _makers(
    data: Path | None, config: Path, python: str, heap: str, artemis: Path | None
) -> dict[str, Callable[[], Broker]]:
    return {
        "bartleby": lambda: Bartleby(data, config, python),
        "activemq": lambda: ActiveMQ(data, heap),
        "mosquitto": lambda: Mosquitto(data),
        "rabbitmq": lambda: RabbitMQ(data),
        "artemis": lambda: Artemis(data, artemis, heap),
    }


def _told(
    plan: Plan,
    rows: Rows,
    recoveries: list[Recovery],
    idles: list[Idle],
    machine: dict[str, object],
    json_path: Path | None,
    *,
    targets: bool,
) -> bool:
    """Tells what was found, with the targets or without; whether all of them were met."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    if rows.loaded:
        console.print(report.table(rows.loaded))
    if rows.paced:
        console.print(report.paced_table(rows.paced))
    for recovery in recoveries:
        click.echo(
            f"recovery of {recovery.messages:,} messages on {recovery.broker}: {recovery.ready_s:.2f} s to ready, "
            f"{recovery.drain_s:.1f} s to receive them all"
        )
    for one in idles:
        click.echo(
            f"{one.connections:,} idle connections on {one.broker}: {one.memory / 1024:.1f} KiB each; they came at "
            f"{one.rate:,.0f}/s, and 99 of 100 PINGRESPs took up to {one.busy_ms:.1f} ms, before {one.calm_ms:.1f} ms"
        )
    found = report.verdicts(plan, rows.loaded, recoveries, idles, rows.paced)
    for verdict in found if targets else ():
        click.echo(str(verdict))
    if json_path:
        json_path.write_text(json.dumps(report.document(plan, rows, recoveries, machine, idles), indent=1) + "\n")
    return all(verdict.met for verdict in found)


@main.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the messages.")
def generator(seed: int) -> None:
    """Measures the generator itself: its CPU a message for sending, and for receiving, checking and acknowledging."""
    pool = Pool(FrameTemplate(durable=True, seed=seed))
    click.echo(f"produce: {own_cost.producing(pool, DRAIN_LAPS * LAP):.2f} us a message")
    modes: tuple[tuple[AckMode, int], ...] = (("auto", 1), ("client", 100), ("client-individual", 1))
    for ack, every in modes:
        cost = own_cost.consuming(pool, DRAIN_LAPS, ack, every)
        click.echo(f"consume, ack {ack} every {every}: {cost:.2f} us a message")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the brokers are stopped, too
    main()
