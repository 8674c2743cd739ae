"""The command line of the audits: what it takes, what it prints where, and what it ends with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import pytest
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError

from spark_jobs import command
from spark_jobs.audits.compare import BadComparison
from spark_jobs.audits.opening import BadBalance
from spark_jobs.audits.options import Options
from spark_jobs.audits.reading import NoSuchAddress
from spark_jobs.command import Bound, audit, parse_bound, parse_message_id
from spark_jobs.java import NoJava
from spark_jobs.journal import files
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.jvm import ROOT
from spark_jobs.report.delivery import Delivery
from spark_jobs.results import ExitStatus
from spark_jobs.results import Result as AuditResult
from spark_jobs.session import NoSpark
from tests.broker.management.harness import Client, TestBroker, serve
from tests.spark_jobs.audits import journals
from tests.spark_jobs.cluster import QUICK
from tests.spark_jobs.report import samples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def invoke(*arguments: object) -> Result:
    """One command; a traceback is never what it ends with."""
    result = CliRunner().invoke(audit, [str(argument) for argument in arguments], prog_name="bartleby-audit")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is said before Spark starts."""

    def start(*arguments: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(command, "_audited", start)


# -- what it takes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("pos:0", Bound(position=0)),
        ("pos:4711", Bound(position=4711)),
        ("2026-03-01", Bound(time=1_772_323_200_000)),
        ("2026-03-01T12:00:00Z", Bound(time=1_772_366_400_000)),
        ("2026-03-01 12:00", Bound(time=1_772_366_400_000)),
        ("2026-03-01T14:00:00.250+02:00", Bound(time=1_772_366_400_250)),
        ("2026-03-01T12:00:00.250001Z", Bound(time=1_772_366_400_251)),
        ("1970-01-01", Bound(time=0)),
    ],
)
def test_bounds(text: str, bound: Bound) -> None:
    assert parse_bound(text) == bound


@pytest.mark.parametrize(
    "text",
    [
        *("", "pos:", "pos:-1", "pos:1e3", "pos:²", "4711", "20260301", "1772366400000", "yesterday", "\udcff"),
        *("pos:9223372036854775808", "pos:" + "9" * 5_000, "9" * 5_000),
    ],
)
def test_no_bound(text: str) -> None:
    with pytest.raises(ValueError, match="pos:4711"):
        parse_bound(text)


@pytest.mark.parametrize("text", ["4711", "5d0c8a3f,4711", "a,b,4711"])
def test_message_ids(text: str) -> None:
    assert parse_message_id(text) == 4711


