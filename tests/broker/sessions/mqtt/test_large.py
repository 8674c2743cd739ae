"""Payloads in files of their own, over MQTT: streamed in, kept, streamed out, and from and to the other protocols."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker.engine.model.message import Message
from broker.sessions.convert import CONVERTED_BYTES_MAX
from protocols.amqp.encode import encode
from protocols.amqp.limits import Limits as AmqpLimits
from protocols.amqp.message import AMQP_SEQUENCE, encode_section
from protocols.amqp.performatives import Header
from protocols.mqtt.codes import V5, V311, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Pingresp
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    MAXIMUM_PACKET_SIZE,
    PAYLOAD_FORMAT_INDICATOR,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    USER_PROPERTY,
)
from store.bodies import DIRECTORY
from tests.broker.sessions.large import LARGE, body, config, data_of, files_of, message, value_of
from tests.support.amqp_client import AmqpSim
from tests.support.bodies import body_of
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import FOR_EVER, SimCarrier, SimWorld
from tests.support.sim_files import refusing

P = PacketType


@pytest.fixture
def world() -> SimWorld:
    """A broker with a low limit for bodies in memory."""
    return SimWorld(config())


def packet(version: int, topic: str, payload: bytes, qos: int, packet_id: int = 1, *, dup: bool = False) -> bytes:
    """A PUBLISH."""
    out: list[bytes] = []
    PublishHead(version, topic, qos=qos, dup=dup).encode(out, [payload], [packet_id])
    return b"".join(out)


def dead(world: SimWorld) -> list[tuple[Message, object]]:
    """The dead letters, and why."""
    found = world.broker.engine.messages.browse(world.broker.engine.queue("DLQ"))
    return [(message, (message.header.annotations or {})["_AMQ_DL_REASON"]) for message, _ in found]


def taking(world: SimWorld, nbytes: int, client_id: str, **more: Any) -> MqttClient:
    """A client that takes packets of so many bytes."""
    client = MqttClient(limits=Limits(packet_bytes_max=nbytes))
    carrier = SimCarrier(world.broker)
    return client.over(carrier).connect(greeting(client_id, **more))


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("nbytes", [LARGE - 1, LARGE, 700_000])
def test_in_and_out(world: SimWorld, version: int, qos: int, nbytes: int) -> None:
    sender = world.connect("sender", version=version)
    holder = world.connect("holder", clean=False, expiry=FOR_EVER, auto=False)
    reader = world.connect("reader", version=version)
    holder.subscribe("a/b", qos=2)
    reader.subscribe("a/+", qos=2)
    sender.publish("a/b", body(nbytes), qos)
    (received,) = reader.take()
    assert (received.payload, received.qos, received.dup, received.topic) == (body(nbytes), qos, False, "a/b")
    if qos:
        assert sender.replies(P.PUBACK if qos == 1 else P.PUBCOMP) == [(1, 0)]
        assert len(files_of(world.broker)) == (nbytes >= LARGE)
    (held,) = holder.take()
    assert held.payload == body(nbytes)
    if qos:
        holder.ack(P.PUBACK if qos == 1 else P.PUBREC, held.packet_id)
    assert not files_of(world.broker)
    sender.publish("a/b", b"after", qos)
    assert reader.payloads() == [b"after"]


def test_nobody_has_subscribed(world: SimWorld) -> None:
    sender = world.connect("sender")
    sender.publish("a", body(), 1)
    assert sender.replies(P.PUBACK) == [(1, 0x10)]
    assert not files_of(world.broker)


@pytest.mark.parametrize("step", [1, 7, 999])
def test_a_packet_that_comes_in_small_pieces(world: SimWorld, step: int) -> None:
    sender, reader = world.connect("sender"), world.connect("reader")
    reader.subscribe("#", qos=1)
    data = packet(V5, "a/b", body(2 * LARGE), 1) + packet(V5, "a/b", b"small", 1, 2) + packet(V5, "c", body(), 1, 3)
    for at in range(0, len(data), step):
        sender.raw(data[at : at + step])
    assert reader.payloads() == [body(2 * LARGE), b"small", body()]
    assert sender.replies(P.PUBACK) == [(1, 0), (2, 0), (3, 0)]


def test_packets_that_are_sent_at_once_stay_in_order(world: SimWorld) -> None:
    """Small ones before and behind large ones, with the goodbye, in one read."""
    sender, reader = world.connect("sender"), world.connect("reader")
    reader.subscribe("a", qos=2)
    sizes = [10, LARGE, 20, 30, 5 * LARGE, 6 * LARGE, 40]
    data = b"".join(packet(V5, "a", body(nbytes), 0) for nbytes in sizes)
    sender.raw(data + bytes([0xE0, 0]))
    assert [len(payload) for payload in reader.payloads()] == sizes
    assert not files_of(world.broker)


@pytest.mark.parametrize("crash", [True, False])
def test_a_confirmed_message_is_there_after_a_restart(world: SimWorld, crash: bool) -> None:
    reader = world.subscriber("reader", "a", qos=2, clean=False, expiry=FOR_EVER)
    reader.drop()
    sender = world.connect("sender")
    sender.publish("a", body(), 1)
    sender.publish("a", body(2 * LARGE), 0)  # not kept for the absent
    sender.raw(packet(V5, "a", body(), 1)[:-1])
    assert len(files_of(world.broker)) == 2
    world.restart(crash=crash)
    assert len(files_of(world.broker)) == 1
    reader = world.connect("reader", clean=False, expiry=FOR_EVER)
    assert reader.payloads() == [body()]
    assert not files_of(world.broker)


def test_nothing_is_confirmed_before_it_is_durable(world: SimWorld) -> None:
    sender = world.connect("sender")
    reader = world.subscriber("reader", "a", qos=1, clean=False, expiry=FOR_EVER)
    world.hold_disk()
    sender.raw(packet(V5, "a", body(), 1) + packet(V5, "a", b"behind", 1, 2))
    assert not sender.answers
    assert not reader.arrived
    world.write()
    assert sender.replies(P.PUBACK) == [(1, 0), (2, 0)]
    assert reader.payloads() == [body(), b"behind"]


@pytest.mark.parametrize("how", ["drop", "take over", "shutdown", "wrong"])
def test_an_upload_that_breaks_off_leaves_nothing(world: SimWorld, how: str) -> None:
    reader = world.subscriber("reader", "a", qos=2)
    sender = world.connect("sender", clean=False, expiry=FOR_EVER)
    sender.raw(packet(V5, "a", body(5 * LARGE), 2)[: 2 * LARGE])
    assert len(files_of(world.broker)) == 1
    if how == "drop":
        sender.drop()
    elif how == "take over":
        world.connect("sender", clean=False, expiry=FOR_EVER)
    elif how == "shutdown":
        world.restart(crash=False)
    else:
        with world.broker.turn():
            world._carriers[-1].session.receive_eof()
    assert not files_of(world.broker)
    if how == "drop":
        sender = world.connect("sender", clean=False, expiry=FOR_EVER)
        sender.publish("a", body(5 * LARGE), 2, packet_id=1, dup=True)
        assert reader.payloads() == [body(5 * LARGE)], "it never counted as received"


def test_a_repeated_publish_of_qos_2_is_no_second_message(world: SimWorld) -> None:
    reader = world.subscriber("reader", "a", qos=2)
    sender = world.connect("sender", clean=False, expiry=FOR_EVER, auto=False)
    sender.raw(packet(V5, "a", body(), 2, 7))
    assert sender.replies(P.PUBREC) == [(7, 0)]
    sender.drop()
    for _ in range(2):
        world.restart()
        reader = world.subscriber("reader", "a", qos=2)
        sender = world.connect("sender", clean=False, expiry=FOR_EVER, auto=False)
        sender.raw(packet(V5, "a", body(), 2, 7, dup=True))
        assert sender.replies(P.PUBREC) == [(7, 0)]
        assert not files_of(world.broker)
    sender.ack(P.PUBREL, 7)
    assert sender.replies(P.PUBCOMP) == [(7, 0)]
    assert reader.payloads() == []
    sender.raw(packet(V5, "a", body(), 2, 7))
    assert len(reader.payloads()) == 1


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_refused_message_is_read_to_its_end(world: SimWorld, version: int, qos: int) -> None:
    reader, sender = world.connect("reader"), world.connect("sender", version=version, auto=False)
    reader.subscribe("a", qos=0)
    sender.raw(packet(version, "$SYS/a", body(), qos, 1) + packet(version, "a", b"next", qos, 2))
    assert not files_of(world.broker)
    assert reader.payloads() == [b"next"]
    if qos:
        refused = 0x90 if version == V5 else 0
        assert sender.replies(P.PUBACK if qos == 1 else P.PUBREC) == [(1, refused), (2, 0)]
    assert len(world.broker.reported("mqtt.publish_dropped")) == (not (qos and version == V5))


def test_a_full_disk_refuses_it_and_says_so(world: SimWorld) -> None:
    reader, sender = world.connect("reader"), world.connect("sender")
    old = world.connect("old", version=V311)
    reader.subscribe("a", qos=1)
    files = world.broker.files
    files.capacity = files.used() + 100_000
    for client in (sender, old):
        client.raw(packet(client.codec.version, "a", body(1_000_000), 1))
    assert sender.replies(P.PUBACK) == [(1, 0x97)]
    assert old.closed
    assert not files_of(world.broker)
    files.capacity = None
    world.advance(10)
    sender.publish("a", body(), 1)
    assert reader.payloads() == [body()]


# -- retained messages, limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_message(world: SimWorld, qos: int) -> None:
    sender = world.connect("sender")
    sender.publish("a", body(), qos, retain=True)
    assert len(files_of(world.broker)) == 1
    for crash in (True, False):
        world.restart(crash=crash)
        reader = world.subscriber("reader", "a", qos=1)
        (received,) = reader.take()
        assert (received.payload, received.retain, received.qos) == (body(), True, qos)
        assert len(files_of(world.broker)) == 1
    sender = world.connect("sender")
    sender.publish("a", body(2 * LARGE), 1, retain=True)
    assert reader.payloads() == [body(2 * LARGE)]
    sender.publish("a", b"", 1, retain=True)
    assert reader.payloads() == [b""]
    world.restart(crash=False)
    assert not files_of(world.broker)


def test_the_packet_limits_of_both_sides() -> None:
    """The client's own, and that of the acceptor, which is the limit for both directions."""
    world = SimWorld(config(mqtt={"maximum_packet_size": 10 * LARGE}))
    small = taking(world, 3 * LARGE, "small")
    reader = world.connect("reader")
    for client in (small, reader):
        client.subscribe("a", qos=1)
    stomp = world.broker.connect()
    for nbytes in (2 * LARGE, 4 * LARGE, 12 * LARGE):
        stomp.send("/topic/a", body(nbytes), persistent="true")
    assert [len(payload) for payload in small.payloads()] == [2 * LARGE]
    assert [len(payload) for payload in reader.payloads()] == [2 * LARGE, 4 * LARGE]
    assert sorted((len(found.body), why) for found, why in dead(world)) == [
        (4 * LARGE, "too-large"),
        (12 * LARGE, "too-large"),
        (12 * LARGE, "too-large"),
    ]
    sender = world.connect("sender")
    assert sender.told(MAXIMUM_PACKET_SIZE) == 10 * LARGE
    sender.raw(packet(V5, "a", body(10 * LARGE), 1))
    assert sender.goodbye_code == 0x95


