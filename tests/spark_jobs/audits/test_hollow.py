"""The ledger of a journal from whose middle the broker has let segments go; what lies in front of them is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audits import rules
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.journal.snapshot import take
from spark_jobs.results import Result, Verdict
from store import record
from store.record import RecordType
from tests.spark_jobs.audits import faults, journals
from tests.spark_jobs.audits.results import rows
from tests.support.tamper import Draft, Place


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody changes it."""
    return journals.hollow(tmp_path_factory.mktemp("hollow"))


def audited(spark: SparkSession, data: Path, options: LedgerOptions | None = None) -> Result:
    """The ledger of a journal with a hole in its middle."""
    snapshot = take([str(data)])
    (hole,) = snapshot.trimmed
    assert snapshot.segments[0].number < hole.first_segment <= hole.last_segment < snapshot.segments[-1].number
    return ledger(spark, snapshot, options or LedgerOptions())


def came_before(result: Result) -> dict[str, int]:
    """The queues on which messages had come where nobody can look, and how many."""
    return {row["queue"]: row["from before"] for row in rows(result, "queues") if row["from before"]}


def forget(draft: Draft, place: Place) -> None:
    """Something harmless stands in a record's place: other segments say where this one ended."""
    draft.replace(place, record.ids(1))


def test_it_balances(spark: SparkSession, hollow: Path) -> None:
    result = audited(spark, hollow.parent)
    assert (result.verdict, result.problems) == (Verdict.BALANCED, ())
    assert result.summary["present"] == 2
    assert came_before(result) == {"slow": 1}


@pytest.mark.parametrize("tasks", ["one", "one for each segment"])
def test_faults_of_messages_in_front_of_it(
    spark: SparkSession, hollow: Path, tmp_path: Path, tasks: str, request: pytest.FixtureRequest
) -> None:
    """One left again behind it; one was never stored, and one neither, but left behind it."""
    if tasks != "one":
        request.getfixturevalue("scattered")
    draft = Draft.read(hollow)
    first, last = min(draft.segments), max(draft.segments)
    left = [place for place in faults.removed(draft, "consumed") if place.segment == first]
    again, never, neither = (faults.ids(draft, place)[0] for place in left[:3])
    for id in (never, neither):
        forget(draft, faults.message(draft, id))
    draft.double(left[0], into=last)
    draft.double(left[2], into=last)
    forget(draft, left[2])
    draft.write(tmp_path / "journal")
    result = audited(spark, tmp_path)
    assert result.verdict is Verdict.VIOLATED
    found = {row["message"]: row["fault"] for row in rows(result, "faults")}
    assert found == {again: rules.LEFT_TWICE, never: rules.ORPHAN, neither: rules.ORPHAN}


def test_messages_that_came_within_it_are_no_fault_of_a_range_that_begins_in_front(
    spark: SparkSession, hollow: Path, tmp_path: Path
) -> None:
    """Even if more ids were given out since then than the broker announces in advance."""
    draft = Draft.read(hollow)
    _, opened, _ = draft.find(RecordType.OPENED)
    id = next(
        faults.ids(draft, place) for place in faults.removed(draft, "consumed") if place.segment == opened.segment
    )[0]
    draft.announce(opened, id)
    draft.write(tmp_path / "journal")
    result = audited(spark, tmp_path, LedgerOptions(from_position=2))
    assert (result.verdict, result.problems) == (Verdict.BALANCED, ())
    assert came_before(result) == {"slow": 1}
