from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from bench.brokers import ActiveMQ, Bartleby, Broker, Connected
from bench.cases import Case, PacedRow, Plan, Recovery, Row, measure, recover
from bench.generator import Load, Outcome, Target
from bench.latency import Latency, Percentiles
from bench.messages import FrameTemplate
from bench.report import document, machine, paced_table, table, verdicts
from tests.bench.fake_broker import FakeBroker
from tests.support import peers
from tests.support.process import NotAvailable, cpu_seconds

QUICK = Plan(
    cases=("stomp-nondurable", "stomp-durable", "latency-stomp-2000", "recovery"),
    paced_s=0.05,
    rounds=2,
    shape=FrameTemplate(destinations=2),
    load=Load(messages=200),
    warm_up_s=0.0,
    recovery_messages=300,
)


def row(case: str, broker: str, number: int, rate: float, us: float | None = 1.0) -> Row:
    cpu = None if us is None else rate * us / 1e6
    return Row(case, broker, number, Outcome(int(rate), 1.0, cpu, 0.1, 1, 0, 0))


def rounds(case: str, broker: str, rates: list[float], us: float | None = 1.0) -> list[Row]:
    return [row(case, broker, number, rate, us) for number, rate in enumerate(rates)]


def test_ratios_are_taken_round_by_round() -> None:
    rows = rounds("stomp-nondurable", "bartleby", [600, 100, 70], 5.0)
    rows += rounds("stomp-nondurable", "activemq", [100, 10, 10], 30.0)
    rows += rounds("stomp-nondurable", "artemis", [300, 50, 35], 15.0)
    ratio, artemis, cpu = verdicts(Plan(cases=("stomp-nondurable",)), rows, [])
    assert ratio.value == 7.0
    assert ratio.met
    assert artemis.value == 2.0
    assert artemis.met
    assert cpu.value == pytest.approx(5.0)
    assert cpu.met


@pytest.mark.parametrize(("ours", "met"), [(1500.0, True), (1499.0, False)])
def test_durable_target_at_its_limit(ours: float, met: bool) -> None:
    rows = [row("stomp-durable", "bartleby", 1, ours), row("stomp-durable", "activemq", 1, 100)]
    assert verdicts(Plan(cases=("stomp-durable",)), rows, [])[0].met is met


@pytest.mark.parametrize(("rate", "met"), [(901.0, True), (899.0, False)])
def test_strict_target_at_its_limit(rate: float, met: bool) -> None:
    rows = [row("stomp-durable", "bartleby", 1, 1000), row("stomp-strict", "bartleby", 1, rate)]
    assert verdicts(Plan(cases=("stomp-strict",)), rows, [])[0].met is met


@pytest.mark.parametrize(
    ("messages", "ready", "met"), [(1_000_000, 10.0, True), (1_000_000, 10.1, False), (1000, 1.0, False)]
)
def test_recovery_target_at_its_limit(messages: int, ready: float, met: bool) -> None:
    found = verdicts(Plan(cases=("recovery",)), [], [Recovery("bartleby", messages, 1.0, ready, 1.0)])
    assert [verdict.met for verdict in found] == [met]


def test_what_was_not_measured_is_missed() -> None:
    found = verdicts(Plan(), rounds("stomp-durable", "bartleby", [100.0], None), [])
    assert len(found) == 29
    assert not any(verdict.met for verdict in found)
    assert all("not measured" in str(verdict) for verdict in found)


def test_a_running_broker_is_measured_in_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("bench.latency.DISK_WRITES", 10)
    with FakeBroker() as fake:
        broker = Connected(Target("127.0.0.1", fake.port), None)
        rows = measure(QUICK, [broker], said.append, data=tmp_path)
    assert [(r.round, r.case) for r in rows.loaded] == [
        (1, "stomp-nondurable"), (1, "stomp-durable"), (2, "stomp-nondurable"), (2, "stomp-durable"),
    ]  # fmt: skip
    assert all(r.outcome.messages == 200 and r.outcome.broker_us is None for r in rows.loaded)
    assert [(r.round, r.case, r.outcome.disk.count) for r in rows.paced] == [
        (number, "latency-stomp-2000", 10) for number in (1, 2)
    ]
    written = json.loads(json.dumps(document(QUICK, rows, [], machine(tmp_path))))
    assert len(written["rounds"]) == 4
    assert [row["outcome"]["latency"]["count"] for row in written["paced"]] == [100, 100]
    console = Console(width=140)
    with console.capture() as capture:
        console.print(table(rows.loaded))
        console.print(paced_table(rows.paced))
    assert capture.get().count("stomp-durable") == 1
    assert capture.get().count("latency-stomp-2000") == 1


