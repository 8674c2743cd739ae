"""A message's trail: all records about it and no others, from any of its ids, whatever the indexes are like."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from bench.audit.generate import generate
from store import decode, record
from store.files import OsFiles
from store.record import DeadLetterReason, RecordType, RemovalReason
from store.segment import ENTRY_MAGIC, segment_name
from store.segment_directory import open_segment
from store.trail import id_index
from store.trail import search as trail_search
from store.trail.id_index import DIRECTORY, FREE_BYTES_MIN, IdIndexes, Indexer, build, numbers_in
from store.trail.search import find_trail
from store.trail.steps import Place, StepKind, Trail
from tests.store.desk import Desk
from tests.store.segments import made
from tests.store.workload import DIRECTORY as JOURNAL
from tests.store.workload import Body, death
from tests.support import books
from tests.support.tamper import flip

FILES = OsFiles()


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with every way in and out of a queue, in some twenty segments."""
    directory = tmp_path_factory.mktemp("journal")
    generate(directory, records=12_000, seed=4, segment_bytes=200_000)
    return directory


@pytest.fixture(params=["indexed", "half", "bare"])
def journal(request: pytest.FixtureRequest, generated: Path) -> Path:
    """The same with indexes, with some of them, or without."""
    for path in (generated / DIRECTORY).glob("*"):
        path.unlink()
    if request.param != "bare":
        made = Indexer(FILES, str(generated)).work()
        assert made == len([*generated.glob("*.journal")]) - 1 >= 10
    if request.param == "half":
        for path in sorted((generated / DIRECTORY).iterdir())[::2]:
            path.unlink()
    return generated


def all_about(lines: list[books.Line]) -> dict[int, set[tuple[int, int]]]:
    """(position, message) of all records about each message and those that it was and became, by each of their ids."""
    about: dict[int, set[tuple[int, int]]] = defaultdict(set)
    family: dict[int, set[int]] = {}

    def link(*ids: int) -> None:
        joined = set(ids).union(*(family.get(id, ()) for id in ids))
        for id in joined:
            family[id] = joined

    for line in lines:
        found = line.record
        if isinstance(found, decode.Message):
            own: tuple[int, ...] = (found.id,)
            link(found.id)
            if found.header.annotations:
                origin = json.loads(found.header.annotations).get("_AMQ_ORIG_MESSAGE_ID", 0)
                link(*{found.id, origin or found.id})
        elif isinstance(found, decode.DeadLettered | decode.Expired):
            own = (found.old_id,)
            link(*{found.old_id, found.new_id or found.old_id})
        elif isinstance(found, decode.Removed | decode.Counts | decode.Delivering | decode.Scheduled | decode.Inflight):
            own = found.ids
        else:
            continue
        for id in own:
            about[id].add((line.position, id))
    return {id: set().union(*(about[each] for each in joined)) for id, joined in family.items()}


def test_every_trail_is_what_a_reading_of_all_records_finds(journal: Path) -> None:
    lines = books.read(journal)
    expected = all_about(lines)
    names = {id: account.name for id, account in books.ledger(lines).items()}
    present = {(id, account.name) for account in books.ledger(lines).values() for id in account.present}
    longest = sorted(expected, key=lambda id: -len(expected[id]))[:60]
    for id in [*longest, *sorted(expected)[::400]]:
        trail = find_trail(FILES, str(journal), id)
        assert {(step.position, step.message) for step in trail.steps} == expected[id]
        assert trail.ids == sorted({message for _, message in expected[id]})
        assert trail.problems == []
        assert {(place.message, place.queue) for place in trail.places} == {
            (id, queue) for id, queue in present if id in trail.ids
        }
        assert {queue for step in trail.steps for queue in step.queues} <= {*names.values()}
    whole = len([*journal.glob("*.journal")])
    assert (trail.segments, trail.opened < whole) == (whole, any((journal / DIRECTORY).glob("*")))


def test_an_id_that_is_nowhere(journal: Path) -> None:
    trail = find_trail(FILES, str(journal), (1 << 63) - 1)
    assert (trail.ids, trail.steps, trail.places, trail.ended, trail.problems) == ([], [], [], "", [])


