"""`bartleby audit`: what the broker's own command adds to the audits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from broker.cli import audit as room
from spark_jobs import command
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.jvm import ROOT
from tests.broker.cli.harness import Operator, invoke
from tests.broker.management.harness import Client, TestBroker, serve
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


@pytest.fixture(autouse=True)
def gave_way(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often the audit has given way, to nobody: the tests' own process never does, as it could not take it back."""
    times: list[bool] = []
    monkeypatch.setattr(room, "give_way", lambda: times.append(True))
    monkeypatch.setattr(room, "has_to_wait", lambda: False)
    return times


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Audits without Spark."""
    return Ran(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker that has ended."""

    async def fill(broker: TestBroker, client: Client) -> None:
        await broker.sent("orders", [b"one", b"two"])

    serve(tmp_path, fill)
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
    for name in ("ledger", "dlq", "expiry"):
        assert invoke("audit", name, "--data", str(data)).exit_code == 0
    assert [name for name, _ in ran.audits] == ["ledger", "dlq", "expiry"]
    assert invoke("audit", "trace", "1", "--data", str(data)).stdout.startswith("Trace: COMPLETE")


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize("audit", ["dlq", "ledger"])
def test_audits_give_way_unless_they_are_told_not_to(data: Path, audit: str, gave_way: list[bool]) -> None:
    command = ["audit", audit, "--data", str(data)]
    for more, times in (([], 1), (["--priority", "normal"], 1), (["--priority", "idle"], 2)):
        assert invoke(*command, *more).exit_code == 0
        assert len(gave_way) == times


@pytest.mark.usefixtures("ran")
def test_on_a_busy_machine_it_says_what_it_waits_for(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for busy, priority, told in ((True, "idle", True), (False, "idle", False), (True, "normal", False)):
        monkeypatch.setattr(room, "has_to_wait", lambda answer=busy: answer)
        result = invoke("audit", "dlq", "--data", str(data), "--priority", priority)
        assert result.exit_code == 0
        assert ("only uses what other processes leave" in result.stderr) == told


@pytest.mark.usefixtures("ran")
def test_what_does_not_let_it_give_way_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(room, "give_way", refuse)
    result = invoke("audit", "dlq", "--data", str(data))
    assert result.exit_code == 0
    assert result.stderr == "bartleby: the audit's priority cannot be lowered: Operation not permitted\n"


#: Says its version, as Java does; then what it runs with, as an error of Java's.
_JAVA = """\
#!/bin/sh
case "$*" in
    *-version*) echo 'openjdk version "21.0.1" 2023-10-17' >&2; exit 0 ;;
esac
cat /proc/self/oom_score_adj >&2
%s -c 'import os; print("nice", os.getpriority(os.PRIO_PROCESS, 0))' >&2
exit 1
"""


@pytest.mark.parametrize(("priority", "gives_way"), [("idle", True), ("normal", False)])
def test_java_runs_with_the_priority(data: Path, tmp_path: Path, priority: str, gives_way: bool) -> None:
    """The real command up to Java: what that runs with, its workers run with."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_JAVA % sys.executable)
    java.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BARTLEBY_", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "-m", "broker", "audit", "dlq", "--data", str(data), "--priority", priority],
        env=environment | {"JAVA_HOME": str(tmp_path / "jdk"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    nice = {int(value) for value in re.findall(r"^nice (\d+)", done.stderr, re.M)}
    assert nice == {19 if gives_way else os.getpriority(os.PRIO_PROCESS, 0)}
    assert ("1000" in done.stderr.splitlines()) == gives_way


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dlq", "J", "--data", "D"], "give only one of them"),
        (["ledger", "J", "--data", "D"], "give only one of them"),
        (["ledger", "J", "--url", "http://127.0.0.1:1"], "--compare"),
        (["ledger", "J", "--token-file", "T"], "--compare"),
        (["dlq", "J", "--compare"], "No such option"),
        (["dlq", "J", "--priority", "high"], "'idle', 'normal'"),
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
async def test_compare_asks_the_running_broker_before_the_journal_is_looked_at(
    broker: TestBroker, operator: Operator, ran: Ran, named: bool
) -> None:
    await broker.sent("orders", [b"one", b"two"])
    journal = [str(operator.directory / "journal")] if named else []
    result = await operator.run("audit", "ledger", *journal, "--compare")
    assert result.exit_code == 0, result.output
    ((_, snapshot),) = ran.audits
    expected = ran.options[0].expected
    assert expected.broker_id == snapshot.broker_id
    assert 0 < expected.position <= snapshot.next_position
    assert {(queue.name, queue.messages) for queue in expected.queues} == {("orders", 2)}


@pytest.mark.parametrize(("times", "status"), [(2, 0), (command.LISTED_MAX, 1)])
async def test_compare_asks_again_if_the_broker_removed_segments_meanwhile(
    broker: TestBroker, operator: Operator, ran: Ran, monkeypatch: pytest.MonkeyPatch, times: int, status: int
) -> None:
    asked: list[int] = []

    def removed_since(snapshot: Snapshot, position: int) -> bool:
        asked.append(position)
        return len(asked) <= times

    monkeypatch.setattr("spark_jobs.journal.scan.removed_since", removed_since)
    result = await operator.run("audit", "ledger", "--compare")
    assert result.exit_code == status, result.output
    assert len(asked) == min(times + 1, command.LISTED_MAX)
    assert len(ran.audits) == (status == 0)
    assert ("retention" in result.stderr) == (status != 0)


def test_a_broker_that_cannot_be_asked_is_3(data: Path, ran: Ran) -> None:
    token = data / "token"
    token.write_text("x")
    where = ["--url", "http://127.0.0.1:1", "--token-file", str(token)]
    result = invoke("audit", "ledger", str(data), "--compare", *where)
    assert result.exit_code == 3
    assert "cannot be reached" in result.stderr
    assert ran.audits == []


def test_where_there_is_no_journal_it_is_6(tmp_path: Path, ran: Ran) -> None:
    assert invoke("audit", "expiry", "--data", str(tmp_path)).exit_code == 6
    assert ran.audits == []


@pytest.mark.parametrize("arguments", [["audit", "dlq"], ["audit", "--help"], ["audit", "ledger", "--help"]])
def test_without_the_extra_it_says_what_to_install(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.build.find_spec", lambda name: None if name == "pyspark" else object())
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stderr == (
        "bartleby: `bartleby audit` needs packages that are not installed: pyspark\n"
        "install the extra [spark]: pip install '.[spark]' in a copy of the sources, or 'FILE.whl[spark]'\n"
    )


def test_the_other_commands_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> NoReturn:
        raise AssertionError("the audits were loaded")

    monkeypatch.setattr(room, "_theirs", load)
    assert invoke("version").exit_code == 0
    assert invoke("--help").exit_code == 0


def test_help_shows_the_statuses_and_the_brokers_options() -> None:
    shown = invoke("audit", "--help").stdout
    assert "7  the journal is damaged or incomplete" in shown
    ledger = invoke("audit", "ledger", "--help").stdout
    assert "--compare" in ledger
    assert "--config" in ledger


def test_spark_submits_command_is_left_as_it_was() -> None:
    invoke("audit", "ledger", "--help")
    names = {parameter.name for parameter in command.audit.commands["ledger"].params}
    assert not names & {"compare", "data", "config", "url", "priority"}
    assert isinstance(command.audit, click.Group)
