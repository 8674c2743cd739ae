"""The expiry audit against the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.audits import expiry as audit
from spark_jobs.audits.expiry import expiry
from spark_jobs.audits.options import Options
from spark_jobs.journal.snapshot import take
from spark_jobs.results import ExitStatus
from store import decode
from tests.spark_jobs.audits.journals import copied
from tests.spark_jobs.audits.results import counted, ms, nearest_rank, rows
from tests.support import books as oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = {0: "unknown", 1: "own", 2: "expiry-delay", 3: "min-expiry-delay", 4: "max-expiry-delay"}


@pytest.fixture
def tokyo(spark: SparkSession) -> Iterator[None]:
    """A session that somebody has given another time zone."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield
    spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.usefixtures("scattered", "tokyo")
def test_it_is_what_the_oracle_finds(spark: SparkSession, generated: Path) -> None:
    lines = oracle.read(generated / "journal")
    expired = oracle.expiries(lines)
    told = oracle.stories(lines)
    result = expiry(spark, take([str(generated)]), Options(top=1000))
    assert (result.audit, result.status, result.coverage.damage) == ("expiry", ExitStatus.OK, ())
    overdue = still_there(lines)
    assert result.summary == {
        "expired": len(expired),
        audit.NEVER: sum(not each.record.attempts for each in expired),
        audit.BEFORE: sum(each.record.attempts > 0 for each in expired),
        audit.NOBODY: sum(not each.record.consumers for each in expired),
        audit.REMOVED: sum(not each.record.new_id for each in expired),
        audit.KEPT: sum(each.record.new_id > 0 for each in expired),
        "past their time and still there": len(overdue),
    }
    assert min(len(expired), len(overdue)) > 5
    sources = Counter(SOURCES[each.record.source] for each in expired)
    assert counted(result, "sources", "source", "expired") == sources
    places = Counter((each.record.address, each.queue) for each in expired)
    assert {(row["address"], row["queue"]): row["expired"] for row in rows(result, "places")} == places
    went = Counter(
        message.header.address if (message := told[each.record.new_id].message) else audit.REMOVED for each in expired
    )
    assert counted(result, "destinations", "went to", "expired") == went
    hours = Counter(each.line.time // 3_600_000 * 3_600_000 for each in expired)
    assert {ms(row["hour"]): row["expired"] for row in rows(result, "hours")} == hours
    assert all(str(row["hour"].tzinfo) == "UTC" for row in rows(result, "hours"))
    for name in ("waiting", "lateness"):
        for row in rows(result, name):
            own = [each for each in expired if each.record.address == row["address"]]
            values = [each.waited if name == "waiting" else each.late for each in own]
            assert (row["expired"], row["min (s)"], row["max (s)"]) == (
                len(own),
                min(values) / 1000,
                max(values) / 1000,
            )
            assert (row["median (s)"], row["p95 (s)"]) == (nearest_rank(values, 0.5), nearest_rank(values, 0.95))
    found = [(ms(row["expiration"]), row["message"], row["queue id"]) for row in rows(result, "overdue")]
    assert found == overdue


def still_there(lines: list[oracle.Line]) -> list[tuple[int, int, int]]:
    """(expiration, message, queue) of what is past its expiration at the end and on a queue."""
    end = lines[-1].time
    accounts = oracle.ledger(lines)
    messages = [line.record for line in lines if isinstance(line.record, decode.Message | decode.Copied)]
    return sorted(
        {
            (message.header.expiration, message.id, queue)
            for message in messages
            for queue in message.header.queue_ids
            if 0 < message.header.expiration <= end and message.id in accounts[queue].present
        }
    )


def test_messages_that_lie_there_only_as_a_copy_count(spark: SparkSession, tmp_path: Path) -> None:
    copied(tmp_path)
    lines = oracle.read(tmp_path / "journal")
    stored = {line.record.id for line in lines if isinstance(line.record, decode.Message)}
    result = expiry(spark, take([str(tmp_path)]), Options(top=1000))
    found = [(ms(row["expiration"]), row["message"], row["queue id"]) for row in rows(result, "overdue")]
    assert found == still_there(lines)
    assert len(found) == result.summary["past their time and still there"] == 2
    assert not stored & {message for _, message, _ in found}
    (expired,) = oracle.expiries(lines)
    assert expired.record.old_id not in stored
    assert [(row["address"], row["queue"], row["expired"]) for row in rows(result, "places")] == [
        ("both", expired.queue, 1)
    ]


def test_a_message_and_its_copies_count_once(spark: SparkSession, tmp_path: Path) -> None:
    """With retention on, what was copied forward is still there too."""
    copied(tmp_path, retained=True)
    lines = oracle.read(tmp_path / "journal")
    assert any(isinstance(line.record, decode.Copied) for line in lines)
    result = expiry(spark, take([str(tmp_path)]), Options())
    assert result.summary["past their time and still there"] == len(still_there(lines)) == 2


def test_a_story(spark: SparkSession, lived: Path) -> None:
    result = expiry(spark, take([str(lived)]), Options(addresses=("brief", "unkept"), fail_over=3))
    assert (result.status, result.exceeded) == (ExitStatus.EXCEEDED, True)
    places = {
        row["address"]: (row[audit.NEVER], row[audit.BEFORE], row[audit.NOBODY]) for row in rows(result, "places")
    }
    assert places == {"brief": (2, 1, 0), "unkept": (1, 0, 1)}
    assert counted(result, "destinations", "went to", "expired") == {"ExpiryQueue": 3, "removed": 1}
    assert counted(result, "consumers", "consumers", "expired") == {audit.SOMEBODY: 3, audit.NOBODY: 1}
    nothing = expiry(spark, take([str(lived)]), Options(addresses=("ExpiryQueue",)))
    assert all(section.table.num_rows == 0 for section in nothing.sections)
