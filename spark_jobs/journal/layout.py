"""Where the fields of a record are: the store's own definition of the format, as numpy reads it.

Every record type has a fixed part, whose Struct is in store.record, and behind it pieces whose sizes the fixed part
tells.  `Records` reads many records of one type at once: it copies their fixed parts side by side, for each record a
single access to the segment, and takes the fields from there.  It reads wherever the lengths point, so it is for
records that `misfits` has found sound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from store import record
from store.record import LARGE_VERSION, RecordType

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.void]

_CODES: Final = {"B": "<u1", "H": "<u2", "I": "<u4", "Q": "<i8", "q": "<i8"}  # ids as signed: see schema


def _layout(names: str, *structs: Struct) -> np.dtype[np.void]:
    """Structs one behind the other as a numpy type with these field names."""
    formats: list[str] = []
    offsets: list[int] = []
    at = 0
    for struct in structs:
        for times, code in re.findall(r"(\d*)([a-zA-Z])", struct.format):
            if code == "x":
                at += int(times or 1)
                continue
            for _ in range(int(times or 1)):
                formats.append(_CODES[code])
                offsets.append(at)
                at += np.dtype(_CODES[code]).itemsize
    assert at == sum(struct.size for struct in structs), "a struct's fields add up to its size"
    return np.dtype({"names": names.split(), "formats": formats, "offsets": offsets, "itemsize": at})


_HEAD: Final = "length type version flags "
_FACTS: Final = (
    "timestamp expiration scheduled priority format source address_bytes user_bytes origin_bytes n annotations_bytes"
)
_DEFINITION: Final = _layout(_HEAD + "id", record.DEFINITION_FIXED)
_PACKETS: Final = _layout(_HEAD + "session_id n sent", record.PACKETS_FIXED)

#: What every record begins with.
HEAD: Final = _layout(_HEAD, record.HEAD)

#: What stands in the place of a body that is in a file (store/body.py).
REFERENCE: Final = np.dtype({"names": ["id", "nbytes", "crc"], "formats": ["<u8", "<u8", "<u4"], "itemsize": 24})

#: The fixed part of each record type.
FIXED: Final[dict[int, np.dtype[np.void]]] = {
    RecordType.MESSAGE: _layout(_HEAD + "id head_bytes body_bytes " + _FACTS, record.MESSAGE_FIXED, record.FACTS_FIXED),
    RecordType.COPIED: _layout(
        _HEAD + "id head_bytes body_bytes previous " + _FACTS, record.COPIED_FIXED, record.FACTS_FIXED
    ),
    RecordType.REMOVED: _layout(_HEAD + "queue_id reason n", record.REMOVED_FIXED),
    RecordType.COUNTS: _layout(_HEAD + "queue_id count n", record.COUNTS_FIXED),
    RecordType.DELIVERING: _layout(_HEAD + "queue_id consumer_id n", record.DELIVERING_FIXED),
    RecordType.SCHEDULED: _layout(_HEAD + "queue_id due n", record.SCHEDULED_FIXED),
    RecordType.DEAD_LETTERED: _layout(
        _HEAD + "queue_id old_id new_id enqueued first_failure attempts reason address_bytes text_bytes client_bytes"
        " remote_bytes user_bytes",
        record.DEAD_LETTERED_FIXED,
    ),
    RecordType.EXPIRED: _layout(
        _HEAD + "queue_id old_id new_id enqueued expiration attempts source consumers address_bytes",
        record.EXPIRED_FIXED,
    ),
    RecordType.DROPPED: _layout(_HEAD + "reason count size address_bytes", record.DROPPED_FIXED),
    RecordType.ADDRESS: _DEFINITION,
    RecordType.ADDRESS_DELETED: _DEFINITION,
    RecordType.QUEUE: _DEFINITION,
    RecordType.QUEUE_DELETED: _DEFINITION,
    RecordType.DIVERT: _DEFINITION,
    RecordType.DIVERT_DELETED: _DEFINITION,
    RecordType.OPENED: _layout(_HEAD + "next_id n json_bytes", record.OPENED_FIXED),
    RecordType.CLOSED: HEAD,
    RecordType.LOST: HEAD,
    RecordType.IDS: _layout(_HEAD + "next_id", record.IDS_FIXED),
    RecordType.TRIMMED: _layout(_HEAD + "n", record.TRIMMED_FIXED),
    RecordType.DUPLICATE_ID: _layout(_HEAD + "address_id message_id duplicate_id_bytes", record.DUPLICATE_ID_FIXED),
    RecordType.SESSION: _DEFINITION,
    RecordType.SESSION_DELETED: _DEFINITION,
    RecordType.SESSION_PART: _DEFINITION,
    RecordType.SESSION_PART_DELETED: _DEFINITION,
    RecordType.INFLIGHT: _layout(_HEAD + "session_id queue_id n", record.INFLIGHT_FIXED),
    RecordType.RELEASED: _PACKETS,
    RecordType.RECEIVED: _PACKETS,
    RecordType.COMPLETED: _PACKETS,
}

#: A piece of the variable part: its name, the field that counts it ("": it goes to the end), bytes of each.
Piece = tuple[str, str, int]


def _strings(*names: str) -> tuple[Piece, ...]:
    return tuple((name, f"{name}_bytes", 1) for name in names)


_IDS: Final[tuple[Piece, ...]] = (("ids", "n", 8),)
_JSON: Final[tuple[Piece, ...]] = (("json", "", 1),)
_PACKET_IDS: Final[tuple[Piece, ...]] = (("packet_ids", "n", 2),)
_OF_MESSAGE: Final = (*_IDS, *_strings("address", "user", "origin", "annotations", "head", "body"))

#: The variable part of each record type.
PIECES: Final[dict[int, tuple[Piece, ...]]] = {
    RecordType.MESSAGE: _OF_MESSAGE,
    RecordType.COPIED: _OF_MESSAGE,
    RecordType.REMOVED: _IDS,
    RecordType.COUNTS: _IDS,
    RecordType.DELIVERING: _IDS,
    RecordType.SCHEDULED: _IDS,
    RecordType.DEAD_LETTERED: _strings("address", "text", "client", "remote", "user"),
    RecordType.EXPIRED: _strings("address"),
    RecordType.DROPPED: _strings("address"),
    RecordType.ADDRESS: _JSON,
    RecordType.ADDRESS_DELETED: _JSON,
    RecordType.QUEUE: _JSON,
    RecordType.QUEUE_DELETED: _JSON,
    RecordType.DIVERT: _JSON,
    RecordType.DIVERT_DELETED: _JSON,
    RecordType.OPENED: (*_IDS, *_strings("json")),
    RecordType.CLOSED: (),
    RecordType.LOST: (),
    RecordType.IDS: (),
    RecordType.TRIMMED: _IDS,
    RecordType.DUPLICATE_ID: _strings("duplicate_id"),
    RecordType.SESSION: _JSON,
    RecordType.SESSION_DELETED: _JSON,
    RecordType.SESSION_PART: _JSON,
    RecordType.SESSION_PART_DELETED: _JSON,
    RecordType.INFLIGHT: (*_IDS, *_PACKET_IDS),
    RecordType.RELEASED: _PACKET_IDS,
    RecordType.RECEIVED: _PACKET_IDS,
    RecordType.COMPLETED: _PACKET_IDS,
}

#: The types that speak about several messages on one queue.
PLURAL: Final = (
    RecordType.REMOVED,
    RecordType.COUNTS,
    RecordType.DELIVERING,
    RecordType.SCHEDULED,
    RecordType.INFLIGHT,
)

#: The types that speak about packet ids of a session.
PACKETS: Final = (RecordType.INFLIGHT, RecordType.RELEASED, RecordType.RECEIVED, RecordType.COMPLETED)

#: The types of which a record is as many rows as its field `n` says.
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
        """What lies at these bytes, side by side."""
        size = layout.itemsize
        # As void: numpy copies those whole, records with fields one field at a time.
        everywhere: Rows = np.ndarray((max(len(self.data) - size + 1, 0),), f"V{size}", self.data, 0, (1,))
        return everywhere[offsets].view(layout)

    def lengths(self, offsets: Int64s) -> npt.NDArray[np.uint32]:
        """The lengths of the records at these bytes."""
        return self._lengths[offsets]

    def integers(self, offsets: Int64s) -> Int64s:
        """The 64-bit numbers at these bytes."""
        return self._integers[offsets].astype(np.int64, copy=False)

    def shorts(self, offsets: Int64s) -> Int64s:
        """The 16-bit numbers at these bytes."""
        return self._shorts[offsets].astype(np.int64)


class Records:
    """Records of one type in a segment, at `offsets`; a field is gathered once."""

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
        """A field of the fixed part, one a record."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._rows[name].astype(np.int64)
        return found

    def span(self, name: str) -> tuple[Int64s, Int64s]:
        """Where a piece of the variable part begins, and its bytes, one a record."""
        at = self.offsets + FIXED[self.type].itemsize
        for piece, counted, size in PIECES[self.type]:
            nbytes = self.field(counted) * size if counted else self.offsets + self.field("length") - at
            if piece == name:
                return at, nbytes
            at = at + nbytes
        raise AssertionError(f"{name} is no piece of record type {self.type}")

    def ids(self) -> Int64s:
        """The ids of all records, one behind the other: field `n` of each."""
        return self._source.integers(self._each("ids", 8))

    def packet_ids(self) -> Int64s:
        """The packet ids of all records, one behind the other: field `n` of each."""
        return self._source.shorts(self._each("packet_ids", 2))

    def _each(self, piece: str, size: int) -> Int64s:
        """Where each element of a piece is, of all records."""
        at, _ = self.span(piece)
        n = self.field("n")
        if not (n == 1).all():
            at = np.repeat(at, n) + size * ramps(n)
        return at

    def misfits(self) -> Bools:
        """Which records do not have the length that their own fields tell.  Reads the fixed part only."""
        expected = np.full(len(self), FIXED[self.type].itemsize, np.int64)
        for _, counted, size in PIECES[self.type]:
            if not counted:
                return np.zeros(len(self), np.bool_)
            expected += self.field(counted) * size
        differ: Bools = self.field("length") != expected
        if PIECES[self.type] is _OF_MESSAGE:
            differ |= (self.field("version") == LARGE_VERSION) & (self.field("body_bytes") != REFERENCE.itemsize)
        return differ


def ramps(counts: Int64s) -> Int64s:
    """0, 1 ... count - 1 for each count, one behind the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)


def groups(types: Bytes) -> Iterator[tuple[int, Int64s]]:
    """Each known record type that occurs, with the indices at which it does."""
    for type in FIXED:
        indices = np.flatnonzero(types == type)
        if len(indices):
            yield type, indices


def misfits(source: Source, offsets: Int64s, types: Bytes, lengths: Int64s) -> Bools:
    """Which records contradict themselves: lengths inside that do not add up.  All types must be known ones."""
    wrong = np.zeros(len(offsets), np.bool_)
    for type, indices in groups(types):
        short = lengths[indices] < FIXED[type].itemsize
        wrong[indices[short]] = True
        indices = indices[~short]
        wrong[indices] = Records(source, type, offsets[indices]).misfits()
    return wrong
