"""What a broker without retention has given up, and what follows from the order of ids."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.audits import rules
from spark_jobs.audits.ledger import LedgerOptions, ledger, stored_twice
from spark_jobs.journal.snapshot import take
from spark_jobs.results import Verdict
from store import decode, record
from store.record import RecordType
from tests.simulation.world import journal_directory, small
from tests.spark_jobs.audits import journals
from tests.spark_jobs.audits.results import rows
from tests.support.sim_broker import SimBroker
from tests.support.tamper import Draft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), max_size=5), st.integers(0, 12))
def test_a_message_stored_twice_is_noticed(segments: list[list[int]], below: int) -> None:
    told = stored_twice([{"lowest": min(ids), "highest": max(ids)} for ids in segments], below)
    opened = [range(below)] if below else []
    assert told or all(not set(a) & set(b) for a, b in combinations([*opened, *segments], 2))
    if all(max(a) < min(b) for a, b in pairwise([*opened, *segments])):
        assert not told


def trimmed(directory: Path) -> Path:
    """The journal of a broker without retention: much was consumed, and a message sent first is still there."""
    broker = SimBroker(small(segment_bytes=8 << 10, retained=False))
    client = broker.connect()
    client.confirmed("/queue/old", b"still here")
    client.subscribe("/queue/busy", id="b")
    for n in range(120):
        client.confirmed("/queue/busy", b"%d" % n + b" " * 400)
        (message,) = client.messages()
        if n < 118:
            client.ack(message)
    broker.shut_down()
    return journals.dump(broker.files, journal_directory(broker.config), directory / "journal")


def test_segments_that_the_broker_gave_up_are_no_fault(spark: SparkSession, tmp_path: Path) -> None:
    trimmed(tmp_path)
    snapshot = take([str(tmp_path)])
    assert snapshot.trimmed
    assert snapshot.open_below > 1000, "the broker tells generously"
    result = ledger(spark, snapshot, LedgerOptions())
    assert (result.verdict, rows(result, "faults")) == (Verdict.BALANCED, [])
    assert {row["queue"]: row["present"] for row in rows(result, "queues") if row["present"]} == {"old": 1, "busy": 2}


def test_but_what_entered_behind_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """The broker says that ids up to a thousand and more may have been used; that they ascend says it exactly."""
    trimmed(tmp_path / "good")
    draft = Draft.read(tmp_path / "good" / "journal")
    messages = draft.find(RecordType.MESSAGE)
    victim, early = messages[-1], messages[-5]
    lost, known = draft.at(victim), draft.at(early)
    assert isinstance(lost, decode.Message)
    assert isinstance(known, decode.Message)
    draft.replace(victim, record.removed(lost.header.queue_ids[0], 1, [lost.id]))
    draft.write(tmp_path / "bad" / "journal")
    snapshot = take([str(tmp_path / "bad")])
    assert lost.id < snapshot.open_below
    result = ledger(spark, snapshot, LedgerOptions())
    assert {(row["fault"], row["message"]) for row in rows(result, "faults")} == {(rules.ORPHAN, lost.id)}
    assert (result.verdict, result.coverage.trimmed_records > 0) == (Verdict.VIOLATED, True)
