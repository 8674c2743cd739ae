"""The log: stores entries and reads them back.

`Log` is the interface.  `FileLog` is a log in one directory:

    NNNNNNNNNN.journal    segments; the newest is written
    NNNNNNNNNN.spare      the next segment, allocated ahead: also the room that is left when the disk is full
    NNNNNNNNNN.scratch    paged messages that are not durable (see `pages`): useless after a restart
    bodies/               bodies too large for a segment, a file each (see `bodies`)
    torn/                 bytes cut off as torn tails
    retention/date=.../   segments no longer needed, if they are retained (see `retention`)
    lock                  pid of the owner
    copy                  the copy's name, if the directory is a copy of a log that is elsewhere (see `replicated_log`)

Rules:

1. `append` returns when the entries are durable, or raises.  Once it has raised, it always raises (LogFailed).  A
   failed sync is never repeated: the second may succeed although the bytes are lost.  Only if there is no room for the
   entries, no descriptor or no memory (LogFull), the same call may be repeated: it writes all of their bytes again.
2. A segment's header is durable before the segment has its name, and the name before it has entries.
3. A segment is complete and durable before the next one begins, so only the newest can be torn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from store.bodies import OPEN_MAX, BodyFiles, BodyStore
from store.errors import IsCopy, LogFailed, LogFull
from store.files import NO_ROOM, File, Files, Lock, lacking, write_all, write_file
from store.retention import Extent, Retention, RetentionSettings
from store.segment import (
    SCRATCH_SUFFIX,
    SEGMENT_HEADER_BYTES,
    SPARE_SUFFIX,
    Entry,
    EntryHead,
    SegmentHeader,
    decode_header,
    encode_header,
    pack_entries,
    segment_name,
)
from store.segment_directory import SegmentDirectory, Source
from store.spare import Spare

#: The file that says that a directory is a copy, and bytes of it that are read: more than a name has.
COPY: Final = "copy"
COPY_NAME_BYTES_MAX: Final = 256

#: A segment's size in bytes: large enough that rolling costs nothing and an audit's tasks are worth their start, small
#: enough to be read into memory whole.
SEGMENT_BYTES: Final = 64 << 20

#: A sync that takes longer is reported; in ms.  A healthy disk needs one to five.
SLOW_SYNC_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of a log; sizes in bytes, times in ms."""

    segment_bytes: int = SEGMENT_BYTES
    slow_sync_ms: int = SLOW_SYNC_MS
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    open_bodies_max: int = OPEN_MAX


class Place(NamedTuple):
    """A place in the log: a segment's number, and bytes from its start."""

    segment: int
    offset: int

    def __str__(self) -> str:
        """Format for messages and the log."""
        return f"byte {self.offset} of segment {self.segment}"


@dataclass(slots=True, eq=False)
class Counters:
    """Counts of a log's work since it was opened.  Plain attributes: only the writer changes them, any thread reads."""

    syncs: int = 0
    sync_seconds: float = 0.0
    slow_syncs: int = 0
    entries: int = 0
    records: int = 0
    bytes: int = 0
    last_batch_records: int = 0
    segments_trimmed: int = 0


class Log(Source, Protocol):
    """The interface of a log to the journal.  Listing and reading segments raise LogFailed.

    `directory` has the segments, of `segment_bytes` when they are full, `spare` the room for the next one, `bodies` the
    files of large bodies.
    """

    directory: str
    segment_bytes: int
    spare: Spare
    bodies: BodyFiles
    counters: Counters

    def open(self) -> None:
        """Lock and open the log.  Raises DirectoryLocked, LogFailed."""

    def cut(self, segment: int, end: int, torn_bytes: int) -> None:
        """Cut a segment at `end`, after saving `torn_bytes` bytes behind it; the rest is zeros."""

    def allocate(self, segment: int) -> None:
        """Allocate a segment ahead of time; see `Spare`.  Raises LogFailed."""

    def begin(self, segment: int, broker_id: bytes, first_position: int) -> None:
        """End the current segment and begin this one.  Raises LogFailed, LogFull."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Make entries durable in the current segment.  Raises LogFailed, LogFull, LogFenced, LogUnknown."""

    def trim(self, segments: Sequence[int]) -> None:
        """Drop segments, in this order.  Raises LogFailed."""

    def close(self) -> None:
        """Close and unlock the log."""


