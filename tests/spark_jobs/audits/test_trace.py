"""One message's life, from any of its ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.audits import trace as audit
from spark_jobs.audits.options import Options
from spark_jobs.audits.trace import trace
from spark_jobs.journal.snapshot import take
from spark_jobs.results import ExitStatus
from store import decode
from tests.spark_jobs.audits.results import rows
from tests.support import books as oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def records_about(lines: list[oracle.Line], ids: set[int]) -> list[tuple[int, int, str]]:
    """(position, message, place) of every record about these messages."""
    found = []
    for line in lines:
        record = line.record
        if isinstance(record, decode.Message):
            own = {record.id}
        elif isinstance(record, decode.DeadLettered | decode.Expired):
            own = {record.old_id}
        elif isinstance(record, decode.Removed | decode.Counts | decode.Delivering | decode.Scheduled):
            own = set(record.ids)
        else:
            continue
        found += [(line.position, id, f"{line.segment}:{line.offset}") for id in sorted(own & ids)]
    return found


@pytest.mark.parametrize("which", [0, -1])
def test_a_life_from_its_first_id_and_from_its_last(spark: SparkSession, lived: Path, which: int) -> None:
    lines = oracle.read(lived / "journal")
    first = next(id for id, story in oracle.stories(lines).items() if story.message and story.message.body == b"poison")
    ids = sorted(oracle.family(lines, first))
    assert len(ids) == 4, "sent, dead, brought back, dead again"
    result = trace(spark, take([str(lived)]), ids[which], Options())
    assert (result.status, result.problems) == (ExitStatus.CLEAN, ())
    life = rows(result, "life")
    assert [(row["position"], row["message"], row["where"]) for row in life] == records_about(lines, set(ids))
    said = [(row["queue"], row["what happened"].split(":")[0].split(",")[0]) for row in life]
    assert said == [
        ("orders", "stored on orders"),
        ("orders", "came back"),
        ("orders", "waits until 2026-05-28T20"),
        ("DLQ", "stored on DLQ"),
        ("orders", "died after 2 deliveries"),
        ("orders", "left"),
        ("orders", "stored on orders"),
        ("DLQ", "left"),
        ("DLQ", "stored on DLQ"),
        ("orders", "died after 1 delivery"),
        ("orders", "left"),
    ]
    assert result.summary["now"] == f"on DLQ as {ids[-1]}"
    assert [(row["message"], row["was"]) for row in rows(result, "ids")] == list(zip(ids, [None, *ids], strict=False))


def test_a_message_on_two_queues_lives_twice(spark: SparkSession, lived: Path) -> None:
    lines = oracle.read(lived / "journal")
    stories = oracle.stories(lines)
    event = next(id for id, story in stories.items() if story.message and story.message.body == b"event")
    (heir,) = stories[event].heirs
    result = trace(spark, take([str(lived)]), heir, Options())
    assert rows(result, "life")[0]["queue"] == "worker.x, worker.y"
    assert [row["message"] for row in rows(result, "ids")] == [event, heir]


def test_an_id_that_is_not_there(spark: SparkSession, lived: Path) -> None:
    result = trace(spark, take([str(lived)]), 999_999, Options())
    assert result.problems == ("message 999999 is not in what was read",)
    assert rows(result, "life") == []


def test_a_family_that_is_too_large(spark: SparkSession, lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "IDS_MAX", 2)
    lines = oracle.read(lived / "journal")
    story = next(iter(id for id, s in oracle.stories(lines).items() if s.message and s.message.body == b"poison"))
    result = trace(spark, take([str(lived)]), story, Options())
    assert len(rows(result, "ids")) == 2
    assert "more than 2 ids" in result.problems[0]
