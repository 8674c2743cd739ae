"""The replicated log: entries are durable in a database with a standby, and copied to a local directory.

    append -> database: one conditional transaction -> (replicated) -> copy -> announced

Recovery, paging and audits read the copy.  It is written after the database has confirmed, so it never contains an
entry that the database may lose.  Its format is that of a log in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from store.errors import LogFailed
from store.log import FileLog, Place
from store.replicated.database import Chunk, Row, Unavailable
from store.replicated.owner import LogOwner
from store.segment import SEGMENT_HEADER_BYTES, Entry, encode_header, header_of, scan

#: Size of a large body's chunks, in bytes: easy to handle for the database.
CHUNK_BYTES: Final = 1 << 20


class SharedBodies:
    """A BodyStore that writes large bodies to the database in chunks."""

    def __init__(self, owner: LogOwner) -> None:
        self._owner = owner
        self._begun: dict[int, tuple[int, bytes]] = {}  # of incomplete bodies: chunks sent, and bytes to be sent

    def put(self, id: int, data: bytes, *, last: bool) -> None:
        chunks, left = self._begun.get(id, (0, b""))
        left += data
        while len(left) > CHUNK_BYTES:
            self._owner.put_body(id, chunks, left[:CHUNK_BYTES], -1)
            chunks, left = chunks + 1, left[CHUNK_BYTES:]
        self._begun[id] = chunks, left
        if last:
            self._owner.put_body(id, chunks, left, chunks * CHUNK_BYTES + len(left))
            del self._begun[id]

    def drop(self, ids: Sequence[int]) -> None:
        if not self._owner.epoch:  # a standby deletes from its copy only
            return
        for id in ids:
            self._begun.pop(id, None)
        self._owner.drop_bodies(ids)


class ReplicatedLog:
    """A log in a database, changed through `owner` once it is owned; before that, the copy follows (see `following`).

    `make_copy` makes the copy; its argument is the store for large bodies.  The copy's name identifies this broker.
    """

    def __init__(
        self,
        owner: LogOwner,
        make_copy: Callable[[SharedBodies], FileLog],
        *,
        now: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self.owner = owner
        self._shared_bodies = SharedBodies(owner)
        self.copy = copy = make_copy(self._shared_bodies)
        self._now = now
        self._monotonic = monotonic
        self._to_trim: list[int] = []
        # The last entries, and the last segment with its header, if only the database may have them yet.
        self._uncopied: bytes | bytearray = b""
        self._uncopied_begin = (0, b"")
        # What the copy answers.
        self.directory, self.segment_bytes = copy.directory, copy.segment_bytes
        self.bodies, self.counters, self.spare = copy.bodies, copy.counters, copy.spare
        self.open, self.copy_name, self.allocate = copy.open, copy.copy_name, copy.allocate
        self.segments, self.path, self.read = copy.segments, copy.path, copy.read

    @property
    def replicated(self) -> Place:
        """The end of the log's replicated part, as far as this writer knows."""
        return self.owner.end

    def publish(self) -> None:
        """Write all of the copy to a new database: until now it was a log in files.

        It is one change: whoever takes over a log must have all of it, also if this broker dies in the middle.
        """
        segments = self.copy.segments()
        if segments:
            last = self.copy.read(segments[-1])
            end = Place(segments[-1], scan(last, header_of(segments[-1], last)).end)
            self.owner.publish(end, self._rows, self._chunks)

    def _rows(self) -> Iterator[Row]:
        """Return all of the copy, in pieces."""
        written = 0
        for segment in self.copy.segments():
            data = self.copy.read(segment)
            yield Row(Place(segment, 0), data[:SEGMENT_HEADER_BYTES], written)
            entries = scan(data, header_of(segment, data)).entries
            while entries:
                start = entries[0].offset
                several = [entry for entry in entries if entry.offset < start + CHUNK_BYTES]
                written += len(several)
                yield Row(Place(segment, start), data[start : several[-1].end], written)
                del entries[: len(several)]

    def _chunks(self) -> Iterator[Chunk]:
        """Return the large bodies of the copy, in pieces."""
        for id, nbytes in self.bodies.sizes().items():
            for offset in range(0, nbytes, CHUNK_BYTES):
                data = self.bodies.read(id, offset, min(CHUNK_BYTES, nbytes - offset))
                last = offset + CHUNK_BYTES >= nbytes
                yield Chunk(id, offset // CHUNK_BYTES, data, nbytes if last else -1)

    def cut(self, segment: int, end: int, torn_bytes: int) -> None:
        """Check that there is nothing to cut: the copy was cut when it was compared with the database."""
        if Place(segment, end) != self.owner.end:
            raise LogFailed(f"the copy ends at {Place(segment, end)}, the log at {self.owner.end}")

    def close(self) -> None:
        self.copy.close()
        self.owner.close()

    def begin(self, segment: int, broker_id: bytes, first_position: int) -> None:
        """Begin it in the database, then in the copy; only this is repeated if it found no room."""
        if self._uncopied_begin[0] != segment:
            created = self._now()
            header = encode_header(number=segment, broker_id=broker_id, created=created, first_position=first_position)
            self.owner.begin(segment, header)
            self._uncopied_begin = segment, header
        self.copy.begin_with(self._uncopied_begin[1])

    def append(self, entries: Sequence[Entry]) -> None:
        """Append in one transaction, then one write to the copy; only this is repeated if it found no room."""
        packed = self.copy.pack(entries)
        if packed != self._uncopied:
            started = self._monotonic()
            self.owner.append(packed, len(entries))
            self.copy.note_sync(self._monotonic() - started)
            self._uncopied = packed
        self.copy.append_packed(packed, entries)
        self._uncopied = b""

    def trim(self, segments: Sequence[int]) -> None:
        """Trim segments; those that cannot be dropped now, since a session reads them, are trimmed the next time."""
        self._to_trim += segments
        try:
            self.owner.trim(self._to_trim)
        except Unavailable:
            return
        gone, self._to_trim = self._to_trim, []
        self.copy.trim(gone)
