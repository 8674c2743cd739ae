"""The replicated log: entries are durable in a database with a standby, and copied to a directory of this machine.

    append -> database: one conditional transaction -> (replicated) -> copy -> announced

The copy is what recovery, paging and audits read; it is written after the database has confirmed, so it never has what
the database may lose.  Its bytes are those of a log in files.

Rules:

1. A change says the writer's epoch and where the log ends.  The database refuses it if either is another: the writer is
   fenced for good, whether it knows or not (LogFenced).
2. One change is under way at a time, and only the same change is tried again.  So one that may have happened either
   shows as the end of the log, or did not happen and can be made.
3. What shows is not yet replicated: the database may have been cut off from its standby, and forget it when that takes
   over.  It is confirmed by a later change that is (`Database.confirm`): a standby has changes in their order.
4. A change is never called off.  As long as the lease lasts it is tried again; then nobody knows (LogUnknown), the
   broker lets go of its connections, and whoever owns the log next finds out what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from store.bodies import BodyFiles
from store.database import Database, Doubtful, Head, Unavailable
from store.errors import LogFailed, LogFenced, LogUnknown
from store.log import Counters, FileLog, Place
from store.segment import SEGMENT_HEADER_BYTES, Entry, encode_header, header_of, scan
from store.spare import Spare

#: Bytes of a chunk of a large body: what a database takes in one piece without effort.
CHUNK_BYTES: Final = 1 << 20


class SharedBodies:
    """Large bodies on their way to the database, as a BodyStore."""

    def __init__(self, change: Callable[[Callable[[], bool]], None], database: Database) -> None:
        self.epoch = 0
        self._change = change
        self._database = database
        self._gathered: dict[int, bytearray] = {}
        self._sent: dict[int, int] = {}  # chunks
        self._nbytes: dict[int, int] = {}

    def put(self, id: int, data: bytes, *, last: bool) -> None:
        gathered = self._gathered.setdefault(id, bytearray())
        gathered += data
        self._nbytes[id] = self._nbytes.get(id, 0) + len(data)
        while len(gathered) > CHUNK_BYTES:
            self._put(id, bytes(gathered[:CHUNK_BYTES]), -1)
            del gathered[:CHUNK_BYTES]
        if last:
            self._put(id, bytes(gathered), self._nbytes[id])
            self._forget(id)

    def _put(self, id: int, chunk: bytes, nbytes: int) -> None:
        number = self._sent.get(id, 0)
        self._change(lambda: self._database.put_body(self.epoch, id, number, chunk, nbytes=nbytes))
        self._sent[id] = number + 1

    def drop(self, ids: Sequence[int]) -> None:
        if not self.epoch:  # only the copy lets go of what the log has let go of
            return
        for id in ids:
            self._forget(id)
        self._change(lambda: self._database.drop_bodies(self.epoch, ids))

    def _forget(self, id: int) -> None:
        for table in (self._gathered, self._sent, self._nbytes):
            table.pop(id, None)


class ReplicatedLog:
    """A log in a database.  It can be written once it is owned (`own`); before that the copy follows (see `copying`).

    `make_copy` gives the copy, from where large bodies go.  `wait` returns after a while, before something is tried
    again; `over` says whether trying has no point any more.  `on_trouble` is told why something has to be tried again.
    """

    def __init__(
        self,
        database: Database,
        make_copy: Callable[[SharedBodies], FileLog],
        *,
        now: Callable[[], int],
        monotonic: Callable[[], float],
        wait: Callable[[], None],
        over: Callable[[], bool],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._database = database
        self._shared_bodies = SharedBodies(self._change, database)
        self.copy = make_copy(self._shared_bodies)
        self.epoch = 0
        self._end = Place(0, 0)
        self._now = now
        self._monotonic = monotonic
        self._wait = wait
        self._over = over
        self._on_trouble = on_trouble
        self._to_trim: list[int] = []
        #: Since when a change has been under way (`monotonic`), None: none is.
        self.waiting_since: float | None = None

    # -- what the copy answers -------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The directory of the copy."""
        return self.copy.directory

    @property
    def bodies(self) -> BodyFiles:
        """The files of large bodies."""
        return self.copy.bodies

    @property
    def counters(self) -> Counters:
        """What the log has done since it was opened."""
        return self.copy.counters

    @property
    def segment_bytes(self) -> int:
        """How much a whole segment takes."""
        return self.copy.segment_bytes

    @property
    def spare(self) -> Spare:
        """Room for the next segment of the copy."""
        return self.copy.spare

    def segments(self) -> list[int]:
        return self.copy.segments()

    def path(self, segment: int) -> str:
        return self.copy.path(segment)

    def read(self, segment: int) -> bytes:
        return self.copy.read(segment)

    def allocate(self, segment: int) -> None:
        self.copy.allocate(segment)

    # -- owning ----------------------------------------------------------------------------------------------------

    @property
    def replicated(self) -> Place:
        """Up to where the log is replicated, as far as this writer knows."""
        return self._end

    def open(self) -> None:
        """Take possession of the copy."""
        self.copy.open()

    def copy_name(self) -> str:
        """What the copy is called, by which its owner is known; empty if the directory is none yet."""
        return self.copy.copy_name()

    def own(self, head: Head) -> None:
        """The log is this broker's, which has copied all of it."""
        self.epoch = self._shared_bodies.epoch = head.epoch
        self._end = head.end

    def publish(self) -> None:
        """The database is new, and the copy was the log until now, in files: the database gets all of it."""
        for id, nbytes in self.bodies.sizes().items():
            for offset in range(0, nbytes, CHUNK_BYTES):
                part = self.bodies.read(id, offset, min(CHUNK_BYTES, nbytes - offset))
                self._shared_bodies.put(id, part, last=offset + CHUNK_BYTES >= nbytes)
        for segment in self.copy.segments():
            data = self.copy.read(segment)
            header = header_of(segment, data)
            self._begin(segment, data[:SEGMENT_HEADER_BYTES])
            entries = scan(data, header).entries
            while entries:
                start = entries[0].offset
                several = [entry for entry in entries if entry.offset < start + CHUNK_BYTES]
                self._append(data[start : several[-1].end], len(several))
                del entries[: len(several)]

    def cut(self, segment: int, end: int, torn_bytes: int) -> None:
        """The copy has no torn tail: it was cut as it was compared with the database."""
        if Place(segment, end) != self._end:
            raise LogFailed(f"the copy ends at {Place(segment, end)}, the log at {self._end}")

    def close(self) -> None:
        self.copy.close()
        self._database.close()

    # -- changes ---------------------------------------------------------------------------------------------------

    def begin(self, segment: int, broker_id: bytes, first_position: int) -> None:
        header = encode_header(number=segment, broker_id=broker_id, created=self._now(), first_position=first_position)
        self._begin(segment, header)
        self.copy.begin_with(header)

    def _begin(self, segment: int, header: bytes) -> None:
        end = Place(segment, SEGMENT_HEADER_BYTES)
        self._move(lambda: self._database.begin(self.epoch, self._end, segment, header), end)

    def append(self, entries: Sequence[Entry]) -> None:
        """One transaction, then one write."""
        packed = self.copy.pack(entries)
        started = self._monotonic()
        self._append(packed, len(entries))
        self.copy.note_sync(self._monotonic() - started)
        self.copy.append_packed(packed, entries)

    def _append(self, packed: bytes | bytearray, entries: int) -> None:
        end = Place(self._end.segment, self._end.offset + len(packed))
        self._move(lambda: self._database.append(self.epoch, self._end, packed, entries), end)

    def trim(self, segments: Sequence[int]) -> None:
        """What cannot go now, as somebody reads it in the database, goes with the next."""
        self._to_trim += segments
        try:
            self._change(lambda: self._database.trim(self.epoch, self._to_trim), patient=False)
        except Unavailable:
            return
        gone, self._to_trim = self._to_trim, []
        self.copy.trim(gone)

    def _move(self, do: Callable[[], bool], end: Place) -> None:
        """Make the log longer."""
        self._change(do, end=end)
        self._end = end

    def _change(self, do: Callable[[], bool], *, end: Place | None = None, patient: bool = True) -> None:
        """Do something until it is known to be done, and replicated.  `end`: where the log ends then, if it moves.

        Not `patient`: Unavailable is raised.  Raises LogFenced, LogUnknown, LogFailed.
        """
        assert self.epoch, "the log is owned before it is written"
        self.waiting_since = self._monotonic()
        try:
            if self._done(do, end, patient=patient):
                self._done(lambda: self._database.confirm(self.epoch), None)
        finally:
            self.waiting_since = None

    def _done(self, do: Callable[[], bool], end: Place | None, *, patient: bool = True) -> bool:
        """Do something until it is known to be done; whether that was in doubt."""
        doubtful = False
        while True:
            try:
                if not do():
                    self._check_shows(end if doubtful else None)
                return doubtful
            except Doubtful as trouble:
                doubtful = True
                self._on_trouble(str(trouble))
            except Unavailable as trouble:
                if not patient:
                    raise
                self._on_trouble(str(trouble))
            if self._over():
                raise LogUnknown("the database did not answer while the lease lasted")
            self._wait()

    def _check_shows(self, end: Place | None) -> None:
        """A change was refused: because it had happened, and the log ends at `end`?  Raises LogFenced, LogFailed."""
        head = self._database.head()
        if head.epoch != self.epoch:
            raise LogFenced("another broker owns the log now")
        if head.end == end:
            return
        raise LogFailed(
            f"the log in the database ends at {head.end} instead of {self._end}: entries that were confirmed are not in"
            " it (was a standby promoted that was not synchronous, or a backup restored?), or somebody else has changed"
            " it"
        )
