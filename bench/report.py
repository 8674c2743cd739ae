"""From rounds to a table, targets and JSON."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rich.table import Table

from bench.cases import (
    AMQP_DURABLE,
    AMQP_NONDURABLE,
    DURABLE,
    FAN_OUTS,
    IDLE,
    NONDURABLE,
    PACED,
    PACED_STOMP_FAST,
    QOS_0,
    QOS_1,
    RECOVERY,
    STRICT,
    PacedRow,
    Plan,
    Recovery,
    Row,
    Rows,
)
from bench.latency import Percentiles
from bench.mqtt_idle import Idle

OURS: Final = "bartleby"
PEER: Final = "activemq"
MOSQUITTO: Final = "mosquitto"
RABBITMQ: Final = "rabbitmq"
ARTEMIS: Final = "artemis"
IDLE_KIB: Final = 20.0  # of memory an idle connection may cost
DELAY_MS: Final = 20.0  # that a PINGRESP may take, of 99 in 100, while connections come
RECOVERY_TARGET_MESSAGES: Final = 1_000_000
DISK_P50: Final = 2.5  # times the disk's own time that a message may take at a fixed rate
DISK_P99: Final = 2.0
TWENTIETH: Final = 0.05  # of Artemis's p99
SYNCS: Final = 200  # writes of the disk probe, some 50 ms on a good disk


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured; value None: not measured (no such run, or no peer)."""

    name: str
    value: float | None
    limit: float
    at_least: bool
    unit: str

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        value = "not measured" if self.value is None else f"{self.value:.2f} {self.unit}"
        return f"{'met   ' if self.met else 'MISSED'} {self.name}: {value} (target {sign} {self.limit:g} {self.unit})"


def verdicts(
    plan: Plan,
    rows: Sequence[Row],
    recoveries: Sequence[Recovery],
    idles: Sequence[Idle] = (),
    paced: Sequence[PacedRow] = (),
) -> list[Verdict]:
    """The project's targets, for the cases in the plan."""
    found = []
    for case, ratio, cpu in ((NONDURABLE, 6.0, 5.0), (DURABLE, 15.0, 8.0)):
        if case.name in plan.cases:
            for peer, limit, unit in ((PEER, ratio, "x Classic"), (ARTEMIS, 2.0, "x Artemis")):
                beside = _ratio(rows, (case.name, OURS), (case.name, peer))
                found.append(Verdict(f"{case.name} throughput", beside, limit, True, unit))
            found.append(Verdict(f"{case.name} CPU", _cpu(rows, case.name, OURS), cpu, False, "us a message"))
    if STRICT.name in plan.cases:
        strict = _ratio(rows, (STRICT.name, OURS), (DURABLE.name, OURS))
        cost = None if strict is None else 100 * (1 - strict)
        found.append(Verdict("strict delivery counts cost", cost, 10.0, False, "% of throughput"))
    found += _amqp_verdicts(plan, rows)
    found += _mqtt_verdicts(plan, rows, idles)
    found += _paced_verdicts(plan, paced)
    if RECOVERY in plan.cases:
        ready = [r.ready_s for r in recoveries if r.broker == OURS and r.messages >= RECOVERY_TARGET_MESSAGES]
        found.append(Verdict("recovery of a million messages", max(ready, default=None), 10.0, False, "s"))
    return found


def _amqp_verdicts(plan: Plan, rows: Sequence[Row]) -> list[Verdict]:
    found = []
    for case, least, cpu in ((AMQP_NONDURABLE, 8.0, 6.0), (AMQP_DURABLE, 5.0, 9.0)):
        if case.name not in plan.cases:
            continue
        for peer, limit, unit in ((RABBITMQ, least, "x RabbitMQ"), (ARTEMIS, 2.0, "x Artemis")):
            ratio = _ratio(rows, (case.name, OURS), (case.name, peer))
            found.append(Verdict(f"{case.name} throughput", ratio, limit, True, unit))
        found.append(Verdict(f"{case.name} CPU", _cpu(rows, case.name, OURS), cpu, False, "us a message"))
    return found


