from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import FAILED, UNUSABLE, main
from bench.messages import LAP, FrameTemplate, Pool
from bench.own_cost import consuming, producing
from tests.bench.fake_broker import FakeBroker

QUICK = ("run", "--messages", "300", "--rounds", "1", "--warm-up", "0", "--seed", "9")


def test_help_names_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "run" in result.output
    assert "generator" in result.output


def test_run_against_a_running_broker(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    with FakeBroker() as broker:
        address = f"127.0.0.1:{broker.port}"
        cases = ("--case", "stomp-nondurable", "--case", "stomp-durable")
        result = CliRunner().invoke(main, [*QUICK, *cases, "--connect", address, "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "seed 9" in result.output
    figures = json.loads(path.read_text())
    assert figures["plan"]["shape"]["seed"] == 9
    assert [(entry["case"], entry["messages"]) for entry in figures["rounds"]] == [
        ("stomp-nondurable", 300),
        ("stomp-durable", 300),
    ]


def test_check_fails_when_a_target_is_missed() -> None:
    with FakeBroker() as broker:
        address = f"127.0.0.1:{broker.port}"
        result = CliRunner().invoke(main, [*QUICK, "--case", "stomp-durable", "--connect", address, "--check"])
    assert result.exit_code == FAILED
    assert "MISSED" in result.output


def test_a_misbehaving_broker_fails_the_run_with_its_seed() -> None:
    with FakeBroker(lambda frames: frames[1:]) as broker:
        address = f"127.0.0.1:{broker.port}"
        result = CliRunner().invoke(main, [*QUICK, "--case", "stomp-nondurable", "--connect", address])
    assert result.exit_code == FAILED
    assert "is missing" in result.output
    assert "(seed 9)" in result.output


@pytest.mark.parametrize("case", ["stomp-durable", "recovery"])
def test_a_broker_that_cannot_start_is_told(tmp_path: Path, case: str) -> None:
    where = ("--config", str(tmp_path / "none.toml"), "--data", str(tmp_path))
    arguments = [*QUICK, "--broker", "bartleby", "--case", case, *where]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == UNUSABLE
    assert "no configuration" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        ("--destinations", "3"),
        ("--connect", "here"),
        ("--rounds", "0"),
        ("--ack", "client-individual", "--ack-every", "2"),
        ("--in-flight", "0"),
        ("--paced-duration", "0"),
        ("--loss", "3"),
    ],
)
def test_impossible_options_are_refused(wrong: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*QUICK, *wrong])
    assert result.exit_code == UNUSABLE
    assert "Error" in result.output


def test_a_commit_that_is_not_there_is_told(tmp_path: Path) -> None:
    arguments = [*QUICK, "--broker", "bartleby", "--case", "stomp-durable", "--against", "nowhere"]
    result = CliRunner().invoke(main, [*arguments, "--data", str(tmp_path)])
    assert result.exit_code == UNUSABLE
    assert "nowhere" in result.output
    assert list(tmp_path.iterdir()) == []


def test_own_cost_is_measured() -> None:
    pool = Pool(FrameTemplate())
    assert producing(pool, LAP) > 0
    assert consuming(pool, 1, "client-individual", 1) > 0
