"""Bodies in files: written in parts, whole and durable before anybody hears of it, gone when nothing needs them."""

from __future__ import annotations

import gc

import pytest
from crc32c import crc32c

from store.bodies import SYNC_EVERY_BYTES, Abort, Bodies, BodyFiles, Drop, Part, Upload, body_id, body_name, to_read
from store.body import REFERENCE_BYTES, BodyReference, LargeBody, decode_reference
from store.errors import BodyUnreadable, Corrupt, JournalFull, LogFailed
from tests.support.sim_files import Fault, SimFiles


class Desk:
    """Both sides on one simulated disk; `work` does what was submitted."""

    def __init__(self, files: SimFiles | None = None, *, keep_free: int = 0) -> None:
        self.files = files or SimFiles()
        self.disk = BodyFiles(self.files, "journal", keep_free=keep_free)
        self.items: list[Part | Abort | Drop] = []
        self.ids = iter(range(7, 100))
        self.bodies = Bodies(self.disk, self.items.append, lambda: next(self.ids))
        self.changes = 0

    def changed(self) -> None:
        self.changes += 1

    def work(self) -> None:
        items, self.items[:] = self.items[:], []
        for item in items:
            if isinstance(item, Part):
                self.disk.put(item)
            elif isinstance(item, Abort):
                self.disk.abort(item.upload)
            else:
                self.disk.drop(item)
        self.bodies.collect()

    def upload(self, *parts: bytes, durable: bool = True) -> Upload:
        upload = self.bodies.begin(self.changed, durable=durable)
        for at, part in enumerate(parts, 1):
            self.bodies.write(upload, part, last=at == len(parts))
        self.work()
        return upload

    def body(self, *parts: bytes) -> LargeBody:
        return self.bodies.finished(self.upload(*parts))

    @property
    def there(self) -> list[int]:
        return [body_id(path.rpartition("/")[2]) for path in self.files.paths()]


def test_names() -> None:
    assert body_id(body_name(7)) == 7
    assert [body_id(name) for name in ("7.body", "lock", "0" * 19 + "x.body", "0" * 20)] == [0, 0, 0, 0]


def test_a_reference_comes_back() -> None:
    reference = BodyReference(2**63, 5 << 32, 0xFFFFFFFF)
    assert len(reference.encode()) == REFERENCE_BYTES == 24
    assert decode_reference(reference.encode()) == reference


@pytest.mark.parametrize("durable", [True, False])
def test_a_body_in_parts(durable: bool) -> None:
    desk = Desk()
    upload = desk.upload(b"one", b"", b"two", durable=durable)
    assert upload.reference == BodyReference(7, 6, crc32c(b"onetwo"))
    assert (upload.pending, upload.nbytes, upload.refusal) == (0, 6, "")
    assert desk.changes == 1
    body = desk.bodies.finished(upload)
    assert (len(body), body.whole(), body.read(2, 3), body.read(4, 100)) == (6, b"onetwo", b"etw", b"wo")
    assert (desk.bodies.nbytes, desk.bodies.count) == (6, 1)
    desk.files.crash(keep=0.0)
    assert desk.there == ([7] if durable else [])


def test_a_body_is_synced_before_it_is_told() -> None:
    desk = Desk()
    desk.upload(b"one")
    operations = [line.partition(" ")[0] for line in desk.files.history]
    assert operations[-2:] == ["sync", "sync_dir"]
    assert "write" in operations


