"""Payloads in parts: a large PUBLISH as it comes, and one that is read while it goes out."""

from __future__ import annotations

import pytest

from protocols.mqtt.codes import V5, V311, ReasonCode, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import WHOLE_BYTES_MIN, Limits
from protocols.mqtt.packets import Begun, Packet, Part, Pingreq, Pingresp, Publish
from protocols.mqtt.properties import CONTENT_TYPE, TOPIC_ALIAS, USER_PROPERTY, Properties, Property
from protocols.mqtt.runs import Shared
from protocols.mqtt.state import State
from protocols.mqtt.streams import STREAMED_BYTES_MAX
from tests.protocols.mqtt import peer

WHOLE = 1000
LIMITS = Limits(whole_bytes_max=WHOLE, packet_bytes_max=100_000, properties_bytes_max=3000, topic_bytes_max=2000)
PINGREQ = bytes([0xC0, 0])


def connected(version: int = V5) -> tuple[MqttConnection, MqttConnection]:
    """A server that takes parts, and its client."""
    return peer.connected(version, limits=LIMITS), peer.connected(version, Role.CLIENT)


def publish(
    payload: bytes, *, version: int = V5, topic: str = "a/b", qos: int = 1, properties: tuple[object, ...] = ()
) -> bytes:
    """A PUBLISH; of packet id 7 if it has one."""
    pairs: list[tuple[Property[object], object]] = list(properties)  # type: ignore[arg-type]
    out: list[bytes] = []
    PublishHead(version, topic, qos=qos, properties=Properties(pairs).raw).encode(out, [payload], [7])
    return b"".join(out)


def read(server: MqttConnection, data: bytes, step: int) -> list[Packet]:
    """What comes of bytes that arrive so many at a time; resumed after each last part."""
    found: list[Packet] = []
    for at in range(0, len(data), step):
        server.receive_data(data[at : at + step])
        while packets := server.events():
            found += packets
            if isinstance(packets[-1], Part) and packets[-1].last:
                assert not server.events(), "nothing is read until it is resumed"
                server.resume()
    return found


def joined(packets: list[Packet]) -> list[tuple[str, bytes]]:
    """Topic and payload of all messages, however they came."""
    found: list[tuple[str, bytes]] = []
    for packet in packets:
        if isinstance(packet, Begun):
            found.append((packet.publish.topics[0], b""))
            assert packet.nbytes > WHOLE
        elif isinstance(packet, Part):
            assert packet.payload
            found[-1] = (found[-1][0], found[-1][1] + packet.payload)
        elif isinstance(packet, Publish):
            found += zip(packet.topics, packet.payloads, strict=True)
    return found


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("step", [1, 2, 999, 1 << 20])
def test_large_and_small_ones_in_any_pieces(version: int, qos: int, step: int) -> None:
    server, _ = connected(version)
    sizes = [3, WHOLE, WHOLE + 1, 0, 5000, 5001, WHOLE - 1]
    data = b"".join(publish(bytes([n]) * size, version=version, qos=qos) for n, size in enumerate(sizes))
    packets = read(server, data + PINGREQ, step)
    assert server.error is None
    assert [(topic, len(payload)) for topic, payload in joined(packets)] == [("a/b", size) for size in sizes]
    assert all(set(payload) <= {n} for n, (_, payload) in enumerate(joined(packets)))
    assert isinstance(packets[-1], Pingreq)
    begun = [packet for packet in packets if isinstance(packet, Begun)]
    assert [packet.nbytes for packet in begun] == [WHOLE + 1, 5000, 5001]
    for packet in begun:
        run = packet.publish
        assert (run.qos, run.packet_ids, run.payloads) == (qos, [7] if qos else [], [])


@pytest.mark.parametrize("step", [1, 100, 1 << 20])
def test_large_properties_before_the_payload_do_not_count(step: int) -> None:
    server, _ = connected()
    told = tuple((USER_PROPERTY, ("n", "x" * 900)) for _ in range(3))
    data = publish(b"small", properties=told) + publish(b"", topic="t" * 1500) + publish(b"y" * 1001, properties=told)
    packets = read(server, data, step)
    assert [type(packet) for packet in packets][:3] == [Publish, Publish, Begun]
    assert [len(payload) for _, payload in joined(packets)] == [5, 0, 1001]
    assert isinstance(packets[2], Begun)
    assert len(list(packets[2].publish.properties)) == 3


def test_topic_aliases() -> None:
    server, _ = connected()
    with_alias = publish(bytes(2000), properties=((TOPIC_ALIAS, 3),))
    packets = read(server, with_alias + publish(b"x", topic="", properties=((TOPIC_ALIAS, 3),)), 100)
    assert [topic for topic, _ in joined(packets)] == ["a/b", "a/b"]