@pytest.mark.parametrize("text", ["", "x", "4711,", "-1", "4711x", "9223372036854775808", "9" * 5_000])
def test_no_message_id(text: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        parse_message_id(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ledger"], "JOURNAL"),
        (["dlq", "J", "--format", "html"], "needs --out"),
        (["dlq", "J", "--format", "csv"], "needs --out"),
        (["dlq", "J", "--format", "parquet"], "needs --out"),
        (["dlq", "J", "--from", "yesterday"], "neither a time"),
        (["dlq", "J", "--from", "pos:9", "--to", "pos:9"], "is empty"),
        (["dlq", "J", "--address", "a.b*"], "wildcard"),
        (["dlq", "J", "--top", "0"], "--top"),
        (["dlq", "J", "--top", "10001"], "--top"),
        (["dlq", "J", "--fail-over", "-1"], "--fail-over"),
        (["dlq", "J", "--conf", "spark.ui.enabled"], "not a setting"),
        (["dlq", "J", "--conf", "ui=1"], "not a setting"),
        (["expiry", "J", "--opening", "D"], "--opening"),
        (["trace", "x", "J"], "not a message id"),
        (["trace", "1", "J", "--top", "3"], "--top"),
        (["ledger", "J", "--opening", "D", "--from", "pos:1"], "opening"),
        (["ledger", "J", "--save-balance", "D", "--address", "a"], "save-balance"),
        (
            ["ledger", "J", "--save-balance", "/dev/null/balance"],
            "/dev/null/balance: no balance can be written there: ",
        ),
        (["ledger", "J", "--out", "missing/file"], "no such directory"),
        (["ledger", "J", "--format", "html", "--out", "."], "is a directory"),
        (["ledger", "s3://user:password@bucket/journal"], "credentials"),
        (["ledger", "http://[::1"], "not a valid URI"),
        (["ledger", "J", "--master", ""], "--master is empty"),
        (["ledger", "J", "--address", "\udcff"], "not UTF-8"),
    ],
)
@pytest.mark.usefixtures("no_spark")
def test_wrong_usage_is_2_and_reported_before_spark_starts(arguments: list[str], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == ExitStatus.USAGE
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.usefixtures("no_spark")
def test_where_there_is_no_journal_it_is_6(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        result = invoke("ledger", place)
        assert result.exit_code == ExitStatus.NO_JOURNAL, result.output
        assert str(place) in result.stderr


@pytest.mark.usefixtures("no_spark")
def test_two_brokers_are_2(lived: Path, tmp_path: Path) -> None:
    journals.generated(tmp_path, records=500)
    result = invoke("dlq", lived, tmp_path)
    assert result.exit_code == ExitStatus.USAGE
    assert result.stderr.startswith("bartleby-audit: ")


@pytest.mark.parametrize(
    "more", [("--from", "pos:1"), ("--to", "2100-01-01"), ("--address", "a"), ("--save-balance",), ("--opening", "D")]
)
@pytest.mark.usefixtures("no_spark")
def test_options_that_a_ledger_of_two_brokers_does_not_take_are_2(
    more: tuple[str, ...], lived: Path, tmp_path: Path
) -> None:
    journals.generated(tmp_path / "other", records=500)
    if more == ("--save-balance",):
        more = ("--save-balance", str(tmp_path / "balance"))
    result = invoke("ledger", lived, tmp_path / "other", *more)
    assert result.exit_code == ExitStatus.USAGE
    assert "one at a time" in result.stderr
    assert more[0] in result.stderr


def test_a_ledger_takes_the_journals_of_several_brokers(
    lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one broker are read as one, in whatever order they come."""
    given: list[tuple[str, ...]] = []

    def audited(spark: None, snapshots: Sequence[Snapshot], options: Options) -> AuditResult:
        given.extend(snapshot.journals for snapshot in snapshots)
        assert all(files.read_open(each.segments[0].opened_at) for each in snapshots), "they are kept open together"
        return samples.ledger()

    monkeypatch.setattr("spark_jobs.audits.ledgers.ledgers", audited)
    monkeypatch.setattr(command, "_audited", lambda name, request, audit, *snapshots: audit(None, *snapshots))
    other = tmp_path / "other"
    journals.generated(other, records=500)
    result = invoke("ledger", lived, other, lived / "journal")
    assert result.exit_code == ExitStatus.OK, result.stderr
    assert given == [(str(lived), str(lived / "journal")), (str(other),)]


def test_every_status_is_documented_in_help() -> None:
    documented = {int(number) for number in re.findall(r"^  (\d)  ", command.STATUSES, re.M)}
    assert documented == set(map(int, ExitStatus))
    for name in ("ledger", "dlq", "expiry", "trace"):
        assert "9  more messages than --fail-over allows" in invoke(name, "--help").stdout


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "no reason given"),
        ("Job aborted\n\tat org.apache", "Job aborted"),
        (
            "An error occurred while calling o7.count.\n: java.io.IOException: No space left\n\tat java.base",
            "java.io.IOException: No space left",
        ),
        ("An exception\n  File x\nspark_jobs.errors.SomeError: segment 3 is gone\n\nDriver stacktrace", None),
    ],
)
def test_of_what_spark_says_the_reason_is_told(said: str, reason: str | None) -> None:
    assert command._reason(said) == (reason or "spark_jobs.errors.SomeError: segment 3 is gone")


def test_a_failure_cannot_steer_the_terminal() -> None:
    with click.Context(audit, info_name="bartleby-audit"):
        stop = command.Stop(ExitStatus.DAMAGED, "a\x1b[2J", "b")
    assert (stop.message, stop.exit_code) == ("a\\x1b[2J\nb", 7)


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "result"), samples.ALL.items())
def test_the_status_is_the_findings_and_only_the_result_is_on_standard_output(
    name: str, result: AuditResult, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_audited", lambda *more: result)
    ended = invoke("dlq", lived, "--format", "json")
    assert ended.exit_code == int(result.status), name
    assert json.loads(ended.stdout)["status"] == int(result.status)
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("name", "function"),
    [("dlq", "dead_letters.dead_letters"), ("expiry", "expiry.expiry"), ("ledger", "ledger.ledger")],
)
def test_the_options_reach_the_audit(
    name: str, function: str, lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def audited(spark: None, snapshot: Snapshot, options: Options) -> AuditResult:
        given.extend((snapshot, options))
        return samples.ALL["dlq exceeded"]

    monkeypatch.setattr(f"spark_jobs.audits.{function}", audited)
    monkeypatch.setattr(command, "_audited", lambda name, request, audit, snapshot: audit(None, snapshot))
    page = tmp_path / "report.html"
    bounds = ("--from", "pos:3", "--to", "2100-01-01")
    rest = ("--address", "a.#", "--address", "b", "--top", "7", "--fail-over", "8", "--format", "html", "--out", page)
    result = invoke(name, lived, *bounds, *rest)
    assert result.exit_code == ExitStatus.EXCEEDED, result.stderr
    snapshot, options = given
    assert snapshot.journals == (str(lived),)
    assert (options.from_position, options.to_time, options.to_position) == (3, 4_102_444_800_000, None)
    assert (options.addresses, options.top, options.fail_over) == (("a.#", "b"), 7, 8)
    assert result.stdout == ""
    assert result.stderr.splitlines()[0].startswith("Dead letters: THRESHOLD EXCEEDED")
    assert result.stderr.splitlines()[-1] == f"written: {page}"
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_directory_that_cannot_be_written_in_the_end_is_1(
    format: str, lived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.audits.trace.trace", lambda *more: samples.trace())
    (tmp_path / f"life.{format}").mkdir()
    result = invoke("trace", "8", lived, "--format", format, "--out", tmp_path)
    assert result.exit_code == 1
    assert "the result cannot be written" in result.stderr
    assert not (tmp_path / "manifest.json").exists()


def test_standard_output_that_is_full_is_1(lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream has no name to be told."""

    def deliver(self: Delivery, result: AuditResult) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spark_jobs.audits.trace.trace", lambda *more: samples.trace())
    monkeypatch.setattr(Delivery, "deliver", deliver)
    result = invoke("trace", "8", lived)
    assert result.exit_code == 1
    assert result.stderr == "bartleby-audit: the result cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (NoJava("Spark needs Java 17"), ExitStatus.USAGE, "bartleby-audit: Spark needs Java 17"),
        (BadBalance("no balance there"), ExitStatus.USAGE, "bartleby-audit: no balance there"),
        (BadComparison("another broker"), ExitStatus.USAGE, "bartleby-audit: another broker"),
        (NoSuchAddress("no such address"), ExitStatus.USAGE, "bartleby-audit: no such address"),
        (
            NoSpark("masters are unresponsive\nat java"),
            1,
            "bartleby-audit: Spark did not start: masters are unresponsive",
        ),
        (Py4JError("the other side is gone"), 1, "bartleby-audit: Spark failed: the other side is gone"),
        (OSError(28, "No space left on device", "/tmp/x"), 1, "bartleby-audit: /tmp/x: No space left on device"),
        (OSError("AWS Error ACCESS_DENIED"), 1, "bartleby-audit: AWS Error ACCESS_DENIED"),
    ],
)
def test_the_reason_that_stops_an_audit_is_a_sentence(
    error: Exception, status: int, says: str, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*arguments: object, **options: object) -> NoReturn:
        raise error

    monkeypatch.setattr("spark_jobs.session.spark_session", start)
    result = invoke("dlq", lived)
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.splitlines()[0] == says


@pytest.mark.parametrize(("more", "brief"), [(0, True), (1, False)])
def test_a_large_journal_is_worth_to_get_ready_for(
    more: int, brief: bool, lived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def start(*arguments: object, **options: object) -> NoReturn:
        asked.append(options["brief"])
        raise NoSpark("it is enough to know")

    monkeypatch.setattr("spark_jobs.session.spark_session", start)
    monkeypatch.setattr(command, "BRIEF_BYTES", take([str(lived)]).bytes - more)
    invoke("dlq", lived)
    assert asked == [brief]


# -- what it does ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
def test_a_ledger_as_json_and_the_next_one_from_its_balance(lived: Path, tmp_path: Path) -> None:
    first = invoke("ledger", lived, "--format", "json", "--save-balance", tmp_path / "balance")
    assert first.exit_code == ExitStatus.OK, first.stderr
    found = json.loads(first.stdout)
    assert (found["verdict"], found["coverage"]["whole"]) == ("balanced", True)
    assert (tmp_path / "balance" / "balance.json").exists()

    opening = ["--opening", tmp_path / "balance"]
    second = invoke("ledger", lived / "journal", "--format", "json", "--fail-over", "0", *opening)
    assert second.exit_code == ExitStatus.EXCEEDED, second.stderr
    after = json.loads(second.stdout)
    assert after["verdict"] == "balanced"
    assert after["summary"]["opening"] == found["summary"]["present"] > 0
    assert after["summary"]["enqueued"] == 0


def test_a_trace_as_a_table(lived: Path) -> None:
    result = invoke("trace", "some-session,8", lived, "--to", "2100-01-01")
    assert result.exit_code == ExitStatus.OK, result.stderr
    assert result.stdout.startswith("Trace: COMPLETE\n")
    assert "lives on as 17" in result.stdout
    assert "why it died" in result.stdout
    assert result.stderr == ""


@pytest.mark.usefixtures("spark")
def test_a_failure_of_spark_is_1_and_a_sentence(lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(spark: SparkSession, *more: object) -> None:
        spark.sql("SELECT no_such_column").collect()

    monkeypatch.setattr("spark_jobs.audits.dead_letters.dead_letters", fail)
    result = invoke("dlq", lived)
    assert result.exit_code == 1
    assert result.stdout == ""
    *_, said, more = result.stderr.splitlines()
    assert said.startswith("bartleby-audit: Spark failed: ")
    assert "no_such_column" in said
    assert "--spark-log" in more


@pytest.mark.usefixtures("spark")
def test_a_balance_that_is_not_there_is_2(lived: Path, tmp_path: Path) -> None:
    result = invoke("ledger", lived, "--opening", tmp_path)
    assert result.exit_code == ExitStatus.USAGE
    assert "--save-balance" in result.stderr


@pytest.mark.usefixtures("spark")
def test_the_ledger_agrees_with_the_running_broker_and_finds_what_does_not(tmp_path: Path) -> None:
    answers: list[Any] = []

    async def run(broker: TestBroker, client: Client) -> None:
        broker.send("orders", [b"one", b"two", b"three"])
        broker.send("invoices", [b"four"])
        broker.send("orders", [b"not durable"], durable=False)
        await broker.settled()
        answers.append(await client.get("/api/v1/balance"))

    serve(tmp_path, run)
    (answer,) = answers
    (orders,) = [queue for queue in answer["queues"] if queue["name"] == "orders"]
    assert orders["journalled"] == 3
    orders["journalled"] += 1
    given = {"journal": (str(tmp_path),), "ask": lambda: answer, "format_": "json", "out": tmp_path / "ledger.json"}
    compared = click.Context(audit, info_name="bartleby-audit")
    with pytest.raises(click.exceptions.Exit) as ended, compared:
        compared.invoke(audit.commands["ledger"], **given, start=Bound(), end=Bound(), conf={})
    assert ended.value.exit_code == ExitStatus.VIOLATED
    found = json.loads((tmp_path / "ledger.json").read_text())
    rows = found["sections"]["comparison"]["rows"]
    assert [(row["queue"], row["in the journal"], row["in the broker"]) for row in rows] == [("orders", 3, 4)]


#: An audit that gets a signal, while Java is at work for it: it alone, or all of its group, as from systemd.
_INTERRUPTED: Final = """\
import os, signal, sys
from spark_jobs import command
from spark_jobs.audits import dead_letters
_, journal, number, whom = sys.argv
driver = os.getpid()

def interrupt(row):
    (os.killpg if whom == "group" else os.kill)(driver, int(number))
    signal.pause()

def audit(spark, snapshot, options):
    spark.sparkContext.parallelize([0], 1).foreach(interrupt)

dead_letters.dead_letters = audit
signal.signal(signal.SIGINT, signal.default_int_handler)
command.audit(["dlq", journal])
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose name leaves room for that of a socket."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("number", "whom"),
    [
        (signal.SIGINT, "driver"),
        (signal.SIGTERM, "group"),
    ],
)
def test_a_signal_ends_an_audit_without_a_page_of_traces_and_without_leftovers(
    number: int, whom: str, lived: Path, short: Path
) -> None:
    """Neither Python's temporary files are left nor Java's, which holds standard output until it ends.

    How SIGTERM to the driver alone ends Java, test_jvm has without one.
    """
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, str(lived), str(int(number)), whom],
        env=os.environ | {"TMPDIR": str(short), "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={short} {QUICK}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (128 + number, "", "")
    assert [*short.iterdir()] == []