def test_long_uploads_are_synced_on_the_way() -> None:
    desk = Desk()
    upload = desk.bodies.begin(desk.changed, durable=True)
    for _ in range(5):
        desk.bodies.write(upload, bytes(SYNC_EVERY_BYTES // 2))
    desk.work()
    assert [line.partition(" ")[0] for line in desk.files.history].count("sync") == 2
    assert upload.pending == 0


def test_a_file_stays_as_long_as_anything_stands_for_it() -> None:
    desk = Desk()
    body: LargeBody | None = desk.body(b"one")
    assert body is not None
    other: LargeBody | None = desk.bodies.stored(body.reference)
    body = None
    desk.bodies.sweep()
    desk.work()
    assert desk.there == [7]
    assert other is not None
    assert other.whole() == b"one"
    other = None
    gc.collect()
    desk.bodies.sweep()
    assert desk.there == [7], "only the writer removes it, after all that was submitted before"
    desk.work()
    assert (desk.there, desk.bodies.nbytes, desk.bodies.count) == ([], 0, 0)


def test_an_aborted_upload_leaves_nothing() -> None:
    desk = Desk()
    upload = desk.bodies.begin(desk.changed, durable=True)
    desk.bodies.write(upload, b"one")
    desk.work()
    assert desk.there == [7]
    desk.bodies.abort(upload)
    desk.work()
    assert (desk.there, desk.changes, desk.bodies.nbytes) == ([], 1, 0)


def test_an_upload_that_is_aborted_when_it_is_as_good_as_whole() -> None:
    desk = Desk()
    upload = desk.bodies.begin(desk.changed, durable=True)
    desk.bodies.write(upload, b"one", last=True)
    desk.bodies.abort(upload)
    desk.work()
    desk.work()
    assert (desk.there, desk.changes) == ([], 0)


def test_an_upload_without_anything_written_can_be_aborted() -> None:
    desk = Desk()
    desk.bodies.abort(desk.bodies.begin(desk.changed, durable=True))
    desk.work()
    assert desk.there == []


def test_no_room_refuses_the_upload_and_gives_back_what_it_had() -> None:
    desk = Desk(SimFiles(capacity=1000))
    upload = desk.upload(bytes(900), bytes(900), b"")
    assert "no room" in upload.refusal
    assert (upload.reference, desk.there, desk.bodies.nbytes) == (None, [], 0)
    with pytest.raises(JournalFull, match="no room"):
        desk.bodies.finished(upload)
    assert desk.upload(bytes(900)).reference is not None


@pytest.mark.parametrize(("keep_free", "taken"), [(1000, True), (1001, False)])
def test_a_part_of_the_disk_is_kept_free(keep_free: int, taken: bool) -> None:
    desk = Desk(SimFiles(capacity=1000), keep_free=keep_free)
    assert (desk.upload(b"x").reference is not None) is taken


def test_a_disk_that_fails_ends_the_writer() -> None:
    desk = Desk()
    desk.upload(b"one")
    desk.bodies.write(desk.bodies.begin(desk.changed, durable=True), b"two", last=True)
    desk.files.plan(3, Fault.EIO)
    with pytest.raises(LogFailed, match="writing journal/bodies"):
        desk.work()


def test_reading_what_is_not_there() -> None:
    desk = Desk()
    body = desk.body(b"one")
    desk.files.put("journal/bodies/" + body_name(7), b"on")
    with pytest.raises(BodyUnreadable, match="ends at byte 2"):
        body.whole()
    desk.files.remove("journal/bodies/" + body_name(7))
    with pytest.raises(BodyUnreadable, match="No such file"):
        body.whole()


def test_a_start_removes_what_nothing_needs() -> None:
    desk = Desk()
    kept, gone = desk.upload(b"one").reference, desk.upload(b"two").reference
    desk = Desk(desk.files)
    assert kept is not None
    assert gone is not None
    body = desk.bodies.stored(kept)
    del gone
    desk.bodies.restored()
    desk.work()
    assert (desk.there, body.whole(), desk.bodies.nbytes) == ([7], b"one", 3)


@pytest.mark.parametrize(("found", "what"), [(None, "is missing"), (b"on", "has 2 bytes instead of 3")])
def test_a_start_without_a_body_that_is_needed(found: bytes | None, what: str) -> None:
    desk = Desk()
    reference = desk.upload(b"one").reference
    assert reference is not None
    desk.files.remove("journal/bodies/" + body_name(7))
    if found is not None:
        desk.files.put("journal/bodies/" + body_name(7), found)
    desk = Desk(desk.files)
    body = desk.bodies.stored(reference)
    with pytest.raises(Corrupt, match=what) as raised:
        desk.bodies.restored()
    assert raised.value.command == "bartleby journal repair journal"
    del body


def test_a_reader_writes_nothing() -> None:
    desk = Desk()
    reference = desk.upload(b"one").reference
    assert reference is not None
    reader = to_read(BodyFiles(desk.files, "journal", keep_free=0))
    assert reader.stored(reference).whole() == b"one"
    with pytest.raises(AssertionError, match="nothing is written"):
        reader.sweep()
