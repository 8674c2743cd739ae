"""limits.connect-bytes-max over every protocol: a login of so many bytes comes in, one byte more is told why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from broker.config import Config, load
from broker.config.acceptors import MqttAcceptor
from tests.protocols.mqtt.peer import frame, text
from tests.support.sim_broker import SimBroker, SimPeer

#: The beginning of a CONNACK of version 5 that lets a client in.
WELCOME = b"\x20\x11\0\0"

#: For somebody with long tokens.
MOST = 48 << 10


def stomp(password: bytes) -> bytes:
    """CONNECT."""
    return b"CONNECT\naccept-version:1.2\nhost:h\nlogin:alice\npasscode:" + password + b"\n\n\0"


def mqtt(password: bytes) -> bytes:
    """CONNECT of version 5."""
    return frame(0x10, text("MQTT") + b"\5\xc2\0\0\0" + text("c") + text("alice") + text(password))


def mqtt_before(password: bytes) -> bytes:
    """CONNECT of version 3.1.1."""
    return frame(0x10, text("MQTT") + b"\4\xc2\0\0" + text("c") + text("alice") + text(password))


def amqp(password: bytes) -> bytes:
    """sasl-init with PLAIN."""
    response = b"\0alice\0" + password
    fields = b"\0\0\0\2\xa3\5PLAIN\xb0" + len(response).to_bytes(4, "big") + response
    body = b"\0\x53\x41\xd0" + len(fields).to_bytes(4, "big") + fields
    return (len(body) + 8).to_bytes(4, "big") + b"\2\1\0\0" + body


def long(make: Callable[[bytes], bytes], nbytes: int) -> bytes:
    """A frame of so many bytes, nearly all of them the password."""
    frame = make(b"p" * (2 * nbytes - 100 - len(make(b"p" * (nbytes - 100)))))
    assert len(frame) == nbytes
    return frame


class Stranger(SimPeer):
    """Somebody who logs in where everybody may; `answer` is what he is told."""

    def __init__(self, config: Config, acceptor: str) -> None:
        broker = SimBroker(config)
        self.answer = b""
        super().__init__(broker, acceptor, broker.number())

    def heard(self, data: bytes) -> None:
        """See SimPeer."""
        self.answer += data


class Browser(Stranger):
    """The same in a WebSocket."""

    def __init__(self, config: Config) -> None:
        self.ws = ClientProtocol(parse_uri("ws://h/"), subprotocols=[Subprotocol("mqtt")], max_size=None)
        self.ws.send_request(self.ws.connect())
        super().__init__(config, "mqtt")
        self.raw(b"".join(self.ws.data_to_send()))

    def heard(self, data: bytes) -> None:
        """See SimPeer."""
        self.ws.receive_data(data)
        self.answer += b"".join(event.data for event in self.ws.events_received() if isinstance(event, Frame))

    def say(self, data: bytes) -> None:
        """A message."""
        self.ws.send_binary(data)
        self.raw(b"".join(self.ws.data_to_send()))


def config(*, websocket: bool = False) -> Config:
    """As shipped, but for the limit."""
    shipped = load(None)
    limits = shipped.limits.model_copy(update={"connect_bytes_max": MOST, "header_line_bytes_max": MOST})
    acceptors = dict(shipped.acceptors)
    if websocket:
        acceptors["mqtt"] = MqttAcceptor.model_validate({"protocol": "mqtt", "websocket": True})
    return shipped.model_copy(update={"limits": limits, "acceptors": acceptors})


@pytest.mark.parametrize(
    ("acceptor", "make", "head", "welcome", "refusal"),
    [
        ("stomp", stomp, b"", b"CONNECTED\n", b"ERROR\nmessage:frame too large\n"),
        ("mqtt", mqtt, b"", WELCOME, b" bytes, at most 49152 are allowed before the login"),
        ("mqtt", mqtt_before, b"", b"\x20\x02\0\0", b""),
        ("amqp", amqp, b"AMQP\3\1\0\0", b"\0\x53\x44\xc0\x03\1\x50\0", b""),
    ],
    ids=["stomp", "mqtt 5", "mqtt 3.1.1", "amqp"],
)
def test_a_login(acceptor: str, make: Callable[[bytes], bytes], head: bytes, welcome: bytes, refusal: bytes) -> None:
    peer = Stranger(config(), acceptor)
    peer.raw(head + long(make, MOST))
    assert welcome in peer.answer
    assert not peer.closed
    assert peer.broker.reported("login.too_large") == []

    peer = Stranger(config(), acceptor)
    peer.raw(head + long(make, MOST + 1))
    assert peer.closed
    assert refusal in peer.answer
    assert welcome not in peer.answer
    [report] = peer.broker.reported("login.too_large")
    assert str(MOST) in " ".join(map(str, report.values()))


def test_a_login_over_websocket() -> None:
    peer = Browser(config(websocket=True))
    peer.say(long(mqtt, MOST))
    assert peer.answer.startswith(WELCOME)
    peer = Browser(config(websocket=True))
    peer.say(long(mqtt, MOST + 1))
    assert peer.closed
    assert peer.answer[2:4] == b"\0\x95"
    assert len(peer.broker.reported("login.too_large")) == 1