def test_a_new_connection_may_take_less_than_the_one_before(world: SimWorld) -> None:
    reader = world.subscriber("reader", "a", qos=1, clean=False, expiry=FOR_EVER, auto=False)
    world.connect("sender").publish("a", body(), 1)
    assert reader.payloads() == [body()]
    reader.drop()
    again = world.connect("reader", clean=False, expiry=FOR_EVER, auto=False)
    (received,) = again.take()
    assert (received.payload, received.dup) == (body(), True)
    again.drop()
    again = taking(world, LARGE, "reader", clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)])
    assert again.payloads() == []
    assert [why for _, why in dead(world)] == ["too-large"]


def test_flow_control(world: SimWorld) -> None:
    reader = world.subscriber("reader", "a", qos=1, properties=[(RECEIVE_MAXIMUM, 2)], auto=False)
    sender = world.connect("sender")
    for nbytes in range(LARGE, LARGE + 5):
        sender.publish("a", body(nbytes), 1)
    sizes = []
    for _ in range(3):
        arrived = reader.take()
        sizes.append([len(message.payload) for message in arrived])
        reader.ack(P.PUBACK, *[message.packet_id for message in arrived])
    assert sizes == [[LARGE, LARGE + 1], [LARGE + 2, LARGE + 3], [LARGE + 4]]
    assert not files_of(world.broker)


