"""The measurement of replication: it starts what there is, measures all of it in turn, and takes it down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import confirming
from bench.confirming import Confirmed
from bench.latency import Percentiles
from bench.replicated import UNUSABLE, Case, Row, main, verdicts

QUICK = ("--rounds", "1", "--duration", "0.1", "--warm-up", "0", "--size", "100", "--seed", "3")


def test_a_pair_is_measured_beside_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "SETTLING_S", 0.0)
    path = tmp_path / "figures.json"
    chosen = ("--broker", "bartleby", "--broker", "files", "--producers", "16", "--data", str(tmp_path))
    result = CliRunner().invoke(main, [*QUICK, *chosen, "--json", str(path)])
    assert result.exit_code == 0, result.output
    rounds = json.loads(path.read_text())["rounds"]
    assert [(each["case"]["protocol"], each["broker"]) for each in rounds] == [
        (protocol, broker) for protocol in ("stomp", "mqtt", "amqp") for broker in ("bartleby", "files")
    ]
    assert all(each["outcome"]["messages"] > 0 for each in rounds)
    assert [*rounds[0]["outcome"]["cpu_us"]] == ["broker", "database", "generator"]
    assert [*tmp_path.iterdir()] == [path]


def test_a_peer_that_is_missing_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [*QUICK, "--broker", "artemis", "--artemis", str(tmp_path)])
    assert result.exit_code == UNUSABLE
    assert "no ActiveMQ Artemis" in result.output


def row(producers: int, broker: str, number: int, messages: int, p50: float) -> Row:
    """A round of one second."""
    outcome = Confirmed(messages, 1.0, Percentiles(messages, p50, p50, p50), {})
    return Row(Case("stomp", 100, producers), broker, number, outcome)


def test_what_is_wanted_is_compared_round_by_round() -> None:
    rows = [
        row(128, "bartleby", 1, 300, 9.0),
        row(128, "rabbitmq", 1, 100, 9.0),
        row(128, "bartleby", 2, 200, 9.0),
        row(1, "bartleby", 1, 10, 2.5),
        row(1, "files", 1, 10, 0.4),
    ]
    found = verdicts(rows)
    assert [(one.value, one.met) for one in found] == [(3.0, True), (None, False), (pytest.approx(2.1), False)]
