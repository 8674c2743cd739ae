"""Values of every AMQP type, each with the kind of it by which a client may be unable to hold it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

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
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

_UUID: Final = UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")

_DEEP: Final = {
    "list": [UByte(1), [Short(-2), [UInt(3), {"four": ULong(2**40)}]]],
    "map": {Int(-5): {True: None, _UUID: b"\x00\xff"}},
    "time": Timestamp(1_700_000_000_123),
}

#: Kind to cases: name and value.
VALUES: Final[dict[str, dict[str, object]]] = {
    "null": {"null": None},
    "boolean": {"true": True, "false": False},
    "unsigned": {
        **{f"ubyte {n}": UByte(n) for n in (0, 255)},
        **{f"ushort {n}": UShort(n) for n in (0, 256, 65_535)},
        **{f"uint {n}": UInt(n) for n in (0, 1, 255, 256, 2**32 - 1)},
        **{f"ulong {n}": ULong(n) for n in (0, 1, 255, 256, 2**53 - 1, 2**63 - 1)},
    },
    "huge": {f"ulong {n}": ULong(n) for n in (2**63, 2**64 - 1)},
    "beyond a double": {"long": 2**53 + 1, "ulong": ULong(2**53 + 1)},
    "signed": {
        **{f"byte {n}": Byte(n) for n in (-128, 0, 127)},
        **{f"short {n}": Short(n) for n in (-32_768, 0, 32_767)},
        **{f"int {n}": Int(n) for n in (-(2**31), -129, -128, 0, 127, 128, 2**31 - 1)},
        **{f"long {n}": n for n in (-(2**63), -(2**53) + 1, -129, -128, 0, 127, 128, 2**31, 2**63 - 1)},
    },
    "floating": {
        **{f"float {n}": Float(n) for n in (0.0, -1.5, 2.0**100, float("inf"))},
        **{f"double {n}": n for n in (0.0, -0.1, 1e300, float("-inf"))},
    },
    "decimal": {
        "decimal32": Decimal32(bytes.fromhex("22500039")),
        "decimal64": Decimal64(bytes.fromhex("2234000000003039")),
        "decimal128": Decimal128(bytes.fromhex("2208000000000000000000000000302a")),
    },
    "char": {"char": Char("é")},
    "char beyond 16 bits": {"char beyond 16 bits": Char("\U0001f407")},
    "timestamp": {f"timestamp {n}": Timestamp(n) for n in (0, 1_700_000_000_123, -1)},
    "uuid": {"uuid": _UUID},
    "binary": {"binary": b"\x00\x01\xfe\xff", "binary 0": b"", "binary 300": bytes(range(150)) * 2},
    "string": {"string": "Grüße \U0001f407", "string 0": "", "string 300": "ä" * 150},
    "symbol": {"symbol": Symbol("a:symbol"), "symbol 300": Symbol("s" * 300)},
    "list": {"list": [None, "x", UInt(7), [b"y", []]], "list 300": [Int(n) for n in range(300)]},
    "map": {"map": {"a": UInt(1), "b": None}, "map 0": {}, "map 300": {f"k{n}": n for n in range(300)}},
    "deep": {"deep": _DEEP},
    "described": {
        "by number": Described(ULong(0x0000_1234_0000_0001), [Float(1.0), Float(-2.0)]),
        "within": [{"a": Described(ULong(2**40), {"b": [Described(ULong(1), None)]})}],
    },
    "described by symbol": {"by symbol": Described(Symbol("example:point"), "x")},
    "described twice": {"described twice": Described(ULong(1), Described(ULong(2), UByte(1)))},
    "array": {
        "array of string": Array("string", ["a", "", "u" * 300]),
        "array of timestamp": Array("timestamp", [Timestamp(0), Timestamp(1_700_000_000_123)]),
        "array of uuid": Array("uuid", [_UUID, UUID(int=1)]),
        "array of symbol": Array("symbol", [Symbol("a"), Symbol("b")]),
        "array of ubyte": Array("ubyte", [UByte(0), UByte(255)]),
        "array of ushort": Array("ushort", [UShort(0), UShort(65_535)]),
        "array of uint": Array("uint", [UInt(0), UInt(2**32 - 1)]),
        "array of ulong": Array("ulong", [ULong(0), ULong(2**40)]),
        "array of binary": Array("binary", [b"", b"\x00"]),
    },
    "array of numbers": {
        "array of int": Array("int", [Int(-1), Int(0), Int(70_000)]),
        "array of short": Array("short", [Short(-1), Short(2)]),
        "array of double": Array("double", [0.5, -1.0]),
        "array of float": Array("float", [Float(0.5)]),
        "array of boolean": Array("boolean", [True, False, True]),
        "array of byte": Array("byte", [Byte(-1), Byte(1)]),
    },
    "array of long": {"array of long": Array("long", [-(2**40), 0, 1])},
    "array of map": {"array of map": Array("map", [{"a": 1}, {}])},
    "array beyond ASCII": {"array beyond ASCII": Array("string", ["ü", "é" * 200])},
    "array of char": {"array of char": Array("char", [Char("a"), Char("é")])},
    "array of decimal": {"array of decimal64": Array("decimal64", [Decimal64(bytes(8)), Decimal64(b"\x22" * 8)])},
    "array of list": {"array of list": Array("list", [[1], [], ["x", None]])},
    "array of array": {"array of array": Array("array", [Array("int", [Int(1)]), Array("int", [Int(2), Int(3)])])},
    "array of described": {"array of described": Array("uint", [UInt(1), UInt(2)], (Symbol("example:n"),))},
    "empty array": {"empty array": Array("string", [])},
}
