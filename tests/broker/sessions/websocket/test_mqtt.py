"""MQTT in a WebSocket, spoken to by the client side of the `websockets` library."""

from __future__ import annotations

import pytest
from websockets.frames import Opcode

from broker.config import load
from broker.config.acceptors import MqttAcceptor
from protocols.mqtt.codes import PacketType
from protocols.mqtt.encode import encode
from protocols.mqtt.packets import Subscribe
from tests.support.mqtt_client import greeting, publishes, wish
from tests.support.sim_broker import SimBroker
from tests.support.sim_browser import Browser, joined

_P = PacketType


@pytest.fixture
def browser() -> Browser:
    """A client that is connected, and has subscribed to everything with QoS 1."""
    acceptor = MqttAcceptor.model_validate({"protocol": "mqtt", "websocket": True})
    browser = Browser(SimBroker(load(None).model_copy(update={"acceptors": {"mqtt": acceptor}})), "mqtt", "mqtt")
    (connack,) = browser.say(encode(greeting("web"), 5), text=False)
    assert connack.data[0] >> 4 == _P.CONNACK
    (suback,) = browser.say(encode(Subscribe(1, [wish("#", 1)]), 5), text=False)
    assert suback.data[0] >> 4 == _P.SUBACK
    return browser


def test_a_message_is_a_packet(browser: Browser) -> None:
    """Some clients, Paho's for C, read a second packet of a message only when more bytes arrive."""
    payloads = [b"one", b"", b"x" * 127, b"y" * 20_000]
    answers = browser.say(publishes([("a", payload) for payload in payloads], 1), text=False)
    assert {(answer.opcode, answer.fin) for answer in answers} == {(Opcode.BINARY, True)}
    kinds = [answer.data[0] >> 4 for answer in answers]
    assert (kinds.count(_P.PUBLISH), kinds.count(_P.PUBACK), len(kinds)) == (4, 4, 8)
    arrived = [bytes(answer.data) for answer in answers if answer.data[0] >> 4 == _P.PUBLISH]
    assert all(packet.endswith(payload) for packet, payload in zip(arrived, payloads, strict=True))


def test_a_packet_with_a_large_payload_is_one_message_too(browser: Browser) -> None:
    payloads = [b"x" * 700_000, b"small", b"y" * 200_000]
    answers = browser.say(publishes([("a", payload) for payload in payloads], 0), text=False)
    messages = joined(answers)
    assert len(answers) > 3
    assert len(messages) == 3
    assert all(packet.endswith(payload) for packet, payload in zip(messages, payloads, strict=True))
    assert answers[-1].fin
