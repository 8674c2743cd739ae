"""Encodes values (part 1), always in the shortest form.

A value's type follows from its Python type (see `types`); `ENCODERS` has a function for each type by its name, for
fields whose type their composite knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import Any, Final

from protocols.amqp.types import NAMES, Array, Described, Pairs

Encoder = Callable[[Any], bytes]

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
_UINT_0: Final = b"\x43"
_ULONG_0: Final = b"\x44"
LIST_0: Final = b"\x45"

_U8: Final = Struct(">B").pack
_U16: Final = Struct(">H").pack
_U32: Final = Struct(">I").pack
_U64: Final = Struct(">Q").pack
_I8: Final = Struct(">b").pack
_I16: Final = Struct(">h").pack
_I32: Final = Struct(">i").pack
_I64: Final = Struct(">q").pack
_F32: Final = Struct(">f").pack
_F64: Final = Struct(">d").pack
_CODE_U8: Final = Struct(">BB").pack
_CODE_I8: Final = Struct(">Bb").pack
_CODE_U32: Final = Struct(">BI").pack
_CODE_U64: Final = Struct(">BQ").pack
_CODE_SIZE_COUNT_8: Final = Struct(">BBB").pack
_CODE_SIZE_COUNT_32: Final = Struct(">BII").pack

_BYTE_MAX: Final = 0xFF
_SMALL_SIGNED: Final = range(-128, 128)


def _uint(value: int) -> bytes:
    if 0 < value <= _BYTE_MAX:
        return _CODE_U8(0x52, value)
    return _CODE_U32(0x70, value) if value else _UINT_0


def _ulong(value: int) -> bytes:
    if 0 < value <= _BYTE_MAX:
        return _CODE_U8(0x53, value)
    return _CODE_U64(0x80, value) if value else _ULONG_0


def _int(value: int) -> bytes:
    return _CODE_I8(0x54, value) if value in _SMALL_SIGNED else b"\x71" + _I32(value)


def _long(value: int) -> bytes:
    return _CODE_I8(0x55, value) if value in _SMALL_SIGNED else b"\x81" + _I64(value)


def _sized(code: int, raw: bytes) -> bytes:
    """Data of variable width: `code` is the format code for a size of one byte."""
    if len(raw) <= _BYTE_MAX:
        return _CODE_U8(code, len(raw)) + raw
    return _CODE_U32(code + 0x10, len(raw)) + raw


def _compound(code: int, count: int, raw: bytes) -> bytes:
    """A list or map: `code` is the format code for size and count of one byte."""
    if len(raw) < _BYTE_MAX and count <= _BYTE_MAX:
        return _CODE_SIZE_COUNT_8(code, len(raw) + 1, count) + raw
    return _CODE_SIZE_COUNT_32(code + 0x10, len(raw) + 4, count) + raw


def encode_list(parts: list[bytes]) -> bytes:
    """A list of values that are already encoded."""
    return _compound(0xC0, len(parts), b"".join(parts)) if parts else LIST_0


def _map(pairs: Iterable[tuple[object, object]]) -> bytes:
    parts = [encode(value) for pair in pairs for value in pair]
    return _compound(0xC1, len(parts), b"".join(parts))


def _utf8(value: str) -> bytes:
    return _sized(0xA1, value.encode())


def _described(value: Described) -> bytes:
    return b"\x00" + encode(value.descriptor) + encode(value.value)


# -- arrays ------------------------------------------------------------------------------------------------------------

#: Type name to the format code of its full width and the function that writes the data, without a constructor.
_FULL_WIDTH: Final[dict[str, tuple[int, Encoder]]] = {
    "boolean": (0x56, _U8),
    "ubyte": (0x50, _U8),
    "ushort": (0x60, _U16),
    "uint": (0x70, _U32),
    "ulong": (0x80, _U64),
    "byte": (0x51, _I8),
    "short": (0x61, _I16),
    "int": (0x71, _I32),
    "long": (0x81, _I64),
    "float": (0x72, _F32),
    "double": (0x82, _F64),
    "char": (0x73, lambda value: _U32(ord(value))),
    "timestamp": (0x83, _I64),
    "decimal32": (0x74, lambda value: value.raw),
    "decimal64": (0x84, lambda value: value.raw),
    "decimal128": (0x94, lambda value: value.raw),
    "uuid": (0x98, lambda value: value.bytes),
}

#: Type name to the values that fit into one byte, the format code for that, and the function that writes the byte.
_SMALL: Final[dict[str, tuple[range, int, Encoder]]] = {
    "uint": (range(256), 0x52, _U8),
    "ulong": (range(256), 0x53, _U8),
    "int": (_SMALL_SIGNED, 0x54, _I8),
    "long": (_SMALL_SIGNED, 0x55, _I8),
}

#: Type name to its format code with sizes (and counts) of one byte.
_SIZED: Final[dict[str, int]] = {
    "binary": 0xA0,
    "string": 0xA1,
    "symbol": 0xA3,
    "list": 0xC0,
    "map": 0xC1,
    "array": 0xE0,
}


def _elements(array: Array) -> tuple[int, bytes]:
    """The shortest format code that suits all elements, and their data."""
    name, items = array.type, array.items
    if name == "null":
        return 0x40, b""
    if name in _SIZED:
        return _sized_elements(name, items)
    if name in _SMALL:
        values, code, write = _SMALL[name]
        if all(item in values for item in items):
            return code, b"".join([write(item) for item in items])
    if name not in _FULL_WIDTH:
        raise ValueError(f"'{name}' is no type of AMQP")
    code, write = _FULL_WIDTH[name]
    return code, b"".join([write(item) for item in items])


def _sized_elements(name: str, items: Iterable[object]) -> tuple[int, bytes]:
    small = _SIZED[name]
    whole = [ENCODERS[name](item) for item in items]
    if whole and all(raw == LIST_0 for raw in whole):
        return 0x45, b""
    if all(raw[0] in (small, LIST_0[0]) for raw in whole):
        return small, b"".join([b"\x01\x00" if raw == LIST_0 else raw[1:] for raw in whole])
    return small + 0x10, b"".join([_wide(small, raw) for raw in whole])


def _wide(small: int, raw: bytes) -> bytes:
    """The data of an encoded value with sizes of four bytes."""
    if raw == LIST_0:
        return _U32(4) + _U32(0)
    if raw[0] != small:
        return raw[1:]
    if small in (0xA0, 0xA1, 0xA3):
        return _U32(raw[1]) + raw[2:]
    return _U32(raw[1] + 3) + _U32(raw[2]) + raw[3:]


def _array(value: Array) -> bytes:
    code, data = _elements(value)
    descriptors = b"".join([b"\x00" + encode(descriptor) for descriptor in value.descriptors])
    return _compound(0xE0, len(value.items), descriptors + _U8(code) + data)


# -- any value ---------------------------------------------------------------------------------------------------------


def _coded(code: int, write: Encoder) -> Encoder:
    constructor = bytes([code])
    return lambda value: constructor + write(value)


#: The encoder of each type.
ENCODERS: Final[dict[str, Encoder]] = {
    **{name: _coded(code, write) for name, (code, write) in _FULL_WIDTH.items()},
    "null": lambda value: NULL,
    "boolean": lambda value: TRUE if value else FALSE,
    "ubyte": lambda value: _CODE_U8(0x50, value),
    "uint": _uint,
    "ulong": _ulong,
    "int": _int,
    "long": _long,
    "binary": lambda value: _sized(0xA0, value),
    "string": _utf8,
    "symbol": lambda value: _sized(0xA3, value.encode("ascii")),
    "list": lambda value: encode_list([encode(item) for item in value]),
    "map": lambda value: _map(value.pairs if type(value) is Pairs else value.items()),
    "array": _array,
}

_TYPES: Final[dict[type, Encoder]] = {
    **{kind: ENCODERS[name] for kind, name in NAMES.items()},
    Described: _described,
}


def add_type(kind: type, encoder: Encoder) -> None:
    """Register the encoder for values of a class, wherever they occur."""
    _TYPES[kind] = encoder


def encode(value: object) -> bytes:
    """A value of one of the types in `types`.

    Raises TypeError for any other type, ValueError for a number that its type cannot hold.
    """
    encoder = _TYPES.get(type(value))
    if encoder is None:
        raise TypeError(f"{type(value).__name__} is no type of AMQP")
    try:
        return encoder(value)
    except error as wrong:
        raise ValueError(f"{type(value).__name__}({value!r}) is out of range: {wrong}") from None
