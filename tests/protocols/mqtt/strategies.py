"""Any packet that may be, for hypothesis."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from protocols.mqtt.codes import REASONS, V5, V31, V311, PacketType, Role
from protocols.mqtt.limits import Limits
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
    NO_PROPERTIES,
    PROPERTIES,
    SESSION_EXPIRY_INTERVAL,
    WILL,
    Properties,
    Property,
)
from protocols.mqtt.topics import parse_topic_filter

P = PacketType
LIMITS: Final = Limits()

#: What one side alone may send there: [MQTT-3.3.4-6], [MQTT-3.14.2-2], 3.14.2.2.5.
ONE_SIDED: dict[tuple[int, int], Role] = {
    (0x0B, P.PUBLISH): Role.SERVER,
    (0x11, P.DISCONNECT): Role.CLIENT,
    (0x1C, P.DISCONNECT): Role.SERVER,
    (0x1C, P.CONNACK): Role.SERVER,
}

#: Text without what UTF-8 or MQTT cannot say.
texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
OF_KIND = {
    "byte": st.integers(0, 1),
    "two byte integer": st.integers(1, 65_535),
    "four byte integer": st.integers(1, (1 << 32) - 1),
    "variable byte integer": st.integers(1, 268_435_455),
    "text": texts,
    "binary data": st.binary(max_size=20),
    "text pair": st.tuples(texts, texts),
}


@st.composite
def properties_of(draw: st.DrawFn, place: int, sender: Role) -> Properties:
    """Any properties that may stand there."""
    pairs: list[tuple[Property[object], object]] = []
    for id, property in PROPERTIES.items():
        if place not in property.places or ONE_SIDED.get((id, place), sender) is not sender:
            continue
        strategy = OF_KIND[property.kind.name]
        if id == 0x08:
            strategy = st.just("a/b")
        many = property.repeats and place != P.SUBSCRIBE
        pairs += [(property, draw(strategy)) for _ in range(draw(st.integers(0, 2 if many else 1)))]
    return Properties(draw(st.permutations(pairs)))


topic_names = st.text(st.sampled_from("ab/ $ä🐎.\\"), min_size=1, max_size=12)
_levels = st.one_of(st.just("+"), st.text(st.sampled_from("ab ä"), max_size=3))
_patterns = st.tuples(st.lists(_levels, min_size=1, max_size=4), st.sampled_from(["", "/#"])).map(
    lambda parts: ("/".join(parts[0]) + parts[1]) or "#"
)
_shares = st.sampled_from(["", "", "$share/g/", "$share/g 2/"])
topic_filters = st.tuples(_shares, _patterns).map(lambda parts: parse_topic_filter("".join(parts), LIMITS))
packet_ids = st.integers(1, 65_535)


def _codes(version: int, packet: PacketType, sender: Role) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted(code for code, who in REASONS[version][packet].items() if sender in who))


def _properties(version: int, place: int, sender: Role) -> st.SearchStrategy[Properties]:
    return properties_of(place, sender) if version == V5 else st.just(NO_PROPERTIES)


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    """A CONNECT."""
    will = None
    if draw(st.booleans()):
        will = Will(
            draw(topic_names),
            draw(st.binary(max_size=20)),
            draw(st.integers(0, 2)),
            draw(st.booleans()),
            draw(_properties(version, WILL, Role.CLIENT)),
        )
    user_name = draw(st.none() | texts)
    password = draw(st.none() | st.binary(max_size=20)) if version == V5 or user_name is not None else None
    properties = draw(_properties(version, P.CONNECT, Role.CLIENT))
    if AUTHENTICATION_METHOD not in properties:
        properties = properties.without(AUTHENTICATION_DATA)
    client_id = draw(texts.filter(bool))
    clean_start, keep_alive = draw(st.booleans()), draw(st.integers(0, 65_535))
    return Connect(version, client_id, clean_start, keep_alive, user_name, password, will, properties)


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Connack:
    """A CONNACK, which says nothing of an authentication."""
    code = draw(_codes(version, P.CONNACK, Role.SERVER))
    properties = draw(_properties(version, P.CONNACK, Role.SERVER)).without(AUTHENTICATION_METHOD, AUTHENTICATION_DATA)
    return Connack(code, code == 0 and version != V31 and draw(st.booleans()), properties)


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    """A SUBSCRIBE."""
    subscriptions = []
    for topic_filter in draw(st.lists(topic_filters, min_size=1, max_size=4)):
        one = Subscription(topic_filter, draw(st.integers(0, 2)))
        if version == V5:
            one.no_local = topic_filter.share is None and draw(st.booleans())
            one.retain_as_published, one.retain_handling = draw(st.booleans()), draw(st.integers(0, 2))
        subscriptions.append(one)
    return Subscribe(draw(packet_ids), subscriptions, draw(_properties(version, P.SUBSCRIBE, Role.CLIENT)))


@st.composite
def packets(draw: st.DrawFn, version: int, sender: Role) -> Packet:
    """Any packet but CONNECT, CONNACK, AUTH and PUBLISH that this side may send."""
    acks = [P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP]
    own = {
        Role.CLIENT: [P.SUBSCRIBE, P.UNSUBSCRIBE, P.PINGREQ, P.DISCONNECT],
        Role.SERVER: [P.SUBACK, P.UNSUBACK, P.PINGRESP, *([P.DISCONNECT] if version == V5 else [])],
    }
    packet = draw(st.sampled_from([*acks, *own[sender]]))
    if packet is P.SUBSCRIBE:
        return draw(subscribes(version))
    if packet in (P.PINGREQ, P.PINGRESP):
        return Pingreq() if packet is P.PINGREQ else Pingresp()
    properties = draw(_properties(version, packet, sender))
    if packet is P.UNSUBSCRIBE:
        return Unsubscribe(draw(packet_ids), draw(st.lists(topic_filters, min_size=1, max_size=4)), properties)
    if packet is P.SUBACK:
        codes = st.lists(_codes(version, P.SUBACK, sender), min_size=1, max_size=4)
        return Suback(draw(packet_ids), draw(codes), properties)
    if packet is P.UNSUBACK:
        codes = st.lists(_codes(V5, P.UNSUBACK, sender), min_size=1, max_size=4)
        return Unsuback(draw(packet_ids), draw(codes) if version == V5 else [], properties)
    code = draw(_codes(V5, packet, sender)) if version == V5 else 0
    if packet is P.DISCONNECT:
        return Disconnect(code, properties.without(SESSION_EXPIRY_INTERVAL))
    return Ack(packet, [draw(packet_ids)], code, properties)


@st.composite
def auths(draw: st.DrawFn, sender: Role, code: int) -> Auth:
    """An AUTH of the method M."""
    properties = draw(properties_of(P.AUTH, sender)).without(AUTHENTICATION_METHOD)
    return Auth(code, Properties([*properties, (AUTHENTICATION_METHOD, "M")]))


VERSIONS: Final = (V31, V311, V5)
