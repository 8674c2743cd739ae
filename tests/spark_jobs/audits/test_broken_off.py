"""Retention was on, and was turned off: what lies in kept segments may have left in others that are gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits.dead_letters import dead_letters
from spark_jobs.audits.expiry import expiry
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.audits.options import Options
from spark_jobs.audits.trace import trace
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.results import Verdict
from store import record
from store.record import RemovalReason
from store.retention import DAY_PREFIX, DIRECTORY
from store.segment import segment_name
from tests.simulation.world import held
from tests.spark_jobs.audits import journals
from tests.spark_jobs.audits.results import rows
from tests.spark_jobs.journal.making import CREATED, message, segment
from tests.store.workload import death
from tests.support.sim_broker import SimBroker

QUEUES = ("held", "brief", "DLQ")


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, SimBroker]:
    """The journal and its broker; nobody changes them."""
    directory = tmp_path_factory.mktemp("broken-off")
    broker = journals.broken_off(directory)
    snapshot = take([str(directory)])
    kept = [ref.number for ref in snapshot.segments if ref.kept]
    assert kept == [*range(1, snapshot.trimmed[0].first_segment)], "holes are behind them"
    return snapshot, broker


def test_the_ledger_has_what_the_broker_has(spark: SparkSession, broken_off: tuple[Snapshot, SimBroker]) -> None:
    snapshot, broker = broken_off
    result = ledger(spark, snapshot, LedgerOptions())
    assert (result.verdict, rows(result, "faults")) == (Verdict.BALANCED, [])
    assert {row["queue"]: row["present"] for row in rows(result, "queues") if row["present"]} == {
        queue: len(held(broker, queue)) for queue in QUEUES
    }
    assert result.coverage.segments == sum(not ref.kept for ref in snapshot.segments), "in the books"


def test_a_range_that_ends_in_front_of_the_hole_has_them(broken_off: tuple[Snapshot, SimBroker]) -> None:
    snapshot, _ = broken_off
    assert {ref.number for ref in snapshot.segments if ref.kept} == snapshot.broken_off
    part = snapshot.bounded(to_position=snapshot.trimmed[0].first_position)
    assert (part.broken_off, part.without_broken_off()) == (frozenset(), part)


def test_a_dead_letter_waits_or_cannot_be_followed(spark: SparkSession, broken_off: tuple[Snapshot, SimBroker]) -> None:
    result = dead_letters(spark, broken_off[0], Options())
    assert {row["outcome"]: row["dead letters"] for row in rows(result, "outcomes")} == {"waiting": 1, "unknown": 1}


def test_messages_past_their_time_and_still_there(spark: SparkSession, broken_off: tuple[Snapshot, SimBroker]) -> None:
    snapshot, broker = broken_off
    (message,) = [message.id for message, _ in broker.engine.messages.browse(broker.engine.queue("brief"))]
    assert [row["message"] for row in rows(expiry(spark, snapshot, Options()), "overdue")] == [message]


def test_a_trace_says_where_a_message_is_only_if_it_can_know(broken_off: tuple[Snapshot, SimBroker]) -> None:
    snapshot, broker = broken_off
    messages = [message.id for message, _ in broker.engine.messages.browse(broker.engine.queue("held"))]
    ends = {id: trace(snapshot, id, Options()).summary["now"] for id in range(min(messages) - 2, max(messages) + 1)}
    assert ends == {id: f"on held as {id}" if id in messages else "unknown" for id in ends}


def test_messages_that_only_kept_segments_have_are_not_there_if_one_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """10 died, and its dead letter 20 was consumed; 11, past its time, was purged: both in segment 2, which is lost."""
    day = tmp_path / "journal" / DIRECTORY / f"{DAY_PREFIX}2025-06-15"
    day.mkdir(parents=True)
    opened = record.opened(1000, {}, {})
    queues = [record.queue(1, {"name": "orders", "address": "orders"}), record.queue(2, {"name": "DLQ"})]
    kept = [
        *(opened, *queues, message(10, [1]), message(11, [1], expiration=CREATED)),
        message(20, [2], annotations=b'{"_AMQ_ORIG_MESSAGE_ID":10}'),
        death(old_id=10, new_id=20),
        record.removed(1, RemovalReason.DEAD_LETTERED, [10]),
    ]
    lost = [opened, record.removed(2, RemovalReason.CONSUMED, [20]), record.removed(1, RemovalReason.PURGED, [11])]
    live = [opened, *queues]
    for number, place, first, records in (
        (1, day, 1, kept),
        (2, day, 1 + len(kept), lost),
        (3, day.parents[1], 1 + len(kept) + len(lost), live),
    ):
        (place / segment_name(number)).write_bytes(segment([records], number=number, first=first))
    for outcome in ("consumed", "unknown"):
        snapshot = take([str(tmp_path)])
        assert [row["outcome"] for row in rows(dead_letters(spark, snapshot, Options()), "outcomes")] == [outcome]
        assert rows(expiry(spark, snapshot, Options()), "overdue") == []
        (day / segment_name(2)).unlink(missing_ok=True)
    assert len(snapshot.missing) == 1


def test_an_old_copy_of_a_segment_is_no_better(tmp_path: Path) -> None:
    """A copy made while the broker removed segments has some that are not needed, and not those behind them."""
    journals.broken_off(tmp_path)
    journal = tmp_path / "journal"
    before = take([str(tmp_path)])
    for path in (journal / DIRECTORY).rglob("*.journal"):
        path.rename(journal / path.name)
    shutil.rmtree(journal / DIRECTORY)
    left_over = take([str(tmp_path)])
    assert [*left_over.leftovers] == [ref.number for ref in before.segments if ref.kept]
    assert left_over.broken_off == before.broken_off != frozenset()
    elsewhere = tmp_path / "older" / "journal"
    elsewhere.mkdir(parents=True)
    for number in left_over.leftovers:
        (journal / segment_name(number)).rename(elsewhere / segment_name(number))
    assert take([str(elsewhere), str(tmp_path)]).broken_off == before.broken_off