class FileLog:
    """A log in a directory.

    `now` returns ms since the epoch, `monotonic` seconds; `on_slow_sync` is called with the duration of a slow sync, in
    the thread that writes.  In a copy of a log that is durable elsewhere, appended entries need not be synced
    (`synced`), and large bodies are stored there too (`elsewhere`).
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        settings: LogSettings | None = None,
        *,
        now: Callable[[], int],
        monotonic: Callable[[], float] = lambda: 0.0,
        on_slow_sync: Callable[[float], None] = lambda _: None,
        synced: bool = True,
        elsewhere: BodyStore | None = None,
    ) -> None:
        self.directory = directory
        self.settings = settings = settings or LogSettings()
        self.segment_bytes = settings.segment_bytes
        self.counters = Counters()
        self._retention = retention = Retention(files, directory, settings.retention, now=now, synced=synced)
        self.bodies = BodyFiles(
            files,
            directory,
            keep_free=self.segment_bytes,
            keep=retention.keep_body if retention.enabled else None,
            elsewhere=elsewhere,
            open_max=settings.open_bodies_max,
        )
        self.spare = Spare(files, directory, self.segment_bytes, self._fail)
        self._files = files
        self._directory = SegmentDirectory(files, directory)
        self._now = now
        self._monotonic = monotonic
        self._on_slow_sync = on_slow_sync
        self._synced = synced
        self._lock: Lock | None = None
        self._file: File | None = None
        self._begun: tuple[File, SegmentHeader] | None = None  # the next segment, whose name is not durable yet
        self._segment = 0
        self._seed = 0
        self._end = 0
        self._durable = 0
        self._failure = ""
        self._to_trim: list[int] = []
        self._extent: Extent | None = None  # of the current segment; None if an earlier run has begun it

    # -- before and after ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory; remove spares of an earlier run, whose numbers no longer fit, and its scratch files."""
        try:
            self._files.make_dir(self.directory)
            self._lock = self._files.lock(f"{self.directory}/lock")
            for name in self._files.list_dir(self.directory):
                if name.endswith((SPARE_SUFFIX, SCRATCH_SUFFIX)):
                    self._files.remove(f"{self.directory}/{name}")
        except OSError as error:
            raise self._fail(f"opening the journal directory {self.directory}", error) from error

        if self._synced and self.copy_name():
            raise IsCopy(
                f"{self.directory} is a copy of a log in PostgreSQL, which another broker may own: set"
                f' journal.log = "postgresql", or stop all brokers of that log and remove {self.directory}/{COPY}'
            )

    def copy_name(self) -> str:
        """Return this copy's name; empty if the directory is not a copy of a log that is elsewhere."""
        try:
            name = self._files.read_range(f"{self.directory}/{COPY}", 0, COPY_NAME_BYTES_MAX)
            return name.decode("ascii", "replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._fail(f"reading {self.directory}/{COPY}", error) from error

    def mark_as_copy(self, name: str) -> None:
        """Mark the directory as a copy of a log that is elsewhere."""
        path = f"{self.directory}/{COPY}"
        try:
            write_file(self._files, path, f"{name}\n".encode())
            self._files.sync_dir(self.directory)
        except OSError as error:
            raise self._fail(f"writing {path}", error) from error

    def segments(self) -> list[int]:
        try:
            return self._directory.segments()
        except OSError as error:
            raise self._fail(f"listing {self.directory}", error) from error

    def path(self, segment: int) -> str:
        return self._directory.path(segment)

    def read(self, segment: int) -> bytes:
        try:
            return self._directory.read(segment)
        except OSError as error:
            raise self._fail(f"reading {self.path(segment)}", error) from error

    def cut(self, segment: int, end: int, torn_bytes: int) -> None:
        """Cut a segment's torn tail; its bytes are saved in torn/, durably, before that."""
        path = self.path(segment)
        try:
            if torn_bytes:
                kept = f"{self.directory}/torn"
                torn = self._files.read_range(path, end, torn_bytes)
                self._files.make_dir(kept)
                write_file(self._files, f"{kept}/{segment_name(segment)}-{end}.torn", torn)
                self._files.sync_dir(kept)
            with closing(self._files.open(path)) as file:
                file.truncate(end)
                file.sync()
        except OSError as error:
            raise self._fail(f"cutting the torn tail of {path}", error) from error

    def close(self) -> None:
        self.bodies.close()
        if self._begun is not None:
            self._begun[0].close()
            self._begun = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- segments --------------------------------------------------------------------------------------------------

    def allocate(self, segment: int) -> None:
        if segment > self._segment:  # else it has been begun since the request
            self.spare.allocate(segment)

    def begin(self, segment: int, broker_id: bytes, first_position: int) -> None:
        created = self._now()
        self.begin_with(
            encode_header(number=segment, broker_id=broker_id, created=created, first_position=first_position)
        )

    def begin_with(self, header: bytes) -> None:
        """End the current segment and begin the one with this header.  Raises LogFailed, LogFull."""
        self._check()
        segment = decode_header(header).number
        spare = self.spare
        if spare.ready < segment:
            self.allocate(segment)
            if spare.ready < segment:
                raise LogFull(f"beginning {self.path(segment)}: {spare.lacking}")
        try:
            self._end_segment()
            if self._begun is None:
                self._begun = self._rename_spare(segment, header), decode_header(header)
            self._files.sync_dir(self.directory)
        except OSError as error:
            raise self._unwritten(f"beginning {self.path(segment)}", error) from error
        self._file, begun = self._begun  # an earlier attempt may have written another time of creation
        self._begun = None
        spare.use()
        self._segment = segment
        self._seed = begun.crc
        self._end = SEGMENT_HEADER_BYTES
        self._durable = begun.first_position
        self._extent = self._retention.extents[segment] = Extent(begun.first_position)

    def _rename_spare(self, segment: int, header: bytes) -> File:
        """Return the open file of a new segment, whose name is not durable yet.  Raises OSError, having begun none."""
        spare = self.spare.path(segment)
        file = self._files.open(spare)
        try:
            write_all(file, header, 0)
            file.sync()
            self._files.rename(spare, self.path(segment))
        except OSError:
            file.close()
            raise
        return file

    def resume(self, segment: int, header: bytes, end: int, position: int) -> None:
        """Continue a segment whose valid part ends at byte `end`, before `position`.  Raises LogFailed."""
        try:
            if self._file is not None:
                self._file.close()
            self._file = self._files.open(self.path(segment))
        except OSError as error:
            raise self._fail(f"opening {self.path(segment)}", error) from error
        self._segment = segment
        self._extent = self._retention.extents.get(segment)
        self._seed = decode_header(header).crc
        self._end = end
        self._durable = position

    def _end_segment(self) -> None:
        """Release the unused room of the current segment.  It need not be durable: the room contains zeros."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with closing(file):
            file.truncate(self._end)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries with one write, which is durable when it returns."""
        assert entries[0].segment == self._segment, "entries go to the segment that was begun"
        self.append_packed(self.pack(entries), entries)

    def pack(self, entries: Sequence[Entry]) -> bytearray:
        """Encode the entries to be appended next."""
        return pack_entries(entries, self._seed, self._durable)

    def append_packed(self, packed: bytearray | bytes, entries: Sequence[Entry] | Sequence[EntryHead]) -> None:
        """Append encoded entries.  Raises LogFailed, LogFull."""
        self._check()
        assert self._file is not None, "a segment is begun before anything is appended"
        assert entries[0].first == self._durable, "entries are appended in order, without gaps"
        started = self._monotonic()
        try:
            self._write(self._file, packed)
            if self._synced:
                self.note_sync(self._monotonic() - started)
        except OSError as error:
            raise self._unwritten(f"writing {self.path(self._segment)}", error) from error
        last = entries[-1]
        self._end += len(packed)
        self._durable = last.first + last.count
        if self._extent is not None:
            self._extent.grow(entries)
        counters = self.counters
        counters.entries += len(entries)
        counters.bytes += len(packed)
        counters.last_batch_records = self._durable - entries[0].first
        counters.records += counters.last_batch_records

    def _write(self, file: File, packed: bytearray | bytes) -> None:
        """Write a batch.  Where it needs more room than was preallocated, or that is no guarantee, use the spare's."""
        try:
            write_all(file, packed, self._end, durably=self._synced)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.spare.nbytes:
                raise
            self.spare.give_up(self._segment)
            write_all(file, packed, self._end, durably=self._synced)

    def note_sync(self, seconds: float) -> None:
        """Count a sync: a batch was made durable, here or elsewhere, in so many seconds."""
        self.counters.syncs += 1
        self.counters.sync_seconds += seconds
        if seconds * 1000 > self.settings.slow_sync_ms:
            self.counters.slow_syncs += 1
            self._on_slow_sync(seconds)

    def trim(self, segments: Sequence[int]) -> None:
        """Drop segments, or keep them (retention); each is durably gone before the next one is dropped.

        Retention needs room for a directory and descriptors: without them it is postponed until the next time, or the
        next start.
        """
        self._check()
        self._to_trim += segments
        for step in (self._trim_all, self._retention.enforce):
            try:
                step()
            except OSError as error:
                if not lacking(error):
                    raise self._fail("trimming the journal", error) from error

    def _trim_all(self) -> None:
        while self._to_trim:
            self._retention.let_go(self._to_trim[0])
            del self._to_trim[0]
            self.counters.segments_trimmed += 1

    # -- failure ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure:
            raise LogFailed(f"the journal failed before: {self._failure}")

    def _unwritten(self, doing: str, error: OSError) -> LogFailed | LogFull:
        """The error of work that may be repeated if something was missing, as where a file grows when it is written."""
        missing = lacking(error)
        if not missing:
            return self._fail(doing, error)
        self.spare.lacking = missing
        return LogFull(f"{doing}: {missing}")

    def _fail(self, doing: str, error: OSError) -> LogFailed | LogFull:
        missing = lacking(error)
        self._failure = f"{doing}: {missing or error.strerror or error}"
        return LogFull(self._failure) if missing else LogFailed(self._failure)