def _mqtt_verdicts(plan: Plan, rows: Sequence[Row], idles: Sequence[Idle] = ()) -> list[Verdict]:
    found = []
    for case, least in ((QOS_0, 1.0), (QOS_1, 2.0), *((case, 1.0) for case in FAN_OUTS)):
        if case.name not in plan.cases:
            continue
        peer = _ratio(rows, (case.name, OURS), (case.name, MOSQUITTO))
        found.append(Verdict(f"{case.name} throughput", peer, least, True, "x Mosquitto"))
        if case in (QOS_0, QOS_1):
            rabbit = _ratio(rows, (case.name, OURS), (case.name, RABBITMQ))
            found.append(Verdict(f"{case.name} throughput", rabbit, 10.0, True, "x RabbitMQ"))
        if case is QOS_0:
            ours, theirs = _cpu(rows, case.name, OURS), _cpu(rows, case.name, MOSQUITTO)
            cpu = ours / theirs if ours is not None and theirs else None
            found.append(Verdict(f"{case.name} CPU a message", cpu, 1.0, False, "x Mosquitto"))
    if IDLE in plan.cases:
        own = next((one for one in idles if one.broker == OURS), None)
        memory, delay = (None, None) if own is None else (own.memory / 1024, own.busy_ms)
        found.append(Verdict("an idle connection", memory, IDLE_KIB, False, "KiB"))
        found.append(Verdict("a PINGRESP while connections come", delay, DELAY_MS, False, "ms"))
    return found


def _paced_verdicts(plan: Plan, paced: Sequence[PacedRow]) -> list[Verdict]:
    found = []
    for case in PACED:
        if case.name not in plan.cases:
            continue
        ours = _paced(paced, case.name, OURS)
        if case is PACED_STOMP_FAST:
            theirs = _paced(paced, case.name, ARTEMIS)
            ratio = ours[1] / theirs[1] if ours and theirs else None
            found.append(Verdict(f"{case.name} p99", ratio, TWENTIETH, False, "x Artemis"))
            continue
        for at, (name, limit) in enumerate((("p50", DISK_P50), ("p99", DISK_P99))):
            ratio = ours[at] / ours[at + 3] if ours else None
            found.append(Verdict(f"{case.name} {name}", ratio, limit, False, "x disk"))
    return found


def _paced(paced: Sequence[PacedRow], case: str, broker: str) -> tuple[float, ...]:
    """Medians over the rounds in ms: p50, p99 and p99.9 of the messages, and of the disk; nothing without rounds."""
    rows = [row.outcome for row in paced if (row.case, row.broker) == (case, broker)]
    times = [[*_three(row.latency), *_three(row.disk)] for row in rows]
    return tuple(map(median, zip(*times, strict=True)))


def _three(times: Percentiles) -> tuple[float, float, float]:
    return times.p50, times.p99, times.p999


def paced_table(paced: Sequence[PacedRow]) -> Table:
    """Medians over the rounds, a line a case and broker."""
    result = Table("case", "broker", title="ms from when a message was due until the consumer had it")
    for heading in ("p50", "p99", "p99.9", "sent late, p99", "disk p50", "p99", "p99.9", "broker us"):
        result.add_column(heading, justify="right")
    for case, broker in dict.fromkeys((row.case, row.broker) for row in paced):
        rows = [row.outcome for row in paced if (row.case, row.broker) == (case, broker)]
        times = [f"{value:.2f}" for value in _paced(paced, case, broker)]
        cpu = [row.cpu_us for row in rows if row.cpu_us is not None]
        late = f"{median(row.late.p99 for row in rows):.2f}"
        result.add_row(case, broker, *times[:3], late, *times[3:], f"{median(cpu):.0f}" if cpu else "-")
    return result