@pytest.mark.parametrize("how", ["flipped", "cut", "of another segment", "newer", "empty"])
def test_an_index_that_is_not_right_is_not_relied_on(generated: Path, how: str) -> None:
    Indexer(FILES, str(generated)).work()
    paths = sorted((generated / DIRECTORY).iterdir())
    died = next(line for line in books.read(generated) if line.type is RecordType.DEAD_LETTERED and line.segment > 4)
    assert isinstance(died.record, decode.DeadLettered)
    before = find_trail(FILES, str(generated), died.record.old_id)
    for path in paths:
        data = path.read_bytes()
        if how == "flipped":
            path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
        elif how == "cut":
            path.write_bytes(data[:-5])
        elif how == "of another segment":
            path.write_bytes(paths[0].read_bytes())
        elif how == "newer":
            path.write_bytes(data[:8] + b"\x02" + data[9:])
        else:
            path.write_bytes(b"")
    after = find_trail(FILES, str(generated), died.record.old_id)
    assert (after.steps, after.places, after.problems) == (before.steps, before.places, [])
    assert after.opened > before.opened
    made = Indexer(FILES, str(generated)).work()
    assert made == len(paths) - (how == "of another segment")
    assert find_trail(FILES, str(generated), died.record.old_id) == before


def test_damage_is_told_where_the_message_was(generated: Path) -> None:
    Indexer(FILES, str(generated)).work()
    lines = books.read(generated)
    stored = next(line for line in lines if isinstance(line.record, decode.Message) and line.segment == 5)
    assert isinstance(stored.record, decode.Message)
    path = generated / segment_name(5)
    whole = path.read_bytes()
    try:
        for at in (stored.offset + 30, stored.offset + 8):  # a field of it, and its id
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
            trail = find_trail(FILES, str(generated), stored.record.id)
            assert f"{path} is damaged at byte " in trail.problems[0]
            assert StepKind.STORED not in [step.kind for step in trail.steps if step.message == stored.record.id]
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("how", ["cut in an entry", "cut between two", "its id flipped"])
def test_damage_is_told_where_no_index_can_say_that_the_message_was_there(generated: Path, how: str) -> None:
    for index in generated.glob("index/*"):
        index.unlink()
    lines = [line for line in books.read(generated) if line.segment == 5]
    stored = [line for line in lines if isinstance(line.record, decode.Message)][-1]
    assert isinstance(stored.record, decode.Message)
    path = generated / segment_name(5)
    whole = path.read_bytes()
    entries = open_segment(str(path), 5, whole).found.entries
    entry = next(each for each in entries if each.offset < stored.offset < each.end)
    damaged = {
        "cut in an entry": whole[: entry.offset + 40],
        "cut between two": whole[: entry.offset],
        "its id flipped": whole[: stored.offset + 8]
        + bytes([whole[stored.offset + 8] ^ 255])
        + whole[stored.offset + 9 :],
    }[how]
    try:
        path.write_bytes(damaged)
        trail = find_trail(FILES, str(generated), stored.record.id)
        assert (
            f"{path} is damaged at byte {entry.offset}: records about the message may be lost there" in trail.problems
        )
    finally:
        path.write_bytes(whole)
    assert find_trail(FILES, str(generated), 1 << 40).problems == []


def desk() -> Desk:
    """An empty journal, started, in a segment that is longer than what is written to it."""
    made = Desk(segment_bytes=1 << 20)
    made.start()
    return made


def stored(on: Desk, queue: int, annotations: dict[str, str | int] | None = None, body: bytes = b"body") -> int:
    """A message is stored on a queue."""
    id = on.journal.allocate_ids(1)
    notes = record.encode_json(annotations) if annotations else b""
    header = record.message_header(
        format=1, timestamp=5, queue_ids=[queue], address="orders", user="u", origin="c", annotations=notes
    )
    on.journal.add_messages(header, 0, [Body(id, b"head", body)])
    return id


def died(old: int, new: int, *, queue: int) -> bytes:
    """The record of a death."""
    texts = {"text": "no such customer", "client": "worker", "remote": "[::1]:9"}
    ids = {"queue_id": queue, "old_id": old, "new_id": new}
    return death(**ids, **texts, first_failure=6, attempts=2, reason=DeadLetterReason.REJECTED)


