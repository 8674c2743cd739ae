"""Balances: a ledger goes on where another ended, and refuses what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.audits import opening, rules
from spark_jobs.audits.compare import Expected
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.audits.opening import BadBalance
from spark_jobs.journal.snapshot import take
from spark_jobs.results import Verdict
from tests.spark_jobs.audits import faults
from tests.spark_jobs.audits.results import rows
from tests.support import books as oracle
from tests.support import tamper
from tests.support.tamper import Draft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("scattered")


def cut_of(lines: list[oracle.Line]) -> int:
    """Where the first ledger ends: before the last three segments."""
    numbers = sorted({line.segment for line in lines})
    return next(line.position for line in lines if line.segment == numbers[-3])


@pytest.fixture(scope="module")
def saved(spark: SparkSession, generated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The closing balance of the journal up to the cut, written in several slices."""
    directory = tmp_path_factory.mktemp("saved") / "balance"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.audits.ledger.SLICE_MESSAGES", 500)
        cut = cut_of(oracle.read(generated / "journal"))
        result = ledger(spark, take([str(generated)]), LedgerOptions(to_position=cut, save_balance=str(directory)))
    assert (result.verdict, result.coverage.next_position) == (Verdict.BALANCED, cut)
    return directory


def test_a_ledger_goes_on_where_another_ended(
    spark: SparkSession, generated: Path, saved: Path, tmp_path: Path
) -> None:
    """It needs nothing from before the balance, and closes as the ledger of the whole journal does."""
    lines = oracle.read(generated / "journal")
    cut, closing = cut_of(lines), oracle.ledger(lines)
    before = oracle.ledger([line for line in lines if line.position < cut])
    held = {id: account.present for id, account in before.items() if account.present}
    assert {q.queue_id: q.messages for q in opening.read(str(saved)).queues} == {
        id: len(ids) for id, ids in held.items()
    }

    data = tamper.copy(generated, tmp_path / "data")
    for number in {line.segment for line in lines if line.position < cut}:
        tamper.path_of(data / "journal", number).unlink()
    snapshot = take([str(data)])
    assert snapshot.missing, "without the balance, this is no ledger"
    next_one = tmp_path / "balance"
    tamper.copy(saved, next_one)
    result = ledger(spark, snapshot, LedgerOptions(opening=str(next_one), save_balance=str(next_one)))
    assert (result.verdict, result.problems, result.coverage.first_position) == (Verdict.BALANCED, (), cut)
    for row in rows(result, "queues"):
        id = row["queue id"]
        assert (row["opening"], row["present"]) == (len(held.get(id, ())), len(closing[id].present))
    assert result.summary["opening"] == sum(map(len, held.values()))
    again = opening.read(str(next_one))
    assert (again.position, again.verdict) == (lines[-1].position + 1, "balanced")
    assert again.messages == sum(len(account.present) for account in closing.values())
    assert len(list(next_one.iterdir())) == 2, "the old balance is gone"


def test_a_target_is_tried_without_a_trace(tmp_path: Path) -> None:
    opening.check_target(str(tmp_path / "a" / "b"))
    assert [*(tmp_path / "a" / "b").iterdir()] == []
    (tmp_path / "file").touch()
    with pytest.raises(BadBalance, match="no balance can be written there"):
        opening.check_target(str(tmp_path / "file"))


def test_nothing_has_happened_since_the_balance(spark: SparkSession, generated: Path, saved: Path) -> None:
    """The range is empty: what was open is present, for the broker as for the ledger."""
    snapshot, head = take([str(generated)]), opening.read(str(saved))
    expected = Expected(snapshot.broker_id, head.position, head.queues)
    for options in (LedgerOptions(expected=expected), LedgerOptions(to_position=head.position)):
        result = ledger(spark, snapshot, replace(options, opening=str(saved)))
        assert (result.verdict, result.problems) == (Verdict.BALANCED, ())
        assert (result.coverage.first_position, result.coverage.next_position) == (head.position, head.position)
        assert result.summary["opening"] == result.summary["present"] == head.messages


