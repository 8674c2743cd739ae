"""Every limit of the connection: as much as it allows, and one more, however it arrives."""

from __future__ import annotations

import tracemalloc

import pytest

from protocols.mqtt.codes import V5, V311, ReasonCode, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, encode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import PACKET_BYTES_MIN, Limits
from protocols.mqtt.packets import Auth, Connack, Packet, Publish
from protocols.mqtt.reader import PacketReader
from protocols.mqtt.state import View
from tests.protocols.mqtt.peer import (
    VERSIONS,
    block,
    connect_body,
    connected,
    failure,
    frame,
    hello,
    maker,
    opened,
    text,
)
from tests.support.interpreted import interpreted
from tests.support.wire import bytewise, check_malformed, feed

SMALL = Limits(packet_bytes_max=300, connect_bytes_max=100)


def publish(version: int, nbytes: int, qos: int = 0) -> bytes:
    """A PUBLISH of so many bytes, at least 131."""
    head = PublishHead(version, "a", qos=qos)
    out: list[bytes] = []
    head.encode(out, [b"x" * (nbytes - 3 - head.fixed_bytes)], [1] if qos else [])
    raw = b"".join(out)
    assert len(raw) == nbytes
    return raw


def refused(make: object, raw: bytes, reason: ReasonCode) -> MqttError:
    """However it arrives."""
    assert callable(make)
    error = check_malformed(make, raw, MqttError)
    assert error.reason == reason
    return error


@pytest.mark.parametrize("version", VERSIONS)
def test_packet_bytes(version: int) -> None:
    """MQTT-3.2.2-15; also within a run."""
    for qos in (0, 1):
        for pieces in (
            [publish(version, 300, qos)],
            bytewise(publish(version, 300, qos)),
            [publish(version, 300, qos) * 5],
        ):
            connection = connected(version, limits=SMALL)
            assert feed(connection, pieces)
            assert failure(connection) is None
        error = refused(maker(version, limits=SMALL), publish(version, 301, qos), ReasonCode.PACKET_TOO_LARGE)
        assert error.sentence == "a packet of 301 bytes, at most 300 are allowed"
        connection = connected(version, limits=SMALL)
        found = feed(connection, [publish(version, 300, qos) * 3 + publish(version, 301, qos)])
        assert sum(len(run.topics) for run in found if isinstance(run, Publish)) == 3
        assert failure(connection) is not None


def test_a_packet_that_is_too_large_is_known_by_its_length() -> None:
    """It is refused before it has come, and nothing is reserved for it."""
    for length in (b"\xff\xff\xff\x7f", b"\xaa\x02"):
        connection = connected(V5, limits=SMALL)
        tracemalloc.start()
        assert feed(connection, [b"\x30" + length]) == []
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert failure(connection) is not None
        assert peak < 100_000


def test_the_announced_maximum_is_the_one_that_is_checked() -> None:
    connection = opened(Role.SERVER, SMALL)
    feed(connection, [frame(0x10, connect_body(V5))])
    connection.send(Connack())
    assert b"\x27\0\0\x01\x2c" in connection.data_to_send()


@pytest.mark.parametrize("version", VERSIONS)
def test_connect_bytes(version: int) -> None:
    """Before CONNACK a stranger has less, and is told so as soon as his version is known."""
    limits = Limits(packet_bytes_max=300, connect_bytes_max=100, client_id_bytes_max=200)
    spare = 100 - 2 - len(connect_body(version, 0x82, text("c") + text("")))
    raw = frame(0x10, connect_body(version, 0x82, text("c") + text("u" * spare)))
    assert len(raw) == 100
    assert len(feed(opened(Role.SERVER, limits), [raw])) == 1
    raw = frame(0x10, connect_body(version, 0x82, text("c") + text("u" * (spare + 1))))
    error = refused(lambda: opened(Role.SERVER, limits), raw, ReasonCode.PACKET_TOO_LARGE)
    assert error.sentence == "a packet of 101 bytes, at most 100 are allowed before the login"
    connection = opened(Role.SERVER, limits)
    feed(connection, [raw[:6]])
    assert failure(connection) is None
    feed(connection, [raw[6:11]])
    connection.send_error(error)
    explained = block(b"\x1f" + text(error.sentence))
    assert connection.data_to_send() == (frame(0x20, b"\0\x95" + explained) if version == V5 else b"")


def test_a_stranger_who_does_not_speak_mqtt_gets_no_answer() -> None:
    connection = opened(Role.SERVER, SMALL)
    feed(connection, [b"\x10\xff\xff\xff\x7f" + text("HTTP!!") + b"\4"])
    error = failure(connection)
    assert isinstance(error, MqttError)
    assert error.silent


