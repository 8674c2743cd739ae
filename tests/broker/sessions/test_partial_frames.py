"""STOMP frames and MQTT packets whose end has not come: charged to memory, and limited for all connections together."""

from __future__ import annotations

from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.encode import PublishHead
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, SimClient

#: All connections may have a quarter of it.
MEMORY = 40_000


def half(client: SimClient, nbytes: int) -> None:
    """Send so many bytes of a frame that has more."""
    head = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % (2 * nbytes)
    client.raw(head + bytes(nbytes - len(head)))


def test_half_a_frame_is_charged_until_it_is_whole_or_its_connection_ends() -> None:
    broker = SimBroker()
    one, other = broker.connect(), broker.connect()
    half(one, 5_000)
    half(other, 3_000)
    assert (broker.engine.usage.bytes, broker.engine.partial.bytes) == (8_000, 8_000)
    other.raw(bytes(1_000))
    assert broker.engine.partial.bytes == 9_000
    other.drop()
    assert broker.engine.partial.bytes == 5_000
    one.drop()
    assert (broker.engine.usage.bytes, broker.engine.partial.bytes) == (0, 0)


def test_a_whole_frame_is_charged_no_longer() -> None:
    broker = SimBroker()
    client = broker.connect()
    client.raw(b"SEND\ndestination:/queue/a\n\nhalf")
    assert broker.engine.partial.bytes
    client.raw(b" and half\0")
    assert broker.engine.partial.bytes == 0
    assert broker.engine.usage.bytes == broker.engine.addresses["a"].size_bytes


def test_a_connection_that_holds_more_than_its_share_must_end() -> None:
    """Limit: a quarter of the memory, and beyond it the same for each that holds something."""
    broker = SimBroker(engine_limits={"global_size_max": MEMORY})
    greedy, modest, late = broker.connect(), broker.connect(), broker.connect()
    half(greedy, MEMORY // 4)
    half(modest, 1_000)
    half(late, MEMORY // 12)
    assert not any(each.closed for each in (greedy, modest, late))
    greedy.raw(b"x")
    assert [frame.headers["message"] for frame in greedy.take("ERROR")] == ["memory full"]
    assert [each.closed for each in (greedy, modest, late)] == [True, False, False]
    assert broker.engine.partial.bytes == 1_000 + MEMORY // 12


def test_half_a_packet_counts_too() -> None:
    world = SimWorld()
    client: MqttClient = world.connect("c")
    partial = world.broker.engine.partial
    packet = _publish(client)
    client.link.raw(packet[:4_000])
    assert partial.bytes == 4_000
    client.link.raw(packet[4_000:])
    assert partial.bytes == 0
    world.broker.engine.usage.bytes_max = MEMORY // 4
    client.link.raw(packet[:4_000])
    client.settle()
    assert client.goodbye_code == ReasonCode.QUOTA_EXCEEDED
    assert partial.bytes == 0


def _publish(client: MqttClient) -> bytes:
    client.codec.send_publish(PublishHead(client.codec.version, "topic"), [bytes(5_000)], [])
    return bytes(client.codec.data_to_send())
