"""Messages with large bodies, in a journal: kept, copied, moved to retention, checked, repaired."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict

import pytest

from store import inspect, record
from store.bodies import body_path, sizes
from store.body import LargeBody
from store.body_check import PIECE_BYTES, Needed, check_bodies
from store.decode import Copied, Message, Record, Removed
from store.errors import Corrupt
from store.manifest import MANIFEST
from store.record import RemovalReason
from store.recovery import Recovery
from store.repair import plan as repair
from store.retention import RetentionSettings, find_body
from store.segment import segment_name
from tests.store import desk as desks
from tests.store.workload import DAY, DIRECTORY, EPOCH, LIMITS, Body
from tests.support.sim_files import Fault, SimFiles

QUEUES = [1, 2]


class Desk(desks.Desk):
    """A journal with two queues, and messages on both of them whose bodies are in files."""

    def __init__(self, files: SimFiles | None = None, retention: RetentionSettings | None = None) -> None:
        super().__init__(files, retention=retention, **asdict(LIMITS))
        self.bodies: dict[int, LargeBody] = {}
        self.segments: dict[int, int] = {}
        self.queues: dict[int, set[int]] = {}
        self.start()

    def fold(self, segment: int, found: Record) -> None:
        if isinstance(found, Message | Copied):
            if not isinstance(found.body, bytes):
                self.bodies[found.id] = self.journal.bodies.stored(found.body)
            self.segments[found.id] = segment
            self.journal.space.hold(segment, 1)
            self.queues[found.id] = set(found.header.queue_ids)
        elif isinstance(found, Removed):
            for id in found.ids:
                if id in self.queues:
                    self.queues[id].discard(found.queue_id)
                    if not self.queues[id]:
                        self.journal.space.release(self.segments.pop(id), 1)
                        self.bodies.pop(id, None)
                        del self.queues[id]

    def define(self) -> None:
        for queue in QUEUES:
            self.journal.define(self.journal.allocate_ids(1), record.queue(queue, {"name": f"q{queue}"}))

    def send_large(self, data: bytes) -> int:
        """A message whose body is in a file; returns its id."""
        journal = self.journal
        upload = journal.bodies.begin(lambda: None, durable=True)
        journal.bodies.write(upload, data, last=True)
        self.writer.step()
        body = journal.bodies.finished(upload)
        id = journal.allocate_ids(1)
        journal.add_large(self._header(), record.ANYCAST, id, b"head", body)
        self.bodies[id], self.segments[id] = body, journal.segment
        self.commit()
        return id

    def _header(self) -> bytes:
        return record.message_header(timestamp=self.now, queue_ids=QUEUES, address="a", user="u")

    def send_small(self) -> int:
        """A message whose body is in its record."""
        id = self.journal.allocate_ids(1)
        self.journal.add_messages(self._header(), record.ANYCAST, [Body(id, b"head", b"small")])
        self.segments[id] = self.journal.segment
        self.commit()
        return id

    def copy_small(self, *ids: int) -> None:
        """As cleaning does, in one entry."""
        for id in ids:
            run = [Body(id, b"head", b"small")]
            self.journal.add_copies(self._header(), record.ANYCAST, run, self.segments[id])
            self.segments[id] = self.journal.segment
        self.commit()

    def copy(self, id: int) -> None:
        """As cleaning does."""
        self.journal.add_large(self._header(), record.ANYCAST, id, b"head", self.bodies[id], previous=self.segments[id])
        self.segments[id] = self.journal.segment
        self.commit()

    def roll(self) -> None:
        """Go on in the next segment."""
        before = self.journal.segment
        self.journal.reserve(3700)
        id = self.journal.allocate_ids(1)
        self.journal.add_messages(self._header(), record.ANYCAST, [Body(id, b"", bytes(3500))])
        self.commit()
        self.journal.reserve(3700)
        self.commit()
        assert self.journal.segment > before

    def remove(self, queue: int, id: int) -> None:
        self.journal.add(record.removed(queue, RemovalReason.CONSUMED, [id]))

    def gone(self, id: int) -> None:
        """The message has left all queues."""
        for queue in QUEUES:
            self.remove(queue, id)
        self.journal.refer(self.segments.pop(id), released=1)
        self.bodies.pop(id, None)
        gc.collect()
        self.commit()

    def commit(self) -> int:
        ticket = super().commit()
        assert self.failures == []
        return ticket

    def close(self) -> SimFiles:
        self.journal.close()
        return self.files

    def file(self, id: int) -> str:
        """Where a message's body is."""
        return body_path(DIRECTORY, self.bodies[id].reference.id)


