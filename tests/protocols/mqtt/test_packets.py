"""Every packet in every version, both ways, however it arrives."""

from __future__ import annotations

import pytest

from protocols.mqtt.codes import V5, V31, V311, PacketType, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, encode, encode_ack
from protocols.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from protocols.mqtt.properties import (
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    CONTENT_TYPE,
    CORRELATION_DATA,
    MAXIMUM_QOS,
    MESSAGE_EXPIRY_INTERVAL,
    PAYLOAD_FORMAT_INDICATOR,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SERVER_REFERENCE,
    SESSION_EXPIRY_INTERVAL,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS_MAXIMUM,
    USER_PROPERTY,
    WILL_DELAY_INTERVAL,
    Properties,
)
from protocols.mqtt.topics import TopicFilter
from tests.protocols.mqtt.peer import (
    VERSIONS,
    authenticating,
    connect_body,
    connected,
    frame,
    hello,
    maker,
    opened,
    show,
    shown,
    text,
)
from tests.support.calls import counted_calls
from tests.support.interpreted import interpreted
from tests.support.wire import check_codec, feed

P = PacketType
C, S = Role.CLIENT, Role.SERVER

WILL = Will("last/words", b"\0\xffgone", 2, True)
WILL_V5 = Will("last/words", b"", 1, False, Properties([(WILL_DELAY_INTERVAL, 5), (USER_PROPERTY, ("a", "b"))]))
ALL = Properties(
    [
        (SESSION_EXPIRY_INTERVAL, 0xFFFFFFFF),
        (RECEIVE_MAXIMUM, 1),
        (TOPIC_ALIAS_MAXIMUM, 65_535),
        (USER_PROPERTY, ("name", "größe")),
        (USER_PROPERTY, ("name", "")),
    ]
)
A_B = TopicFilter("a/b", "a/b")
SHARED = TopicFilter("$share/g/+/b/#", "+/b/#", "g")
EXPLAINED = Properties([(REASON_STRING, "so it is"), (USER_PROPERTY, ("k", "v"))])

#: One of each, with what makes it special: (sender, packet, versions).
CONNECTS: list[tuple[Connect, tuple[int, ...]]] = [
    (Connect(0, "c"), VERSIONS),
    (Connect(0, "client-42", False, 65_535), VERSIONS),
    (Connect(0, "", True), (V311, V5)),
    (Connect(0, "", False), (V5,)),
    (Connect(0, "c", user_name="jöe"), VERSIONS),
    (Connect(0, "c", user_name="", password=b""), VERSIONS),
    (Connect(0, "c", user_name="joe", password=b"\0\xff"), VERSIONS),
    (Connect(0, "c", password=b"token"), (V5,)),
    (Connect(0, "c", will=WILL), VERSIONS),
    (Connect(0, "c", False, 1, "joe", b"secret", WILL_V5, ALL), (V5,)),
    (Connect(0, "c", properties=Properties([(AUTHENTICATION_METHOD, "X"), (AUTHENTICATION_DATA, b"\0")])), (V5,)),
]
PACKETS: list[tuple[Role, Packet, tuple[int, ...]]] = [
    (C, Subscribe(1, [Subscription(A_B)]), VERSIONS),
    (C, Subscribe(65_535, [Subscription(SHARED, 1), Subscription(A_B, 2), Subscription(A_B, 0)]), VERSIONS),
    (
        C,
        Subscribe(7, [Subscription(A_B, 2, True, True, 2)], Properties([(SUBSCRIPTION_IDENTIFIER, 268_435_455)])),
        (V5,),
    ),
    (C, Subscribe(7, [Subscription(SHARED, 0, False, True, 1)], EXPLAINED.without(REASON_STRING)), (V5,)),
    (C, Unsubscribe(2, [A_B]), VERSIONS),
    (C, Unsubscribe(2, [A_B, SHARED, TopicFilter("#", "#")]), VERSIONS),
    (C, Unsubscribe(2, [A_B], Properties([(USER_PROPERTY, ("", ""))])), (V5,)),
    (C, Pingreq(), VERSIONS),
    (C, Disconnect(), VERSIONS),
    (C, Disconnect(4), (V5,)),
    (C, Disconnect(0x93, EXPLAINED), (V5,)),
    (C, Disconnect(0, Properties([(SESSION_EXPIRY_INTERVAL, 0)])), (V5,)),
    (S, Suback(1, [0, 1, 2]), VERSIONS),
    (S, Suback(1, [0x80]), (V311, V5)),
    (S, Suback(1, [0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2], EXPLAINED), (V5,)),
    (S, Unsuback(1), (V31, V311)),
    (S, Unsuback(1, [0, 0x11, 0x80], EXPLAINED), (V5,)),
    (S, Pingresp(), VERSIONS),
    (S, Disconnect(0x9C, Properties([(SERVER_REFERENCE, "other:1883")])), (V5,)),
    *((sender, Ack(ack, [65_535]), VERSIONS) for ack in (P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP) for sender in (C, S)),
    (C, Ack(P.PUBACK, [1], 0x87), (V5,)),
    (S, Ack(P.PUBREC, [1], 0x10), (V5,)),
    (S, Ack(P.PUBREC, [1], 0, EXPLAINED), (V5,)),
    (C, Ack(P.PUBREL, [1], 0x92, EXPLAINED), (V5,)),
    (S, Ack(P.PUBCOMP, [1], 0x92), (V5,)),
]
CASES = [(version, sender, packet) for sender, packet, versions in PACKETS for version in versions]