# -- while it goes out -------------------------------------------------------------------------------------------------


def slow(world: SimWorld, client_id: str) -> tuple[MqttClient, int]:
    """A client that has stopped to read, after a large message began to go out to it; how many pieces it has."""
    reader = world.subscriber(client_id, "a", qos=1, clean=False, expiry=FOR_EVER)
    carrier = world._carriers[-1]
    carrier.stalled = True
    world.connect("sender").publish("a", body(2_000_000), 1)
    return reader, len(world._carriers) - 2


def test_packets_that_follow_wait_and_are_not_read_into_memory(world: SimWorld) -> None:
    reader, at = slow(world, "reader")
    carrier = world._carriers[at]
    assert len(carrier._waiting) < 600_000, "a piece, not the message"
    carrier.raw(bytes([0xC0, 0]))  # PINGREQ
    sender = world.connect("other")
    for nbytes in (10, 1_000_000, 20):
        sender.publish("a", body(nbytes), 1)
    assert len(carrier._waiting) < 600_000
    carrier.unstall()
    assert [len(payload) for payload in reader.payloads()] == [2_000_000, 10, 1_000_000, 20]
    assert any(isinstance(packet, Pingresp) for packet in reader.others) or reader.pings
    assert not files_of(world.broker)


@pytest.mark.parametrize("how", ["take over", "shutdown", "goodbye"])
def test_a_connection_that_ends_in_the_middle_of_a_packet_says_nothing_more(world: SimWorld, how: str) -> None:
    reader, at = slow(world, "reader")
    carrier = world._carriers[at]
    if how == "take over":
        again = world.connect("reader", clean=False, expiry=FOR_EVER)
        assert again.payloads() == [body(2_000_000)]
    elif how == "goodbye":
        carrier.raw(bytes([0xE0, 0]))
    else:
        with world.broker.turn():
            carrier.session.shut_down()
    carrier.unstall()
    assert reader.goodbye is None
    assert not reader.arrived
    if how != "take over":
        assert world.connect("reader", clean=False, expiry=FOR_EVER).payloads() == [body(2_000_000)]