@pytest.fixture
def desk() -> Desk:
    """A journal that keeps bodies in files of their own."""
    return Desk()


def report(files: SimFiles) -> inspect.Report:
    return inspect.verify(files, DIRECTORY)


# -- the journal -------------------------------------------------------------------------------------------------------


def test_a_start_finds_the_body(desk: Desk) -> None:
    desk.define()
    id = desk.send_large(b"large")
    again = Desk(desk.close())
    assert list(again.bodies) == [id]
    assert again.bodies[id].whole() == b"large"
    (line,) = [line for line in inspect.iter_records(again.files, DIRECTORY) if line.type == "MESSAGE"]
    reference = again.bodies[id].reference
    assert (line.fields["body_bytes"], line.fields["body_file"], line.fields["body_crc"]) == (
        5,
        reference.id,
        reference.crc,
    )
    assert (line.fields["head_bytes"], line.fields["queue_ids"]) == (4, QUEUES)


def test_a_copy_takes_the_place_of_its_message(desk: Desk) -> None:
    desk.define()
    id = desk.send_large(b"large")
    first = desk.journal.segment
    desk.roll()
    desk.copy(id)
    second = desk.journal.segment
    assert (desk.journal.space.live(first), desk.journal.space.live(second)) == (0, 1)
    desk.roll()
    desk.gone(id)
    desk.close()
    again = Desk(desk.files)
    assert again.journal.bodies.count == 0, "the removal outlives the copy"
    assert report(desk.files).ok


@pytest.mark.parametrize("large", [True, False])
def test_a_copy_stays_as_long_as_the_message_that_it_was_copied_from(desk: Desk, large: bool) -> None:
    """Else its removal could go, and after a crash the message would be back."""
    desk.define()
    id, other = (
        (desk.send_large(b"large"), desk.send_large(b"other")) if large else (desk.send_small(), desk.send_small())
    )
    first = desk.journal.segment
    desk.roll()
    if large:
        desk.copy(id)
    else:
        desk.copy_small(id)
    second = desk.journal.segment
    assert (desk.journal.space.live(first), desk.journal.space.live(second)) == (1, 1)
    desk.roll()
    desk.gone(id)
    third = desk.journal.segment
    desk.roll()
    desk.commit()
    assert {first, second, third} <= {*desk.journal.space.segments}, "the other message keeps them all"
    again = Desk(desk.close())
    assert (id in again.queues, other in again.queues) == (False, True)


def test_copies_of_one_entry(desk: Desk) -> None:
    desk.define()
    ids = [desk.send_small() for _ in range(3)]
    desk.roll()
    desk.copy_small(*ids)
    copied = [line for line in inspect.iter_records(desk.close(), DIRECTORY) if line.type == "COPIED"]
    assert [line.fields["id"] for line in copied] == ids
    assert len({line.timestamp for line in copied}) == 1


def test_a_copy_counts_with_all_its_bytes(desk: Desk) -> None:
    desk.define()
    id = desk.send_large(b"large")
    before = desk.journal.end
    desk.journal.add_large(desk._header(), record.ANYCAST, id, b"head", desk.bodies[id], previous=1)
    desk.journal.add(record.closed())
    begun = desk.journal.end
    desk.commit()
    written = [line for line in inspect.iter_records(desk.files, DIRECTORY) if line.type in ("COPIED", "CLOSED")]
    assert [line.offset - before for line in written] == [0, begun - before - len(record.closed())]


