"""Values and bytes: every encoding, every mistake."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.decode import Decoder, decode
from protocols.amqp.encode import encode
from protocols.amqp.errors import DECODE_ERROR, DecodeError, Scope
from protocols.amqp.limits import Limits
from protocols.amqp.types import (
    COMPOUND,
    FIXED,
    VARIABLE,
    Array,
    Byte,
    Char,
    Decimal32,
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
from tests.protocols.amqp.values import ENCODINGS, SIGNED, SIMPLE, UNSIGNED, typed, values


@pytest.mark.parametrize(("name", "value", "raw"), ENCODINGS, ids=[f"{row[0]}-{row[2][:12]}" for row in ENCODINGS])
def test_every_encoding(name: str, value: object, raw: str) -> None:
    assert typed(decode(bytes.fromhex(raw))) == typed(value)


def test_every_format_code_is_tested() -> None:
    tested = {int(raw[:2], 16) for _, _, raw in ENCODINGS}
    assert tested == {0, *FIXED, *VARIABLE, *COMPOUND}


def test_the_shortest_encoding_is_written() -> None:
    shortest: dict[str, bytes] = {}
    for _, value, raw in ENCODINGS:
        key = repr(typed(value))
        shortest[key] = min(shortest.get(key, bytes.fromhex(raw)), bytes.fromhex(raw), key=len)
    for _, value, _ in ENCODINGS:
        assert encode(value) == shortest[repr(typed(value))]


@given(values)
def test_round_trip(value: object) -> None:
    raw = encode(value)
    again = decode(raw)
    assert typed(again) == typed(value)
    assert encode(again) == raw


@given(values, st.data())
def test_every_prefix_is_refused_and_skipping_is_reading(value: object, data: st.DataObject) -> None:
    raw = encode(value)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DecodeError) as caught:
        decode(raw[:cut])
    assert 0 <= caught.value.offset <= cut
    decoder = Decoder(b"\x40" + raw + b"\x40", 1)
    decoder.skip()
    assert decoder.at == 1 + len(raw)
    with pytest.raises(DecodeError):
        Decoder(raw[:cut]).skip()


@pytest.mark.parametrize("name", [*SIGNED, *UNSIGNED])
def test_integers_at_their_ends(name: str) -> None:
    bits, kind = (SIGNED | UNSIGNED)[name]
    low = -(2 ** (bits - 1)) if name in SIGNED else 0
    high = low + 2**bits - 1
    for number in (low, high):
        assert typed(decode(encode(kind(number)))) == typed(kind(number))
    for number in (low - 1, high + 1):
        with pytest.raises(ValueError, match="is out of range"):
            encode(kind(number))


@pytest.mark.parametrize("nbytes", [254, 255, 256])
@pytest.mark.parametrize("make", [lambda n: "x" * n, bytes, lambda n: Symbol("x" * n)])
def test_sizes_of_one_byte_and_of_four(nbytes: int, make: Callable[[int], object]) -> None:
    long = make(nbytes)
    raw = encode(long)
    assert len(raw) == nbytes + (2 if nbytes < 256 else 5)
    assert typed(decode(raw)) == typed(long)


@pytest.mark.parametrize("count", [0, 1, 253, 254, 255, 256])
def test_lists_and_maps_at_the_size_of_one_byte(count: int) -> None:
    for value in [None] * count, dict.fromkeys(range(count)), Array("byte", [Byte(1)] * count):
        raw = encode(value)
        assert typed(decode(raw)) == typed(value)
    assert encode([None] * count)[0] == (0x45 if count == 0 else 0xC0 if count < 255 else 0xD0)


@pytest.mark.parametrize(
    "array",
    [
        Array("list", [[], ["x" * 300]]),
        Array("list", [[1] * 3, ["x" * 300], []]),
        Array("map", [{}, {"a": "x" * 300}]),
        Array("string", ["", "x" * 300]),
        Array("binary", [b"", b"x" * 300]),
        Array("array", [Array("int", [Int(1)]), Array("string", ["x" * 300])]),
        Array("list", []),
        Array("boolean", [True, False]),
        Array("list", [[1]], (ULong(1), Symbol("x"))),
    ],
)
def test_arrays_whose_elements_share_a_width(array: Array) -> None:
    assert typed(decode(encode(array))) == typed(array)


def test_keys_that_python_cannot_hold_apart() -> None:
    pairs = Pairs([("a", 1), (Symbol("a"), 2), (1, 3), (UInt(1), 4), (True, 5), (0.0, 6), (-0.0, 7)])
    raw = encode(pairs)
    assert typed(decode(raw)) == typed(pairs)
    unhashable = Pairs(
        [([1], 1), ({"a": [1]}, 2), (Described(ULong(1), [2]), 3), (Array("int", [Int(1)]), 4), (pairs, 5)]
    )
    assert typed(decode(encode(unhashable))) == typed(unhashable)


@pytest.mark.parametrize(
    "key",
    ["a", Symbol("a"), 1, UUID(int=1), [1], {"a": 1}, Described(ULong(1), [2]), Array("int", [Int(1)]), -0.0, None],
)
def test_the_same_key_twice(key: object) -> None:
    with pytest.raises(DecodeError, match="a map with the same key twice"):
        decode(encode(Pairs([(key, 1), ("b", 2), (key, 3)])))


def test_many_uuids_as_keys_are_no_dict() -> None:
    few = {UUID(int=n * (2**61 - 1)): n for n in range(64)}
    assert len({hash(key) for key in few}) == 1
    assert decode(encode(few)) == few
    many = Pairs([(UUID(int=n * (2**61 - 1)), n) for n in range(65)])
    assert decode(encode(many)) == many
    assert decode(encode(dict.fromkeys(range(65)))) == dict.fromkeys(range(65))
    with pytest.raises(DecodeError, match="the same key twice"):
        decode(encode(Pairs([*many.pairs, many.pairs[0]])))


def test_identity_of_what_is_no_value() -> None:
    with pytest.raises(TypeError, match="set is no type of AMQP"):
        identity(set())


MALFORMED = [
    ("", 0, "the end, where a value should begin"),
    ("3f", 0, "0x3F is no format code"),
    ("57", 0, "0x57 is no format code"),
    ("ff", 0, "0xFF is no format code"),
    ("00", 1, "the end, where a value should begin"),
    ("00a301", 3, "1 bytes are needed, 0 are there"),
    ("5602", 1, "a boolean is 0 or 1, not 2"),
    ("70000001", 1, "4 bytes are needed, 3 are there"),
    ("730000d800", 1, "0xD800 is no Unicode character"),
    ("7300110000", 1, "0x110000 is no Unicode character"),
    ("a1026180", 3, "a string that is not UTF-8"),
    ("a102eda0", 2, "a string that is not UTF-8"),
    ("a302617f80", 4, "1 bytes after the value"),
    ("a30180", 2, "a symbol that is not ASCII"),
    ("a0", 1, "1 bytes are needed, 0 are there"),
    ("a00561", 2, "5 bytes are needed, 1 are there"),
    ("b0ffffffff61", 5, "4294967295 bytes are needed, 1 are there"),
    ("c000", 2, "0 bytes are too few for a list"),
    ("c0020040", 3, "the list ends 1 bytes before its size says so"),
    ("c0020241", 2, "2 values cannot be in 1 bytes"),
    ("c0030241a1", 5, "1 bytes are needed, 0 are there"),
    ("d000000004ffffffff", 5, "4294967295 values cannot be in 0 bytes"),
    ("d000000003000000", 5, "3 bytes are too few for a list"),
    ("d0ffffffff00000001", 5, "4294967295 bytes are needed, 4 are there"),
    ("c1020140", 2, "a map of 1 values has a key without a value"),
    ("c10402404040", 5, "the map ends 1 bytes before its size says so"),
    ("e00100", 3, "the end, where the constructor of an array should begin"),
    ("e002013f", 3, "0x3F is no format code"),
    ("e0030100", 2, "3 bytes are needed, 2 are there"),
    ("e003020070", 5, "4 bytes are needed, 0 are there"),
    ("e003020040", 5, "the end, where the constructor of an array should begin"),
    ("e00302507f", 4, "2 values of 1 bytes cannot be in 1 bytes"),
    ("e004027000 00".replace(" ", ""), 4, "2 values of 4 bytes cannot be in 2 bytes"),
    ("e00302a000", 4, "2 values of 1 bytes cannot be in 1 bytes"),
    ("e00302c000", 4, "2 values of 2 bytes cannot be in 1 bytes"),
    ("f000000005ffffffff40", 10, "too many values in one"),
    ("f000000005ffffffff45", 10, "too many values in one"),
    ("f0000000080000000170000000", 10, "1 values of 4 bytes cannot be in 3 bytes"),
]


@pytest.mark.parametrize(("raw", "offset", "reason"), MALFORMED, ids=[row[0] or "nothing" for row in MALFORMED])
def test_malformed(raw: str, offset: int, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(bytes.fromhex(raw))
    assert (caught.value.offset, caught.value.reason) == (offset, reason)
    assert caught.value.condition == DECODE_ERROR
    assert caught.value.scope is Scope.CONNECTION
    assert caught.value.description == f"byte {offset}: {reason}"


def nested(depth: int) -> object:
    """Lists in lists."""
    value: object = None
    for _ in range(depth):
        value = [value]
    return value


def test_depth() -> None:
    limits = Limits(depth_max=3)
    described: object = True
    for depth in range(1, 4):
        described = Described(ULong(1), described)
        assert typed(decode(encode(nested(depth)), limits)) == typed(nested(depth))
        assert typed(decode(encode(described), limits)) == typed(described)
    deep_array = Array("null", [None], (ULong(1), ULong(2)))
    assert decode(encode(deep_array), limits) == deep_array
    for value in (
        nested(4),
        Described(ULong(1), described),
        Described(nested(3), None),
        Array("null", [None], (ULong(1), ULong(2), ULong(3))),
        Array("array", [Array("array", [Array("array", [Array("null", [None])])])]),
    ):
        with pytest.raises(DecodeError, match="values are nested too deeply"):
            decode(encode(value), limits)


def test_depth_is_given_back() -> None:
    limits = Limits(depth_max=2)
    value: object
    for value in ([[]] * 9, [Described(ULong(1), 2)] * 9, [Array("null", [None])] * 9, {n: [n] for n in range(9)}):
        assert typed(decode(encode(value), limits)) == typed(value)


def test_depth_of_what_is_skipped() -> None:
    limits = Limits(depth_max=3)
    value: object = None
    for _ in range(3):
        value = Described(ULong(1), value)
    decoder = Decoder(encode(value), limits=limits)
    decoder.skip()
    assert decoder.at == len(encode(value))
    with pytest.raises(DecodeError, match="nested too deeply"):
        Decoder(encode(Described(ULong(1), value)), limits=limits).skip()
    with pytest.raises(DecodeError, match="a descriptor that is described itself"):
        Decoder(encode(Described(Described(ULong(1), 2), 3))).skip()
    with pytest.raises(DecodeError, match="0x31 is no format code"):
        Decoder(b"\x31").skip()


def test_number_of_values() -> None:
    limits = Limits(values_max=5)
    for fits in ([1] * 4, {1: 2, 3: 4}, [[1, 2], 3], Array("null", [None] * 4), Array("byte", [Byte(1)] * 4)):
        assert typed(decode(encode(fits), limits)) == typed(fits)
    for beyond in ([1] * 5, {1: 2, 3: [4]}, [[1, 2], [3]], Array("null", [None] * 5), Array("byte", [Byte(1)] * 5)):
        with pytest.raises(DecodeError, match="too many values in one"):
            decode(encode(beyond), limits)


def test_skipping_does_not_look_inside() -> None:
    decoder = Decoder(bytes.fromhex("c002ffff" + "57aa" + "40"))
    decoder.skip()
    decoder.skip()
    assert decoder.at == 6


@pytest.mark.parametrize("value", [set(), object(), 1j, bytearray(b"x"), (1,), [set()], {"a": set()}])
def test_no_value(value: object) -> None:
    with pytest.raises(TypeError, match="is no type of AMQP"):
        encode(value)


def test_values_that_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="'word' is no type of AMQP"):
        encode(Array("word", [1]))
    with pytest.raises(ValueError, match="Array"):
        encode(Array("byte", [300]))
    with pytest.raises(UnicodeEncodeError):
        encode(Symbol("ä"))


def test_decimals_know_their_width() -> None:
    with pytest.raises(ValueError, match="Decimal32 has 4 bytes, not 3"):
        Decimal32(b"abc")


def test_values_are_what_they_look_like() -> None:
    fives: list[int] = [UByte(5), UShort(5), UInt(5), ULong(5), Byte(5), Short(5), Int(5), Timestamp(5)]
    assert fives == [5] * 8
    assert Float(1.5) == 1.5
    texts: list[str] = [Char("x"), Symbol("x")]
    assert texts == ["x", "x"]
    names: dict[str, int] = {Symbol("product"): 1}
    assert names["product"] == 1


def test_every_type_has_a_strategy() -> None:
    names = {name for table in (FIXED, VARIABLE, COMPOUND) for name, _ in table.values()}
    assert names - set(SIMPLE) == {"list", "map", "array"}