def test_a_file_that_cannot_be_read_costs_the_connection_and_is_a_dead_letter(world: SimWorld) -> None:
    reader = world.subscriber("reader", "a", qos=1, clean=False, expiry=FOR_EVER)
    reader.drop()
    sender = world.connect("sender")
    sender.publish("a", body(600_000), 1)
    sender.publish("a", b"behind", 1)
    (path,) = files_of(world.broker)
    assert f"/{DIRECTORY}/" in path
    world.broker.files.flip(path, 500_000, 1)
    reader = world.connect("reader", clean=False, expiry=FOR_EVER)
    assert reader.payloads() == []
    assert world._carriers[-1].closed
    assert [why for _, why in dead(world)] == ["decode-error"]
    assert world.broker.reported("body.unreadable")
    assert world.connect("reader", clean=False, expiry=FOR_EVER).payloads() == [b"behind"]


def test_a_file_that_cannot_be_read_for_now_costs_the_connection_alone(world: SimWorld) -> None:
    reader = world.subscriber("reader", "a", qos=1, clean=False, expiry=FOR_EVER)
    reader.drop()
    world.connect("sender").publish("a", body(600_000), 1)
    with refusing(world.broker.files, errno.EMFILE):
        reader = world.connect("reader", clean=False, expiry=FOR_EVER)
        assert reader.payloads() == []
        assert world._carriers[-1].closed
    assert dead(world) == []
    assert world.connect("reader", clean=False, expiry=FOR_EVER).payloads() == [body(600_000)]


# -- from and to the other protocols -----------------------------------------------------------------------------------


def test_from_stomp_and_amqp(world: SimWorld) -> None:
    reader = world.subscriber("reader", "a", qos=2)
    stomp, amqp = world.broker.connect(), AmqpSim(world.broker)
    stomp.send("/topic/a", body(700_000), persistent="true", color="red")
    link = amqp.sender("a", "topic")
    sequence = encode(Header(True)) + encode_section(AMQP_SEQUENCE, ["x" * 500] * 4)
    text = "text \u00e4 ".encode() * 400
    amqp.send(link, message(body(300_000)), value_of(text, 0xB1), value_of(body(2000), 0xB0), sequence)
    found = reader.take()
    assert [each.payload for each in found[:4]] == [body(700_000), body(300_000), text, body(2000)]
    assert [each.get(PAYLOAD_FORMAT_INDICATOR) for each in found] == [None, None, 1, None, 1]
    assert [each.get(USER_PROPERTY) for each in found[:2]] == [("color", "red")] * 2
    assert found[4].get(CONTENT_TYPE) == "application/json", "what is no bytes and no text is converted as a whole"
    assert not files_of(world.broker)


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("nbytes", [4000, CONVERTED_BYTES_MAX + 4])
def test_to_stomp_and_amqp(text: bool, nbytes: int) -> None:
    world = SimWorld(config(mqtt={"maximum_packet_size": 2 * nbytes}))
    stomp, amqp = world.broker.connect(), AmqpSim(world.broker, limits=AmqpLimits(message_bytes_max=2 * nbytes))
    stomp.subscribe("/topic/a")
    amqp.receiver("a", "topic")
    payload = b"text" * (nbytes // 4) if text else body(nbytes)
    properties = [(PAYLOAD_FORMAT_INDICATOR, 1)] if text else []
    world.connect("sender").publish("a", payload, 1, properties=[*properties, (USER_PROPERTY, ("color", "red"))])
    (found,) = stomp.messages()
    assert (found.body, found.headers["color"]) == (payload, "red")
    (delivery,) = amqp.take()
    assert data_of(delivery.payload) == payload


def test_files_belong_to_all_who_have_the_message() -> None:
    world = SimWorld(config({"match": "b", "max-delivery-attempts": 1}))
    stomp = world.broker.subscriber("/queue/b")
    world.connect("sender").publish("b", body(), 1)
    (found,) = stomp.messages()
    stomp.nack(found)
    ((letter, _),) = dead(world)
    assert body_of(letter) == body()
    assert len(files_of(world.broker)) == 1