def trail_of(on: Desk, id: int) -> Trail:
    """Its trail, on a journal of which nothing is indexed."""
    on.commit()
    return find_trail(on.files, JOURNAL, id, names={70: "orders", 71: "DLQ", 80: "sensor"})


def test_each_kind_of_record_is_told() -> None:
    on = desk()
    on.journal.allocate_ids(100)
    id = stored(on, 70)
    add = on.journal.add
    add(record.delivering(70, 3, [id - 1, id]))
    add(record.counts(70, 1, [id]))
    add(record.scheduled(70, 99, [id]))
    add(record.inflight(80, 70, [id - 1, id], [8, 9]))
    dead = stored(on, 71, {"_AMQ_ORIG_MESSAGE_ID": id})
    add(died(id, dead, queue=70))
    add(record.removed(70, RemovalReason.DEAD_LETTERED, [id]))
    trail = trail_of(on, dead)
    assert [(step.kind.value, step.message, step.queues) for step in trail.steps] == [
        ("stored", id, ("orders",)),
        ("delivering", id, ("orders",)),
        ("returned", id, ("orders",)),
        ("scheduled", id, ("orders",)),
        ("in-flight", id, ("orders",)),
        ("stored", dead, ("DLQ",)),
        ("died", id, ("orders",)),
        ("left", id, ("orders",)),
    ]
    first, delivering, returned, scheduled, flying, copy, death, left = trail.steps
    assert (first.address, first.user, first.client, first.size, first.sent) == ("orders", "u", "c", 8, 5)
    assert (delivering.consumer_id, returned.attempts, returned.redelivered, scheduled.scheduled) == (3, 1, True, 99)
    assert (flying.client, flying.packet_id, copy.old_id) == ("sensor", 9, id)
    assert (death.reason, death.text, death.attempts, death.first_failure) == ("rejected", "no such customer", 2, 6)
    assert (death.client, death.remote, death.new_id, left.reason) == ("worker", "[::1]:9", dead, "dead-lettered")
    assert (trail.places, trail.ended) == ([Place(dead, "DLQ")], "")
    assert trail_of(on, id) == trail


def test_a_message_that_no_queue_took_was_never_stored() -> None:
    on = desk()
    old, dead = on.journal.allocate_ids(1), stored(on, 71, {"_AMQ_ORIG_MESSAGE_ID": 1})
    on.journal.add(died(old, dead, queue=0))
    trail = trail_of(on, old)
    assert [(step.kind, step.message, step.queues) for step in trail.steps] == [
        (StepKind.STORED, dead, ("DLQ",)),
        (StepKind.DIED, old, ()),
    ]
    assert (old, trail.ids, trail.problems) == (1, [old, dead], [])


def test_an_expiry_without_an_address_ends_it() -> None:
    on = desk()
    id = stored(on, 70)
    on.journal.add(
        record.expired(
            queue_id=70,
            old_id=id,
            new_id=0,
            enqueued=5,
            expiration=9,
            attempts=1,
            source=1,
            consumers=2,
            address="orders",
        )
    )
    on.journal.add(record.removed(70, RemovalReason.EXPIRED, [id]))
    trail = trail_of(on, id)
    _, expired, left = trail.steps
    assert (expired.kind, expired.reason, expired.expiration, expired.consumers) == (StepKind.EXPIRED, "expired", 9, 2)
    assert (left.reason, trail.places, trail.ended, trail.problems) == ("expired", [], "expired", [])


def test_steps_that_the_journal_no_longer_has_are_reported() -> None:
    on = desk()
    id = stored(on, 70, {"_AMQ_ORIG_MESSAGE_ID": 4_000})
    trail = trail_of(on, 4_000)
    assert (trail.ids, trail.places) == ([id, 4_000], [Place(id, "orders")])
    assert trail.problems == ["the journal no longer has the records that stored these ids of the message: 4000"]
    path = f"{JOURNAL}/{segment_name(on.journal.segment)}"
    index = build(path, on.journal.segment, on.files.read(path), torn=True)
    assert index is not None
    assert [index.has(each) for each in (id, 4_000, 4_001)] == [True, True, False]


