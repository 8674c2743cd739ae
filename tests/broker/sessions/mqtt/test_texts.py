"""Text on its way to a client that refuses control characters and non-characters, as libmosquitto does (1.5.4)."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.performatives import Properties
from protocols.amqp.types import Symbol
from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.fields import acceptable, refusable
from protocols.mqtt.limits import Limits
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    PAYLOAD_FORMAT_INDICATOR,
    REASON_STRING,
    RESPONSE_TOPIC,
    SESSION_EXPIRY_INTERVAL,
    SUBSCRIPTION_IDENTIFIER,
    USER_PROPERTY,
    Property,
    acceptable_properties,
)
from protocols.mqtt.properties import Properties as MqttProperties
from tests.broker.sessions.mqtt.harness import with_mqtt
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient, Pairs, greeting
from tests.support.mqtt_world import SimCarrier, SimWorld

#: One of each kind, as a receiver may refuse it.
DISALLOWED: Final = "\x01\t\n\r\x1f\x7f\x80\x9f\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff"

#: What it gets instead.
REPLACED: Final = "\ufffd" * len(DISALLOWED)

VERSIONS: Final = (V31, V311, V5)

LASTING: Final = [(SESSION_EXPIRY_INTERVAL, 100)]

P = PacketType


def strict(sim: SimWorld, version: int = V5, **connecting: Any) -> MqttClient:
    """A client that ends the connection at the first such character."""
    client = MqttClient(limits=Limits(control_characters=False))
    client.over(SimCarrier(sim.broker))
    return client.connect(greeting("strict", version=version, **connecting))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_topics_and_properties_of_mqtt(sim: SimWorld, version: int, qos: int) -> None:
    client = strict(sim, version)
    client.subscribe("a/#", qos=qos)
    properties: Pairs = [
        (PAYLOAD_FORMAT_INDICATOR, 1),
        (USER_PROPERTY, (f"n{DISALLOWED}", f"v{DISALLOWED}")),
        (CONTENT_TYPE, f"c{DISALLOWED}"),
        (RESPONSE_TOPIC, f"r{DISALLOWED}"),
        (CORRELATION_DATA, DISALLOWED.encode()),
        (USER_PROPERTY, ("", "")),
        (USER_PROPERTY, ("ä\xa0\ufffd", "~ ")),
    ]
    other = sim.connect("other")
    other.publish(f"a/{DISALLOWED}", b"one\n", qos, properties=properties)
    other.publish("a/b", b"two", qos)
    first, second = client.take()
    assert [(each.topic, each.payload) for each in (first, second)] == [(f"a/{REPLACED}", b"one\n"), ("a/b", b"two")]
    if version == V5:
        got = first.properties
        assert got.get_all(USER_PROPERTY) == [
            (f"n{REPLACED}", f"v{REPLACED}"),
            ("", ""),
            ("ä\xa0\ufffd", "~ "),
        ]
        assert (got.get(CONTENT_TYPE), got.get(RESPONSE_TOPIC)) == (f"c{REPLACED}", f"r{REPLACED}")
        assert got.get(CORRELATION_DATA) == DISALLOWED.encode()
        assert got.get(PAYLOAD_FORMAT_INDICATOR) == 1


def test_consumers_of_other_protocols_get_the_text_itself(sim: SimWorld) -> None:
    stomp = sim.broker.subscriber("/topic/a", ack="auto")
    sim.connect("other").publish("a", b"x", properties=[(USER_PROPERTY, ("n", "1\n2"))])
    [frame] = stomp.messages()
    assert frame.headers["n"] == "1\n2"


def test_a_message_that_is_resent(sim: SimWorld) -> None:
    client = strict(sim, properties=LASTING)
    client.auto = False
    client.subscribe("a", qos=1)
    sim.connect("other").publish("a", b"x", 1, properties=[(USER_PROPERTY, ("n", "1\n2"))])
    for _ in range(2):
        [message] = client.take()
        assert message.properties.get_all(USER_PROPERTY) == [("n", "1\ufffd2")]
        client.drop()
        client = strict(sim, clean=False, properties=LASTING)


def test_a_retained_message(sim: SimWorld) -> None:
    sim.connect("other").publish("a", b"x", 1, retain=True, properties=[(USER_PROPERTY, ("n", "1\n2"))])
    client = strict(sim)
    client.subscribe("a", qos=1)
    assert [message.properties.get_all(USER_PROPERTY) for message in client.take()] == [[("n", "1\ufffd2")]]


def test_a_large_message(sim: SimWorld) -> None:
    client = strict(sim)
    client.subscribe("a", qos=1)
    sim.connect("other").publish("a", bytes(200_000), 1, properties=[(USER_PROPERTY, ("n", "1\n2"))])
    [message] = client.take()
    assert (len(message.payload), message.properties.get_all(USER_PROPERTY)) == (200_000, [("n", "1\ufffd2")])


def test_properties_of_stomp(sim: SimWorld) -> None:
    client = strict(sim)
    client.subscribe("a", qos=1)
    ascii_only = "\x01\t\n\r\x1f\x7f"
    headers = {"content-type": ascii_only, "reply-to": f"/topic/{DISALLOWED}", DISALLOWED: DISALLOWED}
    sim.broker.connect().do("SEND", {"destination": "/topic/a", **headers}, b"x")
    [message] = client.take()
    assert message.properties.get(CONTENT_TYPE) == "\ufffd" * len(ascii_only)
    assert message.properties.get(RESPONSE_TOPIC) == REPLACED
    assert (REPLACED, REPLACED) in message.properties.get_all(USER_PROPERTY)


def test_properties_of_amqp(sim: SimWorld) -> None:
    client = strict(sim)
    client.subscribe("a", qos=1)
    properties = Properties(content_type=Symbol("a\tb"), reply_to=f"r{DISALLOWED}", group_id=DISALLOWED)
    amqp = AmqpSim(sim.broker)
    sender = amqp.sender("a", "topic")
    amqp.post(sender, message("x", properties=properties, application={f"{DISALLOWED}\0": f"{DISALLOWED}\0"}))
    [got] = client.take()
    assert got.properties.get(CONTENT_TYPE) == "a\ufffdb"
    assert got.properties.get(RESPONSE_TOPIC) == f"r{REPLACED}"
    pairs = got.properties.get_all(USER_PROPERTY)
    assert ("JMSXGroupID", REPLACED) in pairs
    assert (f"{REPLACED}\ufffd", f"{REPLACED}\ufffd") in pairs  # U+0000, which no text of MQTT has


def test_the_text_of_a_dead_letter(sim: SimWorld) -> None:
    client = strict(sim)
    client.subscribe("DLQ", qos=1)
    reader = sim.subscriber("reader", "a", qos=1, auto=False)
    sim.connect("other").publish("a", b"x", 1)
    [sent] = reader.take()
    reader.ack(P.PUBACK, sent.packet_id, reason=0x80, properties=[(REASON_STRING, f"no{DISALLOWED}")])
    [letter] = client.take()
    told = dict(letter.properties.get_all(USER_PROPERTY))
    assert told["_AMQ_DL_REASON"] == "rejected"
    assert not set(DISALLOWED) & set("".join([*told, *told.values()]))


@pytest.mark.parametrize("characters", [20_000, 30_000])
def test_a_text_that_would_become_too_long_loses_the_characters(sim: SimWorld, characters: int) -> None:
    client = strict(sim)
    client.subscribe("a")
    client.subscribe("b")
    text = "x" + "\n" * characters
    sim.connect("other").publish("a", b"", properties=[(USER_PROPERTY, ("n", text))])
    sim.broker.connect().do("SEND", {"destination": "/topic/b", "n": text})
    expected = "x" + "\ufffd" * characters if characters == 20_000 else "x"
    for got in client.take():
        assert ("n", expected) in got.properties.get_all(USER_PROPERTY)


def test_reason_strings() -> None:
    """Of PUBACK and SUBACK: they may quote names that a client has chosen."""
    sim = SimWorld(with_mqtt({"match": "x.#", "auto-create-addresses": False}))
    client = strict(sim)
    code = client.subscribe(f"x/{DISALLOWED}")[0]
    assert code >= 0x80
    client.publish(f"x/{DISALLOWED}", b"x", 1)
    [answer] = client.answers
    assert answer.reason_code >= 0x80
    assert REPLACED in (answer.properties.get(REASON_STRING) or "")


# -- the bytes ---------------------------------------------------------------------------------------------------------

_TEXTS: Final = st.text(st.sampled_from(f"ab &{DISALLOWED}ä\ufffd"), max_size=5)
_PAIRS: Final = st.lists(
    st.one_of(
        st.tuples(st.just(USER_PROPERTY), st.tuples(_TEXTS, _TEXTS)),
        st.tuples(st.sampled_from([CONTENT_TYPE, RESPONSE_TOPIC]), _TEXTS),
        st.tuples(st.just(CORRELATION_DATA), st.binary(max_size=5)),
        st.tuples(st.just(PAYLOAD_FORMAT_INDICATOR), st.integers(0, 1)),
        st.tuples(st.just(MESSAGE_EXPIRY_INTERVAL), st.integers(0, 0xFFFF_FFFF)),
        st.tuples(st.just(SUBSCRIPTION_IDENTIFIER), st.integers(1, 268_435_455)),
    ),
    unique_by=lambda pair: id(pair) if pair[0] in (USER_PROPERTY, SUBSCRIPTION_IDENTIFIER) else pair[0].id,
)


@given(_PAIRS)
def test_only_texts_change_and_only_if_they_must(pairs: list[tuple[Property[Any], Any]]) -> None:
    raw = MqttProperties(pairs).raw

    def clean(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(clean, value))
        if not isinstance(value, str):
            return value
        return "".join("\ufffd" if character in DISALLOWED else character for character in value)

    expected = MqttProperties([(property, clean(value)) for property, value in pairs]).raw
    found = acceptable_properties(raw)
    assert found == expected
    assert (found is raw) == (raw == expected)


def test_every_code_point_is_judged_alike_in_both_forms() -> None:
    for number in (*range(0xD800), *range(0xE000, 0x110000, 7), *range(0xFD00, 0xFE00), *range(0xFFF0, 0x10000)):
        character = chr(number)
        raw = character.encode()
        assert bool(refusable(raw)) == (acceptable(character) != character), hex(number)
    for plane in range(0x11):
        for last in (0xFFFD, 0xFFFE, 0xFFFF):
            character = chr(plane << 16 | last)
            assert bool(refusable(character.encode())) == (last != 0xFFFD), hex(plane)
