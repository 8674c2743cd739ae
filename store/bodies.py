"""Bodies too large for a segment: a file each, in `bodies/` beside the segments.

    begin, write ... write the last -> (writer: write, sync, close) -> `changed`: a reference -> a record refers to it
    begin, write ... abort          -> (writer: remove)

Rules:

1. A file is complete, and durable with its name if its message is, before a record refers to it: the message is
   published once `changed` has reported that.
2. A file that no live record refers to is removed: an unfinished one at once, any other by the next start.
3. A file is removed after the last object that represents it, and not before the entry that made it unneeded is
   durable: the writer works in order.  So records that share a file (a message and its successor) are independent.
4. With retention on, a file that a record refers to is kept like a segment, under the day on which it became unneeded.
5. A body never takes room that the journal needs: an upload is refused, even half way, if less than the size of a
   segment would be left on the disk.
6. However many bodies are being written, at most `open_max` of their files are open: the one that was written longest
   ago is closed for another.
7. The journal's entries never wait for more than one turn of the bodies (`BodyQueue`), and no owner of uploads for more
   than one turn of each other owner.

`BodyFiles` is the writer's side, `Bodies` that of the thread that owns the broker.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from crc32c import crc32c

from store.body import BodyReference, LargeBody
from store.errors import BodyUnreadable, Corrupt, JournalFull, LogFailed, LogFull
from store.files import NO_ROOM, File, Files, lacking, write_all

DIRECTORY: Final = "bodies"
SUFFIX: Final = ".body"

#: Files of unfinished bodies that are open at once: beyond it, each change from a durable one to another costs a sync.
OPEN_MAX: Final = 64

#: Bytes of a file written between two syncs: bounds the work of the last sync, for which others wait.
SYNC_EVERY_BYTES: Final = 8 << 20

#: A turn of the bodies ends after so many bytes or parts, or one sync or abort: entries that arrive meanwhile wait for
#: about as long as for one of their own batches.
TURN_BYTES: Final = 1 << 20
TURN_PARTS: Final = 64


def body_name(id: int) -> str:
    """The name of a body's file."""
    return f"{id:020d}{SUFFIX}"


