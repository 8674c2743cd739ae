"""Message ids as texts, and back."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.sessions.message_ids import correlation_data, correlation_text, id_of, id_text
from protocols.amqp.composite import decode_composite
from protocols.amqp.performatives import MessageId, Properties
from protocols.amqp.types import ULong
from protocols.mqtt.properties import CORRELATION_DATA
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld

_PREFIXES = ["", *(f"ID:AMQP_{name}:" for name in ("BINARY", "STRING", "ULONG", "UUID", "NO_PREFIX"))]

#: Texts that are like those that stand for other types.
texts = st.builds(
    "{}{}{}".format,
    st.sampled_from(_PREFIXES),
    st.sampled_from(_PREFIXES),
    st.text(max_size=5)
    | st.uuids().map(str)
    | st.integers(-(2**65), 2**65).map(str)
    | st.sampled_from(("5", "05", "-0", "-1", "+1", "1_0", "00FF", "00ff", "\u0665", str(2**64 - 1), str(2**64))),
)
ids = st.one_of(texts, st.binary(max_size=5), st.uuids(), st.integers(0, 2**64 - 1).map(ULong))


@given(ids)
def test_every_id_comes_back_of_its_type(id: MessageId) -> None:
    again = id_of(id_text(id))
    assert (again, type(again)) == (id, type(id))


@given(texts)
def test_every_text_comes_back(text: str) -> None:
    assert id_text(id_of(text)) == text


@given(texts | st.text(max_size=20))
def test_every_text_can_be_rendered(text: str) -> None:
    """AMQP can encode the id that a text stands for, so whatever another protocol's client calls its message."""
    sent = Properties(message_id=id_of(text), correlation_id=id_of(text))
    read = decode_composite(sent.encode())[0]
    assert isinstance(read, Properties)
    assert read.message_id is not None
    assert read.correlation_id is not None
    assert (id_text(read.message_id), id_text(read.correlation_id)) == (text, text)


#: What each protocol lets a client write as an id of its own; STOMP and MQTT have no NUL in a text.
_written = texts.filter(lambda text: "\0" not in text and "\r" not in text and "\n" not in text)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(_written, st.binary(min_size=1, max_size=8), ids.filter(bool))
@example("ID:AMQP_ULONG:-1", b"ID:AMQP_ULONG:-1", "ID:AMQP_ULONG:-1")
@example("ID:AMQP_ULONG:18446744073709551616", b"\xff", ULong(2**64 - 1))
@example("x", b"ID:AMQP_UUID:1", "x" * 70_000)
def test_an_id_that_one_protocol_accepts_every_other_renders(text: str, data: bytes, id: MessageId) -> None:
    """Each message reaches a consumer of each protocol, and as a dead letter too."""
    world = SimWorld()
    amqp = AmqpSim(world.broker)
    amqp.receiver("DLQ")
    amqp.receiver("topic://t")
    stomp = world.broker.subscriber("/topic/t")
    mqtt = world.subscriber("reader", "t", qos=1)
    world.broker.connect().send("/topic/t", b"1", **{"correlation-id": text, "message-id": text})
    world.connect("sender").publish("t", b"2", 1, properties=[(CORRELATION_DATA, data)])
    sent = Properties(message_id=id, correlation_id=id)
    amqp.send(amqp.sender("topic://t"), message("3", properties=sent))
    assert not world.broker.reported("message.conversion_failed")
    assert [len(amqp.take()), len(stomp.messages()), len(mqtt.take())] == [3, 3, 3]
    assert not world.broker.reported("message.dead_lettered")


@given(st.binary(max_size=20))
def test_correlation_data_comes_back(data: bytes) -> None:
    assert correlation_data(correlation_text(data)) == data


@pytest.mark.parametrize(
    ("id", "text"),
    [
        ("order-1", "order-1"),
        ("ID:5", "ID:5"),
        (ULong(5), "ID:AMQP_ULONG:5"),
        (UUID(int=7), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000007"),
        (b"\x00\xff", "ID:AMQP_BINARY:00FF"),
        ("ID:AMQP_ULONG:5", "ID:AMQP_STRING:ID:AMQP_ULONG:5"),
    ],
)
def test_the_texts_are_those_of_the_jms_mapping(id: MessageId, text: str) -> None:
    assert id_text(id) == text


def test_a_text_of_many_prefixes() -> None:
    text = "ID:AMQP_STRING:" * 4_000 + "ID:AMQP_ULONG:5"
    assert id_of(text) == text.removeprefix("ID:AMQP_STRING:")
