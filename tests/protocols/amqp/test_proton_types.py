"""The oracle: what proton writes is read as the same value, and the other way round, for all types."""

from __future__ import annotations

from typing import Any

import proton
from hypothesis import given

from protocols.amqp.decode import decode
from protocols.amqp.encode import encode
from protocols.amqp.types import NAMES as TYPE_NAMES
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
from tests.protocols.amqp.values import SIMPLE, typed, values

TYPES: dict[type, Any] = {Int: proton.int32, Float: proton.float32} | {
    kind: getattr(proton, kind.__name__.lower())
    for kind in (UByte, UShort, UInt, ULong, Byte, Short, Char, Timestamp, Symbol)
}
CODES = {
    name: getattr(proton.Data, {"boolean": "BOOL"}.get(name, name.upper())) for name in SIMPLE.keys() | {"list", "map"}
}
NAMES = {code: name for name, code in CODES.items()}


def put(data: proton.Data, value: object) -> None:
    """Write a value of ours with proton, node by node: its own classes cannot hold all values."""
    match value:
        case Decimal32(raw):
            data.put_decimal32(int.from_bytes(raw, "big"))
        case Decimal64(raw):
            data.put_decimal64(int.from_bytes(raw, "big"))
        case Decimal128(raw):
            data.put_decimal128(raw)
        case list():
            data.put_list()
            put_all(data, value)
        case dict():
            data.put_map()
            put_all(data, [part for pair in value.items() for part in pair])
        case Pairs(pairs):
            data.put_map()
            put_all(data, [part for pair in pairs for part in pair])
        case Described(descriptor, inner):
            data.put_described()
            put_all(data, [descriptor, inner])
        case Array(name, items, descriptors):
            data.put_array(bool(descriptors), CODES[name])
            put_all(data, [*descriptors, *items])
        case _:
            kind = TYPES.get(type(value))
            data.put_object(value if kind is None else kind(value))


def put_all(data: proton.Data, items: list[Any]) -> None:
    """The parts of a value."""
    data.enter()
    for item in items:
        put(data, item)
    data.exit()


def get(data: proton.Data) -> object:
    """Read the current node as a value of ours."""
    code = data.type()
    assert code is not None
    compound: dict[int, Any] = {
        proton.Data.LIST: lambda: get_all(data),
        proton.Data.MAP: lambda: get_map(data),
        proton.Data.DESCRIBED: lambda: Described(*get_all(data)),
        proton.Data.ARRAY: lambda: get_array(data),
        proton.Data.NULL: lambda: None,
        proton.Data.BOOL: data.get_bool,
        proton.Data.UUID: data.get_uuid,
        proton.Data.DECIMAL32: lambda: Decimal32(int(data.get_decimal32()).to_bytes(4, "big")),
        proton.Data.DECIMAL64: lambda: Decimal64(int(data.get_decimal64()).to_bytes(8, "big")),
    }
    if code in compound:
        return compound[code]()
    name = NAMES[code]
    [kind] = [kind for kind, its in TYPE_NAMES.items() if its == name]
    return kind(getattr(data, f"get_{name}")())


def get_all(data: proton.Data) -> list[Any]:
    """The parts of the current node."""
    found = []
    data.enter()
    while data.next():
        found.append(get(data))
    data.exit()
    return found


def get_map(data: proton.Data) -> object:
    """A map, as the decoder has it."""
    parts = get_all(data)
    return Pairs(list(zip(parts[::2], parts[1::2], strict=True)))


def get_array(data: proton.Data) -> Array:
    """An array; proton knows of one descriptor at most."""
    _, described, code = data.get_array()
    parts = get_all(data)
    return Array(NAMES[code], parts[described:], tuple(parts[:described]))


def by_proton(value: object) -> bytes:
    """A value as proton encodes it."""
    data = proton.Data()
    put(data, value)
    return bytes(data.encode())


# Of what proton has no notion: arrays with several descriptors.
known = values.filter(lambda value: not several_descriptors(value))


def several_descriptors(value: object) -> bool:
    """Whether there is such an array anywhere in a value."""
    match value:
        case Array(_, items, descriptors):
            return len(descriptors) > 1 or any(map(several_descriptors, items))
        case list():
            return any(map(several_descriptors, value))
        case dict():
            return any(map(several_descriptors, value.values()))
        case Described(_, inner):
            return several_descriptors(inner)
    return False


@given(known)
def test_values_that_proton_writes(value: object) -> None:
    assert typed(decode(by_proton(value))) == typed(value)


@given(known)
def test_values_that_proton_reads(value: object) -> None:
    data = proton.Data()
    raw = encode(value)
    assert data.decode(raw) == len(raw)
    data.rewind()
    assert data.next()
    assert typed(get(data)) == typed(value)
