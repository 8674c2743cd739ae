"""What the specifications forbid, statement by statement: each case is named by the one that it breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.mqtt.codes import V5, V31, V311, PacketType, ReasonCode, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Auth, Connack, Publish
from tests.protocols.mqtt.peer import (
    VERSIONS,
    authenticating,
    block,
    connect_body,
    connected,
    frame,
    hello,
    maker,
    opened,
    text,
)
from tests.support.wire import check_malformed, feed

C, S = Role.CLIENT, Role.SERVER
MALFORMED, PROTOCOL = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR

Case = tuple[str, int, Role, bytes, ReasonCode]
First = tuple[str, bytes, ReasonCode]

USER = b"\x26" + text("k") + text("v")


def v5(rule: str, raw: bytes, reason: ReasonCode = MALFORMED, sender: Role = C) -> list[Case]:
    """Wrong in 5.0."""
    return [(rule, V5, sender, raw, reason)]


def v3(rule: str, raw: bytes, reason: ReasonCode = MALFORMED, sender: Role = C) -> list[Case]:
    """Wrong in 3.1 and 3.1.1."""
    return [(rule, version, sender, raw, reason) for version in (V31, V311)]


def publish(topic: bytes, first: int = 0x30, more: bytes = b"", properties: bytes = b"\0") -> tuple[bytes, bytes]:
    """A PUBLISH for 3.1.1 and for 5.0."""
    return frame(first, text(topic) + more), frame(first, text(topic) + more + properties)


def both(rule: str, raws: tuple[bytes, bytes], reason: ReasonCode = MALFORMED) -> list[Case]:
    """Wrong in all versions."""
    return v3(rule, raws[0], reason) + v5(rule, raws[1], reason)


def subscribe(topic_filter: str | bytes, options: int = 0) -> tuple[bytes, bytes]:
    """A SUBSCRIBE for 3.1.1 and for 5.0."""
    rest = text(topic_filter) + bytes([options])
    return frame(0x82, b"\0\1" + rest), frame(0x82, b"\0\1\0" + rest)


#: After CONNACK.
CONNECTED: list[Case] = [
    *both("MQTT-1.5.4-1", publish(b"\xed\xa0\x80")),  # U+D800
    *both("MQTT-1.5.4-1", publish(b"\xc0\xaf")),  # overlong
    *both("MQTT-1.5.4-1", publish(b"a\xff")),
    *both("MQTT-1.5.4-1", publish(b"\xf4\x90\x80\x80")),  # U+110000
    *both("MQTT-1.5.4-1", subscribe(b"\xc3")),
    *both("MQTT-1.5.4-2", publish(b"a\0b")),
    *both("MQTT-1.5.4-2", subscribe("a\0b")),
    *v5("MQTT-1.5.5-1", b"\x30\x84\0\0\1a\0"),
    *v5("MQTT-1.5.5-1", b"\xc0\x80\0"),
    *v5("MQTT-1.5.5-1", b"\x40\x82\x80\0\0\1"),
    *v5("MQTT-1.5.5-1", frame(0x30, b"\0\1a\x80\0")),
    *v5("MQTT-1.5.5-1", frame(0x30, b"\0\1a\x80\x80\x80\x80\0")),
    *[("MQTT-1.5.5-1", version, C, b"\x30\xff\xff\xff\xff\0", MALFORMED) for version in VERSIONS],
    *v5("MQTT-1.5.7-1", frame(0x30, b"\0\1a" + block(b"\x26" + text(b"\xff") + text("v")))),
    *v5("MQTT-1.5.7-1", frame(0x30, b"\0\1a" + block(b"\x26" + text("k") + text(b"\0")))),
    *[("MQTT-2.1.3-1", version, C, b"\x41\2\0\1", MALFORMED) for version in (V311, V5)],
    *[("MQTT-2.1.3-1", version, C, b"\xc1\0", MALFORMED) for version in (V311, V5)],
    *[("MQTT-2.1.3-1", version, S, b"\xd8\0", MALFORMED) for version in (V311, V5)],
    *[("MQTT-2.1.3-1", version, S, b"\x92\3\0\1\0", MALFORMED) for version in (V311, V5)],
    *both("MQTT-2.2.1-3", publish(b"a", 0x32, b"\0\0"), PROTOCOL),
    *both("MQTT-2.2.1-3", publish(b"a", 0x34, b"\0\0"), PROTOCOL),
    *[("MQTT-2.2.1-3", version, C, b"\x40\2\0\0", PROTOCOL) for version in VERSIONS],
    *[("MQTT-2.2.1-3", version, C, b"\x62\2\0\0", PROTOCOL) for version in VERSIONS],
    *both("MQTT-2.2.1-3", (frame(0x82, b"\0\0\0\1a\0"), frame(0x82, b"\0\0\0\0\1a\0")), PROTOCOL),
    *both("MQTT-2.2.1-3", (frame(0xA2, b"\0\0\0\1a"), frame(0xA2, b"\0\0\0\0\1a")), PROTOCOL),
    *v5("MQTT-2.2.2-1", frame(0x30, b"\0\1a")),
    *v5("MQTT-2.2.2-1", frame(0x82, b"\0\1" + text("a") + b"\0")),
    *[("MQTT-3.1.0-2", version, C, frame(0x10, connect_body(version)), PROTOCOL) for version in VERSIONS],
    *[("MQTT-3.2.0-2", version, S, b"\x20\3\0\0\0", PROTOCOL) for version in VERSIONS],
    *[("MQTT-3.3.1-2", version, C, frame(0x38, b"\0\1a\0"), MALFORMED) for version in (V311, V5)],
    *[("MQTT-3.3.1-4", version, C, frame(0x36, b"\0\1a\0\1\0"), MALFORMED) for version in VERSIONS],
    *[("MQTT-3.3.1-4", version, S, frame(0x3F, b"\0\1a\0\1\0"), MALFORMED) for version in VERSIONS],
    *both("MQTT-3.3.2-1", (b"\x30\0", b"\x30\0")),
    *both("MQTT-3.3.2-1", (b"\x30\1\0", b"\x30\1\0")),
    *both("MQTT-3.3.2-1", (b"\x30\2\0\1", b"\x30\2\0\1")),
    *both("MQTT-3.3.2-2", publish(b"a/+/b")),
    *both("MQTT-3.3.2-2", publish(b"#")),
    *both("MQTT-3.3.2-2", publish(b"a+")),
    *v5("MQTT-3.3.2-8", frame(0x30, b"\0\1a" + block(b"\x23\0\0")), ReasonCode.TOPIC_ALIAS_INVALID),
    *v5("MQTT-3.3.2-9", frame(0x30, b"\0\1a" + block(b"\x23\x01\x01")), ReasonCode.TOPIC_ALIAS_INVALID),
    *v5("MQTT-3.3.2-13", frame(0x30, b"\0\1a" + block(b"\x08" + text(b"\xff")))),
    *v5("MQTT-3.3.2-14", frame(0x30, b"\0\1a" + block(b"\x08" + text("a/#"))), PROTOCOL),
    *v5("MQTT-3.3.2-19", frame(0x30, b"\0\1a" + block(b"\x03" + text(b"\xff")))),
    *v5("MQTT-3.3.4-6", frame(0x30, b"\0\1a" + block(b"\x0b\1")), PROTOCOL),
    *[
        ("MQTT-3.6.1-1", version, C, bytes([first, 2, 0, 1]), MALFORMED)
        for version in (V311, V5)
        for first in (0x60, 0x63)
    ],
    *[("MQTT-3.6.1-1", V31, C, bytes([first, 2, 0, 1]), MALFORMED) for first in (0x60, 0x64, 0x66)],
    *[("MQTT-3.8.1-1", version, C, frame(0x80, b"\0\1\0\0\1a\0"), MALFORMED) for version in VERSIONS],
    *both("MQTT-3.8.3-1", subscribe(b"\xff")),
    *both("MQTT-3.8.3-2", (frame(0x82, b"\0\1"), frame(0x82, b"\0\1\0")), PROTOCOL),
    *v5("MQTT-3.8.3-4", subscribe("$share/g/a", 4)[1], PROTOCOL),
    *v5("MQTT-3.8.3-5", subscribe("a", 0x40)[1]),
    *v5("MQTT-3.8.3-5", subscribe("a", 0x80)[1]),
    *v5("3.8.3.1 QoS", subscribe("a", 3)[1], PROTOCOL),
    *v5("3.8.3.1 Retain Handling", subscribe("a", 0x30)[1], PROTOCOL),
    *[("MQTT-3-8.3-4 of 3.1.1", V311, C, subscribe("a", options)[0], MALFORMED) for options in (3, 4, 0x81)],
    ("MQTT-3-8.3-4 of 3.1.1", V31, C, subscribe("a", 3)[0], MALFORMED),
    *[("MQTT-3.10.1-1", version, C, frame(0xA0, b"\0\1\0\0\1a"), MALFORMED) for version in VERSIONS],
    *both("MQTT-3.10.3-1", (frame(0xA2, b"\0\1" + text(b"\xff")), frame(0xA2, b"\0\1\0" + text(b"\xff")))),
    *both("MQTT-3.10.3-2", (frame(0xA2, b"\0\1"), frame(0xA2, b"\0\1\0")), PROTOCOL),
    *[("MQTT-3.14.1-1", version, C, b"\xe1\0", MALFORMED) for version in (V311, V5)],
    *v5("MQTT-3.14.2-1", b"\xe0\1\3", PROTOCOL),
    *v5("MQTT-3.14.2-1", b"\xe0\1\x04", PROTOCOL, S),
    *v5("MQTT-3.14.2-2", frame(0xE0, b"\0" + block(b"\x11\0\0\0\0")), PROTOCOL, S),
    *v5("3.14.2.2.2 prolonged", frame(0xE0, b"\0" + block(b"\x11\0\0\0\1")), PROTOCOL),
    *v5("MQTT-4.12.0-7", frame(0xF0, b"\x18" + block(b"\x15" + text("M"))), PROTOCOL),
    *v5("MQTT-4.12.0-6", frame(0xF0, b"\x18" + block(b"\x15" + text("M"))), PROTOCOL, S),
    *both("MQTT-4.7.1-1", subscribe("a#")),
    *both("MQTT-4.7.1-1", subscribe("a/#/b")),
    *both("MQTT-4.7.1-2", subscribe("a/b+")),
    *both("MQTT-4.7.1-2", subscribe("++/a")),
    *both("MQTT-4.7.3-1", subscribe("")),
    *v3("MQTT-4.7.3-1", publish(b"")[0]),
    *both("MQTT-4.8.2-1", subscribe("$share//a")),
    *both("MQTT-4.8.2-2", subscribe("$share/g+/a")),
    *both("MQTT-4.8.2-2", subscribe("$share/#/a")),
    *both("MQTT-4.8.2-2", subscribe("$share/g/")),
    *both("MQTT-4.8.2-2", subscribe("$share/g")),
    *both("MQTT-4.7.1-1", subscribe("$share/g/a#")),
    # lengths that do not agree with each other
    *both("too short", (frame(0x82, b"\0\1\0\2a"), frame(0x82, b"\0\1\0\0\2a"))),
    *both("too short", (frame(0x82, b"\0\1\0\1a"), frame(0x82, b"\0\1\0\0\1a"))),
    *both("too short", (frame(0xA2, b"\0"), frame(0xA2, b"\0\1"))),
    *both("too short", (frame(0x32, b"\0\1a\0"), frame(0x32, b"\0\1a\0"))),
    *v5("too short", frame(0x30, b"\0\1a\5\x01\1")),
    *v5("too short", frame(0x30, b"\0\1a\1\x01")),
    *v5("too short", frame(0x30, b"\0\1a\4\x02\0\0\0")),
    *v5("too short", frame(0x30, b"\0\1a\4\x09\0\2x")),
    *v5("too short", b"\x40\4\0\1\0\5"),
    *[("too long", version, C, b"\xc0\1\0", MALFORMED) for version in VERSIONS],
    *[("too long", version, C, b"\x40\5\0\1\0\0\0", MALFORMED) for version in VERSIONS],
    *v3("too long", b"\x40\3\0\1\0"),
    *v3("too long", b"\xe0\1\0"),
    *v5("too long", b"\xe0\3\0\0\0"),
    # packets that are none, or of the other side
    *[("no packet", version, C, b"\0\0", MALFORMED) for version in VERSIONS],
    *v3("no packet", b"\xf0\0"),
    *[
        ("not theirs", version, C, raw, PROTOCOL)
        for version in VERSIONS
        for raw in (b"\x90\3\0\1\0", b"\xb0\2\0\1", b"\xd0\0")
    ],
    *[("not theirs", version, S, raw, PROTOCOL) for version in VERSIONS for raw in (b"\xc0\0", subscribe("a")[0])],
    *v3("not theirs", b"\xe0\0", PROTOCOL, S),
]


def first(rule: str, flags: int, payload: bytes = text("c"), versions: tuple[int, ...] = VERSIONS) -> list[First]:
    """A CONNECT that is wrong in these versions."""
    return [(rule, frame(0x10, connect_body(version, flags, payload)), MALFORMED) for version in versions]


#: The first packet, which may be answered.
FIRST: list[First] = [
    *first("MQTT-3.1.2-3", 3, versions=(V311, V5)),
    *first("MQTT-3.1.2-11", 0x0A, versions=(V311, V5)),
    *first("MQTT-3.1.2-12", 0x1E, text("c") + text("w") * 2),
    *first("MQTT-3.1.2-13", 0x22, versions=(V311, V5)),
    *first("MQTT-3.1.2-9", 6),
    *first("MQTT-3.1.2-9", 6, text("c") + b"\0" + text("w"), (V5,)),
    *first("MQTT-3.1.2-16", 2, text("c") + text("joe")),
    *first("MQTT-3.1.2-17", 0x82, versions=(V311, V5)),
    *first("MQTT-3.1.2-18", 0x82, text("c") * 3),
    *first("MQTT-3.1.2-19", 0xC2, text("c") * 2, (V311, V5)),
    *first("MQTT-3.1.2-22 of 3.1.1", 0x42, text("c") * 2, (V31, V311)),
    *first("MQTT-3.1.3-3", 2, b""),
    *first("MQTT-3.1.3-4", 2, text(b"\xff")),
    ("MQTT-3.1.3-8 of 3.1.1", frame(0x10, connect_body(V311, 0, text(""))), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ("3.1 CONNECT", frame(0x10, connect_body(V31, 2, text(""))), ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    *first("MQTT-3.1.3-11", 6, text("c") + text(b"\xff") + text(""), (V31, V311)),
    *first("MQTT-3.1.3-11", 6, text("c") + b"\0" + text(b"\xff") + text(""), (V5,)),
    *first("MQTT-3.3.2-2", 6, text("c") + b"\0" + text("a/#") + text(""), (V5,)),
    *first("MQTT-4.7.3-1", 6, text("c") + text("") + text(""), (V311,)),
    *first("MQTT-3.1.3-12", 0x82, text("c") + text(b"\xff")),
    *[("MQTT-2.1.3-1", frame(0x11, connect_body(version)), MALFORMED) for version in (V311, V5)],
    ("MQTT-1.5.5-1", b"\x10\x8e\0" + connect_body(V5), MALFORMED),
    ("3.1.2.11.10", frame(0x10, connect_body(V5, 2, properties=block(b"\x16" + text("x")))), PROTOCOL),
    ("MQTT-3.1.2-2", frame(0x10, text("MQTT") + b"\6\2\0\0\0\0\1c"), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.2-2", frame(0x10, text("MQTT") + b"\3\2\0\0\0\1c"), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.2-2", frame(0x10, text("MQIsdp") + b"\4\2\0\0\0\1c"), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.2-2", frame(0x10, text("MQTT") + b"\x84\2\0\0\0\1c"), ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
]

#: The first packet, of somebody who may not speak MQTT at all.
STRANGE: list[tuple[str, bytes]] = [
    ("MQTT-3.1.0-1", frame(0x30, b"\0\1ax")),
    ("MQTT-3.1.0-1", b"\xc0\0"),
    ("MQTT-3.1.0-1", b"GET / HTTP/1.1\r\n\r\n"),
    ("MQTT-3.1.0-1", b"\0\0"),
    ("MQTT-3.1.0-1", b"CONNECT\n\n\0"),
    ("MQTT-3.1.2-1", frame(0x10, text("mqtt") + b"\5\2\0\0\0\0\1c")),
    ("MQTT-3.1.2-1", frame(0x10, text("MQTT ") + b"\5\2\0\0\0\0\1c")),
    ("MQTT-3.1.2-1", frame(0x10, text(b"\xff") + b"\5\2\0\0\0\0\1c")),
    ("", b"\x10\0"),
    ("", frame(0x10, b"\0\4MQT")),
    ("", frame(0x10, text("MQTT"))),
    ("MQTT-1.5.5-1", b"\x10\xff\xff\xff\xff\0"),
]


def named(cases: list[Case]) -> list[object]:
    """The cases as parameters, with the statement as the name."""
    return [pytest.param(*case, id=f"{case[0]} {case[1]} {case[3][:12].hex()}") for case in cases]


def check(make: Callable[[], MqttConnection], raw: bytes, rule: str, reason: ReasonCode) -> MqttError:
    """`raw` breaks a rule, however it arrives."""
    error = check_malformed(make, raw, MqttError)
    assert error.reason == reason
    assert error.sentence.isprintable()
    if error.rule:
        assert rule.startswith("MQTT")
    return error


#: Statements of which another, more general one is named by the error.
GENERAL = {
    "MQTT-1.5.7-1": ("MQTT-1.5.4-1", "MQTT-1.5.4-2"),
    "MQTT-3.3.2-13": ("MQTT-1.5.4-1",),
    "MQTT-3.3.2-19": ("MQTT-1.5.4-1",),
    "MQTT-3.8.3-1": ("MQTT-1.5.4-1",),
    "MQTT-3.10.3-1": ("MQTT-1.5.4-1",),
    "MQTT-3.1.3-4": ("MQTT-1.5.4-1",),
    "MQTT-3.1.3-11": ("MQTT-1.5.4-1",),
    "MQTT-3.1.3-12": ("MQTT-1.5.4-1",),
}


def agrees(error: MqttError, rule: str) -> bool:
    """Whether the error names the statement, or none where the bytes just end too early or too late."""
    return error.rule in ("", rule, *GENERAL.get(rule, ()))


@pytest.mark.parametrize(("rule", "version", "sender", "raw", "reason"), named(CONNECTED))
def test_refused_once_connected(rule: str, version: int, sender: Role, raw: bytes, reason: ReasonCode) -> None:
    error = check(maker(version, sender.peer), raw, rule, reason)
    assert agrees(error, rule), error.rule
    connection = connected(version, sender.peer)
    feed(connection, [raw])
    connection.send_error(error)
    assert connection.close_expected
    assert connection.data_to_send()[:1] == (b"\xe0" if version == V5 else b"")


@pytest.mark.parametrize(
    ("rule", "raw", "reason"), [pytest.param(*case, id=f"{case[0]} {i}") for i, case in enumerate(FIRST)]
)
def test_refused_as_first_packet(rule: str, raw: bytes, reason: ReasonCode) -> None:
    """MQTT-3.1.4-1; 5.0 is answered with a CONNACK, earlier versions only if they have a return code for it."""
    error = check(opened, raw, rule, reason)
    assert agrees(error, rule), error.rule
    assert not error.silent


@pytest.mark.parametrize(("rule", "raw"), STRANGE)
def test_strangers_get_no_answer(rule: str, raw: bytes) -> None:
    error = check_malformed(opened, raw, MqttError)
    assert agrees(error, rule)
    connection = opened()
    feed(connection, [raw])
    connection.send_error(error)
    assert connection.data_to_send() == b""
    assert connection.close_expected


def test_strangers_are_known_by_their_first_byte() -> None:
    for first in set(range(256)) - set(range(0x10, 0x20)):
        connection = opened()
        assert feed(connection, [bytes([first])]) == []
        assert connection.error is not None


def test_a_topic_alias_that_stands_for_nothing() -> None:
    """3.3.4, 3a: Protocol Error."""
    for alias in (1, 256):
        raw = frame(0x30, b"\0\0" + block(b"\x23" + alias.to_bytes(2, "big")))
        assert check(maker(V5), raw, "", PROTOCOL).rule == ""


def test_neither_topic_nor_alias() -> None:
    """3.3.2.1: Protocol Error in 5.0."""
    check(maker(V5), frame(0x30, b"\0\0\0x"), "", PROTOCOL)
    check(maker(V5), frame(0x30, b"\0\0" + block(USER)), "", PROTOCOL)


def test_a_needless_byte_in_a_length_is_taken_before_5_0() -> None:
    """Only 5.0 forbids it, and devices that cannot compute lengths beforehand send it."""
    for version in (V31, V311):
        connection = connected(version)
        assert len(feed(connection, [b"\x30\x84\0\0\1ax", b"\xc0\x80\x80\0", b"\x40\x82\0\0\1"])) == 3
        assert connection.error is None


def test_control_characters_by_option() -> None:
    """1.5.4: a receiver may refuse them, and non-characters."""
    plain = Limits(control_characters=False)
    for character in "\x01\x1f\x7f\x9f\ufdd0\ufdef\uffff\U0001fffe\U0010ffff":
        raw = publish(f"a{character}".encode())[1]
        assert len(feed(connected(V5), [raw])) == 1
        check(maker(V5, limits=plain), raw, "", MALFORMED)
    raw = publish(" \u00a0\ufeff\ufffd\ufdcf~".encode())[1]
    assert len(feed(connected(V5, limits=plain), [raw])) == 1


def test_a_byte_order_mark_is_a_character() -> None:
    """MQTT-1.5.4-3."""
    [packet] = feed(connected(V5), [publish(b"\xef\xbb\xbfa")[1]])
    assert isinstance(packet, Publish)
    assert packet.topics == ["\ufeffa"]


@pytest.mark.parametrize("raw", [b"\xc0\0", publish(b"a")[1], subscribe("a")[1], b"\x40\2\0\1"])
def test_nothing_but_auth_and_disconnect_while_authenticating(raw: bytes) -> None:
    """MQTT-3.1.2-30."""
    error = check(authenticating, raw, "MQTT-3.1.2-30", PROTOCOL)
    assert error.rule == "MQTT-3.1.2-30"


def test_auth_in_turn() -> None:
    """MQTT-4.12.0-3: the client answers, and does not begin; a reason code other than continue is none of its turn."""
    raw = frame(0xF0, b"\x18" + block(b"\x15" + text("M")))
    check(authenticating, raw, "MQTT-4.12.0-7", PROTOCOL)
    again = frame(0xF0, b"\x19" + block(b"\x15" + text("M")))
    check(authenticating, again, "MQTT-4.12.0-7", PROTOCOL)


@pytest.mark.parametrize("properties", [b"\0", block(b"\x15" + text("N")), block(USER)])
def test_auth_names_the_method_of_connect(properties: bytes) -> None:
    """MQTT-4.12.0-5, MQTT-4.12.1-1."""
    method = b"\x15" + text("M")
    connect = frame(0x10, connect_body(V5, properties=block(method)))

    def make() -> MqttConnection:
        connection = opened()
        assert len(feed(connection, [connect])) == 1
        assert connection.send(Connack())
        return connection

    error = check(make, frame(0xF0, b"\x19" + properties), "MQTT-4.12.0-5", PROTOCOL)
    assert error.rule == "MQTT-4.12.0-5"


@pytest.mark.parametrize(
    ("connect_method", "raw", "rule"),
    [
        ("M", b"\x20\3\0\0\0", "MQTT-4.12.0-5"),
        ("M", frame(0x20, b"\0\0" + block(b"\x15" + text("N"))), "MQTT-4.12.0-5"),
        (None, frame(0x20, b"\0\0" + block(b"\x15" + text("N"))), "MQTT-4.12.0-6"),
        (None, frame(0x20, b"\2\0\0"), "MQTT-3.2.2-1"),
        (None, frame(0x20, b"\1\x80\0"), "MQTT-3.2.2-6"),
        (None, frame(0x20, b"\0\3\0"), "MQTT-3.2.2-8"),
        (None, frame(0x20, b"\0\0"), ""),
        (None, publish(b"a")[1], "MQTT-3.2.0-1"),
        (None, b"\xd0\0", "MQTT-3.2.0-1"),
        (None, b"\xe0\0", "MQTT-3.2.0-1"),
    ],
)
def test_packets_that_a_server_must_not_answer(connect_method: str | None, raw: bytes, rule: str) -> None:
    """MQTT-3.14.0-1 is the last of them."""

    def make() -> MqttConnection:
        if connect_method:
            return authenticating(C, connect_method)
        connection = opened(C)
        connection.send(hello(V5))
        return connection

    error = check_malformed(make, raw, MqttError)
    assert error.rule == rule


def test_the_flags_of_every_packet() -> None:
    """MQTT-2.1.3-1: all sixteen of each; 5.0."""
    allowed = {PacketType.PUBREL: {2}, PacketType.SUBSCRIBE: {2}, PacketType.UNSUBSCRIBE: {2}}
    bodies = {
        PacketType.SUBSCRIBE: b"\0\1\0\0\1a\0",
        PacketType.UNSUBSCRIBE: b"\0\1\0\0\1a",
        PacketType.PINGREQ: b"",
        PacketType.DISCONNECT: b"",
        **dict.fromkeys((PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP), b"\0\1"),
    }
    for packet, body in bodies.items():
        for flags in range(16):
            connection = connected(V5)
            found = feed(connection, [frame(packet << 4 | flags, body)])
            assert (len(found) == 1) == (flags in allowed.get(packet, {0})), (packet, flags)
            assert (connection.error is None) == bool(found)


def challenged() -> MqttConnection:
    """A server that waits for the client's answer."""
    connection = authenticating()
    assert connection.send(Auth(0x18))
    return connection


