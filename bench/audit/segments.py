"""Segments as the broker writes them, without a broker: one behind the other, as fast as the disk takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.audit.books import Books
from store import record
from store.record import RecordType, StoredMessage
from store.segment import SEGMENT_HEADER_BYTES, Entry, decode_header, encode_header, entry_length, pack_entries
from store.segment import segment_name as name

#: Entries that are written together; the broker's batch under load.
BATCH: Final = 16
#: Ids announced ahead, as the broker does; fewer than there, so that the record of it occurs.
ID_BLOCK: Final = 1 << 16
#: A segment ends when less than this part of it is left.
SLACK: Final = 16


class Segments:
    """Writes records into entries and entries into segments; counts what it writes into the books."""

    def __init__(self, directory: Path, books: Books, now: int) -> None:
        self.books = books
        self.now = now
        self._directory = directory
        self._broker_id = bytes.fromhex(books.broker_id)
        self._definitions: dict[int, bytes] = {}
        self._mentioned: set[int] = set()
        self._ends: dict[int, int] = {}
        self._next_id = 1
        self._id_limit = ID_BLOCK
        self._used = 0
        self._parts: list[bytes] = []
        self._count = 0
        self._nbytes = 0
        self._entries: list[Entry] = []
        books.first_time = now
        self._begin()

    # -- segments --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        books = self.books
        if books.segments:
            self._ends[books.segments] = books.next_position
        books.segments += 1
        header = encode_header(
            number=books.segments, broker_id=self._broker_id, created=self.now, first_position=books.next_position
        )
        self._seed = decode_header(header).crc
        self._file = (self._directory / name(books.segments)).open("wb")
        self._file.write(header)
        self._used = SEGMENT_HEADER_BYTES
        self._mentioned.clear()
        opened = record.opened(self._id_limit, self._ends, {"version": "bench"})
        self._write(opened, RecordType.OPENED)

    def _end(self) -> None:
        self._flush()
        self._file.close()
        self.books.bytes += self._used

    def _flush(self) -> None:
        if self._entries:
            self._file.write(pack_entries(self._entries, self._seed, self._entries[0].first))
            self._entries.clear()

    def seal(self) -> None:
        """End the open entry."""
        books = self.books
        if not self._parts:
            return
        entry = Entry(
            segment=books.segments,
            ticket=0,
            first=books.next_position,
            count=self._count,
            timestamp=self.now,
            nbytes=self._nbytes,
            parts=self._parts,
        )
        self._entries.append(entry)
        self._used += entry_length(self._nbytes)
        books.next_position += self._count
        books.records += self._count
        books.last_time = self.now
        self._parts = []
        self._count = self._nbytes = 0
        if len(self._entries) >= BATCH:
            self._flush()

    def close(self) -> None:
        """Write CLOSED and the books."""
        self.seal()
        self._add(record.closed(), RecordType.CLOSED)
        self.seal()
        self._end()
        self.books.save(self._directory)

    # -- records ---------------------------------------------------------------------------------------------------

    @property
    def entry_bytes(self) -> int:
        """Bytes in the open entry."""
        return self._nbytes

    def ids(self, n: int) -> int:
        """The first of `n` new ids."""
        first = self._next_id
        self._next_id += n
        if self._next_id > self._id_limit - ID_BLOCK // 2:
            self._id_limit = self._next_id + ID_BLOCK
            self._add(record.ids(self._id_limit), RecordType.IDS)
        return first

    def _open(self) -> None:
        """Records come next: into the open entry, or a new one, perhaps in a new segment."""
        segment_bytes = self.books.segment_bytes
        if not self._parts and segment_bytes - self._used < segment_bytes // SLACK:
            self._end()
            self._begin()

    def _add(self, data: bytes, type: RecordType) -> None:
        self._open()
        self._write(data, type)

    def _write(self, data: bytes, type: RecordType) -> None:
        self._parts.append(data)
        self._count += 1
        self._nbytes += len(data)
        self.books.types[type.name] += 1

    def define(self, id: int, data: bytes, type: RecordType) -> None:
        """A definition, repeated in every segment that mentions it."""
        self._add(data, type)
        self._definitions[id] = data
        self._mentioned.add(id)

    def ensure_defined(self, id: int) -> None:
        """A record that refers to this queue comes next."""
        self._open()
        if id not in self._mentioned:
            self.define(id, record.repeated(self._definitions[id]), RecordType.QUEUE)

    def add(self, queue: int, data: bytes, type: RecordType) -> None:
        """A record about a queue."""
        self.ensure_defined(queue)
        self._add(data, type)

    def add_dropped(self, data: bytes) -> None:
        """A DROPPED record."""
        self._add(data, RecordType.DROPPED)

    def add_messages(self, queues: Sequence[int], header: bytes, messages: Sequence[StoredMessage]) -> None:
        """A run of messages."""
        for queue in queues:
            self.ensure_defined(queue)
        self._nbytes += record.encode_messages(self._parts, header, 0, messages)
        self._count += len(messages)
        self.books.messages += len(messages)
        self.books.types[RecordType.MESSAGE.name] += len(messages)
