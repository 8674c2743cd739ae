"""One message's life, from any of its ids."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.audits.options import Options
from spark_jobs.audits.trace import trace
from spark_jobs.journal.snapshot import take
from spark_jobs.results import ExitStatus
from store import decode
from tests.spark_jobs.audits.results import rows
from tests.support import books as oracle
from tests.support import tamper


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
def test_a_life_from_its_first_id_and_from_its_last(lived: Path, which: int) -> None:
    lines = oracle.read(lived / "journal")
    first = next(id for id, story in oracle.stories(lines).items() if story.message and story.message.body == b"poison")
    ids = sorted(oracle.family(lines, first))
    assert len(ids) == 4, "sent, dead, brought back, dead again"
    result = trace(take([str(lived)]), ids[which], Options())
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
    assert str(result.summary["why it died"]).startswith("died after 1 delivery: ")
    assert [(row["message"], row["was"]) for row in rows(result, "ids")] == list(zip(ids, [None, *ids], strict=False))


def test_a_message_on_two_queues_lives_twice(lived: Path) -> None:
    lines = oracle.read(lived / "journal")
    stories = oracle.stories(lines)
    event = next(id for id, story in stories.items() if story.message and story.message.body == b"event")
    (heir,) = stories[event].heirs
    result = trace(take([str(lived)]), heir, Options())
    assert rows(result, "life")[0]["queue"] == "worker.x, worker.y"
    assert [row["message"] for row in rows(result, "ids")] == [event, heir]


def test_an_id_that_is_not_there(lived: Path) -> None:
    result = trace(take([str(lived)]), 999_999, Options())
    assert result.problems == ("message 999999 is not in what was read",)
    assert rows(result, "life") == []


def test_a_family_that_is_too_large(lived: Path) -> None:
    lines = oracle.read(lived / "journal")
    story = next(iter(id for id, s in oracle.stories(lines).items() if s.message and s.message.body == b"poison"))
    result = trace(take([str(lived)]), story, Options(), ids_max=2)
    assert len(rows(result, "ids")) == 2
    assert "more than 2 ids" in result.problems[0]


def test_damage_is_told_wherever_it_is(lived: Path, tmp_path: Path) -> None:
    """Also in a segment that says nothing of the message, and only once."""
    data = tamper.copy(lived, tmp_path / "data")
    lines = oracle.read(data / "journal")
    first = next(id for id, story in oracle.stories(lines).items() if story.message and story.message.body == b"poison")
    of_it = {line.segment for line in lines if line.position in {at for at, *_ in records_about(lines, {first})}}
    other = next(number for number in sorted({line.segment for line in lines}) if number not in of_it)
    tamper.flip(tamper.path_of(data / "journal", other), 200)
    result = trace(take([str(data)]), max(oracle.family(lines, first)), Options())
    assert result.status == ExitStatus.DAMAGED
    assert [damage.path for damage in result.coverage.damage] == [str(tamper.path_of(data / "journal", other))]


def test_a_trace_needs_no_spark(lived: Path) -> None:
    code = (
        "import sys\n"
        "from spark_jobs.audits.options import Options\n"
        "from spark_jobs.audits.trace import trace\n"
        "from spark_jobs.journal.snapshot import take\n"
        f"assert trace(take([{str(lived)!r}]), 8, Options()).summary['records'] > 1\n"
        "assert not any(name.split('.')[0] in ('pyspark', 'py4j') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