def with_version(connect: Connect, version: int) -> Connect:
    """The same for a version."""
    return Connect(
        version,
        connect.client_id,
        connect.clean_start,
        connect.keep_alive,
        connect.user_name,
        connect.password,
        connect.will,
        connect.properties,
    )


def raw_of(packet: Packet, version: int) -> bytes:
    """Its bytes."""
    return encode_ack(packet, version) if isinstance(packet, Ack) else encode(packet, version)


CONNECT_CASES = [(with_version(packet, version)) for packet, versions in CONNECTS for version in versions]


@pytest.mark.parametrize("packet", CONNECT_CASES)
def test_connect(packet: Connect) -> None:
    """MQTT-3.1.3-1: the fields of the payload, in their order."""
    trailing = b"\xe0" if AUTHENTICATION_METHOD in packet.properties else frame(0x30, b"\0\x01ax")
    check_codec(opened, encode(packet, packet.version), [packet], show=show, trailing=trailing)


@pytest.mark.parametrize(("version", "sender", "packet"), CASES)
def test_every_packet(version: int, sender: Role, packet: Packet) -> None:
    trailing = b"" if isinstance(packet, Disconnect) else frame(0x30, b"\0\x01a\0x")[:-1]
    raw = raw_of(packet, version)
    check_codec(maker(version, sender.peer), raw, [show(packet)], show=show, trailing=trailing)


CONNACKS = [
    (Connack(0, True), (V311, V5)),
    (Connack(0), VERSIONS),
    (Connack(5), (V31, V311)),
    (Connack(0x87, False, EXPLAINED), (V5,)),
    (Connack(0, True, Properties([(MAXIMUM_QOS, 0), (RECEIVE_MAXIMUM, 65_535), (REASON_STRING, "")])), (V5,)),
]


@pytest.mark.parametrize(("packet", "version"), [(packet, version) for packet, vs in CONNACKS for version in vs])
def test_connack(packet: Connack, version: int) -> None:
    def make() -> MqttConnection:
        connection = opened(C)
        assert connection.send(hello(version))
        return connection

    check_codec(make, encode(packet, version), [packet], show=show)


def test_the_acknowledge_flags_are_not_used_in_3_1() -> None:
    assert encode(Connack(0, True), V31) == b"\x20\x02\0\0"
    connection = opened(C)
    connection.send(hello(V31))
    assert feed(connection, [b"\x20\x02\xff\0"]) == [Connack()]


@pytest.mark.parametrize("role", [C, S])
def test_auth(role: Role) -> None:
    """MQTT-4.12.0-5: the method goes along."""
    packet = Auth(0x18, Properties([(AUTHENTICATION_METHOD, "M"), (AUTHENTICATION_DATA, b"\0\1"), *EXPLAINED]))

    def make() -> MqttConnection:
        connection = authenticating(role)
        if role is S:
            connection.send(Auth(0x18))
        return connection

    check_codec(make, encode(packet, V5), [packet], show=show)