def test_a_message_that_went_round_for_long_is_followed_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    on = desk()
    ids = [stored(on, 70)]
    for _ in range(30):
        ids.append(stored(on, 70, {"_AMQ_ORIG_MESSAGE_ID": ids[-1]}))
    for id in (ids[0], ids[15], ids[-1]):
        assert trail_of(on, id).ids == ids
    monkeypatch.setattr(trail_search, "IDS_MAX", 10)
    cut = trail_of(on, ids[0])
    assert len(cut.ids) == 10
    assert cut.problems == ["the message had more than 10 ids: the others were not looked for"]
    monkeypatch.setattr(trail_search, "STEPS_MAX", 5)
    assert len(trail_of(on, ids[0]).steps) == 5


def test_half_an_entry_at_the_end_of_the_newest_segment_is_no_damage() -> None:
    on = desk()
    id = stored(on, 70)
    on.commit()
    path = f"{JOURNAL}/{segment_name(on.journal.segment)}"
    data = on.files.read(path)
    file = on.files.open(path)
    at = len(data.rstrip(b"\0")) + 64
    file.write_at(id.to_bytes(8, "little"), at - at % 8)
    file.sync()
    assert trail_of(on, id).problems == []


def test_an_index_goes_with_its_segment(generated: Path) -> None:
    Indexer(FILES, str(generated)).work()
    indexes = IdIndexes(FILES, str(generated))
    newest = max(int(path.stem) for path in generated.glob("*.journal"))
    assert indexes.numbers() == [*range(1, newest)]
    first, path = generated / segment_name(1), generated / "away"
    first.rename(path)
    assert Indexer(FILES, str(generated)).work() == 0
    assert indexes.numbers() == [*range(2, newest)]
    day = generated / "retention/date=2025-06-15"
    day.mkdir(parents=True)
    path.rename(day / segment_name(1))
    assert Indexer(FILES, str(generated)).work() == 1
    assert indexes.numbers() == [*range(1, newest)]
    (day / segment_name(1)).rename(first)
    day.rmdir()
    day.parent.rmdir()


def test_definitions_in_a_segment_without_an_index_are_found_there() -> None:
    on = desk()
    queue = on.journal.allocate_ids(1)
    on.journal.define(queue, record.queue(queue, {"name": "of the journal"}))
    id = stored(on, queue)
    on.commit()
    trail = find_trail(on.files, JOURNAL, id)
    assert trail.places == [Place(id, "of the journal")]


def test_a_message_that_only_a_kept_segment_has_on_a_queue_has_left_it() -> None:
    """An offline `compact` deletes the segments in which that stood."""
    on = desk()
    id = stored(on, 70)
    dead = stored(on, 71, {"_AMQ_ORIG_MESSAGE_ID": id})
    on.journal.add(record.removed(70, RemovalReason.DEAD_LETTERED, [id]))
    on.commit()
    assert trail_of(on, id).places == [Place(dead, "DLQ")]
    day = f"{JOURNAL}/retention/date=2025-06-15"
    on.files.make_dir(f"{JOURNAL}/retention")
    on.files.make_dir(day)
    on.files.rename(f"{JOURNAL}/{segment_name(1)}", f"{day}/{segment_name(1)}")
    trail = find_trail(on.files, JOURNAL, id, names={70: "orders", 71: "DLQ"})
    told = f"the journal no longer has the record of how message {dead} left DLQ"
    assert (trail.places, trail.ended, trail.problems) == ([], "", [told])


def test_bodies_that_look_like_entries_hide_nothing() -> None:
    on = desk()
    on.journal.allocate_ids(0x0A0B0C0D0E)  # so that nothing else has the same bytes
    id = stored(on, 70)
    on.commit()
    stored(on, 70, body=ENTRY_MAGIC * 100)
    on.journal.add(record.removed(70, RemovalReason.CONSUMED, [id]))
    trail = trail_of(on, id)
    assert ([step.kind for step in trail.steps], trail.ended) == ([StepKind.STORED, StepKind.LEFT], "consumed")


def test_a_segment_that_goes_meanwhile_is_told() -> None:
    on = desk()
    id = stored(on, 70)
    on.commit()
    path = f"{JOURNAL}/{segment_name(on.journal.segment)}"

    def gone() -> None:
        if path in on.files.paths():
            on.files.remove(path)

    trail = find_trail(on.files, JOURNAL, id, rest=gone)
    assert (trail.steps, trail.problems) == ([], [f"segment {on.journal.segment} went while the journal was read"])


