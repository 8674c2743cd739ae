"""`bartleby audit`: what the broker's own command adds to the audits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from broker.cli import audit as room
from spark_jobs import command
from spark_jobs.journal.snapshot import Snapshot
from tests.broker.cli.harness import Operator, invoke, operate
from tests.broker.management.harness import TestBroker
from tests.spark_jobs.report import samples


class Ran:
    """What would have been run with Spark: the name of the audit, its snapshot, and the options of the ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.audits: list[tuple[str, Snapshot]] = []
        self.options: list[Any] = []
        monkeypatch.setattr(command, "_audited", self._audited)
        monkeypatch.setattr("spark_jobs.audits.ledger.ledger", self._ledger)

    def _audited(self, name: str, request: object, run: Callable[..., Any], snapshot: Snapshot) -> Any:
        self.audits.append((name, snapshot))
        return run(None, snapshot) if name == "ledger" else samples.dlq()

    def _ledger(self, spark: None, snapshot: Snapshot, options: Any) -> Any:
        self.options.append(options)
        return samples.ledger()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Audits without Spark."""
    return Ran(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that has ended."""

    async def fill(broker: TestBroker, operator: Operator) -> None:
        broker.send("orders", [b"one", b"two"])
        await broker.settled()

    operate(tmp_path, fill)
    return tmp_path


def test_the_journal_is_the_configured_brokers(data: Path, ran: Ran) -> None:
    configured = {"BARTLEBY_BROKER__DATA_DIRECTORY": str(data)}
    for arguments, environment in (
        (["--data", str(data)], {}),
        ([], configured),
        ([str(data / "journal")], configured),
    ):
        result = invoke("audit", "dlq", *arguments, environment=environment)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Dead letters: COMPLETE")
    assert [(name, snapshot.segments[0].uri) for name, snapshot in ran.audits] == [
        ("dlq", str(data / "journal" / "0000000001.journal"))
    ] * 3


def test_every_audit_is_there(data: Path, ran: Ran) -> None:
    for arguments in (["ledger"], ["dlq"], ["expiry"], ["trace", "1"]):
        assert invoke("audit", *arguments, "--data", str(data)).exit_code == 0
    assert [name for name, _ in ran.audits] == ["ledger", "dlq", "expiry", "trace"]


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dlq", "J", "--data", "D"], "give one of them"),
        (["ledger", "J", "--data", "D"], "give one of them"),
        (["ledger", "J", "--url", "http://127.0.0.1:1"], "--compare"),
        (["ledger", "J", "--token-file", "T"], "--compare"),
        (["dlq", "J", "--compare"], "No such option"),
        (["nonsense"], "No such command"),
    ],
)
def test_what_is_wrong_is_2(arguments: list[str], says: str) -> None:
    result = invoke("audit", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_url_in_the_environment_means_nothing_without_compare(data: Path, ran: Ran) -> None:
    result = invoke("audit", "ledger", str(data), environment={"BARTLEBY_URL": "http://127.0.0.1:1"})
    assert result.exit_code == 0, result.output
    assert ran.options[0].expected is None


@pytest.mark.parametrize("named", [False, True])
def test_compare_asks_the_running_broker_before_the_journal_is_looked_at(tmp_path: Path, ran: Ran, named: bool) -> None:
    async def check(broker: TestBroker, operator: Operator) -> None:
        broker.send("orders", [b"one", b"two"])
        await broker.settled()
        journal = [str(tmp_path / "journal")] if named else []
        result = await operator.run("audit", "ledger", *journal, "--compare")
        assert result.exit_code == 0, result.output

    operate(tmp_path, check)
    ((_, snapshot),) = ran.audits
    expected = ran.options[0].expected
    assert expected.broker_id == snapshot.broker_id
    assert 0 < expected.position <= snapshot.next_position
    assert {(queue.name, queue.messages) for queue in expected.queues} == {("orders", 2)}


def test_a_broker_that_cannot_be_asked_is_2_as_3_means_damage(data: Path, ran: Ran) -> None:
    token = data / "token"
    token.write_text("x")
    where = ["--url", "http://127.0.0.1:1", "--token-file", str(token)]
    result = invoke("audit", "ledger", str(data), "--compare", *where)
    assert result.exit_code == 2
    assert "cannot be reached" in result.stderr
    assert ran.audits == []


def test_where_there_is_no_journal_it_is_6(tmp_path: Path, ran: Ran) -> None:
    assert invoke("audit", "expiry", "--data", str(tmp_path)).exit_code == 6
    assert ran.audits == []


@pytest.mark.parametrize("arguments", [["audit", "dlq"], ["audit", "--help"], ["audit", "ledger", "--help"]])
def test_without_the_extra_it_says_what_to_install(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "find_spec", lambda name: None if name == "pyspark" else object())
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr == "bartleby: audits need pyspark, which is not installed: pip install 'bartleby[spark]'\n"


def test_the_other_commands_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> NoReturn:
        raise AssertionError("the audits were loaded")

    monkeypatch.setattr(room, "_theirs", load)
    assert invoke("version").exit_code == 0
    result = invoke("--help")
    assert result.exit_code == 0
    assert "bartleby audit --help" in " ".join(result.stdout.split())


def test_help_shows_the_statuses_and_the_brokers_options() -> None:
    shown = invoke("audit", "--help").stdout
    assert "3  the journal is damaged or incomplete" in shown
    ledger = invoke("audit", "ledger", "--help").stdout
    assert "--compare" in ledger
    assert "--config" in ledger


def test_spark_submits_command_is_left_as_it_was() -> None:
    invoke("audit", "ledger", "--help")
    names = {parameter.name for parameter in command.audit.commands["ledger"].params}
    assert not names & {"compare", "data", "config", "url"}
    assert isinstance(command.audit, click.Group)
