"""One message's life, from any of its ids."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spark_jobs.audits.options import Options
from spark_jobs.audits.trace import trace
from spark_jobs.journal.ids import IdFilter
from spark_jobs.journal.snapshot import take
from spark_jobs.results import ExitStatus
from store import decode, record
from store.files import OsFiles
from store.record import RemovalReason
from store.retention import DAY_PREFIX, DIRECTORY
from store.segment import segment_name
from store.trail import text as trail_text
from store.trail.search import find_trail
from tests.spark_jobs.audits.journals import copied
from tests.spark_jobs.audits.results import rows
from tests.spark_jobs.journal.making import copy, message, segment
from tests.support import books as oracle
from tests.support import tamper


def records_about(lines: list[oracle.Line], ids: set[int]) -> list[tuple[int, int, str]]:
    """(position, message, place) of every record about these messages."""
    found = []
    for line in lines:
        record = line.record
        if isinstance(record, decode.Message | decode.Copied):
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
    assert (result.status, result.problems) == (ExitStatus.OK, ())
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
        ("DLQ", "copied forward on DLQ"),
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
    (heir,) = stories[event].successors
    result = trace(take([str(lived)]), heir, Options())
    assert rows(result, "life")[0]["queue"] == "worker.x, worker.y"
    assert [row["message"] for row in rows(result, "ids")] == [event, heir]


@pytest.mark.parametrize("retained", [False, True])
def test_messages_that_lie_there_only_as_a_copy_are_found(tmp_path: Path, *, retained: bool) -> None:
    """And a copy is told where its original is still there, as a running broker does."""
    copied(tmp_path, retained=retained)
    copies = [line.record for line in oracle.read(tmp_path / "journal") if isinstance(line.record, decode.Copied)]
    id = next(copy.id for copy in copies if copy.header.address == "held")
    result = trace(take([str(tmp_path)]), id, Options())
    assert (result.problems, result.summary["now"]) == ((), f"on held as {id}")
    trail = find_trail(OsFiles(), str(tmp_path / "journal"), id)
    told = [(row["position"], row["what happened"]) for row in rows(result, "life")]
    assert told == [(step.position, trail_text.sentence(step)) for step in trail.steps]
    assert ("copied forward on held, " in told[0][1]) is not retained
    (known,) = rows(result, "ids")
    assert (known["address"], known["stored"] is not None) == ("held", retained)


def test_an_id_that_is_not_there(lived: Path) -> None:
    result = trace(take([str(lived)]), 999_999, Options())
    assert result.problems == ("message 999999 is not in the part of the journal that was read",)
    assert rows(result, "life") == []


def test_a_family_that_is_too_large(lived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.audits.trace.IDS_MAX", 2)
    lines = oracle.read(lived / "journal")
    story = next(iter(id for id, s in oracle.stories(lines).items() if s.message and s.message.body == b"poison"))
    result = trace(take([str(lived)]), story, Options())
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


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_rest_of_a_damaged_segment_is_reported(lived: Path, tmp_path: Path, number: int) -> None:
    data = tamper.copy(lived, tmp_path / "data")
    path = tamper.path_of(data / "journal", number)
    tamper.flip(path, len(path.read_bytes().rstrip(b"\0")) - 1)
    for id in oracle.stories(oracle.read(lived / "journal")):
        result = trace(take([str(data)]), id, Options())
        assert [damage.path for damage in result.coverage.damage] == [str(path)]
        before, after = (rows(each, "life") for each in (trace(take([str(lived)]), id, Options()), result))
        assert [row for row in before if row in after] == after, "what was lost is not there, nothing else is"


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


@pytest.mark.parametrize("id", [10, 20, 30, 40, 50])
def test_a_family_in_many_segments_is_found_from_any_of_its_ids(tmp_path: Path, id: int) -> None:
    """10 dies on one of its queues and becomes 20, which is brought back as 30, which dies: 40.  10 outlives 20.

    And 20 is replayed as 50, when nothing else speaks of it any more.
    """

    def was(id: int) -> bytes:
        return b'{"_AMQ_ORIG_MESSAGE_ID":%d}' % id

    def death(queue: int, old: int, new: int) -> list[bytes]:
        texts = dict.fromkeys(("address", "text", "client", "remote", "user"), "")
        ids = {"queue_id": queue, "old_id": old, "new_id": new, "attempts": 1, "reason": 1}
        died = record.dead_lettered(**ids, enqueued=0, first_failure=0, **texts)  # type: ignore[arg-type]
        return [
            message(new, [3], annotations=was(old)),
            died,
            record.removed(queue, RemovalReason.DEAD_LETTERED, [old]),
        ]

    entries = {
        1: [message(10, [1, 2]), message(11, [1])],
        2: death(1, 10, 20),
        3: [message(30, [1], annotations=was(20)), record.removed(3, RemovalReason.MOVED, [20])],
        4: [record.removed(2, RemovalReason.CONSUMED, [10])],
        5: [record.removed(1, RemovalReason.CONSUMED, [11])],
        6: death(1, 30, 40),
        7: [message(50, [1], annotations=was(20))],
    }
    position, ends = 1, dict[int, int]()
    for number, records in entries.items():
        made = [record.opened(1000, ends, {}), *records]
        path = tmp_path / segment_name(number)
        path.write_bytes(segment([made], number=number, first=position))
        position += len(made)
        ends[number] = position
    result = trace(take([str(tmp_path)]), id, Options())
    assert result.problems == ()
    assert [row["message"] for row in rows(result, "ids")] == [10, 20, 30, 40, 50]
    life = [(int(row["where"].split(":")[0]), row["message"]) for row in rows(result, "life")]
    assert life == [(1, 10), (2, 20), (2, 10), (2, 10), (3, 30), (3, 20), (4, 10), (6, 40), (6, 30), (6, 30), (7, 50)]
    trail = find_trail(OsFiles(), str(tmp_path), id)
    assert [(step.segment, step.message) for step in trail.steps] == life, "a running broker tells the same"


def test_a_message_that_only_a_kept_segment_has_has_left(tmp_path: Path) -> None:
    """10 lies in a kept segment, and its removal nowhere; of 11 there is a copy.  Before the end both were there."""
    day = tmp_path / "journal" / DIRECTORY / f"{DAY_PREFIX}2025-06-15"
    day.mkdir(parents=True)
    queue = record.queue(1, {"name": "orders"})
    kept = [record.opened(1000, {}, {}), queue, message(10, [1]), message(11, [1])]
    live = [record.opened(1000, {}, {}), queue, copy(11, [1])]
    (day / segment_name(1)).write_bytes(segment([kept]))
    (tmp_path / "journal" / segment_name(2)).write_bytes(segment([live], number=2, first=5))
    results = {id: trace(take([str(tmp_path)]), id, Options()) for id in (10, 11)}
    assert [result.summary["now"] for result in results.values()] == ["unknown", "on orders as 11"]
    lost = "the journal no longer has the record of how message 10 left orders"
    assert [result.problems for result in results.values()] == [(lost,), ()]
    trail = find_trail(OsFiles(), str(tmp_path / "journal"), 10)
    assert (trail.places, trail.ended, trail.problems) == ([], "", [lost]), "a running broker tells the same"
    before = trace(take([str(tmp_path)]), 10, Options(to_position=5))
    assert (before.summary["now"], before.problems) == ("on orders as 10", ())


def test_a_message_may_leave_with_its_queue(tmp_path: Path) -> None:
    """A transaction held 10 on `orders` when that was deleted; it has been on `mail` too."""
    defined = [record.queue(1, {"name": "orders"}), record.queue(2, {"name": "mail"})]
    records = [*defined, message(10, [1, 2]), message(11, [1]), record.removed(2, RemovalReason.CONSUMED, [10])]
    deleted = record.queue_deleted(1, {"name": "orders"})
    (tmp_path / segment_name(1)).write_bytes(segment([[*records, deleted]]))
    ends = [trace(take([str(tmp_path)]), id, Options()) for id in (10, 11)]
    assert [(end.summary["now"], end.problems) for end in ends] == [("consumed", ()), ("deleted", ())]
    before = trace(take([str(tmp_path)]), 11, Options(to_position=6))
    assert before.summary["now"] == "on orders as 11"
    for id, ended in ((10, "consumed"), (11, "deleted")):
        trail = find_trail(OsFiles(), str(tmp_path), id, exists={2}.__contains__)
        assert (trail.places, trail.ended, trail.problems) == ([], ended, []), "a running broker tells the same"


def test_most_ids_that_are_not_in_a_segment_are_known_not_to_be() -> None:
    known = IdFilter([np.arange(1000, 2000), np.array([3, 1 << 40])])
    assert all(known.may_have(id) for id in (3, 1 << 40, *range(1000, 2000)))
    assert sum(known.may_have(id) for id in range(2000, 3000)) < 10
    assert not IdFilter([]).may_have(0)
