"""What is sent: as far as the peer wants it and takes it, and in as few bytes as can be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.codes import V5, V31, V311, PacketType, ReasonCode, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, PublishHeads, encode, encode_acks
from protocols.mqtt.errors import MqttError
from protocols.mqtt.fields import PACKET_BYTES_MAX, VARINT_MAX
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Publish,
    Suback,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import (
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    REASON_STRING,
    REQUEST_PROBLEM_INFORMATION,
    SERVER_REFERENCE,
    TOPIC_ALIAS_MAXIMUM,
    USER_PROPERTY,
    Properties,
)
from protocols.mqtt.state import State
from protocols.mqtt.topics import TopicFilter
from tests.protocols.mqtt.peer import (
    VERSIONS,
    auth,
    authenticating,
    connected,
    frame,
    hello,
    maker,
    opened,
    sent,
    shown,
    text,
)
from tests.support.interpreted import interpreted
from tests.support.wire import feed

C, S = Role.CLIENT, Role.SERVER
P = PacketType
EXPLAINED = Properties([(REASON_STRING, "so it is"), (USER_PROPERTY, ("k", "v"))])

#: All that a server can explain.
EXPLANATIONS: list[Packet] = [
    *(Ack(ack, [1], 0, EXPLAINED) for ack in (P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP)),
    Suback(1, [0], EXPLAINED),
    Unsuback(1, [0], EXPLAINED),
    Disconnect(0x80, EXPLAINED),
]


def connack_of(connection: MqttConnection) -> Connack:
    """The CONNACK that a server sent."""
    client = opened(C)
    client.send(hello(V5))
    [packet] = feed(client, [connection.data_to_send()])
    assert isinstance(packet, Connack)
    return packet


# -- what the two sides announce ---------------------------------------------------------------------------------------


def test_connack_announces_what_the_codec_demands() -> None:
    limits = Limits(packet_bytes_max=1000, topic_alias_max=7)
    connection = opened(S, limits)
    feed(connection, [encode(hello(V5), V5)])
    connection.send(Connack(0, True))
    found = connack_of(connection)
    assert found.session_present
    assert found.properties == Properties([(MAXIMUM_PACKET_SIZE, 1000), (TOPIC_ALIAS_MAXIMUM, 7)])


def test_no_aliases_are_announced_by_silence() -> None:
    connection = opened(S, Limits(topic_alias_max=0))
    feed(connection, [encode(hello(V5), V5)])
    connection.send(Connack())
    assert TOPIC_ALIAS_MAXIMUM not in connack_of(connection).properties


def test_refusals_and_earlier_versions_announce_nothing() -> None:
    connection = opened()
    feed(connection, [encode(hello(V5), V5)])
    connection.send(Connack(0x87))
    assert connection.data_to_send() == b"\x20\3\0\x87\0"
    assert connection.close_expected
    for version in (V31, V311):
        connection = opened()
        feed(connection, [encode(hello(version), version)])
        connection.send(Connack())
        assert connection.data_to_send() == b"\x20\2\0\0"


def test_a_client_announces_too() -> None:
    client = opened(C, Limits(packet_bytes_max=500, topic_alias_max=3))
    client.send(hello(V5))
    [packet] = feed(opened(), [client.data_to_send()])
    assert isinstance(packet, Connect)
    assert packet.properties == Properties([(MAXIMUM_PACKET_SIZE, 500), (TOPIC_ALIAS_MAXIMUM, 3)])


def test_the_method_goes_along() -> None:
    """MQTT-4.12.0-5: in AUTH, and in the accepting CONNACK; not in a refusal, which need not."""
    connection = authenticating()
    data = Properties([(AUTHENTICATION_DATA, b"challenge")])
    connection.send(Auth(0x18, data))
    client = authenticating(C)
    assert feed(client, [connection.data_to_send()]) == [
        Auth(0x18, Properties([(AUTHENTICATION_METHOD, "M"), (AUTHENTICATION_DATA, b"challenge")]))
    ]
    client.send(auth(0x18))
    feed(connection, [client.data_to_send()])
    connection.send(Connack(0, False, data))
    [packet] = feed(client, [connection.data_to_send()])
    assert isinstance(packet, Connack)
    assert packet.properties.get(AUTHENTICATION_METHOD) == "M"
    assert (connection.state, client.state) == (State.AUTHENTICATED, State.AUTHENTICATED)
    refusing = authenticating()
    refusing.send(Connack(0x8C))
    assert refusing.data_to_send() == b"\x20\3\0\x8c\0"


def test_authenticating_again() -> None:
    """4.12.1: work goes on meanwhile."""
    server, client = authenticating(), authenticating(C)
    server.send(Connack())
    feed(client, [server.data_to_send()])
    client.send(Auth(0x19))
    client.send_publish(PublishHead(V5, "a"), [b"x"])
    assert len(feed(server, [client.data_to_send()])) == 2
    server.send(Auth(0x18))
    server.send(Pingresp())
    assert len(feed(client, [server.data_to_send()])) == 2
    client.send(Auth(0x18))
    feed(server, [client.data_to_send()])
    server.send(Auth(0))
    feed(client, [server.data_to_send()])
    assert (server.state, client.state) == (State.AUTHENTICATED, State.AUTHENTICATED)


# -- what the peer does not want ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet", EXPLANATIONS)
@pytest.mark.parametrize("wanted", [None, 1, 0])
def test_problem_information(packet: Packet, wanted: int | None) -> None:
    """MQTT-3.1.2-29: left out if it was not asked for; CONNACK and DISCONNECT may have it."""
    properties = [] if wanted is None else [(REQUEST_PROBLEM_INFORMATION, wanted)]
    connection = connected(V5, connect=hello(V5, *properties))
    assert connection.send(packet)
    [found] = feed(connected(V5, C), [connection.data_to_send()])
    assert not isinstance(found, Publish)
    told = wanted != 0 or isinstance(packet, Disconnect)
    assert shown([found]) == shown([packet]) or not told
    raw = encode_explained(found)
    assert (b"so it is" in raw) == told
    assert (text("k") + text("v") in raw) == told


def encode_explained(packet: Packet) -> bytes:
    """A packet's properties, as bytes."""
    properties = getattr(packet, "properties", None)
    assert isinstance(properties, Properties)
    return properties.raw


