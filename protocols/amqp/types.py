"""AMQP's types as Python values (part 1), so that a decoded value is encoded again with the same type.

    null None          ubyte UByte    float Float       string str       list  list
    boolean bool       ushort UShort  double float      binary bytes     map   dict, or Pairs
    long int           uint UInt      decimal* Decimal* symbol Symbol    array Array
    timestamp Timestamp  ulong ULong  char Char         uuid UUID        described Described
    byte Byte  short Short  int Int

The integers, Float, Char, Symbol and Timestamp behave like plain values with a type: `UInt(5) == 5`, and a map with
symbols as keys is looked up by strings.  The only drawback: two keys that are equal in Python but not in AMQP (symbol
`a` and string `a`) cannot be in one dict, so a map with such keys is read as Pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final
from uuid import UUID


class UByte(int):
    """0 to 255."""

    __slots__ = ()


class UShort(int):
    """0 to 65,535."""

    __slots__ = ()


class UInt(int):
    """0 to 2^32 - 1."""

    __slots__ = ()


class ULong(int):
    """0 to 2^64 - 1."""

    __slots__ = ()


class Byte(int):
    """-128 to 127."""

    __slots__ = ()


class Short(int):
    """-32,768 to 32,767."""

    __slots__ = ()


class Int(int):
    """-2^31 to 2^31 - 1.  A plain int is a long."""

    __slots__ = ()


class Float(float):
    """A float of 32 bits.  A plain float is a double."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970, UTC."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain, ASCII."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Decimal:
    """An IEEE 754 decimal, not interpreted: `raw` is its encoding, big-endian."""

    WIDTH: ClassVar[int] = 0
    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != self.WIDTH:
            raise ValueError(f"{type(self).__name__} has {self.WIDTH} bytes, not {len(self.raw)}")


@dataclass(frozen=True, slots=True)
class Decimal32(_Decimal):
    """7 digits."""

    WIDTH: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class Decimal64(_Decimal):
    """16 digits."""

    WIDTH: ClassVar[int] = 8


@dataclass(frozen=True, slots=True)
class Decimal128(_Decimal):
    """34 digits."""

    WIDTH: ClassVar[int] = 16


@dataclass(slots=True)
class Described:
    """A value and its descriptor, mostly a Symbol or a ULong."""

    descriptor: object
    value: object


@dataclass(slots=True)
class Array:
    """Values of one type: its name (`uint`, `list`, ...), the values, and their descriptors, the outermost first."""

    type: str
    items: Sequence[object]
    descriptors: tuple[object, ...] = ()


@dataclass(slots=True)
class Pairs:
    """A map whose keys cannot be in one dict: lists, or values that are equal in Python but not in AMQP.

    A large map with UUIDs among its keys is one too, as a peer could choose their hashes.
    """

    pairs: list[tuple[object, object]]


#: The name of each type of values, except Described.
NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    bytes: "binary",
    str: "string",
    list: "list",
    dict: "map",
    Pairs: "map",
    Array: "array",
    UUID: "uuid",
    Decimal32: "decimal32",
    Decimal64: "decimal64",
    Decimal128: "decimal128",
} | {
    kind: kind.__name__.lower()
    for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, Float, Char, Symbol, Timestamp)
}

#: Format code to type name and width in bytes, for the values of fixed width (part 1, 1.6).
FIXED: Final[dict[int, tuple[str, int]]] = {
    0x40: ("null", 0),
    0x41: ("boolean", 0),
    0x42: ("boolean", 0),
    0x43: ("uint", 0),
    0x44: ("ulong", 0),
    0x45: ("list", 0),
    0x50: ("ubyte", 1),
    0x51: ("byte", 1),
    0x52: ("uint", 1),
    0x53: ("ulong", 1),
    0x54: ("int", 1),
    0x55: ("long", 1),
    0x56: ("boolean", 1),
    0x60: ("ushort", 2),
    0x61: ("short", 2),
    0x70: ("uint", 4),
    0x71: ("int", 4),
    0x72: ("float", 4),
    0x73: ("char", 4),
    0x74: ("decimal32", 4),
    0x80: ("ulong", 8),
    0x81: ("long", 8),
    0x82: ("double", 8),
    0x83: ("timestamp", 8),
    0x84: ("decimal64", 8),
    0x94: ("decimal128", 16),
    0x98: ("uuid", 16),
}

#: Format code to type name and bytes of the size that precedes the value.
VARIABLE: Final[dict[int, tuple[str, int]]] = {
    0xA0: ("binary", 1),
    0xA1: ("string", 1),
    0xA3: ("symbol", 1),
    0xB0: ("binary", 4),
    0xB1: ("string", 4),
    0xB3: ("symbol", 4),
}

#: Format code to type name and bytes of size and count each.
COMPOUND: Final[dict[int, tuple[str, int]]] = {
    0xC0: ("list", 1),
    0xC1: ("map", 1),
    0xD0: ("list", 4),
    0xD1: ("map", 4),
    0xE0: ("array", 1),
    0xF0: ("array", 4),
}

#: The constructor of a described value.
DESCRIBED: Final = 0x00


def identity(key: object) -> Hashable:
    """A value that identifies a key of a map: equal for keys that are identical in AMQP, and only for them.

    Floats count by their sign and digits, so that 0.0 and -0.0 differ; a NaN is identical to a NaN.
    """
    kind = type(key).__name__
    match key:
        case float():
            return (kind, float.hex(key))
        case UUID():
            return (kind, key.bytes)
        case list():
            return (kind, *(identity(item) for item in key))
        case Described(descriptor, value):
            return (kind, identity(descriptor), identity(value))
        case Array(name, items, descriptors):
            return (kind, name, *(identity(part) for part in (*descriptors, *items)))
        case dict():
            return _pairs_identity(list(key.items()))
        case Pairs(pairs):
            return _pairs_identity(pairs)
        case Hashable():
            return (kind, key)
    raise TypeError(f"{kind} is no type of AMQP")


def _pairs_identity(pairs: list[tuple[object, object]]) -> Hashable:
    return ("map", *((identity(key), identity(value)) for key, value in pairs))
