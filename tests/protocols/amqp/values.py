"""Values of every type of AMQP: some by hand, all by hypothesis."""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from hypothesis import strategies as st

from protocols.amqp.types import (
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
)

#: Every encoding of the specification (part 1, 1.6), by hand: type, value, bytes.
ENCODINGS: Final[list[tuple[str, object, str]]] = [
    ("null", None, "40"),
    ("boolean", True, "41"),
    ("boolean", False, "42"),
    ("boolean", True, "5601"),
    ("boolean", False, "5600"),
    ("ubyte", UByte(255), "50ff"),
    ("ushort", UShort(258), "600102"),
    ("uint", UInt(0), "43"),
    ("uint", UInt(255), "52ff"),
    ("uint", UInt(256), "7000000100"),
    ("ulong", ULong(0), "44"),
    ("ulong", ULong(255), "53ff"),
    ("ulong", ULong(256), "800000000000000100"),
    ("byte", Byte(-1), "51ff"),
    ("byte", Byte(127), "517f"),
    ("short", Short(-2), "61fffe"),
    ("int", Int(-128), "5480"),
    ("int", Int(-129), "71ffffff7f"),
    ("long", -128, "5580"),
    ("long", -129, "81ffffffffffffff7f"),
    ("float", Float(1.5), "723fc00000"),
    ("double", 1.5, "823ff8000000000000"),
    ("decimal32", Decimal32(b"\x22\x50\x00\x01"), "7422500001"),
    ("decimal64", Decimal64(b"12345678"), "843132333435363738"),
    ("decimal128", Decimal128(b"0123456789abcdef"), "9430313233343536373839616263646566"),
    ("char", Char("€"), "73000020ac"),
    ("char", Char("\U0001f600"), "730001f600"),
    ("timestamp", Timestamp(-1), "83ffffffffffffffff"),
    ("uuid", UUID(int=1), "9800000000000000000000000000000001"),
    ("binary", b"\x01\x02", "a0020102"),
    ("binary", b"x" * 256, "b000000100" + "78" * 256),
    ("string", "ä", "a102c3a4"),
    ("string", "y" * 256, "b100000100" + "79" * 256),
    ("symbol", Symbol("a"), "a30161"),
    ("symbol", Symbol("z" * 256), "b300000100" + "7a" * 256),
    ("list", [], "45"),
    ("list", [True, [None]], "c006024 1c0020140".replace(" ", "")),
    ("list", [True], "c0020141"),
    ("list", [True], "d0000000050000000141"),
    ("map", {}, "c10100"),
    ("map", {"a": None}, "c10502a1016140"),
    ("map", {"a": None}, "d100000008 00000002a1016140".replace(" ", "")),
    ("array", Array("uint", [UInt(1), UInt(2)]), "e00402520102"),
    ("array", Array("uint", [UInt(1), UInt(256)]), "e00a02700000000100000100"),
    ("array", Array("uint", [UInt(1)]), "e003015201"),
    ("array", Array("uint", [UInt(1)]), "f000000006000000015201"),
    ("array", Array("symbol", []), "e00200a3"),
    ("array", Array("null", [None, None]), "e0020240"),
    ("array", Array("list", [[], []]), "e0020245"),
    ("array", Array("list", [[], [None]]), "e00702c00100020140"),
    ("array", Array("array", [Array("byte", [Byte(1)])]), "e00601e003015101"),
    ("array", Array("uint", [UInt(1)], (Symbol("a"),)), "e0070100a301615201"),
    ("described", Described(Symbol("a"), None), "00a3016140"),
    ("described", Described(ULong(1), Described(ULong(2), True)), "00530100530241"),
]

SIGNED: Final = {"byte": (8, Byte), "short": (16, Short), "int": (32, Int), "long": (64, int)}
UNSIGNED: Final = {"ubyte": (8, UByte), "ushort": (16, UShort), "uint": (32, UInt), "ulong": (64, ULong)}


def _float32(value: float) -> Float:
    return Float(struct.unpack(">f", struct.pack(">f", value))[0])


SIMPLE: Final[dict[str, st.SearchStrategy[object]]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    **{
        name: (st.integers(0, 2**bits - 1) | st.integers(0, min(300, 2**bits - 1))).map(kind)
        for name, (bits, kind) in UNSIGNED.items()
    },
    **{
        name: (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-128, 127)).map(kind)
        for name, (bits, kind) in SIGNED.items()
    },
    "float": st.floats(width=32, allow_nan=False).map(_float32),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "timestamp": st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=300),
    "string": st.text(max_size=300),
    "symbol": st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol),
}
simple: Final = st.one_of(*SIMPLE.values())
descriptors: Final = SIMPLE["symbol"] | SIMPLE["ulong"]
keys: Final = SIMPLE["string"] | SIMPLE["symbol"] | SIMPLE["ulong"] | SIMPLE["uuid"] | SIMPLE["long"]


def _arrays(items: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[object]:
    return st.one_of(
        *[
            st.builds(Array, st.just(name), st.lists(item, max_size=5), st.lists(descriptors, max_size=2).map(tuple))
            for name, item in items.items()
        ]
    )


def _larger(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    lists = st.lists(inner, max_size=5)
    maps = st.dictionaries(keys, inner, max_size=4)
    return lists | maps | _arrays(SIMPLE | {"list": lists, "map": maps}) | st.builds(Described, descriptors, inner)


values: Final = st.recursive(simple, _larger, max_leaves=20)


def typed(value: object) -> object:
    """A value with the types of all its parts, so that 1 and UInt(1), or 0.0 and -0.0, are not equal."""
    match value:
        case float():
            return type(value).__name__, value.hex()
        case list():
            return "list", [typed(item) for item in value]
        case dict():
            return "map", [(typed(key), typed(item)) for key, item in value.items()]
        case Pairs(pairs):
            return "map", [(typed(key), typed(item)) for key, item in pairs]
        case Described(descriptor, inner):
            return "described", typed(descriptor), typed(inner)
        case Array(name, items, descriptors):
            return "array", name, [typed(item) for item in items], [typed(item) for item in descriptors]
    return type(value).__name__, value