def test_problem_information_in_connack() -> None:
    connection = opened()
    feed(connection, [encode(hello(V5, (REQUEST_PROBLEM_INFORMATION, 0)), V5)])
    connection.send(Connack(0x87, False, EXPLAINED))
    assert connack_of(connection).properties == EXPLAINED


def test_explanations_of_a_client_are_always_sent() -> None:
    client = connected(V5, C, connect=hello(V5, (REQUEST_PROBLEM_INFORMATION, 0)))
    client.send(Ack(P.PUBACK, [1], 0x80, EXPLAINED))
    assert sent(client, V5, C) == [(P.PUBACK, 1, 0x80, EXPLAINED.raw)]


# -- what the peer does not take ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet", EXPLANATIONS)
def test_explanations_that_are_too_large(packet: Packet) -> None:
    """First the user properties go, then the reason string.

    MQTT-3.4.2-2, 3.4.2-3, 3.5.2-2, 3.5.2-3, 3.6.2-2, 3.6.2-3, 3.7.2-2, 3.7.2-3, 3.9.2-1, 3.9.2-2, 3.11.2-1, 3.11.2-2,
    3.14.2-3, 3.14.2-4.
    """
    assert not isinstance(packet, Publish)
    sizes = []
    for properties in (EXPLAINED, EXPLAINED.without(USER_PROPERTY), Properties()):
        connection = connected(V5)
        connection.send(with_properties(packet, properties))
        sizes.append(len(connection.data_to_send()))
    for most in range(sizes[-1] - 1, sizes[0] + 1):
        connection = connected(V5)
        connection.agreement.packet_bytes_max = most
        fits = connection.send(packet)
        size = len(connection.data_to_send())
        assert fits == (most >= sizes[-1])
        assert size == (max(one for one in sizes if one <= most) if fits else 0)


def with_properties(packet: Packet, properties: Properties) -> Packet:
    """The same with others."""
    assert isinstance(packet, Ack | Suback | Unsuback | Disconnect)
    return replace(packet, properties=properties)


def test_a_connack_that_is_too_large() -> None:
    """MQTT-3.2.2-19, MQTT-3.2.2-20, MQTT-3.15.2-2, MQTT-3.15.2-3."""
    connection = opened()
    feed(connection, [encode(hello(V5, (MAXIMUM_PACKET_SIZE, 20)), V5)])
    connection.send(Connack(0x87, False, EXPLAINED))
    assert connack_of(connection).properties == EXPLAINED.without(USER_PROPERTY)
    connection = opened()
    feed(connection, [encode(hello(V5, (MAXIMUM_PACKET_SIZE, 15), (AUTHENTICATION_METHOD, "M")), V5)])
    connection.send(Auth(0x18, EXPLAINED))
    assert connection.data_to_send() == frame(0xF0, b"\x18\4\x15\0\1M")


def test_nothing_is_too_large_for_who_does_not_say_so() -> None:
    assert connected(V5).agreement.packet_bytes_max == PACKET_BYTES_MAX == 268_435_460
    assert connected(V311).agreement.packet_bytes_max == PACKET_BYTES_MAX
    assert connected(V5, connect=hello(V5, (MAXIMUM_PACKET_SIZE, 77))).agreement.packet_bytes_max == 77
    connack = Connack(properties=Properties([(MAXIMUM_PACKET_SIZE, 77)]))
    assert connected(V5, C, connack=connack).agreement.packet_bytes_max == 77


