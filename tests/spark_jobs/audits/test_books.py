"""The ledger without Spark, against the oracle and against journals with one fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.audits import rules
from spark_jobs.audits.books import Books, books_of
from spark_jobs.results import Verdict
from tests.spark_jobs.audits import journals
from tests.spark_jobs.audits.faults import FAULTS
from tests.support import books as oracle
from tests.support.tamper import Draft


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("books")
    journals.generated(directory)
    return directory / "journal"


def ledger(journal: Path) -> Books:
    return books_of(journals.segments_of(journal))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_the_oracle_finds(tmp_path: Path, seed: int) -> None:
    truth = journals.generated(tmp_path, seed=seed)
    found = ledger(tmp_path / "journal")
    assert (found.verdict, found.faults, found.damage) == (Verdict.BALANCED, [], [])
    accounts = oracle.ledger(oracle.read(tmp_path / "journal"))
    assert found.books.keys() == accounts.keys() == truth.queues.keys()
    for id, account in accounts.items():
        book, true = found.books[id], truth.queues[id]
        assert (book.name, book.address) == (account.name, account.address) == (true.name, true.address)
        assert book.enqueued == len(account.entered) == true.entered
        assert book.ways == account.reasons() == +true.left
        assert book.present == len(account.present) == (0 if true.deleted else true.present)
        assert found.present.get(id, set()) == account.present
    assert rules.total(found.books.values()).ways.keys() == set(rules.WAYS), "every way out occurs"


@pytest.mark.parametrize(("plant", "named"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_a_planted_fault_is_named(
    journal: Path, tmp_path: Path, plant: Callable[[Draft], None], named: set[str]
) -> None:
    draft = Draft.read(journal)
    plant(draft)
    damaged = draft.write(tmp_path / "journal")
    found = ledger(damaged)
    assert found.verdict is Verdict.VIOLATED
    assert not found.damage, "the checksums and positions are right"
    whats = {fault.what for fault in found.faults}
    assert whats <= named
    assert whats & named
    wrong = {
        (queue_id, id): what
        for queue_id, account in oracle.ledger(oracle.read(damaged)).items()
        for id, what in account.faults().items()
    }
    movements = {(f.queue_id, f.message_id): f.what for f in found.faults if f.what in rules.MOVEMENT_FAULTS}
    assert movements == wrong


def test_writing_a_draft_changes_nothing_by_itself(journal: Path, tmp_path: Path) -> None:
    written = Draft.read(journal).write(tmp_path / "journal")
    for path in sorted(journal.glob("*.journal")):
        before, after = path.read_bytes().rstrip(b"\0"), (written / path.name).read_bytes().rstrip(b"\0")
        assert before == after, path.name


def test_a_living_broker(tmp_path: Path) -> None:
    broker = journals.lived(tmp_path)
    found = ledger(tmp_path / "journal")
    assert (found.verdict, found.faults, found.damage) == (Verdict.BALANCED, [], [])
    by_name = {book.name: book for book in found.books.values()}
    assert by_name["orders"].ways == {"dead-lettered": 7, "consumed": 2}
    assert by_name["lost"].ways == {"killed": 1}
    assert by_name["brief"].ways == {"expired": 3}
    assert by_name["DLQ"].ways == {"moved": 3}
    for queue in broker.engine.queues.values():
        held = {message.id for message, _ in broker.engine.messages.browse(queue)}
        assert found.present.get(queue.id, set()) == held, queue.name
