"""Application headers out of heads: of AMQP beside the broker's own codec, and beside Qpid Proton's."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from proton import byte, char, float32, int32, short, symbol, timestamp, ubyte, uint, ulong, ushort

from protocols.amqp.message import Message, encode_annotations, encode_application_properties
from spark_jobs.journal.headers import amqp_headers, stomp_headers

#: Values of application properties, and their texts.
VALUES: dict[str, tuple[object, str | None]] = {
    "null": (None, None),
    "true": (True, "true"),
    "false": (False, "false"),
    "text": ("grün", "grün"),
    "long text": ("x" * 300, "x" * 300),
    "empty": ("", ""),
    "symbol": (symbol("amqp:x"), "amqp:x"),
    "zero": (uint(0), "0"),
    "ubyte": (ubyte(200), "200"),
    "ushort": (ushort(60000), "60000"),
    "uint": (uint(4_000_000_000), "4000000000"),
    "small uint": (uint(200), "200"),
    "ulong": (ulong(1 << 63), "9223372036854775808"),
    "byte": (byte(-100), "-100"),
    "short": (short(-30000), "-30000"),
    "int": (int32(-2_000_000_000), "-2000000000"),
    "small int": (int32(-3), "-3"),
    "long": (-(1 << 62), "-4611686018427387904"),
    "small long": (-5, "-5"),
    "double": (0.1, "0.1"),
    "float": (float32(0.5), "0.5"),
    "char": (char("ß"), "ß"),
    "time": (timestamp(1_700_000_000_123), "1700000000123"),
    "uuid": (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    "bytes": (b"\0\xff", base64.b64encode(b"\0\xff").decode()),
    "list": ([1, 2], None),
}


def head_of(properties: dict[str, object]) -> bytes:
    """The head of a message as proton encodes it: without header, and body."""
    annotations = {symbol("x-opt-a"): [1, {"b": 2}]}
    message = ProtonMessage(body=b"x", id="i", correlation_id=7, subject="s", annotations=annotations)
    message.properties = properties  # type: ignore[assignment]  # proton says None, and means that it may be
    encoded = Message(bytes(message.encode()))
    return encoded.payload[: encoded.body_at].removeprefix(encoded.section(0x70))


def test_every_type_as_proton_encodes_it() -> None:
    assert amqp_headers(head_of({name: value for name, (value, _) in VALUES.items()})) == [
        (name, text) for name, (_, text) in VALUES.items()
    ]


def test_heads_without_application_properties() -> None:
    assert amqp_headers(b"") == []
    assert amqp_headers(encode_annotations(0x72, {"x-opt-a": 1})) == []
    assert amqp_headers(encode_application_properties({})) == []


@pytest.mark.parametrize("descriptor", [b"\x80\0\0\0\0\0\0\0\x74", b"\xa3\x1famqp:application-properties:map"])
def test_other_encodings_of_the_descriptor(descriptor: bytes) -> None:
    plain = encode_application_properties({"a": 1})
    assert plain.startswith(b"\0\x53\x74")
    assert amqp_headers(b"\0" + descriptor + plain[3:]) == [("a", "1")]


def test_a_head_that_is_cut_is_not_decoded() -> None:
    head = head_of({"a": "1", "n": 5000, "t": timestamp(5)})
    assert amqp_headers(head) == [("a", "1"), ("n", "5000"), ("t", "5")]
    annotations = Message(head).section(0x72)
    before = annotations + Message(head).section(0x73)
    for end in range(1, len(head)):
        expected: list[tuple[str, str]] | None = [] if end in (len(annotations), len(before)) else None
        assert amqp_headers(head[:end]) == expected, end


@pytest.mark.parametrize(
    "raw",
    [
        b"\x53\x74\xc1\1\0",  # no descriptor
        b"\0\x53\x74\x40",  # no map
        b"\0\x53\x74\xc1\5\2\x43\xa1\1b",  # a name that is a number
        b"\0\x53\x74\xc1\4\2\xa1\1\xff",  # the value is not there
        b"\0\x53\x74\xc1\5\2\xa1\1\xff\x40",  # a name that is no UTF-8
        b"\0\x53\x74\xc1\6\2\xa1\1a\x40\x40",  # more than it counts
    ],
)
def test_no_head(raw: bytes) -> None:
    assert amqp_headers(raw) is None


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda rest: b"\0\x53\x74\xc1" + bytes([len(rest)]) + rest))
def test_any_bytes_are_bounded(raw: bytes) -> None:
    found = amqp_headers(raw)
    assert found is None or len(found) <= len(raw)


_SIMPLE = st.one_of(
    st.text(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(), st.uuids(), st.none()
)


@given(st.dictionaries(st.text(), _SIMPLE, max_size=8))
def test_the_same_as_the_brokers_codec(properties: dict[str, object]) -> None:
    head = encode_application_properties(properties)
    expected = Message(head).application_properties
    headers = dict(amqp_headers(head) or [])
    assert list(headers) == [str(name) for name in expected]
    for name, value in expected.items():
        text = headers[str(name)]
        if isinstance(value, bytes):
            assert base64.b64decode(str(text)) == value
        elif isinstance(value, bool) or value is None:
            assert text == (None if value is None else str(value).lower())
        else:
            assert text == str(value)


def test_stomp() -> None:
    assert stomp_headers(b"") == []
    assert stomp_headers(b"a:1\nb\\cc:x\\ny\na:2\n\xff:\n") == [("a", "1"), ("b:c", "x\ny"), ("\\xff", "")]
