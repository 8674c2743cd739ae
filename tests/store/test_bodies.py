"""Bodies in files: written in parts, whole and durable before anybody hears of it, gone when nothing needs them."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable

import pytest
from crc32c import crc32c

from store.bodies import (
    OPEN_MAX,
    SYNC_EVERY_BYTES,
    Abort,
    Bodies,
    BodyFiles,
    Drop,
    Part,
    Upload,
    body_id,
    body_name,
    to_read,
)
from store.body import REFERENCE_BYTES, BodyReference, Checksum, LargeBody, decode_reference
from store.errors import BodyUnreadable, Corrupt, JournalFull, LogFailed
from tests.support.sim_files import Fault, SimFiles

#: The file of the first body.
FILE = f"journal/bodies/{body_name(7)}"


class Desk:
    """Both sides on one simulated disk; `work` does what was submitted."""

    def __init__(
        self,
        files: SimFiles | None = None,
        *,
        keep_free: int = 0,
        keep: Callable[[str], None] | None = None,
        find: Callable[[str], str] | None = None,
        open_max: int = OPEN_MAX,
    ) -> None:
        self.files = files or SimFiles()
        self.disk = BodyFiles(self.files, "journal", keep_free=keep_free, keep=keep, find=find, open_max=open_max)
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

    def begin(self, part: bytes) -> Upload:
        """An upload of which one part is written."""
        upload = self.bodies.begin(self.changed, durable=True)
        self.bodies.write(upload, part)
        self.work()
        return upload

    def body(self, *parts: bytes) -> LargeBody:
        return self.bodies.finished(self.upload(*parts))

    @property
    def there(self) -> list[int]:
        return [body_id(path.rpartition("/")[2]) for path in self.files.paths()]


@pytest.fixture
def desk() -> Desk:
    """A store of bodies on a simulated disk."""
    return Desk()


def test_names() -> None:
    assert body_id(body_name(7)) == 7
    assert [body_id(name) for name in ("7.body", "lock", "0" * 19 + "x.body", "1" * 20)] == [0, 0, 0, 0]


def test_a_reference_comes_back() -> None:
    reference = BodyReference(2**63, 5 << 32, 0xFFFFFFFF)
    assert len(reference.encode()) == REFERENCE_BYTES == 24
    assert decode_reference(reference.encode()) == reference


@pytest.mark.parametrize("durable", [True, False])
def test_a_body_in_parts(desk: Desk, durable: bool) -> None:
    upload = desk.upload(b"one", b"", b"two", durable=durable)
    assert upload.reference == BodyReference(7, 6, crc32c(b"onetwo"))
    assert (upload.pending, upload.nbytes, upload.refusal) == (0, 6, "")
    assert desk.changes == 1
    body = desk.bodies.finished(upload)
    assert (len(body), body.whole(), body.read(2, 3), body.read(4, 100)) == (6, b"onetwo", b"etw", b"wo")
    assert (desk.bodies.nbytes, desk.bodies.count) == (6, 1)
    desk.files.crash(keep=0.0)
    assert desk.there == ([7] if durable else [])


def test_a_body_is_synced_before_it_is_told(desk: Desk) -> None:
    desk.upload(b"one")
    operations = [line.partition(" ")[0] for line in desk.files.history]
    assert operations[-2:] == ["sync", "sync_dir"]
    assert "write" in operations


@pytest.mark.parametrize(("durable", "syncs"), [(True, 2), (False, 0)])
def test_long_uploads_are_synced_on_the_way_if_they_are_to_last(desk: Desk, durable: bool, syncs: int) -> None:
    upload = desk.bodies.begin(desk.changed, durable=durable)
    for _ in range(5):
        desk.bodies.write(upload, bytes(SYNC_EVERY_BYTES // 2))
    desk.work()
    assert [line.partition(" ")[0] for line in desk.files.history].count("sync") == syncs
    assert upload.pending == 0


def test_a_file_stays_as_long_as_anything_stands_for_it(desk: Desk) -> None:
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


def test_an_aborted_upload_leaves_nothing(desk: Desk) -> None:
    upload = desk.begin(b"one")
    assert desk.there == [7]
    desk.bodies.abort(upload)
    desk.work()
    assert (desk.there, desk.changes, desk.bodies.nbytes) == ([], 1, 0)


def test_an_aborted_upload_has_no_file_open() -> None:
    """The next ones find a descriptor."""
    desk = Desk(open_max=1)
    for _ in range(3):
        upload = desk.begin(b"one")
        desk.bodies.abort(upload)
        desk.work()
    desk.begin(b"two")
    assert (len(desk.there), len(desk.disk._open), len(desk.disk._unfinished)) == (1, 1, 1)


def test_an_upload_that_is_aborted_when_it_is_as_good_as_whole(desk: Desk) -> None:
    upload = desk.bodies.begin(desk.changed, durable=True)
    desk.bodies.write(upload, b"one", last=True)
    desk.bodies.abort(upload)
    desk.work()
    desk.work()
    assert (desk.there, desk.changes) == ([], 0)


def test_an_upload_without_anything_written_can_be_aborted(desk: Desk) -> None:
    desk.bodies.abort(desk.bodies.begin(desk.changed, durable=True))
    desk.work()
    assert desk.there == []


def test_few_files_are_open_however_many_bodies_are_written() -> None:
    """In turns; none is lost if the power goes once all are complete."""
    desk = Desk(open_max=2)
    uploads = [desk.begin(b"%d" % n) for n in range(5)]
    for upload in uploads:
        desk.bodies.write(upload, b"more")
    desk.work()
    for upload in uploads:
        desk.bodies.write(upload, b"!", last=True)
    desk.work()
    history = [line.split()[0] for line in desk.files.history]
    assert (history.count("create"), history.count("open")) == (5, 9), "nearly each part is of a file that was closed"
    desk.files.crash(keep=0.0)
    assert [desk.bodies.finished(upload).whole() for upload in uploads] == [b"%dmore!" % n for n in range(5)]


def test_a_file_that_need_not_last_is_closed_without_a_sync() -> None:
    desk = Desk(open_max=1)
    for _ in range(3):
        desk.bodies.write(desk.bodies.begin(desk.changed, durable=False), b"x")
    desk.work()
    assert "sync" not in [line.split()[0] for line in desk.files.history]


@pytest.mark.parametrize("fault", [Fault.EMFILE, Fault.ENFILE, Fault.ENOMEM])
def test_an_upload_without_a_descriptor_is_refused_and_the_next_one_is_not(fault: Fault) -> None:
    desk = Desk()
    desk.upload(b"first")
    at = 0
    while True:
        at += 1
        desk.files.plan(at, fault)
        upload = desk.upload(b"one", b"two")
        desk.files.heal()
        if upload.reference is not None:
            break
        assert "left" in upload.refusal
        assert len(desk.there) == 1
    assert at > 1
    assert desk.bodies.finished(upload).whole() == b"onetwo"


def test_no_room_refuses_the_upload_and_gives_back_what_it_had() -> None:
    desk = Desk(SimFiles(capacity=1000))
    upload = desk.upload(bytes(900), bytes(900), b"")
    assert upload.refusal == "the body cannot be stored: the disk is full"
    assert (upload.reference, desk.there, desk.bodies.nbytes) == (None, [], 0)
    with pytest.raises(JournalFull, match="the disk is full"):
        desk.bodies.finished(upload)
    assert desk.upload(bytes(900)).reference is not None


@pytest.mark.parametrize(("keep_free", "taken"), [(999, True), (1000, False)])
def test_a_part_of_the_disk_is_kept_free(keep_free: int, taken: bool) -> None:
    desk = Desk(SimFiles(capacity=1000), keep_free=keep_free)
    assert (desk.upload(b"x").reference is not None) is taken


@pytest.mark.parametrize(("parts", "taken"), [(4, True), (5, False)])
def test_a_part_of_the_disk_is_kept_free_half_way_too(parts: int, taken: bool) -> None:
    """The fifth part would fit, and leave too little."""
    part = SYNC_EVERY_BYTES // 2
    desk = Desk(SimFiles(capacity=5 * part), keep_free=part)
    upload = desk.upload(*[bytes(part)] * parts)
    assert (upload.reference is not None) is taken
    assert (desk.there == [7]) is taken


@pytest.mark.parametrize("together", [False, True])
def test_bodies_without_a_sync_keep_it_free_too(together: bool) -> None:
    """However many arrive at a time."""
    part = SYNC_EVERY_BYTES // 4
    desk = Desk(SimFiles(capacity=5 * part), keep_free=part)
    if together:
        uploads = [desk.begin(b"") for _ in range(8)]
        for upload in uploads:
            desk.bodies.write(upload, bytes(part), last=True)
        desk.work()
    else:
        uploads = [desk.upload(bytes(part)) for _ in range(8)]
    assert [upload.reference is not None for upload in uploads] == [True] * 4 + [False] * 4
    assert desk.files.space("journal")[1] == part


def test_a_disk_that_fails_ends_the_writer(desk: Desk) -> None:
    desk.upload(b"one")
    desk.bodies.write(desk.bodies.begin(desk.changed, durable=True), b"two", last=True)
    desk.files.plan(3, Fault.EIO)
    with pytest.raises(LogFailed, match="writing journal/bodies"):
        desk.work()


def test_reading_what_is_not_there(desk: Desk) -> None:
    body = desk.body(b"one")
    desk.files.put(FILE, b"on")
    with pytest.raises(BodyUnreadable, match="ends at byte 2"):
        body.whole()
    desk.files.remove(FILE)
    with pytest.raises(BodyUnreadable, match="No such file"):
        body.whole()


def test_a_start_removes_what_nothing_needs(desk: Desk) -> None:
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
def test_a_start_without_a_body_that_is_needed(desk: Desk, found: bytes | None, what: str) -> None:
    reference = desk.upload(b"one").reference
    assert reference is not None
    desk.files.remove(FILE)
    if found is not None:
        desk.files.put(FILE, found)
    desk = Desk(desk.files)
    body = desk.bodies.stored(reference)
    with pytest.raises(Corrupt, match=what) as raised:
        desk.bodies.restored()
    assert raised.value.command == "bartleby journal repair journal"
    del body


def test_a_reader_writes_nothing(desk: Desk) -> None:
    reference = desk.upload(b"one").reference
    assert reference is not None
    reader = to_read(BodyFiles(desk.files, "journal", keep_free=0))
    assert reader.stored(reference).whole() == b"one"
    with pytest.raises(AssertionError, match="nothing is written"):
        reader.sweep()


# -- retention ---------------------------------------------------------------------------------------------------------


class Keeping(Desk):
    """With retention on: files go to another directory; `error` is what the disk says to that."""

    def __init__(self) -> None:
        super().__init__(keep=self._keep, find=self._find)
        self.kept: list[str] = []
        self.error = 0

    def _keep(self, path: str) -> None:
        if self.error:
            raise OSError(self.error, "no")
        self.kept.append(path)
        self.files.rename(path, self._find(path.rpartition("/")[2]))

    def _find(self, name: str) -> str:
        return f"elsewhere/{name}"

    def consumed(self, *, recorded: bool) -> None:
        """A body that a record referred to, or none, and that nothing stands for any more."""
        body = self.body(b"one")
        if recorded:
            self.bodies.recorded(body.reference.id)
        del body
        gc.collect()
        self.bodies.sweep()
        self.work()


@pytest.mark.parametrize("recorded", [True, False])
def test_retention_keeps_what_a_record_refers_to(recorded: bool) -> None:
    desk = Keeping()
    desk.consumed(recorded=recorded)
    assert desk.files.paths() == ([f"elsewhere/{body_name(7)}"] if recorded else [])
    assert len(desk.kept) == recorded
    assert desk.bodies.nbytes == 0


def test_a_body_that_is_kept_is_read_where_it_is() -> None:
    desk = Keeping()
    desk.files.put(f"elsewhere/{body_name(9)}", b"one")
    body = desk.bodies.stored(BodyReference(9, 3, crc32c(b"one")))
    assert body.whole() == b"one"
    desk.files.remove(f"elsewhere/{body_name(9)}")
    with pytest.raises(BodyUnreadable, match="No such file"):
        body.whole()


def test_a_disk_without_room_to_keep_a_body_keeps_none() -> None:
    desk = Keeping()
    desk.error = errno.ENOSPC
    desk.consumed(recorded=True)
    assert desk.files.paths() == desk.kept == []
    assert desk.bodies.nbytes == 0


def test_a_disk_that_fails_to_keep_a_body_ends_the_writer() -> None:
    desk = Keeping()
    desk.error = errno.EIO
    with pytest.raises(LogFailed, match="removing journal/bodies"):
        desk.consumed(recorded=True)
    assert desk.there == [7]


def test_a_leftover_of_no_record_is_not_kept() -> None:
    """What stands at the start, and what a record referred to by then, is."""
    desk = Keeping()
    desk.files.put(f"journal/bodies/{body_name(1)}", b"old")
    desk.files.put(f"journal/bodies/{body_name(2)}", b"cut off")
    desk.bodies.recorded(1)
    desk.bodies.restored()
    desk.work()
    assert desk.files.paths() == [f"elsewhere/{body_name(1)}"]


# -- what else can be wrong --------------------------------------------------------------------------------------------


def test_a_damaged_body_is_told_and_never_passed_on(desk: Desk) -> None:
    body = desk.body(b"one")
    desk.files.flip(FILE, 1, 1)
    with pytest.raises(BodyUnreadable, match=r"body 7.*checksum is wrong"):
        body.whole()
    checksum = Checksum(body)
    checksum.passed(body.read(0, 2))
    with pytest.raises(BodyUnreadable, match="checksum is wrong"):
        checksum.passed(body.read(2, 1))


def test_a_disk_that_fails_at_the_start(desk: Desk) -> None:
    desk.files.put(f"journal/bodies/{body_name(1)}", b"old")
    desk.files.plan(1, Fault.EIO)
    with pytest.raises(LogFailed, match="looking at journal/bodies"):
        desk.bodies.restored()


def test_a_disk_that_fails_to_remove_what_was_broken_off(desk: Desk) -> None:
    upload = desk.begin(b"one")
    desk.bodies.abort(upload)
    desk.files.plan(1, Fault.EIO)
    with pytest.raises(LogFailed, match=r"removing journal/bodies/0+7\.body"):
        desk.work()


def test_a_file_that_somebody_else_removed_is_no_fault(desk: Desk) -> None:
    desk.body(b"one")
    gc.collect()
    kept = desk.body(b"other")
    desk.files.remove(FILE)
    desk.bodies.sweep()
    desk.work()
    assert (desk.there, len(kept)) == ([8], 5)


def test_a_body_that_is_not_whole_at_the_end_is_let_go(desk: Desk) -> None:
    upload = desk.begin(b"one")
    desk.disk.close()
    desk.disk.abort(upload)
    assert desk.there == [7], "the next start removes it"
    again = Desk(desk.files)
    again.bodies.restored()
    again.work()
    assert again.there == []


def test_a_body_that_comes_after_the_start_counts_like_one_before(desk: Desk) -> None:
    before = desk.body(b"one")
    desk.bodies.restored()
    after = [desk.body(b"other"), desk.bodies.stored(before.reference)]
    assert desk.bodies.count == 2
    del after
    gc.collect()
    desk.bodies.sweep()
    desk.work()
    assert (desk.there, desk.bodies.count, before.whole()) == ([7], 1, b"one")
