"""Any bytes at all give events or an AmqpError, never anything else, and never keep more than the limits."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.channels import Channels
from protocols.amqp.composite import Composite, decode_composite
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.decode import Decoder, decode
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.frames import AMQP_HEADER, frame
from protocols.amqp.message import Message
from tests.protocols.amqp.composites import CLASSES, sample
from tests.protocols.amqp.conversation import LIMITS, WRONG, by_link, converse, server, stream
from tests.protocols.amqp.values import values
from tests.support.interpreted import interpreted
from tests.support.wire import bytewise


@interpreted
@pytest.mark.parametrize("seed", range(4))
def test_frames_in_any_order(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    told: set[str] = set()
    for _ in range(150):
        pieces = stream(random, 30)
        whole = converse(server(), pieces)
        split = converse(server(), [byte for piece in pieces for byte in bytewise(piece)])
        assert split == whole
        for reads in pieces, [b"".join(pieces)]:
            in_runs = by_link(converse(server(), reads))
            with monkeypatch.context() as patch:
                patch.setattr(Channels, "read_run", lambda _, buffer, at, events: at)
                assert by_link(converse(server(), reads)) == in_runs
        told |= {str(event[-2]) if isinstance(event, tuple) else str(event) for event in whole}
        told |= {str(event[0]) for event in whole if isinstance(event, tuple)}
    assert {"Began", "Attached", "Credit", "SessionFailed", "LinkFailed", "Detached", "Ended", "Aborted"} <= told
    assert told & {"b't1'", "b't2'"}


BYTES: Final = b"\x00\x40\x41\x43\x45\x53\x70\x80\x98\xa0\xa3\xb1\xc0\xc1\xd0\xe0\xff"


@pytest.mark.parametrize("seed", range(4))
def test_good_frames_with_a_few_wrong_bytes(seed: int) -> None:
    random = Random(f"wrong {seed}")
    wrong = 0
    for _ in range(150):
        raw = bytearray(b"".join(stream(random, 10)))
        for _ in range(random.randint(1, 4)):
            at = random.randrange(8, len(raw))
            raw[at : at + random.randint(0, 2)] = random.choice(WRONG)
        told = converse(server(), [bytes(raw)])
        wrong += isinstance(told[-1], str) and told[-1].startswith("amqp:")
        converse(server(), [bytes(raw[at : at + 64]) for at in range(0, len(raw), 64)])
    assert wrong > 50


@pytest.mark.parametrize("cls", CLASSES)
def test_any_byte_of_a_composite_changed(cls: type[Composite]) -> None:
    raw = sample(cls).encode()
    for at in range(len(raw)):
        for byte in BYTES:
            changed = raw[:at] + bytes([byte]) + raw[at + 1 :]
            try:
                found, end = decode_composite(changed)
            except DecodeError as error:
                offset = error.offset
            else:
                offset = end
                assert decode_composite(found.encode())[0] == found or "nan" in repr(found)
            assert 0 <= offset <= len(changed)


@given(st.binary(max_size=200))
def test_any_bytes_as_a_value(raw: bytes) -> None:
    end = 0
    try:
        value = decode(raw)
        end = len(raw)
        assert decode(encode(value)) == value or "nan" in repr(value)
    except DecodeError as error:
        end = error.offset
    assert 0 <= end <= len(raw)
    decoder = Decoder(raw)
    try:
        decoder.skip()
    except DecodeError:
        return
    assert 0 < decoder.at <= len(raw)


@given(values, st.data())
def test_values_with_a_wrong_byte(value: object, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    offset = 0
    try:
        decode(bytes(raw))
    except DecodeError as error:
        offset = error.offset
    assert 0 <= offset <= len(raw)


QUESTIONS: Final[list[Callable[[Message], object]]] = [
    lambda message: message.header,
    lambda message: message.properties,
    lambda message: message.message_annotations,
    lambda message: message.application_properties,
    lambda message: message.body(),
    lambda message: message.bare,
]


@given(st.binary(max_size=300))
def test_any_bytes_as_a_message(raw: bytes) -> None:
    prefix = b"\x00\x53" + bytes([0x70 + len(raw) % 9])
    for payload in raw, prefix + raw:
        message = Message(payload)
        for ask in QUESTIONS:
            offset = 0
            try:
                ask(message)
            except DecodeError as error:
                offset = error.offset
            assert 0 <= offset <= len(payload)


@given(st.binary(max_size=300), st.integers(0, 4))
def test_any_bytes_as_frames(raw: bytes, stage: int) -> None:
    begin = stream(Random(stage), 0)
    for cut in (begin[:stage], begin):
        converse(server(), [b"".join(cut), raw])
        body = b"".join(cut) + (8 + len(raw)).to_bytes(4) + b"\x02\x00\x00\x00" + raw
        converse(server(), [body])
        converse(AmqpConnection(LIMITS, container_id="c", server=False), [AMQP_HEADER, raw])


def test_zero_width_arrays_cost_nothing() -> None:
    """Four billion nulls in ten bytes (a bomb of old)."""
    for code in 0x40, 0x41, 0x42, 0x43, 0x44, 0x45:
        raw = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff" + bytes([code])
        with pytest.raises(DecodeError, match="too many values in one"):
            decode(raw)
        told = converse(server(), [AMQP_HEADER + frame(0, b"\x00\x53\x10\xd0\x00\x00\x00\x0e\x00\x00\x00\x01" + raw)])
        assert told == ["Connected", "amqp:decode-error"]