PUBLISH_PROPERTIES = Properties(
    [
        (PAYLOAD_FORMAT_INDICATOR, 1),
        (MESSAGE_EXPIRY_INTERVAL, 1 << 31),
        (CONTENT_TYPE, "text/plain"),
        (RESPONSE_TOPIC, "a/r"),
        (CORRELATION_DATA, b"\0" * 9),
        (USER_PROPERTY, ("k", "1")),
        (USER_PROPERTY, ("k", "0")),
    ]
)
PUBLISHES: list[tuple[PublishHead, bytes]] = [
    (PublishHead(version, topic, qos=qos, retain=retain, dup=dup, properties=properties), payload)
    for version in VERSIONS
    for qos in (0, 1, 2)
    for topic, retain, dup, payload, properties in [
        ("a", False, False, b"", b""),
        ("/", True, qos > 0, b"\0\x30\0" * 60, b""),
        ("größe/🐎", False, qos > 1, b"x" * 70, PUBLISH_PROPERTIES.raw if version == V5 else b""),
    ]
]


@pytest.mark.parametrize(("head", "payload"), PUBLISHES)
@pytest.mark.parametrize("role", [C, S])
def test_publish(head: PublishHead, payload: bytes, role: Role) -> None:
    """MQTT-2.2.1-2: a packet identifier if, and only if, the QoS is above 0."""
    out: list[bytes] = []
    head.encode(out, [payload], [258] if head.qos else [])
    raw = b"".join(out)
    assert len(raw) == head.packet_bytes(payload)
    retain, properties = raw[0] & 1 == 1, PUBLISH_PROPERTIES.raw if PUBLISH_PROPERTIES.raw in raw else b""
    packet_id = 258 if head.qos else 0
    expected = [(head.qos, retain, head.dup, properties, head.topic, packet_id, payload)]
    trailing = frame(0x30, b"\0\x01a\0x")[:-1]
    check_codec(maker(head.version, role), raw, [expected], show=show, trailing=trailing)


def test_a_bridge_says_so_in_the_version() -> None:
    """Mosquitto's: a bit beside the protocol level, which brokers that do not know it refuse."""
    plain = encode(Connect(V311, "c"), V311)
    bridge = encode(Connect(V311, "c", bridge=True), V311)
    assert bridge == plain.replace(b"MQTT\x04", b"MQTT\x84")


# -- byte for byte: the examples of the specifications -----------------------------------------------------------------


def test_the_example_of_a_connect_header() -> None:
    """5.0, 3.1.2.12: name, level, flags 0xCE, keep alive 10, session expiry 10; the payload that the flags ask for."""
    header = text("MQTT") + b"\x05\xce\0\x0a\x05\x11\0\0\0\x0a"
    payload = text("c") + b"\0" + text("w") + text("p") + text("joe") + text("pw")
    connection = opened()
    [packet] = feed(connection, [frame(0x10, header + payload)])
    assert packet == Connect(
        V5, "c", True, 10, "joe", b"pw", Will("w", b"p", 1), Properties([(SESSION_EXPIRY_INTERVAL, 10)])
    )


def test_the_example_of_a_subscribe() -> None:
    """5.0, figures 3-19 and 3-21; 3.1.1, figure 3.23."""
    body = text("a/b") + b"\1" + text("c/d") + b"\2"
    wanted = [Subscription(A_B, 1), Subscription(TopicFilter("c/d", "c/d"), 2)]
    assert feed(connected(V5), [b"\x82\x0f\0\x0a\0" + body]) == [Subscribe(10, wanted)]
    assert feed(connected(V311), [b"\x82\x0e\0\x0a" + body]) == [Subscribe(10, wanted)]


def test_the_example_of_a_publish_header() -> None:
    """5.0, figure 3-9: topic a/b, packet identifier 10, no properties."""
    assert shown(feed(connected(V5), [b"\x32\x08\0\3a/b\0\x0a\0"])) == [(1, False, False, b"", "a/b", 10, b"")]


