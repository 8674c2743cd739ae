"""What follows from the order of ids, and what a broker without retention has given up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.audits import rules
from spark_jobs.audits.books import books
from spark_jobs.audits.ids import Range, settle_above
from spark_jobs.audits.ledger import LedgerOptions, ledger
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


@given(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), max_size=5))
def test_nothing_settles_that_two_segments_may_have_stored(segments: list[list[int]]) -> None:
    found = [Range(number, len(ids), min(ids), max(ids)) for number, ids in enumerate(segments)]
    below = settle_above(found)
    for number, ids in enumerate(segments):
        for other in segments[number + 1 :]:
            assert all(id < below for id in set(ids) & set(other))
    if all(max(a) < min(b) for a, b in pairwise(segments)):
        assert below == 0


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


def test_what_the_broker_gave_up_is_no_fault(tmp_path: Path) -> None:
    trimmed(tmp_path)
    snapshot = take([str(tmp_path)])
    assert snapshot.trimmed
    assert snapshot.open_below > 1000, "the broker tells generously"
    found = books(snapshot)
    assert (found.verdict, found.faults) == (Verdict.BALANCED, [])
    assert {book.name: book.present for book in found.books.values() if book.present} == {"old": 1, "busy": 2}


def test_but_what_entered_behind_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """The broker says that ids up to a thousand and more may have been used; that they ascend says it exactly."""
    trimmed(tmp_path / "good")
    draft = Draft.read(tmp_path / "good" / "journal")
    messages = draft.find(RecordType.MESSAGE)
    victim, early = messages[-1], messages[-5]
    lost, known = draft.at(victim), draft.at(early)
    assert isinstance(lost, decode.Message)
    assert isinstance(known, decode.Message)
    draft.replace(victim, record.removed(lost.facts.queue_ids[0], 1, [lost.id]))
    draft.write(tmp_path / "bad" / "journal")
    snapshot = take([str(tmp_path / "bad")])
    assert lost.id < snapshot.open_below
    assert {(fault.what, fault.message_id) for fault in books(snapshot).faults} == {(rules.ORPHAN, lost.id)}
    result = ledger(spark, snapshot, LedgerOptions())
    assert {(row["fault"], row["message"]) for row in rows(result, "faults")} == {(rules.ORPHAN, lost.id)}
    assert (result.verdict, result.coverage.trimmed_records > 0) == (Verdict.VIOLATED, True)
