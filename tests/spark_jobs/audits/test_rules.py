"""The ledger's rules: every combination has one state, and books that balance are told from those that do not."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from spark_jobs.audits import rules
from spark_jobs.audits.rules import QueueBook
from spark_jobs.results import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


THEN: Final = datetime(2026, 3, 1, tzinfo=UTC)


def expected(entered: int, left: int, *, old: bool, in_order: bool) -> str:
    """The table at the head of the rules."""
    if entered + left == 0:
        return rules.NOTHING
    if entered > 1:
        return rules.ENTERED_TWICE
    if left > 1:
        return rules.LEFT_TWICE
    if entered == 0:
        return rules.BEFORE if old else rules.ORPHAN
    if left == 0:
        return rules.PRESENT
    return rules.GONE if in_order else rules.LEFT_EARLY


def states(spark: SparkSession, rows: list[tuple[int | None, ...]], *unseen: rules.Ids) -> list[str]:
    """The state of each row (message id, entered, left, first position of each)."""
    names = ("message_id", "entered", "left", "entered_position", "left_position")
    table = pa.table(
        {name: pa.array(column, pa.int64()) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    )
    found: list[str] = spark.createDataFrame(table).select(rules.state(unseen).alias("s")).toArrow()["s"].to_pylist()
    return found


def test_each_message_has_one_state(spark: SparkSession) -> None:
    cases = [*product(range(4), range(4), (True, False), (True, False))]
    pairs: list[tuple[int | None, ...]] = [
        (5 if old else 10, entered, left, 3 if entered else None, (7 if in_order else 1) if left else None)
        for entered, left, old, in_order in cases
    ]
    for (entered, left, old, in_order), state in zip(cases, states(spark, pairs, rules.Ids(3, 10)), strict=True):
        assert state == expected(entered, left, old=old, in_order=in_order), (entered, left, old, in_order)


def test_without_knowledge_of_what_was_before_nothing_is_without_entering(spark: SparkSession) -> None:
    assert states(spark, [(1 << 62, 0, 1, None, 8)], rules.Ids(0, rules.EVERYTHING)) == [rules.BEFORE]


def test_a_message_that_cannot_have_entered_elsewhere_did_not_enter(spark: SparkSession) -> None:
    """Whatever holes there are: more than conditions that Spark can nest."""
    ids: list[tuple[int | None, ...]] = [(n, 0, 1, None, 8) for n in (2, 3, 9, 10, 14)]
    found = states(spark, ids, *(rules.Ids(n, n + 7) for n in range(3, 10_000, 10)))
    assert found == [rules.ORPHAN, rules.BEFORE, rules.BEFORE, rules.ORPHAN, rules.BEFORE]
    assert states(spark, ids[:1]) == [rules.ORPHAN]


def books() -> dict[int, rules.QueueBook]:
    """Queue 1: opened with 2, 10 came, 7 left, one of which came before; queue 2 is deleted."""
    found = {1: QueueBook(1, "a", "A", opening=2), 2: QueueBook(2, "b", "B", deleted=True)}
    flows = [(1, None, 10, 0), (1, "consumed", 0, 5), (1, "killed", 0, 2), (2, None, 3, 0)]
    standings = [(1, rules.PRESENT, 6, THEN), (1, rules.BEFORE, 1, None), (2, rules.PRESENT, 3, None)]
    rules.balance(
        found,
        [dict(zip(("queue_id", "reason", "entered", "left"), flow, strict=True)) for flow in flows],
        [dict(zip(("queue_id", "state", "messages", "oldest"), standing, strict=True)) for standing in standings],
    )
    return found


def test_a_balance() -> None:
    one, two = books().values()
    assert (one.name, one.address, one.opening, one.before, one.enqueued) == ("a", "A", 2, 1, 10)
    assert (one.ways, one.out, one.present, one.difference) == ({"consumed": 5, "killed": 2}, 7, 6, 0)
    assert (one.oldest, two.oldest) == (THEN, None)
    assert (two.outlived, two.present, two.difference) == (3, 0, 0)
    whole = rules.total(books().values())
    assert (whole.enqueued, whole.out, whole.outlived, whole.present, whole.difference) == (13, 7, 3, 6, 0)


@pytest.mark.parametrize(
    ("faults", "whole", "differences", "wrong_sum", "said"),
    [
        ({}, True, 0, 0, Verdict.BALANCED),
        ({rules.ORPHAN: 0}, True, 0, 0, Verdict.BALANCED),
        ({rules.ORPHAN: 1}, True, 0, 0, Verdict.VIOLATED),
        ({rules.ORPHAN: 1}, False, 0, 0, Verdict.NOT_PROVABLE),
        ({rules.NO_RECORD: 1}, True, 0, 0, Verdict.VIOLATED),
        ({rules.NO_SUCCESSOR: 1}, False, 0, 0, Verdict.NOT_PROVABLE),
        ({rules.LEFT_TWICE: 1}, True, 0, 0, Verdict.VIOLATED),
        ({rules.LEFT_TWICE: 1}, False, 0, 0, Verdict.VIOLATED),
        ({rules.ENTERED_TWICE: 1}, False, 0, 0, Verdict.VIOLATED),
        ({rules.LEFT_EARLY: 1}, False, 0, 0, Verdict.VIOLATED),
        ({}, False, 0, 0, Verdict.NOT_PROVABLE),
        ({}, True, 1, 0, Verdict.VIOLATED),
        ({}, False, 1, 0, Verdict.NOT_PROVABLE),
        ({}, True, 0, 1, Verdict.VIOLATED),
        ({}, True, 0, -1, Verdict.VIOLATED),
        ({}, False, 0, 1, Verdict.NOT_PROVABLE),
    ],
)
def test_the_verdict(faults: dict[str, int], whole: bool, differences: int, wrong_sum: int, said: Verdict) -> None:
    found = books()
    found[1].present += wrong_sum
    assert rules.verdict(faults, found.values(), whole=whole, differences=differences) is said