def test_the_example_of_a_disconnect_header() -> None:
    """5.0, figure 3-24: reason code 0, session expiry interval 0 where the figure has five bytes of properties."""
    connection = connected(V5)
    assert feed(connection, [b"\xe0\x07\0\x05\x11\0\0\0\0"]) == [
        Disconnect(0, Properties([(SESSION_EXPIRY_INTERVAL, 0)]))
    ]


@pytest.mark.parametrize("ack", [P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP])
@pytest.mark.parametrize("body", [b"\0\1", b"\0\1\0", b"\0\1\0\0"])
def test_the_short_forms_of_acknowledgements(ack: PacketType, body: bytes) -> None:
    """3.4.2.1: reason code and property length may be missing; ours are as short as can be."""
    first = ack << 4 | (2 if ack is P.PUBREL else 0)
    assert feed(connected(V5), [frame(first, body)]) == [Ack(ack, [1])]
    assert encode_ack(Ack(ack, [1]), V5) == frame(first, b"\0\1")


def test_a_reason_without_properties_has_no_property_length() -> None:
    assert feed(connected(V5), [b"\x40\3\0\1\x87"]) == [Ack(P.PUBACK, [1], 0x87)]
    assert encode_ack(Ack(P.PUBACK, [1, 2], 0x87), V5) == b"\x40\3\0\1\x87\x40\3\0\2\x87"
    assert encode(Disconnect(4), V5) == b"\xe0\1\4"
    assert encode(Disconnect(), V5) == b"\xe0\0"


@interpreted
@pytest.mark.parametrize("properties", [Properties(), EXPLAINED, Properties([(REASON_STRING, "x" * 200)])])
def test_a_run_of_refusals_is_what_one_by_one_is_but_costs_less(properties: Properties) -> None:
    """A client may send 75,000 PUBRELs in a read that nobody knows."""
    ids = [1, 2, 255, 256, 65_535, *range(3, 200)]
    with counted_calls() as calls:
        run = encode_ack(Ack(P.PUBCOMP, ids, 0x92, properties), V5)
    assert run == b"".join([encode(Ack(P.PUBCOMP, [id], 0x92, properties), V5) for id in ids])
    assert calls.total() < len(ids)


def test_3_1_1_acknowledgements_have_a_packet_id_and_nothing_else() -> None:
    assert encode_ack(Ack(P.PUBREC, [1], 0x80, EXPLAINED), V311) == b"\x50\2\0\1"


def test_3_1_credentials_may_be_missing_although_announced() -> None:
    """3.1, CONNECT: the Remaining Length takes precedence over the flags."""
    for flags, payload, user_name, password in (
        (0xC2, text("c"), None, None),
        (0xC2, text("c") + text("joe"), "joe", None),
        (0xC2, text("c") + text("joe") + text("pw"), "joe", b"pw"),
    ):
        [packet] = feed(opened(), [frame(0x10, connect_body(V31, flags, payload))])
        assert packet == Connect(V31, "c", True, 60, user_name, password)


def test_3_1_does_not_use_all_bits() -> None:
    """3.1 calls them unused, where 3.1.1 reserves them."""
    [packet] = feed(opened(), [frame(0x1F, connect_body(V31, 0x2B))])
    assert packet == Connect(V31, "c", True, 60)
    for first in (0x82, 0x83, 0x8A, 0x8B):
        [packet] = feed(connected(V31), [frame(first, b"\0\1" + text("a") + b"\xfd")])
        assert packet == Subscribe(1, [Subscription(TopicFilter("a", "a"), 1)])
    assert feed(connected(V31), [b"\x6a\2\0\1", b"\xcf\0"]) == [Ack(P.PUBREL, [1]), Pingreq()]
    assert shown(feed(connected(V31), [b"\x38\4\0\1ax"])) == [(0, False, True, b"", "a", 0, b"x")]


def test_packets_that_cannot_be_encoded() -> None:
    for packet, version in ((Auth(), V311), (Connack(256), V5), (Subscribe(65_536, []), V5)):
        with pytest.raises(ValueError, match=r"no AUTH|does not fit"):
            encode(packet, version)
    for qos, dup in ((3, False), (0, True), (-1, False)):
        with pytest.raises(ValueError, match="cannot be sent"):
            PublishHead(V5, "a", qos=qos, dup=dup)
