"""The fields of each record type: a table for each type, one loop that writes records and one that reads them.

A table lists its record's fixed fields in order, `name:code` with struct's codes (`3x`: three reserved bytes), and the
pieces behind them.  A fixed field has the number of elements of a piece: `n` for numbers, `NAME_bytes` for all others;
a JSON object without such a field extends to the end of the record.

Encoding takes, and decoding returns, the fixed fields and the pieces in order, without the counting fields.  Only
MESSAGE and COPIED are written and read by hand, for speed (`record`, `decode`).
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from struct import Struct
from typing import Any, Final

from store.record_types import DEFINING, DELETING, RecordType

VERSION: Final = 1

#: The longest string with a 16-bit length field, in bytes of UTF-8.
STRING_BYTES_MAX: Final = 0xFFFF

BIG_ENDIAN: Final = sys.byteorder == "big"

#: Up to so many numbers are packed together with the fields before them; for more, an array is faster.
TOGETHER_MAX: Final = 128

Json = dict[str, object]

_HEAD: Final = "length:I type:B version:B flags:H "


class RecordError(ValueError):
    """A record's bytes are inconsistent, or a field does not fit into its record."""


# -- pieces ------------------------------------------------------------------------------------------------------------

_TOGETHER: Final = {code: [Struct(f"<{n}{code}") for n in range(TOGETHER_MAX + 1)] for code in "QH"}
_ENCODE_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def pack_numbers(code: str, numbers: Sequence[int]) -> bytes:
    """Pack numbers of 64 bits ("Q") or 16 ("H"), one behind the other."""
    if len(numbers) <= TOGETHER_MAX:
        return _TOGETHER[code][len(numbers)].pack(*numbers)
    return pack_array(code, numbers)


def pack_array(code: str, numbers: Sequence[int], *, swapped: bool = BIG_ENDIAN) -> bytes:
    """The same for any count; `swapped`: this machine's arrays have the highest byte first."""
    packed = array(code, numbers)
    if swapped:
        packed.byteswap()
    return packed.tobytes()


def unpack_numbers(code: str, buffer: bytes, offset: int, n: int) -> tuple[int, ...]:
    """The inverse of `pack_numbers`."""
    struct = _TOGETHER[code][n] if n <= TOGETHER_MAX else Struct(f"<{n}{code}")
    return struct.unpack_from(buffer, offset)


def encode_json(value: Json | dict[str, str | int]) -> bytes:
    """A JSON object as the journal writes it: compact, UTF-8, keys in order."""
    return _ENCODE_JSON(value).encode()


def fitting(what: str, data: bytes) -> bytes:
    """The same bytes, checked to fit a 16-bit length field.  Raises RecordError."""
    if len(data) > STRING_BYTES_MAX:
        raise RecordError(f"{what} of {len(data)} bytes exceeds {STRING_BYTES_MAX}")
    return data


def encode_string(what: str, text: str) -> bytes:
    """A string with a 16-bit length field.  Raises RecordError if it is longer than 65,535 bytes."""
    return fitting(what, text.encode())


def _read_string(buffer: bytes, offset: int, n: int) -> str:
    return str(buffer[offset : offset + n], "utf-8")


def _read_bytes(buffer: bytes, offset: int, n: int) -> bytes:
    return buffer[offset : offset + n]


def _read_json(buffer: bytes, offset: int, n: int) -> Any:
    return json.loads(_read_string(buffer, offset, n))


class Piece:
    """A piece of the variable part: elements of `size` bytes, as many as the fixed field `counted` says ("": the rest).

    `code` is struct's code for numbers, "" for other pieces.
    """

    __slots__ = ("code", "counted", "name", "read", "size", "write")

    def __init__(
        self,
        name: str,
        counted: str,
        write: Callable[[Any], bytes],
        read: Callable[[bytes, int, int], Any],
        code: str = "",
    ) -> None:
        self.name = name
        self.counted = counted
        self.write = write
        self.read = read
        self.code = code
        self.size = Struct(f"<{code}").size or 1


def _numbers(name: str, code: str) -> Piece:
    return Piece(name, "n", partial(pack_numbers, code), partial(unpack_numbers, code), code)