def table(rows: Sequence[Row]) -> Table:
    """Medians over the rounds, a line a case and broker."""
    result = Table("case", "broker", title="medians over the rounds")
    figures = ("messages/s", "lowest-highest", "broker us", "instr.", "generator us", "messages", "receipts", "ACKs")
    for heading in (*figures, "resent"):
        result.add_column(heading, justify="right")
    for case, broker in dict.fromkeys((row.case, row.broker) for row in rows):
        outcomes = [row.outcome for row in _of(rows, case, broker)]
        rates = [outcome.rate for outcome in outcomes]
        cpu = _cpu(rows, case, broker)
        counted = [outcome.instructions_each for outcome in outcomes]
        result.add_row(
            case,
            broker,
            f"{median(rates):,.0f}",
            f"{min(rates):,.0f}-{max(rates):,.0f}",
            "-" if cpu is None else f"{cpu:.2f}",
            "-" if None in counted else f"{median(each for each in counted if each is not None):,.0f}",
            f"{median(outcome.generator_us for outcome in outcomes):.2f}",
            f"{median(outcome.messages for outcome in outcomes):,.0f}",
            f"{median(outcome.receipts for outcome in outcomes):,.0f}",
            f"{median(outcome.acks for outcome in outcomes):,.0f}",
            f"{median(outcome.resent for outcome in outcomes):,.0f}",
        )
    return result


def document(
    plan: Plan,
    rows: Rows,
    recoveries: Sequence[Recovery],
    machine: dict[str, object],
    idles: Sequence[Idle] = (),
) -> dict[str, object]:
    """Everything, for json.dump."""
    found = verdicts(plan, rows.loaded, recoveries, idles, rows.paced)
    return {
        "machine": machine,
        "plan": asdict(plan),
        "rounds": [
            {
                "case": row.case,
                "broker": row.broker,
                "round": row.round,
                **asdict(row.outcome),
                "rate": row.outcome.rate,
                "broker_us": row.outcome.broker_us,
                "generator_us": row.outcome.generator_us,
                "instructions_each": row.outcome.instructions_each,
            }
            for row in rows.loaded
        ],
        "paced": [asdict(row) for row in rows.paced],
        "recoveries": [asdict(recovery) for recovery in recoveries],
        "idle": [asdict(idle) for idle in idles],
        "targets": [{**asdict(verdict), "met": verdict.met} for verdict in found],
    }


def machine(directory: Path) -> dict[str, object]:
    """What a figure depends on besides the broker."""
    header = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = [fact.partition(":")[2].strip() for fact in header if fact.startswith("model name")]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "fdatasyncs_per_s": round(_sync_rate(directory)),
    }


def say(what: str, figure: str) -> None:
    """One line."""
    print(f"{what:34} {figure}", flush=True)


def _sync_rate(directory: Path) -> float:
    path = directory / f"bench-sync-{os.getpid()}"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(handle, 0, 4096 * SYNCS)
        start = time.perf_counter()
        for number in range(SYNCS):
            os.pwrite(handle, b"x" * 4096, 4096 * number)
            os.fdatasync(handle)
        return SYNCS / (time.perf_counter() - start)
    finally:
        os.close(handle)
        path.unlink()


def _of(rows: Sequence[Row], case: str, broker: str) -> list[Row]:
    return [row for row in rows if row.case == case and row.broker == broker]


def _cpu(rows: Sequence[Row], case: str, broker: str) -> float | None:
    values = [row.outcome.broker_us for row in _of(rows, case, broker)]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _ratio(rows: Sequence[Row], ours: tuple[str, str], peer: tuple[str, str]) -> float | None:
    """Median over the rounds of one throughput divided by another of the same round."""
    rates = {row.round: row.outcome.rate for row in _of(rows, *peer)}
    ratios = [row.outcome.rate / rates[row.round] for row in _of(rows, *ours) if row.round in rates]
    return median(ratios) if ratios else None
