"""The ledger by Spark: against the oracle, with every planted fault, with damage, with balances, with a broker."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.audits import queue_flows, rules
from spark_jobs.audits.compare import BadComparison, Expected
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.audits.options import Options
from spark_jobs.audits.reading import Journal, NoSuchAddress
from spark_jobs.journal.segments import SegmentRef
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.results import ExitStatus, Result, Verdict
from store import decode
from store.segment import EntryHead, decode_header, scan
from tests.spark_jobs.audits import faults
from tests.spark_jobs.audits.results import rows
from tests.support import books as oracle
from tests.support import tamper
from tests.support.tamper import Draft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def agrees(result: Result, accounts: dict[int, oracle.Account]) -> None:
    """Every queue's line is the oracle's."""
    lines = {row["queue id"]: row for row in rows(result, "queues")}
    assert lines.keys() == accounts.keys()
    for id, account in accounts.items():
        line = lines[id]
        assert (line["queue"], line["address"]) == (account.name, account.address)
        assert line["enqueued"] == sum(len(positions) for positions in account.entered.values())
        assert {way: line[way] for way in rules.WAYS if line[way]} == account.reasons()
        assert (line["present"], line["with its queue"]) == (len(account.present), len(account.outlived))


def balance_of(snapshot: Snapshot, accounts: dict[int, oracle.Account]) -> Expected:
    """What a broker would say that has what these accounts say."""
    queues = [
        rules.QueuePresent(id, account.name, account.address, len(account.present))
        for id, account in accounts.items()
        if not account.deleted
    ]
    return Expected(snapshot.broker_id, snapshot.next_position, tuple(queues))


@pytest.mark.usefixtures("scattered")
def test_it_is_what_the_oracle_and_the_broker_say(spark: SparkSession, generated: Path) -> None:
    lines = oracle.read(generated / "journal")
    accounts, snapshot = oracle.ledger(lines), take([str(generated)])
    result = ledger(spark, snapshot, LedgerOptions(expected=balance_of(snapshot, accounts)))
    assert (result.verdict, result.status, result.problems) == (Verdict.BALANCED, ExitStatus.OK, ())
    agrees(result, accounts)
    assert rows(result, "comparison") == []
    assert all(row["difference"] == 0 for row in rows(result, "queues"))
    assert rows(result, "faults") == []
    ways = {row["way"]: row["messages"] for row in rows(result, "ways")}
    assert ways.keys() == {*rules.WAYS, "present"}
    assert min(ways.values()) > 0, "every way out occurs"
    dropped: Counter[tuple[str, int]] = Counter()
    for line in lines:
        if isinstance(line.record, decode.Dropped):
            dropped[line.record.address, line.record.reason] += line.record.count
    assert {
        (row["address"], rules.WAYS.index(row["reason"]) + 1): row["messages"] for row in rows(result, "dropped")
    } == dropped
    stored = sum(isinstance(line.record, decode.Message) for line in lines)
    assert result.summary["messages stored"] == stored
    assert (result.coverage.first_position, result.coverage.next_position) == (1, lines[-1].position + 1)


@pytest.mark.usefixtures("scattered")
def test_every_planted_fault_is_found_and_named(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    """All of them in one journal, each on another message."""
    draft = Draft.read(generated / "journal")
    for plant, _ in faults.FAULTS:
        plant(draft)
    draft.write(tmp_path / "journal")
    result = ledger(spark, take([str(tmp_path)]), LedgerOptions(top=1_000))
    assert (result.verdict, result.status, result.coverage.damage) == (Verdict.VIOLATED, ExitStatus.VIOLATED, ())
    found = {(row["fault"], row["queue id"], row["message"]) for row in rows(result, "faults")}
    accounts = oracle.ledger(oracle.read(tmp_path / "journal"))
    wrong = {(what, id, message) for id, account in accounts.items() for message, what in account.faults().items()}
    wrong |= oracle.death_faults(line.record for line in oracle.read(tmp_path / "journal"))
    assert {(what, queue or 0, message) for what, queue, message in found} == wrong
    assert {what for what, _, _ in found} == set(rules.FAULTS)
    agrees(result, accounts)
    told = {row["message"] for row in rows(result, "history")}
    assert told >= {message for what, _, message in found if what != rules.NO_SUCCESSOR}
    for row in rows(result, "faults"):
        assert row["where"] or row["fault"] == rules.NO_SUCCESSOR
    assert {text.partition(": ")[2] for text in result.problems} >= set(rules.FAULTS)


def test_it_is_read_by_all_cores_however_spark_shuffles(spark: SparkSession) -> None:
    """Nothing is read to plan it: the segments need not be there."""
    assert (spark.conf.get("spark.sql.shuffle.partitions"), spark.sparkContext.defaultParallelism) == ("1", 2)
    segments = tuple(SegmentRef(f"/nowhere/{n}", n, 128 << 20, 128 << 20, n, n + 1, 1) for n in range(1, 9))
    journal = Journal(spark, Snapshot("00", ("/nowhere",), segments, next_position=9), LedgerOptions())
    assert queue_flows.records(journal, finished=False).rdd.getNumPartitions() == 4


# -- damage ------------------------------------------------------------------------------------------------------------


def scanned(data: Path, number: int) -> list[EntryHead]:
    """The entries of a segment."""
    content = tamper.path_of(data / "journal", number).read_bytes()
    return scan(content, decode_header(content)).entries


def flip_in(data: Path, number: int) -> tuple[str, EntryHead]:
    """Flip a bit in an entry in the middle of a segment; returns where that is."""
    entries = scanned(data, number)
    entry = entries[len(entries) // 2]
    path = tamper.path_of(data / "journal", number)
    tamper.flip(path, entry.offset + 60)
    return str(path), entry


def test_damage_is_counted_exactly(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    """A record without its position, a flipped bit, a missing segment."""
    draft = Draft.read(generated / "journal")
    early = faults.removed(draft, "consumed")[4]
    draft.remove(early, renumbered=False)
    draft.write(tmp_path / "journal")
    lines = oracle.read(generated / "journal")
    numbers = sorted({line.segment for line in lines})
    flipped, gone = numbers[len(numbers) // 2], numbers[-2]
    assert early.segment < flipped < gone
    own = [line for line in lines if line.segment == gone]
    path, entry = flip_in(tmp_path, flipped)
    tamper.path_of(tmp_path / "journal", gone).unlink()
    result = ledger(spark, take([str(tmp_path)]), LedgerOptions())
    assert (result.verdict, result.status) == (Verdict.NOT_PROVABLE, ExitStatus.DAMAGED)
    found = {(damage.first_position, damage.records): damage for damage in result.coverage.damage}
    position = next(line.position for line in lines if line.segment == early.segment)
    assert len(found) == 3
    assert (found[entry.first, entry.count].path, found[entry.first, entry.count].offset) == (path, entry.offset)
    missing = found[own[0].position, len(own)]
    assert str(gone) in missing.path + missing.what
    (left_out,) = [damage for damage in found.values() if damage.records == 1]
    assert position <= left_out.first_position < lines[-1].position
    assert "nothing can be proved" in result.problems[0]


def test_a_fault_that_no_loss_explains_is_a_violation_beside_damage(
    spark: SparkSession, generated: Path, tmp_path: Path
) -> None:
    draft = Draft.read(generated / "journal")
    faults.doubled_removal(draft)
    draft.write(tmp_path / "journal")
    flip_in(tmp_path, max(draft.segments) - 1)
    result = ledger(spark, take([str(tmp_path)]), LedgerOptions(top=1))
    assert (result.verdict, result.status) == (Verdict.VIOLATED, ExitStatus.VIOLATED)
    assert result.coverage.damage


# -- parts of a journal ------------------------------------------------------------------------------------------------


def test_a_part_without_a_balance_knows_what_it_cannot_know(spark: SparkSession, generated: Path) -> None:
    """What entered before the range is no fault, and is counted as such."""
    lines = oracle.read(generated / "journal")
    begin = lines[len(lines) // 2]
    time = begin.time
    inside = [line for line in lines if line.time >= time]
    result = ledger(spark, take([str(generated)]), LedgerOptions(from_time=time))
    assert result.verdict is Verdict.BALANCED
    accounts = oracle.ledger(inside)
    for row in rows(result, "queues"):
        account = accounts.get(row["queue id"], oracle.Account())
        assert row["from before"] == len(account.left.keys() - account.entered.keys())
        assert row["enqueued"] == len(account.entered)
    assert result.summary["from before"] != 0


def test_a_message_that_must_have_entered_within_the_part(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    """Ids ascend: one that is higher than the first of the range did not enter before it."""
    draft = Draft.read(generated / "journal")
    lines = oracle.read(generated / "journal")
    time = lines[len(lines) // 3].time
    first = min(line.record.id for line in lines if isinstance(line.record, decode.Message) and line.time >= time)
    sent = {
        line.record.id
        for line in lines
        if isinstance(line.record, decode.Message) and not line.record.header.annotations
    }
    gone = (id for place in faults.removed(draft, "consumed") for id in faults.ids(draft, place))
    victim = next(id for id in gone if id > first + 50 and id in sent)
    draft.remove(faults.message(draft, victim))
    draft.write(tmp_path / "journal")
    result = ledger(spark, take([str(tmp_path)]), LedgerOptions(from_time=time))
    assert result.verdict is Verdict.VIOLATED
    assert {(row["fault"], row["message"]) for row in rows(result, "faults")} == {(rules.ORPHAN, victim)}


def test_only_some_addresses(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    """A fault elsewhere is not theirs."""
    draft = Draft.read(generated / "journal")
    faults.doubled_removal(draft)
    draft.write(tmp_path / "journal")
    accounts = oracle.ledger(oracle.read(tmp_path / "journal"))
    (wrong,) = [account for account in accounts.values() if account.faults()]
    assert wrong.address.startswith("orders.")
    result = ledger(spark, take([str(tmp_path)]), LedgerOptions(addresses=("events.#", "temporary"), fail_over=0))
    assert (result.verdict, result.status, result.exceeded) == (Verdict.BALANCED, ExitStatus.EXCEEDED, True)
    lines = {row["queue id"]: row for row in rows(result, "queues")}
    assert lines.keys() == {id for id, account in accounts.items() if account.address in ("events", "temporary")}
    assert result.summary["present"] == sum(len(accounts[id].present) for id in lines)


def test_an_address_that_does_not_exist_has_no_books(spark: SparkSession, generated: Path) -> None:
    with pytest.raises(NoSuchAddress) as told:
        ledger(spark, take([str(generated)]), LedgerOptions(addresses=("events", "event")))
    assert str(told.value) == "--address event: no address in the journal matches; similar ones: events"


@pytest.mark.parametrize(("pattern", "alike"), [("nothing.at.all", ""), ("event.#", "; similar ones: events")])
def test_addresses_are_alike_or_not(spark: SparkSession, generated: Path, pattern: str, alike: str) -> None:
    journal = Journal(spark, take([str(generated)]), Options(addresses=("events", pattern)))
    with pytest.raises(NoSuchAddress) as told:
        journal.check_addresses(())
    assert str(told.value) == f"--address {pattern}: no address in the journal matches{alike}"


def test_an_address_where_nothing_happened_in_the_range_has_empty_books(spark: SparkSession, lived: Path) -> None:
    """Its queue was defined before, and perhaps deleted; and one without a queue got messages that nobody wanted."""
    snapshot = take([str(lived)])
    asked = LedgerOptions(addresses=("brief",), from_position=snapshot.next_position - 1)
    result = ledger(spark, snapshot, asked)
    assert (result.verdict, result.summary["enqueued"]) == (Verdict.BALANCED, 0)


# -- the running broker ------------------------------------------------------------------------------------------------


def test_figures_that_only_the_broker_knows(spark: SparkSession, generated: Path, tmp_path: Path) -> None:
    """A removal that was forgotten leaves no trace in the journal: the broker knows that the message is gone."""
    accounts = oracle.ledger(oracle.read(generated / "journal"))
    draft = Draft.read(generated / "journal")
    place = faults.removed(draft, "consumed")[4]
    queue, forgotten = faults.queue_of(draft, place), len(faults.ids(draft, place))
    draft.remove(place)
    draft.write(tmp_path / "journal")
    snapshot = take([str(tmp_path)])
    result = ledger(spark, snapshot, LedgerOptions(expected=balance_of(snapshot, accounts)))
    assert result.verdict is Verdict.VIOLATED
    (row,) = rows(result, "comparison")
    assert (row["queue id"], row["difference"]) == (queue, forgotten)
    assert "differ" in result.problems[0]


def test_a_journal_that_ends_before_the_broker_lacks_records(
    spark: SparkSession, generated: Path, tmp_path: Path
) -> None:
    """A newest segment that was removed, or an old copy."""
    whole = take([str(generated)])
    expected = balance_of(whole, oracle.ledger(oracle.read(generated / "journal")))
    copied = Path(shutil.copytree(generated, tmp_path / "copy"))
    max(copied.rglob("*.journal")).unlink()
    snapshot = take([str(copied)])
    result = ledger(spark, snapshot, LedgerOptions(expected=expected))
    assert (result.verdict, result.status) == (Verdict.NOT_PROVABLE, ExitStatus.DAMAGED)
    (damage,) = result.coverage.damage
    assert (damage.first_position, damage.records) == (
        snapshot.next_position,
        expected.position - snapshot.next_position,
    )
    assert f"up to position {expected.position - 1}" in damage.what
    assert rows(result, "comparison")


def test_figures_that_cannot_be_compared(spark: SparkSession, generated: Path) -> None:
    snapshot = take([str(generated)])
    expected = Expected(snapshot.broker_id, snapshot.next_position, ())
    with pytest.raises(BadComparison, match="broker"):
        ledger(spark, snapshot, LedgerOptions(expected=replace(expected, broker_id="00")))
    with pytest.raises(BadComparison, match="queues"):
        Expected.from_answer({"broker_id": "00", "position": 1})
    answer = {
        "broker_id": "ab",
        "position": 7,
        "queues": [
            {"id": 3, "name": "q", "address": "a", "durable": True, "journalled": 5},
            {"id": 4, "name": "t", "address": "a", "durable": False, "journalled": 0},
        ],
    }
    assert Expected.from_answer(answer) == Expected("ab", 7, (rules.QueuePresent(3, "q", "a", 5),))


@pytest.mark.parametrize(
    "asked",
    [
        {"opening": "x", "from_position": 1},
        {"opening": "x", "from_time": 1},
        {"expected": Expected("", 1, ()), "to_position": 5},
        {"expected": Expected("", 1, ()), "from_time": 5},
        {"save_balance": "x", "addresses": ("a",)},
        {"save_balance": "x", "from_position": 5},
        {"save_balance": "x", "to_time": 5},
    ],
)
def test_ledgers_that_cannot_be_requested(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"opening|compare|save-balance"):
        LedgerOptions(**asked)