def _strings(*names: str) -> list[Piece]:
    return [Piece(name, f"{name}_bytes", partial(encode_string, name), _read_string) for name in names]


def _bytes(*names: str) -> list[Piece]:
    return [Piece(name, f"{name}_bytes", partial(fitting, name.replace("_", " ")), _read_bytes) for name in names]


def _json(counted: str = "") -> Piece:
    return Piece("json", counted, encode_json, _read_json)


# -- tables ------------------------------------------------------------------------------------------------------------


def struct_of(fields: str, *, head: bool = True) -> Struct:
    """The struct of fixed fields, preceded by the eight bytes with which all records begin."""
    return Struct("<" + "".join(field.rpartition(":")[2] for field in f"{_HEAD if head else ''}{fields}".split()))


class Table:
    """A record type's fields.  `fixed` is the struct of the fixed part, `names` its fields from `length` on.

    The counting fields come last, in the order of the pieces.  Decoding `flagged` records returns their flags first.
    """

    __slots__ = ("_counted", "_nbytes", "_pick", "_reads", "fixed", "names", "pieces", "type")

    def __init__(self, type: RecordType, fields: str, *pieces: Piece, flagged: bool = False) -> None:
        self.type = int(type)
        self.fixed = struct_of(fields)
        self.names = [field.partition(":")[0] for field in f"{_HEAD}{fields}".split() if ":" in field]
        self.pieces = pieces
        self._nbytes = self.fixed.size
        counting = {piece.counted for piece in pieces}
        first = 3 if flagged else 4
        self._pick = _picker([at for at, name in enumerate(self.names) if at >= first and name not in counting])
        self._reads = [(p.read, self.names.index(p.counted) if p.counted else 0, p.size) for p in pieces]
        self._counted = counting != {""}

    def encode(self, flags: int, fields: tuple[int, ...], *pieces: Any) -> bytes:
        """The record with these fields and pieces.  Raises RecordError if a piece is too long."""
        if len(pieces) == 1:  # the usual case, and faster than the loop
            data = self.pieces[0].write(pieces[0])
            counts = (len(data),) if self._counted else ()
            return self.fixed.pack(self._nbytes + len(data), self.type, VERSION, flags, *fields, *counts) + data
        values = [*fields]
        parts = [b""]
        length = self._nbytes
        for piece, given in zip(self.pieces, pieces, strict=True):
            data = piece.write(given)
            values.append(len(data) // piece.size)
            parts.append(data)
            length += len(data)
        parts[0] = self.fixed.pack(length, self.type, VERSION, flags, *values)
        return b"".join(parts)

    def decode(self, buffer: bytes, offset: int) -> list[Any]:
        """The fields and the pieces of the record at `offset`.  Raises RecordError."""
        fixed = self.fixed.unpack_from(buffer, offset)
        length: int = fixed[0]
        values: list[Any] = [*self._pick(fixed)]
        at = offset + self._nbytes
        end = offset + length
        for read, counted, size in self._reads:
            n = fixed[counted] if counted else max(end - at, 0)
            start = at
            at += n * size
            if at > end:
                break
            values.append(read(buffer, start, n))
        if at != end:
            raise RecordError(f"{RecordType(fixed[1]).name} record of {length} bytes holds {at - offset}")
        return values


class NumbersTable(Table):
    """A record type whose pieces are all numbers, `n` of each: written as one struct if there are few of them."""

    __slots__ = ("_each", "_n_at", "_together")

    def __init__(self, type: RecordType, fields: str, *pieces: Piece, flagged: bool = False) -> None:
        super().__init__(type, fields, *pieces, flagged=flagged)
        self._n_at = self.names.index("n") - 4
        self._each = sum(piece.size for piece in pieces)
        self._together: dict[int, Callable[..., bytes]] = {}

    def encode(self, flags: int, fields: tuple[int, ...], *pieces: Any) -> bytes:
        first = pieces[0]
        more = pieces[1] if len(pieces) > 1 else ()
        n = len(first)
        at = self._n_at
        if n <= TOGETHER_MAX:
            pack = self._together.get(n)
            if pack is None:
                pack = self._together[n] = self._packer(n)
            return pack(flags, *fields[:at], n, *fields[at:], *first, *more)
        length = self._nbytes + n * self._each
        fixed = self.fixed.pack(length, self.type, VERSION, flags, *fields[:at], n, *fields[at:])
        data = fixed + pack_array(self.pieces[0].code, first)
        return data + pack_array(self.pieces[1].code, more) if more else data

    def _packer(self, n: int) -> Callable[..., bytes]:
        whole = Struct(self.fixed.format + "".join(f"{n}{piece.code}" for piece in self.pieces))
        return partial(whole.pack, whole.size, self.type, VERSION)


def _picker(places: list[int]) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """A function that picks these elements of a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


_IDS: Final = _numbers("ids", "Q")
_PACKET_IDS: Final = _numbers("packet_ids", "H")

_MESSAGE: Final = "id:Q head_bytes:I body_bytes:I "
_COPIED: Final = f"{_MESSAGE} previous:I 4x "
_HEADER: Final = (
    "timestamp:q expiration:q scheduled:q priority:B format:B source:B x"
    " address_bytes:H user_bytes:H origin_bytes:H 2x n:I annotations_bytes:I"
)
_OF_MESSAGE: Final = (_IDS, *_strings("address", "user", "origin"), *_bytes("annotations", "head", "body"))
_DEAD_LETTERED: Final = (
    "queue_id:Q old_id:Q new_id:Q enqueued:q first_failure:q attempts:I reason:B x"
    " address_bytes:H text_bytes:H client_bytes:H remote_bytes:H user_bytes:H"
)
_EXPIRED: Final = (
    "queue_id:Q old_id:Q new_id:Q enqueued:q expiration:q attempts:I source:B x consumers:H address_bytes:H"
)
_PACKETS: Final = "session_id:Q n:I sent:B 3x"

HEAD: Final = struct_of("")
MESSAGE_FIXED: Final = struct_of(_MESSAGE)
COPIED_FIXED: Final = struct_of(_COPIED)
HEADER_FIXED: Final = struct_of(_HEADER, head=False)

_ALL: Final = (
    Table(RecordType.MESSAGE, _MESSAGE + _HEADER, *_OF_MESSAGE),
    Table(RecordType.COPIED, _COPIED + _HEADER, *_OF_MESSAGE),
    NumbersTable(RecordType.REMOVED, "queue_id:Q reason:B 3x n:I", _IDS),
    NumbersTable(RecordType.COUNTS, "queue_id:Q count:I n:I", _IDS, flagged=True),
    NumbersTable(RecordType.DELIVERING, "queue_id:Q consumer_id:Q n:I 4x", _IDS),
    NumbersTable(RecordType.SCHEDULED, "queue_id:Q due:q n:I 4x", _IDS),
    Table(RecordType.DEAD_LETTERED, _DEAD_LETTERED, *_strings("address", "text", "client", "remote", "user")),
    Table(RecordType.EXPIRED, _EXPIRED, *_strings("address")),
    Table(RecordType.DROPPED, "reason:B 3x count:I size:Q address_bytes:H", *_strings("address")),
    *[Table(type, "id:Q", _json(), flagged=True) for type in (*DEFINING, *DELETING)],
    Table(RecordType.OPENED, "next_id:Q n:I json_bytes:I", _IDS, _json("json_bytes")),
    Table(RecordType.CLOSED, ""),
    Table(RecordType.LOST, ""),
    Table(RecordType.IDS, "next_id:Q"),
    NumbersTable(RecordType.TRIMMED, "n:I 4x", _IDS),
    Table(RecordType.DUPLICATE_ID, "address_id:Q message_id:Q duplicate_id_bytes:H 6x", *_bytes("duplicate_id")),
    NumbersTable(RecordType.INFLIGHT, "session_id:Q queue_id:Q n:I 4x", _IDS, _PACKET_IDS),
    NumbersTable(RecordType.RELEASED, _PACKETS, _PACKET_IDS),
    NumbersTable(RecordType.RECEIVED, _PACKETS, _PACKET_IDS),
    NumbersTable(RecordType.COMPLETED, _PACKETS, _PACKET_IDS),
)

TABLES: Final[dict[int, Table]] = {table.type: table for table in _ALL}
