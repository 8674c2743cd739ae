"""Decodes values (part 1), strictly: anything that is not a valid encoding is refused, with its offset and the reason.

A value is a constructor and data.  The constructor is a format code, or 0x00, a descriptor (any value) and another
constructor.  The upper half of a format code tells the length of the data, so that values can be skipped without being
decoded:

    4x 5x 6x 7x 8x 9x   0 1 2 4 8 16 bytes
    Ax Bx               a size of 1 or 4 bytes, then as many bytes
    Cx Dx               size, count (within the size), then as many values with their constructors
    Ex Fx               size, count, one constructor, then the data of as many values

No memory is allocated merely because of a peer's number: a size must fit into the available bytes, a count into the
size; where elements of an array have no data, only `values_max` bounds their count.  Nesting is limited by `depth_max`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final
from uuid import UUID

from protocols.amqp.errors import DecodeError, TooMany, Truncated
from protocols.amqp.limits import Limits
from protocols.amqp.types import (
    COMPOUND,
    DESCRIBED,
    FIXED,
    VARIABLE,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    identity,
)

DEFAULT_LIMITS: Final = Limits()

_U16: Final = Struct(">H").unpack_from
_I16: Final = Struct(">h").unpack_from
_U32: Final = Struct(">I").unpack_from
_I32: Final = Struct(">i").unpack_from
_U64: Final = Struct(">Q").unpack_from
_I64: Final = Struct(">q").unpack_from
_F32: Final = Struct(">f").unpack_from
_F64: Final = Struct(">d").unpack_from

#: The most pairs of a map with UUIDs as keys that is still read as a dict.
_UUID_KEYS_MAX: Final = 64

_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


#: The values of one byte, made once.
_UBYTES: Final = [UByte(number) for number in range(256)]
_UINTS: Final = [UInt(number) for number in range(256)]
_ULONGS: Final = [ULong(number) for number in range(256)]


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _boolean(buffer: bytes, at: int) -> bool:
    if buffer[at] > 1:
        raise DecodeError(at, f"a boolean is 0 or 1, not {buffer[at]}")
    return buffer[at] == 1


def _char(buffer: bytes, at: int) -> Char:
    number: int = _U32(buffer, at)[0]
    if number > _LAST_CHARACTER or number in _SURROGATES:
        raise DecodeError(at, f"0x{number:X} is no Unicode character")
    return Char(chr(number))


def _string(buffer: bytes, at: int, end: int) -> str:
    try:
        return str(buffer[at:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(at + error.start, "a string that is not UTF-8") from None


def _symbol(buffer: bytes, at: int, end: int) -> Symbol:
    try:
        return Symbol(buffer[at:end], "ascii")
    except UnicodeDecodeError as error:
        raise DecodeError(at + error.start, "a symbol that is not ASCII") from None


def _binary(buffer: bytes, at: int, end: int) -> bytes:
    return buffer[at:end]


#: The functions that read the data of each format code of fixed width.
_READERS: Final[dict[int, Callable[[bytes, int], object]]] = {
    0x40: lambda buffer, at: None,
    0x41: lambda buffer, at: True,
    0x42: lambda buffer, at: False,
    0x43: lambda buffer, at: _UINTS[0],
    0x44: lambda buffer, at: _ULONGS[0],
    0x45: lambda buffer, at: [],
    0x50: lambda buffer, at: _UBYTES[buffer[at]],
    0x51: lambda buffer, at: Byte(_signed(buffer[at])),
    0x52: lambda buffer, at: _UINTS[buffer[at]],
    0x53: lambda buffer, at: _ULONGS[buffer[at]],
    0x54: lambda buffer, at: Int(_signed(buffer[at])),
    0x55: lambda buffer, at: _signed(buffer[at]),
    0x56: _boolean,
    0x60: lambda buffer, at: UShort(_U16(buffer, at)[0]),
    0x61: lambda buffer, at: Short(_I16(buffer, at)[0]),
    0x70: lambda buffer, at: UInt(_U32(buffer, at)[0]),
    0x71: lambda buffer, at: Int(_I32(buffer, at)[0]),
    0x72: lambda buffer, at: Float(_F32(buffer, at)[0]),
    0x73: _char,
    0x74: lambda buffer, at: Decimal32(buffer[at : at + 4]),
    0x80: lambda buffer, at: ULong(_U64(buffer, at)[0]),
    0x81: lambda buffer, at: _I64(buffer, at)[0],
    0x82: lambda buffer, at: _F64(buffer, at)[0],
    0x83: lambda buffer, at: Timestamp(_I64(buffer, at)[0]),
    0x84: lambda buffer, at: Decimal64(buffer[at : at + 8]),
    0x94: lambda buffer, at: Decimal128(buffer[at : at + 16]),
    0x98: lambda buffer, at: UUID(bytes=buffer[at : at + 16]),
}

#: The functions that read the data of each type of variable width, from their first byte to their end.
_READERS_TO: Final[dict[str, Callable[[bytes, int, int], object]]] = {
    "binary": _binary,
    "string": _string,
    "symbol": _symbol,
}

#: By format code: the width of the data, or of the size before them, and the function that reads them.
_FIXED_READERS: Final = {code: (width, _READERS[code]) for code, (_, width) in FIXED.items()}
_VARIABLE_READERS: Final = {code: (width, _READERS_TO[name]) for code, (name, width) in VARIABLE.items()}

_COUNT_WIDTHS: Final = {code: width for code, (_, width) in COMPOUND.items()}
#: The least bytes of data of each format code.
_LEAST: Final = {code: width for code, (_, width) in (FIXED | VARIABLE).items()} | {
    code: 2 * width for code, width in _COUNT_WIDTHS.items()
}
_NAMES: Final = {code: name for code, (name, _) in (FIXED | VARIABLE | COMPOUND).items()}

#: Bytes of the data of any format code, even an unknown one, by its upper half.
_CATEGORY_WIDTHS: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_CATEGORY_SIZE_WIDTHS: Final = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}


class Decoder:
    """Reads values from `at`, none beyond `end`.  Every method raises DecodeError."""

    __slots__ = ("_buffer", "_depth_left", "_end", "_values_left", "at")

    def __init__(self, buffer: bytes, at: int = 0, end: int = -1, limits: Limits = DEFAULT_LIMITS) -> None:
        self.at = at
        self._buffer = buffer
        self._end = len(buffer) if end < 0 else end
        self._depth_left = limits.depth_max
        self._values_left = limits.values_max

    def value(self) -> object:
        """The next value."""
        self._values_left -= 1
        if self._values_left < 0:
            raise self._too_many()
        at = self.at
        if at >= self._end:
            raise Truncated(at, "the end, where a value should begin")
        code = self._buffer[at]
        self.at = at + 1
        return self._data(code) if code else self._described()

    def _data(self, code: int) -> object:
        """The data after a constructor."""
        at = self.at
        fixed = _FIXED_READERS.get(code)
        if fixed is not None:
            width, read = fixed
            if at + width > self._end:
                raise self._too_short(at, width)
            self.at = at + width
            return read(self._buffer, at)
        variable = _VARIABLE_READERS.get(code)
        if variable is not None:
            width, read_to = variable
            at, end = self._sized(width)
            self.at = end
            return read_to(self._buffer, at, end)
        width = _COUNT_WIDTHS.get(code, 0)
        if not width:
            raise DecodeError(at - 1, f"0x{code:02X} is no format code")
        return self._compound(_NAMES[code], width)

    def _byte(self, what: str) -> int:
        at = self.at
        if at >= self._end:
            raise Truncated(at, f"the end, where {what} should begin")
        self.at = at + 1
        return self._buffer[at]

    def _fits(self, at: int, nbytes: int) -> int:
        """The end of `nbytes` bytes from `at` on, which must be there."""
        if at + nbytes > self._end:
            raise self._too_short(at, nbytes)
        return at + nbytes

    def _too_short(self, at: int, nbytes: int) -> Truncated:
        return Truncated(at, f"{nbytes} bytes are needed, {self._end - at} are there")

    def _too_many(self) -> DecodeError:
        return TooMany(self.at, "too many values in one")

    def _number(self, width: int) -> int:
        at = self.at
        self.at = self._fits(at, width)
        number: int = self._buffer[at] if width == 1 else _U32(self._buffer, at)[0]
        return number

    def _sized(self, width: int) -> tuple[int, int]:
        """The beginning and end of data preceded by their size."""
        size = self._number(width)
        return self.at, self._fits(self.at, size)

    def _deeper(self) -> None:
        self._depth_left -= 1
        if self._depth_left < 0:
            raise DecodeError(self.at, "values are nested too deeply")

    def _described(self) -> Described:
        self._deeper()
        descriptor = self.value()
        value = self.value()
        self._depth_left += 1
        return Described(descriptor, value)

    def _compound(self, name: str, width: int) -> object:
        self._deeper()
        start, end = self._sized(width)
        count = self._number(width) if end - start >= width else -1
        if count < 0:
            raise DecodeError(start, f"{end - start} bytes are too few for a {name}")
        outer, self._end = self._end, end
        try:
            if name == "array":
                found: object = self._array(count)
            elif count > end - self.at:
                raise DecodeError(start, f"{count} values cannot be in {end - self.at} bytes")
            elif name == "list":
                found = [self.value() for _ in range(count)]
            else:
                found = self._map(start, count)
        finally:
            self._end = outer
        if self.at != end:
            raise DecodeError(self.at, f"the {name} ends {end - self.at} bytes before its size says so")
        self._depth_left += 1
        return found

    def _map(self, start: int, count: int) -> object:
        if count % 2:
            raise DecodeError(start, f"a map of {count} values has a key without a value")
        pairs = [(self.value(), self.value()) for _ in range(count // 2)]
        try:
            plain = {} if _may_collide(pairs) else dict(pairs)
        except TypeError:  # a key that cannot be hashed
            plain = {}
        if len(plain) == len(pairs):
            return plain
        if len({identity(key) for key, _ in pairs}) < len(pairs):
            raise DecodeError(start, "a map with the same key twice")
        return Pairs(pairs)

    def _array(self, count: int) -> Array:
        descriptors = []
        code = self._byte("the constructor of an array")
        while code == DESCRIBED:
            self._deeper()
            descriptors.append(self.value())
            code = self._byte("the constructor of an array")
        name = _NAMES.get(code)
        if name is None:
            raise DecodeError(self.at - 1, f"0x{code:02X} is no format code")
        least = _LEAST[code]
        if least and count > (self._end - self.at) // least:
            raise DecodeError(self.at, f"{count} values of {least} bytes cannot be in {self._end - self.at} bytes")
        self._values_left -= count
        if self._values_left < 0:
            raise self._too_many()
        items = [self._data(code) for _ in range(count)]
        self._depth_left += len(descriptors)
        return Array(name, items, tuple(descriptors))

    def skip(self) -> None:
        """Skip the next value without decoding or checking its contents."""
        code = self._byte("a value")
        descriptors = 0
        while code == DESCRIBED:
            descriptors += 1
            if descriptors > self._depth_left:
                raise DecodeError(self.at, "values are nested too deeply")
            self._skip_descriptor()
            code = self._byte("a value")
        self._skip_data(code)

    def _skip_descriptor(self) -> None:
        code = self._byte("a descriptor")
        if code == DESCRIBED:
            raise DecodeError(self.at - 1, "a descriptor that is described itself")
        self._skip_data(code)

    def _skip_data(self, code: int) -> None:
        width = _CATEGORY_WIDTHS.get(code >> 4)
        if width is not None:
            self.at = self._fits(self.at, width)
            return
        width = _CATEGORY_SIZE_WIDTHS.get(code >> 4)
        if width is None:
            raise DecodeError(self.at - 1, f"0x{code:02X} is no format code")
        self.at = self._sized(width)[1]


def _may_collide(pairs: list[tuple[object, object]]) -> bool:
    """Whether a dict of them might take quadratic time: a peer can choose the hash of a UUID, as 2^67 share each."""
    return len(pairs) > _UUID_KEYS_MAX and any(type(key) is UUID for key, _ in pairs)


def decode(raw: bytes, limits: Limits = DEFAULT_LIMITS) -> object:
    """The one value in `raw`.  Raises DecodeError."""
    decoder = Decoder(raw, limits=limits)
    value = decoder.value()
    if decoder.at != len(raw):
        raise DecodeError(decoder.at, f"{len(raw) - decoder.at} bytes after the value")
    return value