def narrow(most: int) -> MqttConnection:
    """A connection to a client that takes hardly anything; CONNACK went through before."""
    connection = connected(V5)
    connection.agreement.packet_bytes_max = most
    return connection


def test_a_client_that_does_not_even_take_connack() -> None:
    connection = opened()
    feed(connection, [encode(hello(V5, (MAXIMUM_PACKET_SIZE, 12)), V5)])
    assert not connection.send(Connack())
    assert (connection.data_to_send(), connection.state) == (b"", State.ANSWERING)


def test_a_packet_that_cannot_be_shortened() -> None:
    """MQTT-3.1.2-24, MQTT-3.2.2-15: it is not sent, and the conversation is where it was."""
    connection = narrow(10)
    assert not connection.send(Suback(1, [0] * 10))
    assert not connection.send(Disconnect(0x9C, Properties([(SERVER_REFERENCE, "other.example")])))
    assert (connection.data_to_send(), connection.close_expected) == (b"", False)
    client = connected(V5, C, connack=Connack(properties=Properties([(MAXIMUM_PACKET_SIZE, 10)])))
    assert not client.send(Unsubscribe(1, [TopicFilter("a" * 10, "a" * 10)]))


def test_acknowledgements_in_a_row_are_small_each() -> None:
    connection = narrow(4)
    assert connection.send(Ack(P.PUBACK, list(range(1, 100))))
    assert not connection.send(Ack(P.PUBACK, [1, 2], 0x80))
    assert connection.data_to_send() == encode_acks(P.PUBACK, range(1, 100))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_that_are_too_large(qos: int) -> None:
    """MQTT-3.1.2-25: their positions are told; the others are sent."""
    connection = connected(V5, connect=hello(V5, (MAXIMUM_PACKET_SIZE, 150)))
    head = PublishHead(V5, "a", qos=qos)
    fits = 150 - 3 - head.fixed_bytes
    payloads = [b"x" * fits, b"y" * (fits + 1), b"", b"z" * 500]
    assert connection.send_publish(head, payloads, [1, 2, 3, 4] if qos else []) == [1, 3]
    data = connection.data_to_send()
    [run] = feed(connected(V5, C), [data])
    assert isinstance(run, Publish)
    assert run.payloads == [payloads[0], payloads[2]]
    assert run.packet_ids == ([1, 3] if qos else [])
    assert connection.send_publish(head, [b"y" * (fits + 1)], [1] if qos else []) == [0]
    assert connection.data_to_send() == b""


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_of_another_version_or_at_another_time() -> None:
    for connection in (connected(V311), opened(), authenticating(C)):
        with pytest.raises(ValueError, match=r"PUBLISH of MQTT 5\.0 cannot be sent"):
            connection.send_publish(PublishHead(V5, "a"), [b""])


@given(
    st.sampled_from(VERSIONS),
    st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([b"", b"\x01\x01"]), st.binary()), min_size=1),
)
def test_heads_that_differ_in_a_row(version: int, qos: int, packets: list[tuple[str, bytes, bytes]]) -> None:
    """Byte for byte what one after the other would be, and what is left of them."""
    heads = [PublishHead(version, topic, qos=qos, properties=properties) for topic, properties, _ in packets]
    payloads = [payload for _, _, payload in packets]
    ids = list(range(1, len(packets) + 1))
    for count in {len(packets), (len(packets) + 1) // 2}:
        singly: list[bytes] = []
        for head, payload, id in zip(heads[:count], payloads, ids, strict=False):
            head.encode(singly, [payload], [id])
        codec = connected(version)
        codec.data_to_send()
        assert codec.mixing
        assert codec.send_publish(PublishHeads(heads).up_to(count), payloads[:count], ids[:count]) == []
        assert codec.data_to_send() == b"".join(singly)


def test_heads_that_differ_are_not_for_those_with_limits() -> None:
    for limit in ((MAXIMUM_PACKET_SIZE, 1000), (TOPIC_ALIAS_MAXIMUM, 5)):
        assert not connected(V5, connect=hello(V5, limit)).mixing


def test_every_message_has_its_packet_id() -> None:
    with pytest.raises(ValueError, match="shorter"):
        connected(V5).send_publish(PublishHead(V5, "a", qos=1), [b"", b""], [1])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1])
def test_lengths_of_all_sizes(version: int, qos: int) -> None:
    """MQTT-1.5.5-1: at every border of the length's size; the ready-made ones and the others."""
    connection = connected(version, C)
    head = PublishHead(version, "a", qos=qos)
    for length in (127, 128, 4095, 4096, 16_383, 16_384, 2_097_151, 2_097_152):
        payload = b"x" * (length - head.fixed_bytes)
        connection.send_publish(head, [payload], [9] if qos else [])
        raw = connection.data_to_send()
        assert (
            len(raw)
            == head.packet_bytes(payload)
            == length + 1 + (1 + (length > 127) + (length > 16_383) + (length > 2_097_151))
        )
        found = feed(connected(version), [raw])
        assert [payload for run in found if isinstance(run, Publish) for payload in run.payloads] == [payload]


