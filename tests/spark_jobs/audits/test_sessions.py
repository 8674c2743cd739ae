"""Journals with sessions and retained messages: every reader knows their records, and the books balance."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from broker.cli.main import cli
from broker.engine.model.message import Message
from broker.engine.routing import alter, destinations
from spark_jobs.audits.dead_letters import dead_letters
from spark_jobs.audits.expiry import expiry
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.audits.options import Options
from spark_jobs.audits.trace import trace
from spark_jobs.journal.snapshot import take
from spark_jobs.results import Verdict
from store import inspect
from store.files import OsFiles
from store.record import RecordType
from tests.broker.engine.client_sessions.session_client import MULTICAST
from tests.broker.engine.engine_harness import Bench, EngineBroker
from tests.simulation.session_work import Workload
from tests.simulation.world import journal_directory, small
from tests.spark_jobs.audits.journals import dump
from tests.spark_jobs.audits.results import rows

SESSION_TYPES = {t for t in RecordType if 65 <= t <= 71}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of the workload, then of a queue that overflows either way and a retained message that expires."""
    bench = Bench(running=EngineBroker(small(segment_bytes=32 << 10)))
    work = Workload(bench)
    for step in work.steps:
        step()
        bench.run()
    for drop_oldest in (True, False):
        name = "oldest" if drop_oldest else "newest"
        state = bench.enter()._state
        address = state.registry.create_address(f"limited.{name}", {MULTICAST})
        queue = state.registry.create_queue(address, name, MULTICAST, durable=True)
        alter.limit(state, queue, 2, drop_oldest=drop_oldest)
        bench.sent(address.name, *[b"%d" % n for n in range(5)], routing_type=MULTICAST)
    address, _ = destinations.destination(bench.enter()._state, "brief", MULTICAST)
    header = bench.header("brief", expiration=bench.broker.now + 1000)
    bench.engine.retained.set(address, Message(header, b"", b"brief"))
    bench.broker.advance(60_000)
    bench.broker.shut_down()
    directory = tmp_path_factory.mktemp("sessions")
    dump(bench.broker.files, journal_directory(bench.broker.config), directory / "journal")
    return directory


def test_the_tools_read_every_record(sessions: Path) -> None:
    files, journal = OsFiles(), str(sessions / "journal")
    assert inspect.verify(files, journal).ok
    lines = list(inspect.iter_records(files, journal))
    assert {line.type for line in lines} <= RecordType.__members__.keys()
    counted = inspect.stat(files, journal)
    assert {"displaced", "dropped", "expired"} <= counted.removals.keys()
    kept = {t.name for report in inspect.verify(files, journal).segments for t in SESSION_TYPES if report.types[t.name]}
    assert kept == {t.name for t in SESSION_TYPES}
    for command in ("verify", "print", "stat"):
        result = CliRunner().invoke(cli, ["journal", command, journal])
        assert result.exit_code == 0, result.output


def test_the_ledger_balances(spark: SparkSession, sessions: Path) -> None:
    result = ledger(spark, take([str(sessions)]), LedgerOptions())
    assert result.verdict is Verdict.BALANCED, result


def test_the_other_audits_read_it(spark: SparkSession, sessions: Path) -> None:
    snapshot = take([str(sessions)])
    assert dead_letters(spark, snapshot, Options()).problems == ()
    assert expiry(spark, snapshot, Options()).problems == ()


def test_the_life_of_a_message_tells_to_whom_it_left(spark: SparkSession, sessions: Path) -> None:
    files, journal = OsFiles(), str(sessions / "journal")
    lines = [line for line in inspect.iter_records(files, journal) if line.type == "INFLIGHT"]
    ids = lines[-1].fields["ids"]
    packet_ids = lines[-1].fields["packet_ids"]
    assert isinstance(ids, list)
    assert isinstance(packet_ids, list)
    result = trace(take([str(sessions)]), ids[0], Options())
    told = [row["what happened"] for row in rows(result, "life")]
    assert f"about to leave for a as packet {packet_ids[0]}" in told
