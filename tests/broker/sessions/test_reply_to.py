"""Where messages want answers, as the engine sees it, whatever protocol they came over."""

from __future__ import annotations

import pytest

from broker.engine.model.message import RoutingType
from broker.sessions.amqp.format import AmqpFormat
from broker.sessions.mqtt.format import MqttFormat, make_head
from broker.sessions.reply_to import JMS_KINDS, JMS_REPLY_TO
from broker.sessions.stomp.format import StompFormat
from protocols.amqp.encode import encode
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Properties
from protocols.amqp.types import Byte
from protocols.mqtt.properties import NO_PROPERTIES, RESPONSE_TOPIC
from protocols.mqtt.properties import Properties as MqttProperties

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", ("", None)),
        (b"x:reply-to\n", ("", None)),
        (b"reply-to:answers\n", ("answers", None)),
        (b"a:b\nreply-to:/queue/answers\n", ("answers", ANYCAST)),
        (b"reply-to:/topic/a\\cb\n", ("a:b", MULTICAST)),
    ],
)
def test_stomp(head: bytes, expected: tuple[str, RoutingType | None]) -> None:
    assert StompFormat((("/queue/", ANYCAST), ("/topic/", MULTICAST))).reply_to(head) == expected


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (None, None, ("", None)),
        (None, 0, ("", None)),
        ("answers", None, ("answers", None)),
        ("answers", 99, ("answers", None)),
        ("queue://answers", 1, ("answers", ANYCAST)),
        *[("answers", kind, ("answers", routing_type)) for kind, (routing_type, _) in enumerate(JMS_KINDS)],
    ],
)
def test_amqp(text: str | None, kind: int | None, expected: tuple[str, RoutingType | None]) -> None:
    noted = b"" if kind is None else encode_annotations(MESSAGE_ANNOTATIONS, {JMS_REPLY_TO: Byte(kind)})
    head = noted + encode(Properties(reply_to=text))
    assert AmqpFormat((("queue://", ANYCAST),)).reply_to(head) == expected


def test_damaged_amqp() -> None:
    assert AmqpFormat().reply_to(encode(Properties(reply_to="answers"))[:-3]) == ("", None)


def test_mqtt() -> None:
    assert MqttFormat().reply_to(make_head(1, False, NO_PROPERTIES)) == ("", None)
    head = make_head(1, False, MqttProperties([(RESPONSE_TOPIC, "answers/a")]))
    assert MqttFormat().reply_to(head) == ("answers.a", MULTICAST)