def test_the_flags_of_auth() -> None:
    """MQTT-3.15.1-1."""
    body = b"\x18" + block(b"\x15" + text("M"))
    assert len(feed(challenged(), [frame(0xF0, body)])) == 1
    for flags in range(1, 16):
        error = check(challenged, frame(0xF0 | flags, body), "MQTT-3.15.1-1", MALFORMED)
        assert error.rule == "MQTT-3.15.1-1"


def test_the_reason_codes_of_auth() -> None:
    """MQTT-3.15.2-1: all but those of table 3-11; 0x00 is the server's, and 0x19 is for later."""
    method = block(b"\x15" + text("M"))
    for code in range(256):
        connection = challenged()
        found = feed(connection, [frame(0xF0, bytes([code]) + method)])
        assert len(found) == (code == 0x18)
        error = connection.error
        assert (error is None) == (code == 0x18)
        assert error is None or error.rule == ("MQTT-4.12.0-7" if code == 0x19 else "MQTT-3.15.2-1")


def test_auth_without_a_method() -> None:
    """3.15.2.2.2, and although 3.15.2.1 lets an AUTH of nothing at all seem possible."""
    for raw in (frame(0xF0, b"\x18"), frame(0xF0, b"\x18\0")):
        check(challenged, raw, "MQTT-4.12.0-5", PROTOCOL)