@interpreted
def test_a_message_of_more_than_256_mib() -> None:
    class Huge(bytes):
        """Says that it is."""

        def __len__(self) -> int:
            return VARINT_MAX

    with pytest.raises(ValueError, match="is not in 0 to"):
        PublishHead(V5, "a").encode([], [Huge()], [])


@given(st.lists(st.integers(1, 65_535), max_size=20), st.sampled_from([P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP]))
def test_acknowledgements_in_one_go(packet_ids: list[int], packet: PacketType) -> None:
    one_by_one = b"".join([encode(Ack(packet, [one]), V311) for one in packet_ids])
    assert encode_acks(packet, packet_ids) == one_by_one


# -- errors ------------------------------------------------------------------------------------------------------------


def test_the_first_error_is_sent_and_nothing_follows() -> None:
    """MQTT-4.13.1-1, MQTT-4.13.2-1, MQTT-3.14.4-1."""
    connection = connected(V5)
    connection.send_error(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, "silence"))
    connection.send_error(MqttError(ReasonCode.SERVER_BUSY, "busy"))
    assert sent(connection, V5) == [Disconnect(0x8D, Properties([(REASON_STRING, "silence")]))]
    assert connection.close_expected
    with pytest.raises(ValueError, match="PINGRESP when disconnected"):
        connection.send(Pingresp())
    assert feed(connection, [b"\xc0\0"]) == []


def test_mistakes_in_a_connect() -> None:
    """MQTT-3.1.2-2: return code 1, or reason code 0x84 for versions to come; MQTT-3.1.3-8, MQTT-3.1.3-9 of 3.1.1."""
    for raw, answer in (
        (text("MQTT") + b"\x03\2\0\0\0\1c", b"\x20\2\0\1"),
        (text("MQTT") + b"\x84\2\0\0\0\1c", b"\x20\2\0\1"),
        (text("MQIsdp") + b"\x04\2\0\0\0\1c", b"\x20\2\0\1"),
        (text("MQTT") + b"\x04\0\0\0\0\0", b"\x20\2\0\2"),
        (text("MQIsdp") + b"\x03\2\0\0\0\0", b"\x20\2\0\2"),
        (text("MQTT") + b"\x04\3\0\0\0\0", b""),
    ):
        connection = opened()
        assert feed(connection, [frame(0x10, raw)]) == []
        assert connection.error is not None
        connection.send_error(connection.error)
        assert connection.data_to_send() == answer
        assert connection.close_expected
    for raw, code in ((text("MQTT") + b"\6", 0x84), (text("MQTT") + b"\5\3\0\0\0\0\1c", 0x81)):
        connection = opened()
        feed(connection, [frame(0x10, raw)])
        assert connection.error is not None
        connection.send_error(connection.error)
        answer = connection.data_to_send()
        assert answer[:1] == b"\x20"
        assert answer[3] == code


def test_a_client_says_goodbye_with_the_reason() -> None:
    """4.13.1; before CONNACK, before 5.0, or for what only servers say: it just closes."""
    wrong = MqttError(ReasonCode.PROTOCOL_ERROR, "wrong")
    client = connected(V5, C)
    client.send_error(wrong)
    assert sent(client, V5, C) == [Disconnect(0x82, Properties([(REASON_STRING, "wrong")]))]
    for other, error in (
        (connected(V311, C), wrong),
        (connected(V5, C), MqttError(ReasonCode.SERVER_BUSY, "busy")),
        (opened(C), wrong),
    ):
        other.send_error(error)
        assert other.data_to_send() == b""
        assert other.close_expected


def test_an_error_that_has_no_room() -> None:
    connection = narrow(2)
    connection.send_error(MqttError(ReasonCode.SERVER_BUSY, "busy"))
    assert connection.data_to_send() == b""
    assert connection.close_expected


@pytest.mark.parametrize("version", VERSIONS)
def test_half_a_packet_at_the_end(version: int) -> None:
    connection = maker(version)()
    assert feed(connection, [b"\xc0\0\xc0"]) != []
    connection.receive_eof()
    assert connection.error is not None
    assert connection.error.sentence == "the connection ended in the middle of a packet"


def test_whole_packets_before_the_end_come_out() -> None:
    connection = connected(V311)
    connection.receive_data(b"\xc0\0\xc0")
    connection.receive_eof()
    assert connection.error is None
    assert len(connection.events()) == 1
    assert connection.error is not None
