"""The quick look at a message's sections finds what the careful one does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.composite import Composite
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import HEADER, MESSAGE_ANNOTATIONS, Message
from protocols.amqp.performatives import Properties
from protocols.amqp.sections import has_property, split
from tests.protocols.amqp.composites import instances
from tests.protocols.amqp.test_message import encoded, messages

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


@given(instances(Properties), st.integers(0, 12))
def test_what_has_a_property(properties: Composite, number: int) -> None:
    payload = properties.encode() + b"\x00\x53\x77\x40"
    at = split(payload)[3]
    held = getattr(properties, Properties.FIELDS[number].attribute)
    assert has_property(payload, at, number) == (held is not None)