def test_a_balance_of_later_than_the_range(spark: SparkSession, generated: Path, saved: Path) -> None:
    snapshot, head = take([str(generated)]), opening.read(str(saved))
    earlier = Expected(snapshot.broker_id, head.position - 1, ())
    for options in (LedgerOptions(expected=earlier), LedgerOptions(to_position=head.position - 1)):
        with pytest.raises(
            BadBalance, match=f"the balance ends at position {head.position}, but the range ends before, at"
        ):
            ledger(spark, snapshot, replace(options, opening=str(saved)))


@pytest.mark.parametrize("which", [0, 1])
def test_every_byte_of_a_balance_is_checked(saved: Path, tmp_path: Path, which: int) -> None:
    directory = tmp_path / "balance"
    tamper.copy(saved, directory)
    file = directory / (opening.HEAD, opening.read(str(saved)).file)[which]
    good = file.read_bytes()
    for offset in range(0, len(good), max(1, len(good) // 200)):
        if not good[offset : offset + 1].isspace():
            file.write_bytes(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :])
            with pytest.raises(BadBalance):
                opening.read(str(directory))


def test_a_balance_that_does_not_fit(spark: SparkSession, generated: Path, lived: Path, tmp_path: Path) -> None:
    snapshot, saved = take([str(generated)]), str(tmp_path / "balance")
    with pytest.raises(BadBalance, match="there is no balance"):
        ledger(spark, snapshot, LedgerOptions(opening=saved))
    head = opening.Balance(snapshot.broker_id, snapshot.next_position + 1, 0, 0, 0, "balanced", ())
    opening.write(saved, head, [])
    with pytest.raises(BadBalance, match="position"):
        ledger(spark, snapshot, LedgerOptions(opening=saved))
    with pytest.raises(BadBalance, match="broker"):
        ledger(spark, take([str(lived)]), LedgerOptions(opening=saved))
    (tmp_path / "balance" / head.file).write_bytes(b"PAR1")
    with pytest.raises(BadBalance, match="cannot be read"):
        ledger(spark, snapshot, LedgerOptions(opening=saved))
    (tmp_path / "balance" / opening.HEAD).write_text(json.dumps({"version": 7}))
    with pytest.raises(BadBalance, match="version 7"):
        ledger(spark, snapshot, LedgerOptions(opening=saved))


def test_a_fault_against_the_opening_balance(spark: SparkSession, generated: Path, saved: Path, tmp_path: Path) -> None:
    """A message of the balance that enters again, and one that had left before and leaves again."""
    lines = oracle.read(generated / "journal")
    cut = cut_of(lines)
    accounts = oracle.ledger([line for line in lines if line.position < cut])
    draft = Draft.read(generated / "journal")
    there = {id for account in accounts.values() for id in account.present}
    gone = {id for account in accounts.values() for id in account.left} - there
    last = max(draft.segments)
    draft.double(faults.message(draft, min(there)), into=last)
    again = faults.removal(draft, min(gone))
    draft.double(again, into=last)
    draft.write(tmp_path / "data" / "journal")
    result = ledger(spark, take([str(tmp_path / "data")]), LedgerOptions(opening=str(saved), top=1_000))
    assert result.verdict is Verdict.VIOLATED
    found = {(row["fault"], row["message"]) for row in rows(result, "faults")}
    orphans = {(rules.ORPHAN, id) for id in faults.ids(draft, again)}
    assert found == {(rules.ENTERED_TWICE, min(there)), *orphans}


def test_a_file_where_a_balance_should_be_is_told_without_a_number(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadBalance) as told:
        opening.read(str(tmp_path / "file"))
    assert str(told.value) == f"{tmp_path}/file: the balance cannot be read: Not a directory"
    with pytest.raises(BadBalance) as told:
        opening.read(str(tmp_path / "nothing"))
    assert str(told.value) == f"{tmp_path}/nothing: there is no balance; --save-balance writes one"
