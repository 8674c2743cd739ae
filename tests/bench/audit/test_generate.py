"""A generated journal is a good one, and its books are true."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.audit.__main__ import main
from bench.audit.books import Books, QueueBook, load
from bench.audit.generate import generate
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.scan import records
from spark_jobs.journal.snapshot import take
from store import decode
from store.files import OsFiles
from store.inspect import verify
from store.record import DeadLetterReason, RecordType, RemovalReason
from store.segment import segment_name
from store.segment_directory import open_segment

RECORDS = 12_000
SEGMENT_BYTES = 1 << 20


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Books]:
    directory = tmp_path_factory.mktemp("journal")
    return directory, generate(directory, RECORDS, 7, SEGMENT_BYTES)


def recounted(directory: Path, books: Books) -> tuple[Books, dict[int, set[int]]]:
    """The books, and what is present on each queue, from the records."""
    found = Books(books.seed, books.broker_id, books.segment_bytes)
    present: dict[int, set[int]] = {}
    for number in range(1, books.segments + 1):
        path = directory / segment_name(number)
        data = path.read_bytes()
        found.segments += 1
        found.bytes += len(data)
        segment = open_segment(str(path), number, data)
        scanned = segment.found
        found.first_time = found.first_time or scanned.entries[0].timestamp
        found.last_time = scanned.entries[-1].timestamp
        for raw in segment.records():
            found.records += 1
            found.next_position = raw[1] + 1
            found.types[RecordType(raw[3]).name] += 1
            count(found, present, decode.decode(data, raw[5]), raw[3])
    return found, present


def count(books: Books, present: dict[int, set[int]], record: decode.Record, type: int) -> None:
    match record:
        case decode.Message():
            books.messages += 1
            for queue in record.header.queue_ids:
                books.queues[queue].entered += 1
                assert record.id not in present[queue], "a message enters a queue once"
                present[queue].add(record.id)
        case decode.Removed():
            assert present[record.queue_id] >= set(record.ids), "what leaves is there"
            present[record.queue_id] -= set(record.ids)
            books.queues[record.queue_id].left[RemovalReason(record.reason).word] += len(record.ids)
        case decode.DeadLettered():
            name = books.queues[record.queue_id].name
            books.deaths[f"{record.address}|{name}|{DeadLetterReason(record.reason).word}"] += 1
        case decode.Expired():
            books.expiries[f"{record.address}|{books.queues[record.queue_id].name}|{record.source}"] += 1
        case decode.Dropped():
            key = f"{record.address}|{RemovalReason(record.reason).word}"
            books.dropped[key] += record.count
            books.dropped_bytes[key] += record.size
        case decode.Definition() if type == RecordType.QUEUE:
            if record.id not in books.queues:
                definition = record.definition
                books.queues[record.id] = QueueBook(str(definition["name"]), str(definition["address"]))
                present[record.id] = set()
        case decode.Definition() if type == RecordType.QUEUE_DELETED:
            books.queues[record.id].deleted = True


def test_the_books_are_true(journal: tuple[Path, Books]) -> None:
    directory, books = journal
    found, present = recounted(directory, books)
    assert found == books
    assert {id: len(messages) for id, messages in present.items()} == {
        id: queue.present for id, queue in books.queues.items()
    }
    assert books.records >= RECORDS
    assert books.messages > 0.8 * books.records


def test_the_broker_would_start_on_it(journal: tuple[Path, Books]) -> None:
    directory, books = journal
    report = verify(OsFiles(), str(directory))
    assert (report.problems, report.missing, report.leftovers, report.closed) == ([], [], [], True)
    assert len(report.segments) == books.segments > 3
    assert all(segment.size < 1.2 * SEGMENT_BYTES for segment in report.segments)


def test_the_decoder_finds_the_same(journal: tuple[Path, Books]) -> None:
    directory, books = journal
    types = frozenset({RecordType.MESSAGE, RecordType.REMOVED, RecordType.DROPPED, RecordType.QUEUE})
    rows = [row for batch in records(take([str(directory)]), Selection(types=types)) for row in batch.to_pylist()]
    entered = Counter(id for row in rows if row["record_type"] == "message" for id in row["queue_ids"])
    left = Counter((row["queue_id"], row["reason"]) for row in rows if row["record_type"] == "removed")
    assert entered == Counter({id: queue.entered for id, queue in books.queues.items() if queue.entered})
    assert left == Counter({(id, why): n for id, queue in books.queues.items() for why, n in queue.left.items()})
    dropped: Counter[str] = Counter()
    dropped_bytes: Counter[str] = Counter()
    for row in rows:
        if row["record_type"] == "dropped":
            dropped[f"{row['address']}|{row['reason']}"] += row["count"]
            dropped_bytes[f"{row['address']}|{row['reason']}"] += row["size"]
    assert (dropped, dropped_bytes) == (books.dropped, books.dropped_bytes)
    assert {row["queue"] for row in rows if row["record_type"] == "queue"} == {q.name for q in books.queues.values()}


def test_every_way_out_occurs_in_the_smallest_journal(tmp_path: Path) -> None:
    books = generate(tmp_path, 1, 1)
    assert set(books.left()) == {reason.word for reason in RemovalReason}
    never = {"ADDRESS_DELETED", "TRIMMED", "IDS", "COPIED", "LOST", "DIVERT", "DIVERT_DELETED"}
    never |= {"TASK", "TASK_DELETED"}
    never |= {type.name for type in RecordType if type >= RecordType.DUPLICATE_ID}  # duplicate ids and sessions
    assert set(books.types) == {type.name for type in RecordType} - never
    assert books.deaths
    assert books.dropped


def test_books_are_kept(journal: tuple[Path, Books]) -> None:
    directory, books = journal
    assert load(directory) == books
    assert isinstance(load(directory).types, Counter)


def test_the_same_seed_gives_the_same_bytes(journal: tuple[Path, Books], tmp_path: Path) -> None:
    directory, books = journal
    for seed, same in ((7, True), (8, False)):
        other = tmp_path / str(seed)
        generate(other, RECORDS, seed, SEGMENT_BYTES)
        assert all(
            ((directory / segment_name(n)).read_bytes() == (other / segment_name(n)).read_bytes()) is same
            for n in range(1, 4)
        )
    assert books.seed == 7


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner()
    directory = str(tmp_path / "j")
    made = run.invoke(main, ["generate", directory, "--records", "2000"])
    assert made.exit_code == 0, made.output
    assert run.invoke(main, ["generate", directory]).exit_code == 2
    measured = run.invoke(main, ["decode", "--dir", directory, "--rounds", "1"])
    assert measured.exit_code == 0, measured.output
    for case in ("plain sequential read", "walk", "ledger columns"):
        assert case in measured.output
    assert run.invoke(main, ["decode", "--records", "100", "--rounds", "1"]).exit_code == 0
