"""What a standby answers to clients."""

from __future__ import annotations

import pytest

from broker.sessions.failover import FailoverServer, open_properties
from broker.sessions.redirecting import (
    STANDBY,
    RedirectingSession,
    redirecting_amqp,
    redirecting_mqtt,
    redirecting_stomp,
)
from protocols.mqtt.codes import V5
from protocols.mqtt.encode import encode
from tests.support.mqtt_client import greeting
from tests.support.stomp_client import frame

SERVERS = "one.example:1 two.example:1"


def stomp() -> RedirectingSession:
    return redirecting_stomp(1024, SERVERS)


def mqtt() -> RedirectingSession:
    return redirecting_mqtt(1024, SERVERS)


def amqp() -> RedirectingSession:
    properties = open_properties((FailoverServer("one.example", 1),), "amqp")
    return redirecting_amqp(1024, "standby", properties)


def bytewise(session: RedirectingSession, data: bytes) -> bytes:
    """What it says to bytes that come one by one."""
    said = b""
    for at in range(len(data)):
        session.receive_data(data[at : at + 1])
        said += session.data_to_send()
    return said


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp(version: str, *, whole: bool) -> None:
    session = stomp()
    data = frame("CONNECT", {"accept-version": version, "login": "me", "passcode": "x"})
    data += frame("SEND", {"destination": "/queue/q", "receipt": "1"}, b"x")
    if whole:
        session.receive_data(data)
        said = session.data_to_send()
    else:
        said = bytewise(session, data)
    assert said.startswith(b"ERROR\nmessage:another broker has the journal\n")
    assert said.count(b"\0") == 1
    assert b"\nredirect:one.example:1 two.example:1\n" in said
    assert STANDBY.encode() in said
    assert session.close_expected
    assert not session.established


def test_mqtt() -> None:
    session = mqtt()
    session.receive_data(encode(greeting("c"), V5))
    said = session.data_to_send()
    assert (said[0], said[3]) == (0x20, 0x9C)
    assert SERVERS.encode() in said
    assert session.close_expected
    early = mqtt()
    assert bytewise(early, encode(greeting("c", version=4), 4)) == b"\x20\x02\x00\x03"
    assert early.close_expected


@pytest.mark.parametrize("mechanism", ["", "ANONYMOUS", "PLAIN"])
def test_amqp(mechanism: str) -> None:
    session = amqp()
    said = b""
    if mechanism:
        name = mechanism.encode()
        init = b"\x02\x01\x00\x00\x00\x53\x41\xc0" + bytes((len(name) + 3, 1)) + b"\xa3" + bytes((len(name),)) + name
        session.receive_data(b"AMQP\3\1\0\0" + (len(init) + 4).to_bytes(4, "big") + init)
        said = session.data_to_send()
        assert b"ANONYMOUS" in said
        assert b"PLAIN" not in said
    if mechanism == "PLAIN":
        assert said.endswith(b"\x53\x44\xc0\x03\x01\x50\x01"), "auth"
        assert session.close_expected
        return
    opener = b"\x02\x00\x00\x00\x00\x53\x10\xc0\x05\x01\xa1\x02me"
    begin = b"\x02\x00\x00\x00\x00\x53\x11\xc0\x09\x04\x40\x43\x70\x00\x00\x00\x09\x43"
    frames = b"".join((len(each) + 4).to_bytes(4, "big") + each for each in (opener, begin))
    session.receive_data(b"AMQP\0\1\0\0" + frames)
    said = session.data_to_send()
    assert b"failover-server-list" in said
    assert b"one.example" in said
    assert b"amqp:connection:forced" in said
    assert STANDBY.encode() in said
    assert session.close_expected
    assert not session.established


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (stomp, b"CONNECT\nlogin:" + b"x" * 2_000),
        (stomp, b"SEND\ndestination:/queue/q\n\nx\0"),
        (mqtt, b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05" + b"x" * 2_000),
        (mqtt, encode(greeting("c" * 200), V5)[:1] + b"\x80\x40" + b"x" * 2_000),
        (amqp, b"AMQP\0\1\0\0" + b"\x7f\xff\xff\xff\x02\x00\x00\x00"),
        (amqp, b"GET / HTTP/1.1\r\n\r\n"),
    ],
    ids=["large STOMP", "no CONNECT", "large MQTT", "wrong MQTT", "large AMQP", "HTTP"],
)
def test_bad_input_ends_it(make: object, data: bytes) -> None:
    assert callable(make)
    session = make()
    session.receive_data(data)
    said = session.data_to_send()
    assert session.close_expected
    assert SERVERS.encode() not in said
    session.receive_data(b"more")
    assert session.data_to_send() == b""


@pytest.mark.parametrize("make", [stomp, mqtt, amqp])
def test_silence_and_the_end(make: object) -> None:
    assert callable(make)
    session = make()
    assert session.data_to_send() == b""
    assert not session.close_expected
    session.receive_eof()
    assert session.close_expected
    other = make()
    other.shut_down()
    assert other.close_expected
