"""Compared with an independent codec: `mqtt5`, which is strict too and written in another language; 5.0 only."""

from __future__ import annotations

from typing import Any

import mqtt5
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocols.mqtt.codes import V5, PacketType, Role
from protocols.mqtt.encode import PublishHead, encode, encode_ack
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import (
    Ack,
    Auth,
    Begun,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Part,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import PROPERTIES, USER_PROPERTY, Properties
from tests.protocols.mqtt.peer import connected, hello, opened
from tests.protocols.mqtt.strategies import connacks, connects, packets, properties_of, topic_names
from tests.support.wire import feed

C, S = Role.CLIENT, Role.SERVER
P = PacketType

#: What it calls the properties, by identifier.
NAMES = {
    0x01: "payload_format_indicator",
    0x02: "message_expiry_interval",
    0x03: "content_type",
    0x08: "response_topic",
    0x09: "correlation_data",
    0x0B: "subscription_id",
    0x11: "session_expiry_interval",
    0x12: "assigned_client_id",
    0x13: "server_keep_alive",
    0x15: "authentication_method",
    0x16: "authentication_data",
    0x17: "request_problem_info",
    0x18: "will_delay_interval",
    0x19: "request_response_info",
    0x1A: "response_info",
    0x1C: "server_reference",
    0x1F: "reason_str",
    0x21: "receive_max",
    0x22: "topic_alias_max",
    0x23: "topic_alias",
    0x24: "max_qos",
    0x25: "retain_available",
    0x27: "max_packet_size",
    0x28: "wildcard_subscription_available",
    0x29: "subscription_id_available",
    0x2A: "shared_subscription_available",
}
FLAGS = {0x17, 0x19, 0x25, 0x28, 0x29, 0x2A}


def theirs_of(properties: Properties) -> dict[str, Any]:
    """Properties as arguments."""
    found: dict[str, Any] = {}
    for property, value in properties:
        if property.repeats:
            continue
        found[NAMES[property.id]] = bool(value) if property.id in FLAGS else value
    if "max_qos" in found:
        found["max_qos"] = mqtt5.QoS(found["max_qos"])
    if USER_PROPERTY in properties:
        found["user_properties"] = properties.get_all(USER_PROPERTY)
    return found


def translate_connect(packet: Connect) -> mqtt5.Packet:
    """A CONNECT."""
    will = packet.will
    translated = None
    if will is not None:
        translated = mqtt5.Will(
            will.topic, payload=will.payload, qos=mqtt5.QoS(will.qos), retain=will.retain, **theirs_of(will.properties)
        )
    return mqtt5.ConnectPacket(
        packet.client_id,
        username=packet.user_name,
        password=packet.password,
        clean_start=packet.clean_start,
        keep_alive=packet.keep_alive,
        will=translated,
        **theirs_of(packet.properties),
    )


def translate_subscribe(packet: Subscribe) -> mqtt5.Packet:
    """A SUBSCRIBE."""
    filters = [
        mqtt5.TopicFilter(
            one.filter.text,
            max_qos=mqtt5.QoS(one.qos),
            no_local=one.no_local,
            retain_as_published=one.retain_as_published,
            retain_handling=mqtt5.RetainHandling(one.retain_handling),
        )
        for one in packet.subscriptions
    ]
    identifier = packet.properties.get(PROPERTIES[0x0B])
    return mqtt5.SubscribePacket(packet.packet_id, filters, subscription_id=identifier, **theirs_of(packet.properties))


ACKS: dict[PacketType, tuple[Any, Any]] = {
    P.PUBACK: (mqtt5.PubAckPacket, mqtt5.PubAckReasonCode),
    P.PUBREC: (mqtt5.PubRecPacket, mqtt5.PubRecReasonCode),
    P.PUBREL: (mqtt5.PubRelPacket, mqtt5.PubRelReasonCode),
    P.PUBCOMP: (mqtt5.PubCompPacket, mqtt5.PubCompReasonCode),
}


def translate(packet: Packet) -> mqtt5.Packet:
    """The same packet as theirs."""
    if isinstance(packet, Connect):
        return translate_connect(packet)
    if isinstance(packet, Subscribe):
        return translate_subscribe(packet)
    if isinstance(packet, Pingreq | Pingresp):
        return mqtt5.PingReqPacket() if isinstance(packet, Pingreq) else mqtt5.PingRespPacket()
    assert not isinstance(packet, Publish | Begun | Part)
    more = theirs_of(packet.properties)
    if isinstance(packet, Connack):
        code = mqtt5.ConnAckReasonCode(packet.reason_code)
        return mqtt5.ConnAckPacket(session_present=packet.session_present, reason_code=code, **more)
    if isinstance(packet, Unsubscribe):
        return mqtt5.UnsubscribePacket(packet.packet_id, [one.text for one in packet.filters], **more)
    if isinstance(packet, Suback):
        codes = [mqtt5.SubAckReasonCode(code) for code in packet.reason_codes]
        return mqtt5.SubAckPacket(packet.packet_id, codes, **more)
    if isinstance(packet, Unsuback):
        uncodes = [mqtt5.UnsubAckReasonCode(code) for code in packet.reason_codes]
        return mqtt5.UnsubAckPacket(packet.packet_id, uncodes, **more)
    if isinstance(packet, Ack):
        [packet_id] = packet.packet_ids
        kind, reason = ACKS[packet.type]
        made: mqtt5.Packet = kind(packet_id, reason_code=reason(packet.reason_code), **more)
        return made
    if isinstance(packet, Disconnect):
        return mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(packet.reason_code), **more)
    assert isinstance(packet, Auth)
    return mqtt5.AuthPacket(reason_code=mqtt5.AuthReasonCode(packet.reason_code), **more)


