"""limits.connect-bytes-max over every protocol: a login of so many bytes comes in, one byte more is told why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.config import Config, load
from broker.config.acceptors import MqttAcceptor
from tests.protocols.mqtt.peer import frame, text
from tests.support.sim_broker import SimBroker
from tests.support.sim_browser import Browser, RawPeer

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
    peer = RawPeer(SimBroker(config()), acceptor)
    peer.raw(head + long(make, MOST))
    assert welcome in peer.got
    assert not peer.closed
    assert peer.broker.reported("login.too_large") == []

    peer = RawPeer(SimBroker(config()), acceptor)
    peer.raw(head + long(make, MOST + 1))
    assert peer.closed
    assert refusal in peer.got
    assert welcome not in peer.got
    [report] = peer.broker.reported("login.too_large")
    assert str(MOST) in " ".join(map(str, report.values()))


def test_a_login_over_websocket() -> None:
    peer = Browser(SimBroker(config(websocket=True)), "mqtt", "mqtt")
    [answer] = peer.say(long(mqtt, MOST), text=False)
    assert bytes(answer.data).startswith(WELCOME)
    peer = Browser(SimBroker(config(websocket=True)), "mqtt", "mqtt")
    answer, *_ = peer.say(long(mqtt, MOST + 1), text=False)
    assert peer.closed
    assert answer.data[2:4] == b"\0\x95"
    assert len(peer.broker.reported("login.too_large")) == 1
