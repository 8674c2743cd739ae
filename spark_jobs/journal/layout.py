"""Where the fields of a record are: the store's own definition of the format, as numpy layouts.

Every record type has a fixed part, followed by pieces whose sizes are in the fixed part (store.record_tables).
`Records` reads many records of one type at once: it copies their fixed parts side by side, with a single access to the
segment per record, and takes the fields from there.  It trusts all lengths, so it must be used only for records that
`misfits` has accepted.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from store.record import LARGE_VERSION, RecordType
from store.record_tables import TABLES, Table

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.void]

_CODES: Final = {"B": "<u1", "H": "<u2", "I": "<u4", "Q": "<i8", "q": "<i8"}  # ids are signed: see schema


def _layout(table: Table) -> np.dtype[np.void]:
    """The fixed part of a record type as a numpy type."""
    formats: list[str] = []
    offsets: list[int] = []
    at = 0
    for times, code in re.findall(r"(\d*)([a-zA-Z])", table.fixed.format):
        size = struct.calcsize(f"<{times}{code}")
        if code != "x":
            formats.append(_CODES[code])
            offsets.append(at)
        at += size
    return np.dtype({"names": table.names, "formats": formats, "offsets": offsets, "itemsize": at})


#: The reference in place of a body that is in a file (store/body.py).
REFERENCE: Final = np.dtype({"names": ["id", "nbytes", "crc"], "formats": ["<u8", "<u8", "<u4"], "itemsize": 24})

#: A duplicate id that another broker assigned to a message (docs/journal-format.md, DUPLICATE_ID).
LINK_ID: Final = np.dtype(
    {
        "names": ["mark", "broker_id", "message_id", "enqueued", "queue_id"],
        "formats": ["S5", "V16", ">i8", ">i8", ">i8"],
        "offsets": [0, 5, 21, 29, 37],
        "itemsize": 53,
    }
)
LINK_MARK: Final = b"link:"

#: The fixed part of each record type.
FIXED: Final[dict[int, np.dtype[np.void]]] = {type: _layout(table) for type, table in TABLES.items()}


def offset_of(type: int, field: str) -> int:
    """The byte offset of a fixed part's field in a record."""
    fields = FIXED[type].fields
    assert fields is not None, "every layout has fields"
    return fields[field][1]


#: The beginning of every record.
HEAD: Final = FIXED[RecordType.CLOSED]

#: A piece of the variable part: its name, the field with its count ("": until the end), and the bytes of each element.
Piece = tuple[str, str, int]

#: The variable part of each record type.
PIECES: Final[dict[int, tuple[Piece, ...]]] = {
    type: tuple((piece.name, piece.counted, piece.size) for piece in table.pieces) for type, table in TABLES.items()
}
_OF_MESSAGE: Final = (RecordType.MESSAGE, RecordType.COPIED)

#: The types that concern several messages on one queue.
PLURAL: Final = (
    RecordType.REMOVED,
    RecordType.COUNTS,
    RecordType.DELIVERING,
    RecordType.SCHEDULED,
    RecordType.INFLIGHT,
)

#: The types that concern packet ids of a session.
PACKETS: Final = (RecordType.INFLIGHT, RecordType.RELEASED, RecordType.RECEIVED, RecordType.COMPLETED)

#: The types whose records become several rows, according to their field `n`.
MANY: Final = tuple(dict.fromkeys((*PLURAL, *PACKETS)))