def read_theirs(raw: bytes) -> mqtt5.Packet:
    """What they read."""
    packet, size = mqtt5.read(memoryview(raw))
    assert size == len(raw)
    return packet


def check(packet: Packet, sender: Role) -> None:
    """They read what we write, and we read what they write, which may leave out properties that have their default."""
    raw = encode_ack(packet, V5) if isinstance(packet, Ack) else encode(packet, V5)
    theirs = translate(packet)
    assert read_theirs(raw) == theirs
    if isinstance(packet, Connect):
        connection = opened()
    elif isinstance(packet, Connack):
        connection = opened(C)
        connection.send(hello(V5))
    else:
        connection = connected(V5, sender.peer)
    [again] = feed(connection, [theirs.write()])
    assert translate(again) == theirs


@given(connects(V5))
def test_connect(packet: Connect) -> None:
    check(packet, C)


@given(connacks(V5))
def test_connack(packet: Connack) -> None:
    check(packet, S)


@given(packets(V5, C))
def test_packets_of_clients(packet: Packet) -> None:
    check(packet, C)


@given(packets(V5, S))
def test_packets_of_servers(packet: Packet) -> None:
    # Table 2-6 gives 0x8C to DISCONNECT, section 3.14.2.1 does not, and neither does the library.
    assume(not (isinstance(packet, Disconnect) and packet.reason_code == 0x8C))
    check(packet, S)


@given(
    topic=topic_names,
    qos=st.integers(0, 2),
    flags=st.tuples(st.booleans(), st.booleans()),
    packet_id=st.integers(1, 65_535),
    properties=properties_of(P.PUBLISH, S),
    payload=st.binary(max_size=300),
)
def test_publish(
    topic: str, qos: int, flags: tuple[bool, bool], packet_id: int, properties: Properties, payload: bytes
) -> None:
    retain, dup = flags[0], flags[1] and qos > 0
    properties = properties.without(PROPERTIES[0x23])
    theirs = mqtt5.PublishPacket(
        topic,
        payload,
        qos=mqtt5.QoS(qos),
        retain=retain,
        packet_id=packet_id if qos else None,
        duplicate=dup,
        subscription_ids=properties.get_all(PROPERTIES[0x0B]),
        **theirs_of(properties),
    )
    out: list[bytes] = []
    head = PublishHead(V5, topic, qos=qos, retain=retain, dup=dup, properties=properties.raw)
    head.encode(out, [payload], [packet_id] if qos else [])
    assert read_theirs(b"".join(out)) == theirs
    [run] = feed(connected(V5, C), [theirs.write()])
    assert isinstance(run, Publish)
    assert (run.topics, run.payloads, run.packet_ids) == ([topic], [payload], [packet_id] if qos else [])
    assert (run.qos, run.retain, run.dup) == (qos, retain, dup)
    assert theirs_of(run.properties).items() <= theirs_of(properties).items()


def refused_by_them(raw: bytes) -> bool:
    """Whether they find it wrong.  Text that is not UTF-8 they find so wrong that they panic."""
    try:
        mqtt5.read(memoryview(raw))
    except ValueError:
        return True
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return True
    return False


@settings(max_examples=300)
@given(
    sender=st.sampled_from([C, S]),
    edits=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 255)), max_size=3),
    data=st.data(),
)
def test_packets_that_they_refuse_we_refuse(
    sender: Role, edits: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Packets with a few wrong bytes, whose length may have been set right again."""
    packet = data.draw(packets(V5, sender))
    raw = bytearray(encode_ack(packet, V5) if isinstance(packet, Ack) else encode(packet, V5))
    for at, kind, byte in edits:
        at %= len(raw) + 1
        raw[at : at + min(kind, 1)] = b"" if kind == 2 else bytes([byte])
    if 2 <= len(raw) < 130 and data.draw(st.booleans()):
        raw[1] = len(raw) - 2
    connection = connected(V5, sender.peer)
    found = feed(connection, [bytes(raw)])
    assert connection.error is None or isinstance(connection.error, MqttError)
    bad_method = [one for one in found if isinstance(one, Disconnect) and one.reason_code == 0x8C]
    if len(found) == 1 and not bad_method and not len(connection._reader):  # table 2-6 has it, table 3-10 has not
        assert not refused_by_them(bytes(raw)), found