def body_id(name: str) -> int:
    """The number of the body in the file of this name, 0 if it is not a body's file."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isascii() and stem.isdigit() else 0


def body_path(directory: str, id: int) -> str:
    """The path of a body's file; `directory` is the journal's."""
    return f"{directory}/{DIRECTORY}/{body_name(id)}"


def sizes(files: Files, directory: str) -> dict[int, int]:
    """The bytes of each file, by its number.  Raises OSError."""
    found: dict[int, int] = {}
    with suppress(FileNotFoundError):
        for id in filter(None, map(body_id, files.list_dir(f"{directory}/{DIRECTORY}"))):
            with suppress(FileNotFoundError):  # its message has just left
                found[id] = files.size(body_path(directory, id))
    return found


@dataclass(slots=True, eq=False)
class Upload:
    """A body being written to its file.

    `nbytes` is how much has arrived, `pending` how much of it is not yet written.  `reference` is set once the file is
    complete, and durable if requested; `refusal` says why it never will be.  `changed` is called when any of these
    changes.  The uploads of one `owner` share its turns.
    """

    id: int
    changed: Callable[[], None]
    _: KW_ONLY
    durable: bool
    owner: object = None
    nbytes: int = field(init=False, default=0)
    pending: int = field(init=False, default=0)
    reference: BodyReference | None = field(init=False, default=None)
    refusal: str = field(init=False, default="")


@dataclass(slots=True, eq=False)
class Part:
    """Work: write bytes of an upload; `last`: they complete it."""

    upload: Upload
    data: bytes
    _: KW_ONLY
    last: bool = False


@dataclass(slots=True, eq=False)
class Abort:
    """Work: abort an upload that will never be complete."""

    upload: Upload


@dataclass(slots=True, eq=False)
class Drop:
    """Work: drop files that are unneeded once everything submitted before is durable.

    `recorded`: those that records refer to, which retention may keep.
    """

    ids: list[int]
    recorded: Collection[int] = ()


class BodyStore(Protocol):
    """A second store for the bodies of durable messages, so that they outlive the machine.  Methods raise LogError."""

    def put(self, id: int, data: bytes, *, last: bool) -> None:
        """Add bytes to a body; `last`: they complete it, and it is durable when this returns."""

    def drop(self, ids: Sequence[int]) -> None:
        """Drop unneeded bodies, complete or not, existing or not."""


# -- the writer's side -------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Unfinished:
    """A file being written; `file`: None while it is closed."""

    file: File | None
    durable: bool
    offset: int = field(init=False, default=0)
    crc: int = field(init=False, default=0)
    unsynced: int = field(init=False, default=0)


class BodyFiles:
    """The files of bodies.  `keep_free` is how much of the disk they may not use, in bytes; `nbytes` what they use now.
    `syncs` counts those of unfinished files.

    With retention on, `keep` moves a file to the kept segments; `find` finds one there by its name, for readers of old
    messages.  `elsewhere` also gets the bodies of durable messages.

    `results` are for the other side: an upload, how many of its bytes were handled, and its reference.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        keep_free: int,
        keep: Callable[[str], None] | None = None,
        find: Callable[[str], str] | None = None,
        elsewhere: BodyStore | None = None,
        open_max: int = OPEN_MAX,
    ) -> None:
        self.directory = f"{directory}/{DIRECTORY}"
        self._journal = directory
        self.results: deque[tuple[Upload, int, BodyReference | None]] = deque()
        self.nbytes = 0
        self.syncs = 0
        self._files = files
        self._keep_free = keep_free
        self._keep = keep
        self._find = find
        self._elsewhere = elsewhere
        self._open_max = open_max
        self._unfinished: dict[int, _Unfinished] = {}
        self._open: dict[int, None] = {}  # of the unfinished ones, the least recently written first
        self._made = False

    def path(self, id: int) -> str:
        """The path of a body's file."""
        return body_path(self._journal, id)

    def sizes(self) -> dict[int, int]:
        """The size of each existing file, by its number.  Raises LogFailed."""
        try:
            found = sizes(self._files, self._journal)
        except OSError as error:
            raise _failed("looking at", self.directory, error) from error
        self.nbytes = sum(found.values())
        return found

    def read(self, id: int, offset: int, nbytes: int) -> bytes:
        """Read bytes of a file, wherever it is now.  Raises BodyUnreadable."""
        try:
            try:
                data = self._files.read_range(self.path(id), offset, nbytes)
            except FileNotFoundError:
                if self._find is None:
                    raise
                data = self._files.read_range(self._find(body_name(id)), offset, nbytes)
        except OSError as error:
            passing = not isinstance(error, FileNotFoundError)
            raise BodyUnreadable(self.path(id), error.strerror or str(error), passing=passing) from error
        if len(data) != nbytes:
            raise BodyUnreadable(self.path(id), f"it ends at byte {offset + len(data)}")
        return data

    def put(self, part: Part) -> None:
        """Write a part, or refuse the upload if room, a descriptor or memory is missing.  Raises LogFailed."""
        upload, data = part.upload, part.data
        if upload.refusal:
            self.results.append((upload, len(data), None))
            return
        reference = None
        try:
            unfinished = self._unfinished.get(upload.id) or self._begin(upload)
            file = self._opened(upload.id, unfinished)
            self._look_for_room(len(data))
            if unfinished.unsynced + len(data) > SYNC_EVERY_BYTES:
                self._sync(unfinished, file)
            write_all(file, data, unfinished.offset)
            unfinished.offset += len(data)
            unfinished.unsynced += len(data)
            unfinished.crc = crc32c(data, unfinished.crc)
            self.nbytes += len(data)
            if self._elsewhere is not None and upload.durable:
                self._elsewhere.put(upload.id, data, last=part.last)
            if part.last:
                reference = self._end(upload, unfinished)
        except OSError as error:
            missing = lacking(error)
            if not missing:
                raise _failed("writing", self.path(upload.id), error) from error
            upload.refusal = f"the body cannot be stored: {missing}"
            self._remove_unfinished(upload)
        self.results.append((upload, len(data), reference))

    def _begin(self, upload: Upload) -> _Unfinished:
        if not self._made:
            self._files.make_dir(self.directory)
            self._made = True
        begun = self._unfinished[upload.id] = _Unfinished(None, upload.durable)
        self._make_way()
        begun.file = self._files.create(self.path(upload.id))
        return begun

    def _opened(self, id: int, unfinished: _Unfinished) -> File:
        """The file of an unfinished body, now the one written last."""
        if unfinished.file is None:
            self._make_way()
            unfinished.file = self._files.open(self.path(id))
        self._open.pop(id, None)
        self._open[id] = None
        return unfinished.file

    def _make_way(self) -> None:
        """Close the file that was written longest ago, if no other may be open."""
        while len(self._open) >= self._open_max:
            id = next(iter(self._open))
            unfinished = self._unfinished[id]
            if unfinished.file is not None and unfinished.unsynced:
                self._sync(unfinished, unfinished.file)  # a disk's error is sure to be seen by this descriptor only
            self._close(id)

    def _sync(self, unfinished: _Unfinished, file: File) -> None:
        """Sync a file, if its body is to be durable."""
        if unfinished.durable:
            file.sync()
            self.syncs += 1
        unfinished.unsynced = 0

    def _close(self, id: int) -> None:
        unfinished = self._unfinished[id]
        self._open.pop(id, None)
        if unfinished.file is not None:
            unfinished.file.close()
            unfinished.file = None

    def _look_for_room(self, more: int) -> None:
        if self._files.space(self.directory)[1] < self._keep_free + more:
            raise OSError(errno.ENOSPC, "the rest of the disk is for the journal")

    def _end(self, upload: Upload, unfinished: _Unfinished) -> BodyReference:
        assert unfinished.file is not None, "its last part has just been written"
        self._sync(unfinished, unfinished.file)
        self._close(upload.id)
        if upload.durable:
            self._files.sync_dir(self.directory)  # with the descriptor that has just become free
        del self._unfinished[upload.id]
        return BodyReference(upload.id, unfinished.offset, unfinished.crc)

    def abort(self, upload: Upload) -> None:
        """Forget an upload.  Raises LogFailed."""
        try:
            self._remove_unfinished(upload)
        except OSError as error:
            raise _failed("removing", self.path(upload.id), error) from error

    def _remove_unfinished(self, upload: Upload) -> None:
        unfinished = self._unfinished.get(upload.id)
        if unfinished is not None:
            self._close(upload.id)
            with suppress(FileNotFoundError):  # it could not be created
                self._files.remove(self.path(upload.id))
            del self._unfinished[upload.id]
            self.nbytes -= unfinished.offset
            if self._elsewhere is not None and upload.durable:
                self._elsewhere.drop([upload.id])

    def drop(self, needless: Drop) -> None:
        """Remove files, or move them to retention.  A removal need not be durable: a start repeats it.

        Files that a full disk has no room to keep are removed.  Raises LogFailed; LogFull if it may be repeated.
        """
        if self._elsewhere is not None:
            self._elsewhere.drop(needless.ids)
        for id in needless.ids:
            path = self.path(id)
            try:
                size = self._files.size(path)
                if self._keep is None or id not in needless.recorded or not self._kept(path):
                    self._files.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _failed("removing", path, error) from error
            self.nbytes -= size

    def _kept(self, path: str) -> bool:
        assert self._keep is not None
        try:
            self._keep(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def close(self) -> None:
        """Close incomplete files; the next start removes them."""
        for id in list(self._open):
            self._close(id)
        self._unfinished.clear()


class BodyQueue:
    """The parts and aborts that wait for the writer, by the owner of their upload: each has a turn after the others."""

    def __init__(self, files: BodyFiles) -> None:
        self._files = files
        self._waiting: dict[object, deque[Part | Abort]] = {}  # the owner whose turn is next first

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def add(self, item: Part | Abort) -> None:
        """Add what follows everything else of its owner."""
        self._waiting.setdefault(item.upload.owner, deque()).append(item)

    def turn(self) -> None:
        """Do the next owner's turn.  Raises LogFailed; LogFull if the same is to be tried again."""
        if not self._waiting:
            return
        files = self._files
        owner = next(iter(self._waiting))
        items, syncs = self._waiting[owner], files.syncs
        nbytes = parts = 0
        while items and files.syncs == syncs and nbytes < TURN_BYTES and parts < TURN_PARTS:
            item = items[0]
            if isinstance(item, Part):
                files.put(item)
                nbytes += len(item.data)
                parts += 1
            else:
                files.abort(item.upload)
                nbytes = TURN_BYTES
            items.popleft()
        del self._waiting[owner]
        if items:
            self._waiting[owner] = items


def _failed(doing: str, path: str, error: OSError) -> LogFailed | LogFull:
    missing = lacking(error)
    kind = LogFull if missing else LogFailed
    return kind(f"{doing} {path}: {missing or error.strerror or error}")


# -- the broker's side -------------------------------------------------------------------------------------------------


class Bodies:
    """The bodies of a journal: uploads, and the number of objects for each file."""

    def __init__(
        self, files: BodyFiles, submit: Callable[[Part | Abort | Drop], None], allocate: Callable[[], int]
    ) -> None:
        self._files = files
        self._submit = submit
        self._allocate = allocate
        self._holders: dict[int, int] = {}
        self._expected: dict[int, int] = {}  # the size that each file must have, until the start has checked
        self._started = False
        self._dropped: deque[int] = deque()
        self._recorded: set[int] = set()  # bodies that a record refers to
        #: Bytes of all uploads that are not yet written; `on_pending` is called when some were, before any `changed`.
        self.pending = 0
        self.on_pending: Callable[[], None] = _ignore

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return self._files.nbytes

    @property
    def count(self) -> int:
        """The number of files that are in use."""
        return len(self._holders)

    # -- objects ---------------------------------------------------------------------------------------------------

    def stored(self, reference: BodyReference) -> LargeBody:
        """The object for a body that a record refers to."""
        self._recorded.add(reference.id)
        return LargeBody(self, reference)

    def recorded(self, id: int) -> None:
        """Note that a record refers to this body."""
        self._recorded.add(id)

    def held(self, reference: BodyReference) -> None:
        """Count one more user of a file: an object, or a record that is needed without one."""
        self._holders[reference.id] = self._holders.get(reference.id, 0) + 1
        if not self._started:
            self._expected[reference.id] = reference.nbytes

    def dropped(self, id: int) -> None:
        self._dropped.append(id)

    def read(self, id: int, offset: int, nbytes: int) -> bytes:
        return self._files.read(id, offset, nbytes)

    def sweep(self) -> None:
        """Remove files that are no longer in use.  Call after a commit of the journal."""
        needless = self._settle() if self._dropped else []
        if needless:
            self._drop(needless)

    def _drop(self, needless: list[int]) -> None:
        recorded = self._recorded.intersection(needless)
        self._recorded -= recorded
        self._submit(Drop(needless, recorded))

    def _settle(self) -> list[int]:
        holders, dropped = self._holders, self._dropped
        needless = []
        while dropped:
            id = dropped.popleft()
            left = holders[id] - 1
            if left:
                holders[id] = left
            else:
                del holders[id]
                needless.append(id)
        return needless

    # -- start -----------------------------------------------------------------------------------------------------

    def restored(self) -> None:
        """Check that each body exists, after the journal was restored, and remove all other files.

        Raises Corrupt, LogFailed.
        """
        self._settle()
        sizes = self._files.sizes()
        for id in sorted(self._holders):
            if sizes.get(id) != self._expected[id]:
                what = f"has {sizes[id]} bytes instead of {self._expected[id]}" if id in sizes else "is missing"
                raise Corrupt(self._files.path(id), sizes.get(id, 0), f"the body of a message {what}")
        self._started = True
        self._expected.clear()
        leftovers = sorted(sizes.keys() - self._holders.keys())
        if leftovers:
            self._drop(leftovers)
        self._recorded &= self._holders.keys()

    # -- uploads ---------------------------------------------------------------------------------------------------

    def begin(self, changed: Callable[[], None], *, durable: bool, owner: object = None) -> Upload:
        """Begin an upload.  `changed` is called within a tick."""
        return Upload(self._allocate(), changed, durable=durable, owner=owner)

    def write(self, upload: Upload, data: bytes, *, last: bool = False) -> None:
        """Add bytes to an upload.  Nothing is refused here: the caller watches `pending` and `refusal`."""
        assert upload.reference is None, "a complete body gets no more bytes"
        upload.nbytes += len(data)
        upload.pending += len(data)
        self.pending += len(data)
        self._submit(Part(upload, data, last=last))

    def abort(self, upload: Upload) -> None:
        """Abort an upload that will never be complete."""
        upload.changed = _ignore
        self._submit(Abort(upload))

    def collect(self) -> None:
        """Update the uploads from the writer's results, and call their `changed`.  Call within a tick."""
        results = self._files.results
        changed: dict[Upload, None] = {}
        while results:
            upload, nbytes, reference = results.popleft()
            upload.pending -= nbytes
            self.pending -= nbytes
            upload.reference = reference
            changed[upload] = None
            if reference is not None and upload.changed is _ignore:
                self._submit(Drop([upload.id]))  # aborted when its last part had been submitted already
        if changed:
            self.on_pending()
        for upload in changed:
            upload.changed()

    def finished(self, upload: Upload) -> LargeBody:
        """The body of a complete upload.  Raises JournalFull if it was refused."""
        if upload.refusal:
            raise JournalFull(upload.refusal)
        assert upload.reference is not None, "an upload is finished once it is complete"
        return LargeBody(self, upload.reference)


def to_read(files: BodyFiles) -> Bodies:
    """Read-only access to the bodies of a journal."""

    def submit(work: Part | Abort | Drop) -> None:
        raise AssertionError("nothing is written")

    return Bodies(files, submit, lambda: 0)


def _ignore() -> None:
    pass
