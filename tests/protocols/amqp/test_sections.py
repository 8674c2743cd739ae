"""The quick look at a message's sections finds what the careful one does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.check import check_body
from protocols.amqp.composite import Composite
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import HEADER, MESSAGE_ANNOTATIONS, Message
from protocols.amqp.performatives import Header, Properties
from protocols.amqp.sections import ABSOLUTE_EXPIRY, GROUP_ID, has_property, plain_body, split
from tests.protocols.amqp.composites import instances
from tests.protocols.amqp.messages import encoded, messages

Offsets = tuple[int, int, int, bytes]


def quickly(payload: bytes) -> Offsets | None:
    """End of the header, beginnings of the bare message and of the body, annotations; None if it is malformed."""
    try:
        header_end, annotations_at, annotations_end, _, bare_at, body_at = split(payload)
    except DecodeError:
        return None
    return header_end, bare_at, body_at, payload[annotations_at:annotations_end]


def carefully(payload: bytes) -> Offsets | None:
    """The same, by decoding."""
    message = Message(payload)
    try:
        annotations = message.section(MESSAGE_ANNOTATIONS)
        return len(message.section(HEADER)), message.bare_at, message.body_at, annotations
    except DecodeError:
        return None


@given(messages(), st.data())
def test_both_find_the_same(made: tuple[dict[int, Any], int, list[object]], data: st.DataObject) -> None:
    payload = b"".join(encoded(*made).values())
    assert quickly(payload) == carefully(payload) is not None
    changed = bytearray(payload)
    changed[data.draw(st.integers(0, min(len(payload), 60) - 1))] = data.draw(st.integers(0, 255))
    cut = payload[: data.draw(st.integers(0, len(payload)))]
    for wrong in bytes(changed), cut:
        assert quickly(wrong) == carefully(wrong)


def plainly(payload: bytes, header_end: int) -> bool:
    """Whether it is plain; then both find the same, and nothing in it needs a closer look."""
    body_at = plain_body(payload, header_end)
    if not body_at:
        return False
    assert split(payload) == (header_end, 0, 0, header_end + 3, header_end, body_at)
    assert not has_property(payload, header_end + 3, ABSOLUTE_EXPIRY, GROUP_ID)
    check_body(payload[body_at:])
    return True


@pytest.mark.parametrize("header", [b"", b"\x00\x53\x70\x45", encode(Header(True))])
@pytest.mark.parametrize("mapped", [b"", b"\x00\x53\x74\xc1\x05\x02\xa1\x01a\x41"])
@pytest.mark.parametrize("body", [b"\xa0\x03abc", b"\xb0\x00\x00\x00\x03abc"])
def test_plain_messages_at_every_prefix_and_with_every_byte_changed(header: bytes, mapped: bytes, body: bytes) -> None:
    payload = header + encode(Properties("id")) + mapped + b"\x00\x53\x75" + body
    header_end = len(header)
    assert plainly(payload, header_end)
    grouped = header + encode(Properties("id", group_id="g")) + mapped + b"\x00\x53\x75" + body
    assert not plainly(grouped, header_end)
    for at in range(header_end, len(payload)):
        assert not plainly(payload[:at], header_end), at
        for byte in (0x00, 0x09, 0x40, 0x45, 0x53, 0x73, 0x74, 0xC0, 0xC1, 0xD0, 0xD1, 0xFF):
            plainly(payload[:at] + bytes([byte]) + payload[at + 1 :], header_end)


@given(messages())
def test_plain_sections_need_no_closer_look(made: tuple[dict[int, Any], int, list[object]]) -> None:
    payload = b"".join(encoded(*made).values())
    plainly(payload, len(Message(payload).section(HEADER)))


def large_map(pairs: int) -> bytes:
    """Application properties as some encoders write them, however few there are."""
    entries = b"".join(b"\xa1\x01" + bytes([97 + n]) + b"\x41" for n in range(pairs))
    return b"\x00\x53\x74\xd1" + (len(entries) + 4).to_bytes(4) + (2 * pairs).to_bytes(4) + entries


@pytest.mark.parametrize("header", [b"", b"\x00\x53\x70\x45", encode(Header(True))])
@pytest.mark.parametrize("mapped", [b"", large_map(0), large_map(3), b"\x00\x53\x74\xc1\x01\x00"])
def test_the_usual_messages_at_every_prefix_and_with_every_byte_changed(header: bytes, mapped: bytes) -> None:
    payload = header + encode(Properties("id")) + mapped + b"\x00\x53\x75\xa0\x03abc"
    assert quickly(payload) == carefully(payload) is not None
    for at in range(len(payload)):
        assert quickly(payload[:at]) == carefully(payload[:at]), at
        for byte in (0x00, 0x40, 0x45, 0x53, 0x73, 0x74, 0xC0, 0xC1, 0xD0, 0xD1, 0xFF):
            wrong = payload[:at] + bytes([byte]) + payload[at + 1 :]
            assert quickly(wrong) == carefully(wrong), (at, byte)


@given(instances(Properties), st.integers(0, 12))
def test_sections_with_a_property(properties: Composite, number: int) -> None:
    payload = properties.encode() + b"\x00\x53\x77\x40"
    at = split(payload)[3]
    held = getattr(properties, Properties.FIELDS[number].attribute)
    assert has_property(payload, at, number) == (held is not None)