def test_messages_that_share_nothing_are_one_entry(desk: Desk) -> None:
    desk.define()
    desk.commit()
    first = desk.journal.allocate_ids(3)
    at, position = desk.journal.end, desk.journal.position
    header = [record.message_header(timestamp=n, queue_ids=[1], address=f"a{n}") for n in range(3)]
    run = [Body(first + n, b"", bytes(n * 10)) for n in range(3)]
    desk.journal.add_mixed([record.MessageLead(each, record.ANYCAST) for each in header], run)
    assert desk.journal.position == position + 3
    end = desk.journal.end
    desk.journal.add(record.closed())
    desk.journal.add_mixed([record.MessageLead(header[0], record.ANYCAST)], [Body(first + 3, b"", b"")])
    desk.commit()
    lines = list(inspect.iter_records(desk.files, DIRECTORY))
    found = [line for line in lines if line.type == "MESSAGE"]
    assert [line.fields["id"] for line in found] == [first, first + 1, first + 2, first + 3]
    assert [line.fields["address"] for line in found] == ["a0", "a1", "a2", "a0"]
    assert [line.fields["body_bytes"] for line in found] == [0, 10, 20, 0]
    assert found[0].offset == at
    assert [line.offset for line in lines if line.type == "CLOSED"] == [end]


# -- retention ---------------------------------------------------------------------------------------------------------


def test_a_body_is_kept_under_the_day_on_which_it_became_needless() -> None:
    desk = Desk(retention=RetentionSettings(enabled=True))
    desk.define()
    before, id = desk.send_large(b"first"), desk.send_large(b"large")
    name = desk.file(id).rpartition("/")[2]
    desk.gone(before)
    with pytest.raises(FileNotFoundError):
        find_body(desk.files, DIRECTORY, name)
    desk.now += DAY
    desk.gone(id)
    path = f"{DIRECTORY}/retention/date=2023-11-15/{name}"
    assert find_body(desk.files, DIRECTORY, name) == path
    assert desk.files.read(path) == b"large"


def test_a_body_that_was_kept_stays_so_when_the_power_goes_after_its_segment_was_kept_too() -> None:
    """A file that came back to its old place would be one of which no record speaks any more, and be removed."""
    desk = Desk(retention=RetentionSettings(enabled=True))
    desk.define()
    name = desk.file(desk.send_large(b"large")).rpartition("/")[2]
    desk.roll()
    desk.gone(min(desk.bodies))
    desk.roll()
    desk.commit()
    assert any(path.endswith(segment_name(1)) and "retention" in path for path in desk.files.paths())
    desk.files.crash(keep=0.0)
    again = Desk(desk.files, retention=RetentionSettings(enabled=True))
    again.commit()
    assert again.files.read(find_body(again.files, DIRECTORY, name)) == b"large"


def test_a_limit_takes_bodies_too_and_no_manifest_speaks_of_them() -> None:
    desk = Desk(retention=RetentionSettings(enabled=True, bytes_max=150))
    desk.define()
    ids = [desk.send_large(bytes([n]) * 100) for n in range(3)]
    names = [desk.file(id).rpartition("/")[2] for id in ids]
    for id in ids:
        desk.gone(id)
    kept = [path for path in desk.files.paths() if "retention" in path]
    assert [path.rpartition("/")[2] for path in kept if path.endswith(".body")] == names[2:]
    assert b"".join(desk.files.read(path) for path in kept if path.endswith(MANIFEST)) == b""
    assert report(desk.close()).ok


# -- looking at them from outside --------------------------------------------------------------------------------------


def test_sound_bodies(desk: Desk) -> None:
    desk.define()
    ids = [desk.send_large(bytes(n * 10)) for n in (1, 2, 3)]
    desk.remove(1, ids[0])  # it is on the other queue still
    desk.remove(1, 99)
    desk.commit()
    found = report(desk.close())
    assert found.problems == []
    assert (found.bodies.files, found.bodies.nbytes, found.bodies.needless) == (3, 60, [])


@pytest.mark.parametrize("by", ["removals", "deletions"])
def test_a_body_that_nothing_needs_is_no_problem(desk: Desk, by: str) -> None:
    desk.define()
    gone, stays = desk.send_large(b"gone"), desk.send_large(b"stays")
    for queue in QUEUES:
        if by == "removals":
            desk.remove(queue, gone)
        else:
            desk.remove(queue, stays)
            desk.journal.undefine(queue, record.queue_deleted(queue, {"name": f"q{queue}"}))
    desk.commit()
    found = report(desk.files)
    everything = [desk.bodies[id].reference.id for id in (gone, stays)]
    assert found.problems == []
    assert found.bodies.needless == (everything[:1] if by == "removals" else everything)


