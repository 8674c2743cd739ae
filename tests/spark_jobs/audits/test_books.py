"""The oracle of the ledger: against the generator's totals, and against journals with one fault each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.audits import rules
from tests.spark_jobs.audits import journals
from tests.spark_jobs.audits.faults import FAULTS
from tests.support import books as oracle
from tests.support.tamper import Draft


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("books")
    journals.generated(directory)
    return directory / "journal"


def faults(lines: list[oracle.Line]) -> set[tuple[str, int, int]]:
    """What is wrong, by queue and message."""
    accounts = oracle.ledger(lines)
    moved = {(what, queue, id) for queue, account in accounts.items() for id, what in account.faults().items()}
    return moved | oracle.death_faults(line.record for line in lines)


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_the_generator_wrote(tmp_path: Path, seed: int) -> None:
    truth = journals.generated(tmp_path, seed=seed)
    lines = oracle.read(tmp_path / "journal")
    accounts = oracle.ledger(lines)
    assert faults(lines) == set()
    assert accounts.keys() == truth.queues.keys()
    for id, account in accounts.items():
        true = truth.queues[id]
        assert (account.name, account.address) == (true.name, true.address)
        assert len(account.entered) == true.entered
        assert account.reasons() == +true.left
        assert len(account.present) == (0 if true.deleted else true.present)
    assert truth.left().keys() == set(rules.WAYS), "every way out occurs"


@pytest.mark.parametrize(("plant", "named"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_a_planted_fault_is_named(
    journal: Path, tmp_path: Path, plant: Callable[[Draft], None], named: set[str]
) -> None:
    draft = Draft.read(journal)
    plant(draft)
    whats = {what for what, _, _ in faults(oracle.read(draft.write(tmp_path / "journal")))}
    assert whats <= named
    assert whats & named


def test_writing_a_draft_changes_nothing_by_itself(journal: Path, tmp_path: Path) -> None:
    written = Draft.read(journal).write(tmp_path / "journal")
    for path in sorted(journal.glob("*.journal")):
        before, after = path.read_bytes().rstrip(b"\0"), (written / path.name).read_bytes().rstrip(b"\0")
        assert before == after, path.name


def test_a_living_broker(tmp_path: Path) -> None:
    broker = journals.lived(tmp_path)
    lines = oracle.read(tmp_path / "journal")
    accounts = oracle.ledger(lines)
    assert faults(lines) == set()
    ways = {account.name: account.reasons() for account in accounts.values()}
    assert ways["orders"] == {"dead-lettered": 7, "consumed": 2}
    assert (ways["lost"], ways["brief"], ways["DLQ"]) == ({"killed": 1}, {"expired": 3}, {"moved": 3})
    for queue in broker.engine.queues.values():
        held = {message.id for message, _ in broker.engine.messages.browse(queue)}
        assert accounts[queue.id].present == held, queue.name