@pytest.mark.parametrize("step", [1, 1 << 20])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (publish(bytes(2000), topic="a/#"), ReasonCode.MALFORMED_PACKET),
        (publish(bytes(2000), topic="t" * 2001), ReasonCode.TOPIC_NAME_INVALID),
        (bytes([0x30, 0xFF, 0x7F, 0xFF, 0xFF]) + bytes(70_000), ReasonCode.MALFORMED_PACKET),
        (bytes([0x32, 0xFF, 0x7F, 0, 1, 97, 0, 0]) + bytes(20_000), ReasonCode.PROTOCOL_ERROR),
        (bytes([0x36, 0xFF, 0x7F, 0, 1, 97, 0, 7]) + bytes(20_000), ReasonCode.MALFORMED_PACKET),
        (bytes([0x30, 0xFF, 0xFF, 1, 0, 1, 97, 0xFF, 0x7F]) + bytes(20_000), ReasonCode.QUOTA_EXCEEDED),
        (bytes([0x30, 0xFF, 0x0F, 0, 1, 97, 0xFF, 0x7F]) + bytes(20_000), ReasonCode.MALFORMED_PACKET),
        (bytes([0x30, 0xFF, 0x7F, 0, 1, 97, 0xFF, 0xFF, 0xFF, 0xFF, 1]), ReasonCode.MALFORMED_PACKET),
        (publish(bytes(100_000)), ReasonCode.PACKET_TOO_LARGE),
    ],
)
def test_wrong_ones(data: bytes, reason: ReasonCode, step: int) -> None:
    server, _ = connected()
    assert read(server, data, step) == []
    assert server.error is not None
    assert server.error.reason == reason


def test_the_end_in_the_middle_of_a_payload() -> None:
    server, _ = connected()
    read(server, publish(bytes(2000))[:1500], 1500)
    assert server.error is None
    server.receive_eof()
    assert isinstance(server.error, MqttError)


def test_the_end_while_the_last_part_is_worked_on() -> None:
    server, _ = connected()
    server.receive_data(publish(bytes(2000)) + PINGREQ)
    while server.events():
        pass
    server.receive_eof()
    assert server.events() == []
    assert server.error is None
    server.resume()
    assert [type(packet) for packet in server.events()] == [Pingreq]
    assert server.error is None


def test_the_least_limit() -> None:
    with pytest.raises(ValueError, match="whole_bytes_max"):
        Limits(whole_bytes_max=WHOLE_BYTES_MIN - 1)
    server = MqttConnection(Shared(Role.SERVER, Limits(whole_bytes_max=WHOLE_BYTES_MIN)))
    assert server.packet_bytes_max_in == Limits().packet_bytes_max


class Pieces:
    """A source that gives so many bytes at a time."""

    def __init__(self, data: bytes, step: int = 1000) -> None:
        self.data = data
        self.step = step
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def read(self) -> bytes:
        self.at += self.step
        return self.data[self.at - self.step : self.at]


def head(version: int = V5, qos: int = 1) -> PublishHead:
    return PublishHead(version, "a", qos=qos, properties=Properties([(CONTENT_TYPE, "text")]).raw)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 2])
def test_a_payload_is_read_as_it_goes_out(version: int, qos: int) -> None:
    server, client = connected(version)
    bodies = [bytes([n]) * 600_000 for n in range(2)]
    server.send(Pingresp())
    for number, body in enumerate(bodies, 1):
        server.send_large(head(version, qos), Pieces(body, 100_000), [number] if qos else [])
        server.send_publish(head(version, 0), [b"behind"])
        server.send(Pingresp())
    pieces = []
    while server.streaming is not None:
        pieces.append(server.data_to_send())
        assert len(pieces[-1]) < STREAMED_BYTES_MAX + 100_000 + 200
    assert server.data_to_send() == b""
    assert len(pieces) >= 4
    client.receive_data(b"".join(pieces))
    found: list[Packet] = []
    while packets := client.events():
        found += packets
    assert [payload for _, payload in joined(found)] == [bodies[0], b"behind", bodies[1], b"behind"]
    order = [type(packet) for packet in found]
    assert [order[0], order[-1], order.count(Pingresp)] == [Pingresp, Pingresp, 3]
    server.send(Pingresp())
    client.receive_data(server.data_to_send())
    assert [type(packet) for packet in client.events()] == [Pingresp]


def test_many_that_wait_are_not_read_at_once() -> None:
    server, _ = connected()
    for number in range(1, 21):
        server.send_large(head(), Pieces(bytes(100_000), 100_000), [number])
    sizes = []
    while server.streaming is not None:
        sizes.append(len(server.data_to_send()))
    assert max(sizes) < STREAMED_BYTES_MAX + 101_000
    assert sum(sizes) > 2_000_000


def test_an_error_in_the_middle_of_a_packet_cannot_be_said() -> None:
    server, _ = connected()
    server.send_large(head(), Pieces(bytes(500_000), 100_000), [1])
    server.data_to_send()
    server.send_error(MqttError(ReasonCode.SERVER_SHUTTING_DOWN, "the broker is shutting down"))
    assert server.data_to_send() == b""
    assert server.close_expected
    assert server.state is State.DISCONNECTED
    assert server.streaming is None
