"""What can be decoded passes the walk, and what passes can be decoded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.check import check_body, walk
from protocols.amqp.decode import decode
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError, TooMany
from protocols.amqp.limits import Limits
from protocols.amqp.message import AMQP_SEQUENCE, AMQP_VALUE, DATA, FOOTER, Message, encode_section
from protocols.amqp.types import Array, Described, ULong
from tests.protocols.amqp.values import ENCODINGS, values

#: What only decoding finds: keys that are equal.
UNSEEN = ("same key twice",)


def agrees(raw: bytes) -> None:
    """Walking and decoding agree about these bytes."""
    try:
        decode(raw)
        why = ""
    except DecodeError as error:
        why = error.description
    try:
        walked = walk(raw, 0, len(raw)) == len(raw)
    except DecodeError:
        walked = False
    assert walked == (not why) or (walked and any(word in why for word in UNSEEN)), why


@given(values)
def test_every_value_passes(value: object) -> None:
    raw = encode(value)
    assert walk(raw, 0, len(raw)) == len(raw)


@pytest.mark.parametrize("encoding", [encoding for _, _, encoding in ENCODINGS])
def test_every_encoding_passes_and_no_beginning_of_one_does(encoding: str) -> None:
    raw = bytes.fromhex(encoding.replace(" ", ""))
    for end in range(len(raw) + 1):
        agrees(raw[:end])


@given(values, st.data())
def test_a_damaged_message_passes_only_if_it_can_be_decoded(value: object, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    agrees(bytes(raw))


@pytest.mark.parametrize("code", range(256))
def test_the_constructor_of_an_empty_array(code: int) -> None:
    agrees(bytes((0xE0, 2, 0, code)))


@given(st.binary(max_size=40))
def test_any_bytes(raw: bytes) -> None:
    agrees(raw)


FINE = [
    b"",
    encode_section(DATA, b"x" * 300),
    encode_section(DATA, b"a") * 3,
    encode_section(AMQP_SEQUENCE, [1, "a"]) * 2,
    encode_section(AMQP_VALUE, {"a": [1]}) + encode_section(FOOTER, {"x-f": 1}),
    encode_section(AMQP_VALUE, "y" * 300),
]
BAD = [
    b"\0Sw",
    encode_section(AMQP_VALUE, "text")[:-1],
    encode_section(AMQP_VALUE, "x" * 300)[:-1],
    encode_section(DATA, b"x" * 300)[:-1],
    encode_section(AMQP_VALUE, "a") * 2,
    encode_section(AMQP_VALUE, "a") + encode_section(DATA, b"a"),
    encode_section(FOOTER, {"x-f": 1}) + encode_section(DATA, b"a"),
    b"\0SwA" + b"junk",
    b"\0Sw\xa1\x02\xff\xfe",
    b"\0Sw\xb1\0\0\0\x02\xff\xfe",
    b"\0Sw\xc1\x04\x02\xa1\x05a",
    b"\0Su\xa1\x01a",
    b"\0Sv\xa1\x01a",
    b"\0Sw\xff",
]


@pytest.mark.parametrize("body", FINE)
def test_bodies_that_can_be_read(body: bytes) -> None:
    Message(body).body()
    check_body(body)


@pytest.mark.parametrize("body", BAD)
def test_bodies_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(DecodeError):
        Message(body).body()
    with pytest.raises(DecodeError):
        check_body(body)


VALUES_MAX, SECTIONS_MAX = Limits().values_max, Limits().sections_max

#: Bodies of so many values, all counted.
SHAPES: dict[str, Callable[[int], bytes]] = {
    "list": lambda count: encode_section(AMQP_VALUE, [None] * (count - 1)),
    "map": lambda count: encode_section(AMQP_VALUE, {f"{n}": n for n in range((count - 1) // 2)}),
    "lists": lambda count: encode_section(AMQP_VALUE, [[None]] * ((count - 1) // 2)),
    "described": lambda count: encode_section(AMQP_VALUE, [Described(ULong(1), None)] * ((count - 1) // 3)),
    "array": lambda count: encode_section(AMQP_VALUE, Array("boolean", [True] * (count - 1))),
    "array of nothing": lambda count: encode_section(AMQP_VALUE, Array("null", [None] * (count - 1))),
    "array of lists": lambda count: encode_section(AMQP_VALUE, Array("list", [[None]] * ((count - 1) // 2))),
    "sequences": lambda count: encode_section(AMQP_SEQUENCE, [None] * (count // 4 - 1)) * 4,
    "footer": lambda count: (
        encode_section(DATA, b"a") + encode_section(FOOTER, {f"{n}": n for n in range((count - 2) // 2)})
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bodies_have_so_many_values_that_they_can_be_decoded(shape: str) -> None:
    most, more = SHAPES[shape](VALUES_MAX), SHAPES[shape](VALUES_MAX + 4)
    check_body(most)
    Message(most).body()
    with pytest.raises(TooMany, match="at most 8192 values"):
        check_body(more)
    with pytest.raises(TooMany):
        Message(more).body()


def test_sections_of_a_body() -> None:
    body = encode_section(DATA, b"") * SECTIONS_MAX
    check_body(body)
    Message(body).body()
    with pytest.raises(TooMany, match="at most 1024 sections"):
        check_body(body + encode_section(DATA, b""))
    with pytest.raises(TooMany, match="at most 1024 sections"):
        Message(body + encode_section(DATA, b"")).body()