class Source:
    """A segment's bytes, readable at any byte."""

    __slots__ = ("_integers", "_lengths", "_shorts", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._integers: Int64s = np.ndarray((max(len(data) - 7, 0),), "<i8", data, 0, (1,))
        self._lengths: npt.NDArray[np.uint32] = np.ndarray((max(len(data) - 3, 0),), "<u4", data, 0, (1,))
        self._shorts: npt.NDArray[np.uint16] = np.ndarray((max(len(data) - 1, 0),), "<u2", data, 0, (1,))

    def rows(self, offsets: Int64s, layout: np.dtype[np.void]) -> Rows:
        """Copies of the data at these offsets, side by side."""
        size = layout.itemsize
        # As void: numpy copies these as a whole, but records with fields one field at a time.
        everywhere: Rows = np.ndarray((max(len(self.data) - size + 1, 0),), f"V{size}", self.data, 0, (1,))
        return everywhere[offsets].view(layout)

    def lengths(self, offsets: Int64s) -> npt.NDArray[np.uint32]:
        """The lengths of the records at these offsets."""
        return self._lengths[offsets]

    def integers(self, offsets: Int64s) -> Int64s:
        """The 64-bit numbers at these offsets."""
        return self._integers[offsets].astype(np.int64, copy=False)

    def shorts(self, offsets: Int64s) -> Int64s:
        """The 16-bit numbers at these offsets."""
        return self._shorts[offsets].astype(np.int64)


class Records:
    """Records of one type in a segment, at `offsets`; each field is collected once."""

    __slots__ = ("_found", "_rows", "_source", "offsets", "type")

    def __init__(self, source: Source, type: int, offsets: Int64s) -> None:
        self.type = type
        self.offsets = offsets
        self._source = source
        self._rows = source.rows(offsets, FIXED[type])
        self._found: dict[str, Int64s] = {}

    def __len__(self) -> int:
        return len(self.offsets)

    def field(self, name: str) -> Int64s:
        """A field of the fixed part, one value per record."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._rows[name].astype(np.int64)
        return found

    def span(self, name: str) -> tuple[Int64s, Int64s]:
        """Where a piece of the variable part begins, and its number of bytes, for each record."""
        at = self.offsets + FIXED[self.type].itemsize
        for piece, counted, size in PIECES[self.type]:
            nbytes = self.field(counted) * size if counted else self.offsets + self.field("length") - at
            if piece == name:
                return at, nbytes
            at = at + nbytes
        raise AssertionError(f"record type {self.type} has no piece {name}")

    def ids(self) -> Int64s:
        """The ids of all records, concatenated: field `n` is the number in each."""
        return self._source.integers(self._each("ids", 8))

    def packet_ids(self) -> Int64s:
        """The packet ids of all records, concatenated: field `n` is the number in each."""
        return self._source.shorts(self._each("packet_ids", 2))

    def _each(self, piece: str, size: int) -> Int64s:
        """The offset of each element of a piece, for all records."""
        at, _ = self.span(piece)
        n = self.field("n")
        if not (n == 1).all():
            at = np.repeat(at, n) + size * ramps(n)
        return at

    def misfits(self) -> Bools:
        """Which records have a length that contradicts their own fields.  Reads only the fixed part."""
        expected = np.full(len(self), FIXED[self.type].itemsize, np.int64)
        for _, counted, size in PIECES[self.type]:
            if not counted:
                return np.zeros(len(self), np.bool_)
            expected += self.field(counted) * size
        differ: Bools = self.field("length") != expected
        if self.type in _OF_MESSAGE:
            differ |= (self.field("version") == LARGE_VERSION) & (self.field("body_bytes") != REFERENCE.itemsize)
        return differ


def ramps(counts: Int64s) -> Int64s:
    """The numbers 0, 1 ... count - 1 for each count, concatenated."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)


def groups(types: Bytes) -> Iterator[tuple[int, Int64s]]:
    """Each known record type that occurs, with its indices."""
    for type in FIXED:
        indices = np.flatnonzero(types == type)
        if len(indices):
            yield type, indices


def misfits(source: Source, offsets: Int64s, types: Bytes, lengths: Int64s) -> Bools:
    """Which records have contradictory lengths.  All types must be known."""
    wrong = np.zeros(len(offsets), np.bool_)
    for type, indices in groups(types):
        short = lengths[indices] < FIXED[type].itemsize
        wrong[indices[short]] = True
        indices = indices[~short]
        wrong[indices] = Records(source, type, offsets[indices]).misfits()
    return wrong