def test_auth_bytes_before_connack() -> None:
    def make() -> MqttConnection:
        connection = opened(Role.SERVER, SMALL)
        feed(connection, [frame(0x10, connect_body(V5, properties=block(b"\x15" + text("M"))))])
        connection.send(Auth(0x18))
        return connection

    def raw(nbytes: int) -> bytes:
        return frame(0xF0, b"\x18" + block(b"\x15" + text("M") + b"\x16" + text("d" * (nbytes - 11))))

    assert len(raw(100)) == 100
    assert len(feed(make(), [raw(100)])) == 1
    error = refused(make, raw(101), ReasonCode.PACKET_TOO_LARGE)
    assert not error.silent


def test_a_client_reads_what_its_server_may_send() -> None:
    """The limit of strangers is the server's."""
    client = opened(Role.CLIENT, SMALL)
    client.send(hello(V5))
    connack = encode(Connack(0x80), V5)[:-1] + b"\x7c" + b"\x1f" + text("x" * 121)
    assert len(feed(client, [frame(0x20, connack[2:])])) == 1


def test_the_least_limit() -> None:
    Limits(packet_bytes_max=PACKET_BYTES_MIN)
    with pytest.raises(ValueError, match="packet_bytes_max is at least 256, not 255"):
        Limits(packet_bytes_max=PACKET_BYTES_MIN - 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_filters_of_one_packet(version: int) -> None:
    limits = Limits(filters_max=3)
    properties = b"\0" if version == V5 else b""
    for first, one in ((0x82, text("a") + b"\0"), (0xA2, text("a"))):
        assert len(feed(connected(version, limits=limits), [frame(first, b"\0\1" + properties + one * 3)])) == 1
        raw = frame(first, b"\0\1" + properties + one * 4)
        error = refused(maker(version, limits=limits), raw, ReasonCode.QUOTA_EXCEEDED)
        assert "at most 3 are allowed" in error.sentence


@pytest.mark.parametrize("version", [V311, V5])
def test_client_id_bytes(version: int) -> None:
    limits = Limits(client_id_bytes_max=10)
    for client_id in ("x" * 10, "ä" * 5):
        assert len(feed(opened(Role.SERVER, limits), [frame(0x10, connect_body(version, 2, text(client_id)))])) == 1
        raw = frame(0x10, connect_body(version, 2, text(client_id + "x")))
        error = refused(lambda: opened(Role.SERVER, limits), raw, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
        assert error.return_code == 2


def test_client_ids_that_a_server_must_allow() -> None:
    """MQTT-3.1.3-5; longer ones too, which 3.1 forbids and its clients have."""
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for version in VERSIONS:
        for client_id in (alphabet[:23], alphabet[23:46], alphabet[39:], "x", "ä" * 23, alphabet):
            assert len(feed(opened(), [frame(0x10, connect_body(version, 2, text(client_id)))])) == 1


def test_topic_aliases() -> None:
    limits = Limits(topic_alias_max=2)
    for alias in (1, 2, 3):
        connection = connected(V5, limits=limits)
        raw = frame(0x30, text("a") + block(b"\x23" + alias.to_bytes(2, "big")))
        assert len(feed(connection, [raw])) == (alias < 3)
        error = failure(connection)
        assert (error is not None) == (alias == 3)
        assert error is None or error.reason == ReasonCode.TOPIC_ALIAS_INVALID


def test_topics_have_limits() -> None:
    limits = Limits(topic_bytes_max=5, topic_levels_max=2)
    for version in VERSIONS:
        for topic in ("a/bcd", "abcde"):
            assert len(feed(connected(version, limits=limits), [frame(0x30, text(topic) + b"\0")])) == 1
        for topic in ("a/bcde", "a/b/c"):
            refused(maker(version, limits=limits), frame(0x30, text(topic) + b"\0"), ReasonCode.TOPIC_NAME_INVALID)


@interpreted
def test_a_large_packet_in_many_pieces_takes_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come of it is not gone through again and again: its pieces are put together once."""
    limits = Limits(packet_bytes_max=8 << 20)
    raw = frame(0x30, text("a") + b"\0" + bytes(4 << 20))
    connection = connected(V5, limits=limits)
    looked = 0
    original = PacketReader.read

    def counting(self: PacketReader, view: View) -> Packet | None:
        nonlocal looked
        looked += 1
        return original(self, view)

    monkeypatch.setattr(PacketReader, "read", counting)
    pieces = [raw[at : at + 1000] for at in range(0, len(raw), 1000)]
    assert len(feed(connection, pieces)) == 1
    assert looked <= 6


def test_memory_for_a_packet_that_does_not_come() -> None:
    connection = connected(V5)
    tracemalloc.start()
    feed(connection, [b"\x30\x80\x80\x80\x05"[:5], b"\0\1a\0"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert failure(connection) is None
    assert peak < 100_000


@pytest.mark.parametrize("raw", [b"\xe0\0", b"\xf7\0"])
def test_nothing_is_kept_after_the_end(raw: bytes) -> None:
    """After DISCONNECT, or an error."""
    connection = connected(V311)
    feed(connection, [raw])
    connection.receive_data(b"x" * 1000)
    assert not len(connection._reader)