def _remove(desk: Desk, id: int) -> str:
    desk.files.remove(desk.file(id))
    return "is missing"


def _shorten(desk: Desk, id: int) -> str:
    desk.files.put(desk.file(id), b"lar")
    return "has 3 bytes, and should have 5"


def _flip(desk: Desk, id: int) -> str:
    desk.files.flip(desk.file(id), 4, 0x80)
    return "has a wrong checksum"


@pytest.mark.parametrize("hurt", [_remove, _shorten, _flip])
def test_a_wound_is_told_and_repair_buries_the_message(desk: Desk, hurt: Callable[[Desk, int], str]) -> None:
    desk.define()
    other, id = desk.send_large(b"other"), desk.send_large(b"large")
    body, reference = desk.file(id), desk.bodies[id].reference.id
    files = desk.close()
    what = hurt(desk, id)
    found = report(files)
    assert found.problems == [f"{body}: {what}"]
    assert found.bodies.wrong == {reference: what}
    if "checksum" not in what:
        with pytest.raises(Corrupt, match="the body of a message"):
            Desk(files)
        files.crash(keep=1.0)  # its process ends
    plan = repair.plan(files, DIRECTORY, EPOCH)
    assert (plan.messages, plan.bodies, plan.losses) == ([id], {reference}, [])
    there = body in files.paths()
    repair.apply(files, DIRECTORY, plan, "/data/before")
    assert report(files).ok
    torn = f"{DIRECTORY}/torn/{body.rpartition('/')[2]}"
    assert (torn in files.paths()) is there, "what is left of it can be looked at"
    assert body not in files.paths()
    lines = list(inspect.iter_records(files, DIRECTORY))
    assert [(line.fields["queue_id"], line.fields["reason"]) for line in _removals(lines)] == [
        (queue, "killed") for queue in QUEUES
    ]
    again = Desk(files)
    assert again.journal.bodies.count == 1
    assert again.bodies[other].whole() == b"other"


def _removals(lines: list[inspect.Line]) -> list[inspect.Line]:
    return [line for line in lines if line.type == "REMOVED"]


def test_a_body_that_cannot_be_read_or_goes_meanwhile(desk: Desk) -> None:
    desk.define()
    id = desk.send_large(b"large")
    reference = desk.bodies[id].reference
    needed = Needed()
    for raw in Recovery(desk.log).records():
        needed.note(raw)
    assert needed.bodies == {reference.id: reference}
    assert needed.messages == [(id, reference, {1, 2})]
    files = desk.files

    def check(*, contents: bool = True) -> dict[int, str]:
        return check_bodies(files, DIRECTORY, needed, contents=contents).wrong

    files.plan(3, Fault.EIO)
    assert check() == {reference.id: "cannot be read: Input/output error"}
    assert check() == {}
    files.flip(desk.file(id), 0, 1)
    assert check(contents=False) == {}, "its length is right"
    before = files.operations
    path = desk.file(id)

    def take() -> None:
        if files.operations == before + 2:
            files.before_step = None
            files.remove(path)

    files.before_step = take
    assert check() == {reference.id: "is missing"}


def test_a_file_that_goes_while_they_are_listed_is_left_out(files: SimFiles) -> None:
    assert sizes(files, DIRECTORY) == {}
    for id in (1, 2):
        files.put(body_path(DIRECTORY, id), bytes(id))
    files.put(f"{DIRECTORY}/bodies/notes.txt", b"mine")
    assert sizes(files, DIRECTORY) == {1: 1, 2: 2}
    before = files.operations

    def take() -> None:
        if files.operations == before + 1:
            files.before_step = None
            files.remove(body_path(DIRECTORY, 1))

    files.before_step = take
    assert sizes(files, DIRECTORY) == {2: 2}


def test_a_body_of_many_pieces_is_checked_to_its_end(desk: Desk) -> None:
    desk.define()
    id = desk.send_large(bytes(PIECE_BYTES * 2 + 5))
    assert report(desk.files).ok
    desk.files.flip(desk.file(id), PIECE_BYTES * 2 + 4, 1)
    assert report(desk.files).problems == [f"{desk.file(id)}: has a wrong checksum"]