class Compiling(Connected):
    """A broker that takes three turns to get warm."""

    compiles = True
    warm_up_s = 10.0


def test_a_broker_that_compiles_is_warmed_up_until_it_gets_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([100, 200, 300, 301, 1000, 1000])

    def run(plan: Plan, case: Case, broker: Broker, load: Load) -> Outcome:
        return row(case.name, broker.name, 1, next(rates)).outcome

    monkeypatch.setattr("bench.cases._run", run)
    said: list[str] = []
    with FakeBroker() as fake:
        broker = Compiling(Target("127.0.0.1", fake.port), None)
        measure(Plan(cases=("stomp-durable",), rounds=1), [broker], said.append)
    assert "warmed up with 901 messages of stomp-durable, at last 301/s" in said[1]
    assert "1,000/s" in said[2]


def paced(case: str, broker: str, p50: float, p99: float) -> PacedRow:
    message = Percentiles(10, p50, p99, 9.0)
    return PacedRow(case, broker, 1, Latency(message, message, Percentiles(10, 1.0, 2.0, 3.0), None))


@pytest.mark.parametrize(("p50", "p99", "met"), [(2.5, 4.0, True), (2.6, 4.1, False)])
def test_latency_targets_at_their_limits(p50: float, p99: float, met: bool) -> None:
    plan = Plan(cases=("latency-stomp-2000", "latency-mqtt-5000"))
    found = verdicts(plan, [], [], paced=[paced(case, "bartleby", p50, p99) for case in plan.cases])
    assert [verdict.met for verdict in found] == [met] * 4


@pytest.mark.parametrize(("p99", "met"), [(5.0, True), (5.1, False)])
def test_the_target_of_the_fast_rate_is_artemis(p99: float, met: bool) -> None:
    case = "latency-stomp-10000"
    rows = [paced(case, "bartleby", 1.0, p99), paced(case, "artemis", 1.0, 100.0)]
    assert [verdict.met for verdict in verdicts(Plan(cases=(case,)), [], [], paced=rows)] == [met]


class Restarting(Connected):
    """A broker whose restart loses nothing, because it is not one."""

    def kill(self) -> None:
        pass


def test_recovery_is_filled_restarted_and_drained() -> None:
    with FakeBroker() as fake:
        found = recover(QUICK, Restarting(Target("127.0.0.1", fake.port), None), lambda _: None)
        assert found.messages == 300
        assert len(fake.acks) == 2 * 2  # 150 messages a destination: one ACK at 100, one at the end


def test_nobody_listening_is_told() -> None:
    with FakeBroker() as fake:
        port = fake.port
    with pytest.raises(NotAvailable, match="nobody listens"):
        measure(QUICK, [Connected(Target("127.0.0.1", port), None)], lambda _: None)


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.ActiveMQ, "HOME", tmp_path / "nowhere")
    broker = ActiveMQ(tmp_path)
    with pytest.raises(NotAvailable, match="install the Debian package activemq"):
        broker.start()
    broker.stop()


def test_a_broker_that_ends_at_once_is_told_with_its_output(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such thing\nexit 3\n")
    python.chmod(0o700)
    config = tmp_path / "broker.toml"
    config.write_text("")
    broker = Bartleby(tmp_path, config, str(python))
    with pytest.raises(NotAvailable, match=r"status 3:\nno such thing"):
        broker.start()
    broker.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.toml", "python"]


def test_cpu_time_of_a_process_grows() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        pass  # busy on purpose


def test_cpu_time_of_a_process_that_is_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(ProcessLookupError, match=str(gone.pid)):
        cpu_seconds(gone.pid)