def test_a_header_that_cannot_be_read_is_told() -> None:
    on = desk()
    id = stored(on, 70)
    on.commit()
    path = f"{JOURNAL}/{segment_name(on.journal.segment)}"
    on.files.flip(path, 20, 1)
    [problem] = find_trail(on.files, JOURNAL, id).problems
    assert problem.startswith(f"{path} is damaged: ")


def written(*records: bytes, more: int = 0) -> tuple[Desk, str]:
    """A journal whose newest segment is one entry of these records and so many zeros; and where that is."""
    on = desk()
    path = f"{JOURNAL}/{segment_name(9)}"
    on.files.put(path, made([*records], number=9, first=1) + bytes(more))
    return on, path


#: A record of a type that is not known yet, and one that is longer than its entry.
NEWER = b"\x10\0\0\0\xfe\x01\0\0" + bytes(8)
TOO_LONG = b"\xff\0\0\0\x01\x01\0\0" + bytes(8)


@pytest.mark.parametrize("wrong", [NEWER, TOO_LONG], ids=["newer", "too long"])
def test_an_entry_that_cannot_be_read_is_told_and_its_segment_not_indexed(wrong: bytes) -> None:
    on, path = written(record.removed(70, RemovalReason.CONSUMED, [7]), wrong, more=64)
    assert build(path, 9, on.files.read(path)) is None
    trail = find_trail(on.files, JOURNAL, 7)
    assert (trail.steps, len(trail.problems)) == ([], 1)
    assert trail.problems[0].startswith(f"{path}: an entry at byte 64 cannot be read: ")


def test_a_segment_ends_with_the_shortest_record() -> None:
    on, path = written(record.removed(70, RemovalReason.CONSUMED, [7, 8, 9, 4]), record.closed())
    index = build(path, 9, on.files.read(path))
    assert index is not None
    assert ([*index.firsts], [*index.lasts]) == ([4, 7], [4, 9])
    assert [id for id in range(12) if index.has(id)] == [4, 7, 8, 9]


def test_an_index_is_made_with_rests(monkeypatch: pytest.MonkeyPatch, generated: Path) -> None:
    monkeypatch.setattr(id_index, "_REST_RECORDS", 50)
    path = generated / segment_name(2)
    rests: list[int] = []
    index = build(str(path), 2, path.read_bytes(), lambda: rests.append(1))
    assert index == build(str(path), 2, path.read_bytes())
    records = sum(line.segment == 2 for line in books.read(generated))
    assert records // 100 <= len(rests) <= records // 50


def test_a_damaged_segment_has_no_index_and_is_searched(generated: Path, tmp_path: Path) -> None:
    for path in generated.glob("*.journal"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    lines = [line for line in books.read(tmp_path) if line.segment == 3 and isinstance(line.record, decode.Message)]
    flip(tmp_path / segment_name(3), 100_000)
    indexer = Indexer(FILES, str(tmp_path))
    assert indexer.work() == len([*tmp_path.glob("*.journal")]) - 2
    assert indexer.work() == 0
    assert 3 not in IdIndexes(FILES, str(tmp_path)).numbers()
    for line in (lines[0], lines[-1]):  # before the damage, and behind it
        assert isinstance(line.record, decode.Message)
        trail = find_trail(FILES, str(tmp_path), line.record.id)
        assert line.position in [step.position for step in trail.steps]


def test_no_index_is_written_where_there_is_little_room() -> None:
    on, _ = written(record.closed())
    indexer = Indexer(on.files, JOURNAL)
    on.files.capacity = on.files.used() + FREE_BYTES_MIN - 1
    assert (indexer.work(), IdIndexes(on.files, JOURNAL).numbers()) == (0, [])
    on.files.capacity += 1
    assert (indexer.work(), IdIndexes(on.files, JOURNAL).numbers()) == (1, [1])


def test_numbers_of_the_other_byte_order_are_read() -> None:
    assert [*numbers_in(memoryview((258).to_bytes(8, "big")), swapped=sys.byteorder == "little")] == [258]
