"""The table of properties, walked exhaustively: every identifier in every place, from either side."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.mqtt.codes import V5, PacketType, ReasonCode, Role
from protocols.mqtt.errors import MqttError
from protocols.mqtt.fields import Context
from protocols.mqtt.limits import Limits
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    NO_PROPERTIES,
    PROPERTIES,
    REASON_STRING,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER_PROPERTY,
    WILL,
    Properties,
    decode_properties,
)
from tests.protocols.mqtt.strategies import ONE_SIDED, properties_of

P = PacketType
C, S = Role.CLIENT, Role.SERVER
PLACES = [WILL, *PacketType]
LIMITS = Limits()

#: Table 2-4: type and packets by identifier.
TABLE = {
    0x01: ("byte", "PUBLISH WILL"),
    0x02: ("four byte integer", "PUBLISH WILL"),
    0x03: ("text", "PUBLISH WILL"),
    0x08: ("text", "PUBLISH WILL"),
    0x09: ("binary data", "PUBLISH WILL"),
    0x0B: ("variable byte integer", "PUBLISH SUBSCRIBE"),
    0x11: ("four byte integer", "CONNECT CONNACK DISCONNECT"),
    0x12: ("text", "CONNACK"),
    0x13: ("two byte integer", "CONNACK"),
    0x15: ("text", "CONNECT CONNACK AUTH"),
    0x16: ("binary data", "CONNECT CONNACK AUTH"),
    0x17: ("byte", "CONNECT"),
    0x18: ("four byte integer", "WILL"),
    0x19: ("byte", "CONNECT"),
    0x1A: ("text", "CONNACK"),
    0x1C: ("text", "CONNACK DISCONNECT"),
    0x1F: ("text", "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"),
    0x21: ("two byte integer", "CONNECT CONNACK"),
    0x22: ("two byte integer", "CONNECT CONNACK"),
    0x23: ("two byte integer", "PUBLISH"),
    0x24: ("byte", "CONNACK"),
    0x25: ("byte", "CONNACK"),
    0x26: (
        "text pair",
        "CONNECT CONNACK PUBLISH WILL PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK DISCONNECT"
        " AUTH",
    ),
    0x27: ("four byte integer", "CONNECT CONNACK"),
    0x28: ("byte", "CONNACK"),
    0x29: ("byte", "CONNACK"),
    0x2A: ("byte", "CONNACK"),
}

VALUES: dict[str, bytes] = {
    "byte": b"\1",
    "two byte integer": b"\0\1",
    "four byte integer": b"\0\0\0\1",
    "variable byte integer": b"\1",
    "text": b"\0\1x",
    "binary data": b"\0\1\xff",
    "text pair": b"\0\1k\0\1v",
}

#: Properties with bounds (3.1.2.11 and on): the values that are too small and too large.
OUT_OF_BOUNDS = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), (b"\2", b"\xff")),
    0x0B: (b"\0",),
    0x21: (b"\0\0",),
    0x23: (b"\0\0",),
    0x27: (b"\0\0\0\0",),
}


def decode(raw: bytes, place: int, sender: Role = S, limits: Limits = LIMITS) -> Properties:
    """A block that is the whole packet."""
    data = bytes([len(raw)]) + raw if len(raw) < 128 else bytes([len(raw) & 127 | 128, len(raw) >> 7]) + raw
    properties, at = decode_properties(data, 0, len(data), place, Context(V5, sender, limits))
    assert at == len(data)
    return properties


def places_of(id: int) -> set[int]:
    """By table 2-4."""
    return {WILL if name == "WILL" else PacketType[name] for name in TABLE[id][1].split()}


def test_the_table_is_that_of_the_specification() -> None:
    assert {id: property.kind.name for id, property in PROPERTIES.items()} == {id: row[0] for id, row in TABLE.items()}
    for id, property in PROPERTIES.items():
        assert set(property.places) == places_of(id), property.name


@pytest.mark.parametrize("sender", [C, S])
@pytest.mark.parametrize("place", PLACES)
def test_every_property_in_every_place(place: int, sender: Role) -> None:
    """2.2.2.2: a property that the packet does not have is malformed."""
    for id, (kind, _) in TABLE.items():
        raw = bytes([id]) + VALUES[kind]
        right = ONE_SIDED.get((id, place), sender) is sender
        if place in places_of(id) and right:
            properties = decode(raw, place, sender)
            assert properties.raw == raw
            assert [property.id for property, _ in properties] == [id]
            continue
        with pytest.raises(MqttError) as caught:
            decode(raw, place, sender)
        malformed = place not in places_of(id)
        assert caught.value.reason == (ReasonCode.MALFORMED_PACKET if malformed else ReasonCode.PROTOCOL_ERROR)


def test_unknown_identifiers() -> None:
    for id in set(range(128)) - set(TABLE):
        with pytest.raises(MqttError, match=f"{id} identifies no property") as caught:
            decode(bytes([id, 0]), P.PUBLISH)
        assert caught.value.reason == ReasonCode.MALFORMED_PACKET


def test_identifiers_of_several_bytes() -> None:
    with pytest.raises(MqttError, match="256 identifies no property"):
        decode(b"\x80\x02\0", P.PUBLISH)
    with pytest.raises(MqttError, match="needless byte"):
        decode(b"\x81\0\1", P.PUBLISH)


@pytest.mark.parametrize("id", TABLE)
def test_every_property_twice(id: int) -> None:
    """All but two: Protocol Error.  A subscription identifier may come twice, but not in SUBSCRIBE."""
    raw = bytes([id]) + VALUES[TABLE[id][0]]
    for place in places_of(id):
        sender = ONE_SIDED.get((id, place), S)
        if id == USER_PROPERTY.id or (id == SUBSCRIPTION_IDENTIFIER.id and place == P.PUBLISH):
            assert len(list(decode(raw * 3, place, sender))) == 3
            continue
        with pytest.raises(MqttError, match="once") as caught:
            decode(raw * 2, place, sender)
        assert caught.value.reason == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(("id", "value"), [(id, value) for id, values in OUT_OF_BOUNDS.items() for value in values])
def test_values_out_of_bounds(id: int, value: bytes) -> None:
    place = next(iter(places_of(id)))
    with pytest.raises(MqttError) as caught:
        decode(bytes([id]) + value, place, ONE_SIDED.get((id, place), S))
    wanted = ReasonCode.TOPIC_ALIAS_INVALID if id == TOPIC_ALIAS.id else ReasonCode.PROTOCOL_ERROR
    assert caught.value.reason == wanted


@pytest.mark.parametrize("id", TABLE)
def test_every_value_cut_short(id: int) -> None:
    raw = bytes([id]) + VALUES[TABLE[id][0]]
    place = next(iter(places_of(id)))
    for length in range(1, len(raw)):
        with pytest.raises(MqttError) as caught:
            decode(raw[:length], place, ONE_SIDED.get((id, place), S))
        assert caught.value.reason == ReasonCode.MALFORMED_PACKET


def test_a_block_that_is_longer_than_the_packet() -> None:
    with pytest.raises(MqttError, match="properties of 9 bytes, of which the packet has 2"):
        decode_properties(b"\x09\x01\1", 0, 3, P.PUBLISH, Context(V5, C, LIMITS))


def test_no_properties() -> None:
    """MQTT-2.2.2-1."""
    assert decode(b"", P.PUBLISH) is NO_PROPERTIES
    assert NO_PROPERTIES.encode() == b"\0"
    assert not NO_PROPERTIES
    assert NO_PROPERTIES.get(CONTENT_TYPE) is None
    assert NO_PROPERTIES.get_all(USER_PROPERTY) == []
    assert CONTENT_TYPE not in NO_PROPERTIES


def test_properties_are_values() -> None:
    one = Properties([(CONTENT_TYPE, "a"), (USER_PROPERTY, ("k", "v")), (USER_PROPERTY, ("k", "w"))])
    same = decode(one.raw, P.PUBLISH)
    assert one == same
    assert hash(one) == hash(same)
    assert one != NO_PROPERTIES
    assert one != one.raw
    assert repr(one) == "Properties(Content Type='a', User Property=('k', 'v'), User Property=('k', 'w'))"
    assert same.get(CONTENT_TYPE) == "a"
    assert same.get(USER_PROPERTY) == ("k", "v")
    assert same.get_all(USER_PROPERTY) == [("k", "v"), ("k", "w")]
    assert same.without(USER_PROPERTY) == Properties([(CONTENT_TYPE, "a")])
    assert same.without(REASON_STRING) is same


def test_properties_that_cannot_be_encoded() -> None:
    for pairs, message in (
        ([(MESSAGE_EXPIRY_INTERVAL, 1 << 32)], "does not fit"),
        ([(CONTENT_TYPE, "\0")], "U\\+0000"),
        ([(CONTENT_TYPE, "\ud800")], "surrogates"),
        ([(CONTENT_TYPE, "x" * 65_536)], "65536 bytes"),
        ([(SUBSCRIPTION_IDENTIFIER, 1 << 28)], "is not in 0 to"),
        ([(CONTENT_TYPE, "a"), (CONTENT_TYPE, "b")], "Content Type twice"),
    ):
        with pytest.raises(ValueError, match=message):
            Properties(pairs)


@pytest.mark.parametrize(("place", "sender"), list(product(PLACES, [C, S])))
@settings(max_examples=20)
@given(data=st.data())
def test_round_trip(place: int, sender: Role, data: st.DataObject) -> None:
    """Equal bytes, and the values in their order: MQTT-3.1.3-10, MQTT-3.3.2-18."""
    properties = data.draw(properties_of(place, sender))
    decoded = decode(properties.raw, place, sender)
    assert decoded == properties
    assert list(decoded) == list(properties)
    assert decoded.without(CORRELATION_DATA, USER_PROPERTY) == properties.without(USER_PROPERTY, CORRELATION_DATA)


def test_limits() -> None:
    """As much as is allowed, and one more."""
    one = Properties([(USER_PROPERTY, ("k", "v"))]).raw
    small = Limits(user_properties_max=3, properties_bytes_max=len(one) * 4)
    assert len(list(decode(one * 3, P.PUBLISH, limits=small))) == 3
    with pytest.raises(MqttError, match="User Property: at most 3 are allowed") as caught:
        decode(one * 4, P.PUBLISH, limits=small)
    assert caught.value.reason == ReasonCode.QUOTA_EXCEEDED
    wide = Limits(properties_bytes_max=len(one) * 4)
    assert len(list(decode(one * 4, P.PUBLISH, limits=wide))) == 4
    with pytest.raises(MqttError, match="properties of 35 bytes, at most 28 are allowed") as caught:
        decode(one * 5, P.PUBLISH, limits=wide)
    assert caught.value.reason == ReasonCode.QUOTA_EXCEEDED
