"""Runs: however packets are gathered, they say what each of them says alone."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.mqtt.codes import V5, V31, V311, PacketType, ReasonCode, Role
from protocols.mqtt.connection import PACKETS_MAX, MqttConnection
from protocols.mqtt.encode import PublishHead, encode_acks
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Ack, Connack, Pingreq, Publish
from protocols.mqtt.properties import CONTENT_TYPE, MESSAGE_EXPIRY_INTERVAL, NO_PROPERTIES, TOPIC_ALIAS, Properties
from protocols.mqtt.runs import BLOCKS_REMEMBERED_MAX, REMEMBERED_BYTES_MAX, RUN_MAX, TOPICS_REMEMBERED_MAX, Shared
from tests.protocols.mqtt.peer import VERSIONS, block, connected, failure, frame, maker, shown, text
from tests.support.wire import check_malformed, feed

P = PacketType
PLAIN = b""
TYPED = Properties([(CONTENT_TYPE, "text/plain")]).raw
EXPIRING = Properties([(MESSAGE_EXPIRY_INTERVAL, 9)]).raw

#: qos, retain, dup, properties, topic, packet id, payload
Message = tuple[int, bool, bool, bytes, str, int, bytes]


def raw_of(messages: list[Message], version: int) -> list[bytes]:
    """The packets."""
    packets = []
    for qos, retain, dup, properties, topic, packet_id, payload in messages:
        out: list[bytes] = []
        head = PublishHead(version, topic, qos=qos, retain=retain, dup=dup, properties=properties)
        head.encode(out, [payload], [packet_id] if qos else [])
        packets.append(b"".join(out))
    return packets


def publishes(connection: MqttConnection, raw: bytes) -> list[Publish]:
    """The runs in some bytes."""
    found = feed(connection, [raw])
    assert failure(connection) is None
    return [packet for packet in found if isinstance(packet, Publish)]


@st.composite
def messages(draw: st.DrawFn, version: int) -> list[Message]:
    """Messages that often agree with the one before."""
    found: list[Message] = []
    for _ in range(draw(st.integers(1, 12))):
        qos = draw(st.sampled_from([0, 0, 1, 1, 2]))
        found.append(
            (
                qos,
                draw(st.sampled_from([False, False, False, True])),
                qos > 0 and draw(st.sampled_from([False, False, False, True])),
                draw(st.sampled_from([PLAIN, PLAIN, PLAIN, TYPED, TYPED, EXPIRING])) if version == V5 else PLAIN,
                draw(st.sampled_from(["a", "a", "b/c", "ä/" * 70, "t" * 300])),
                draw(st.integers(1, 65_535)) if qos else 0,
                draw(st.sampled_from([b"", b"x", b"\0" * 121, b"y" * 122, b"z" * 500, b"0\0" * 10_000])),
            )
        )
    return found


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_any_messages_in_any_cuts(version: int, data: st.DataObject) -> None:
    """The same as one by one, in order."""
    sent = data.draw(messages(version))
    raw = b"".join(raw_of(sent, version))
    size = data.draw(st.integers(1, len(raw)))
    connection = connected(version)
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)][:500]
    pieces.append(raw[sum(map(len, pieces)) :])
    assert shown(feed(connection, pieces)) == list(sent)
    assert connection.error is None


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_of_a_run(version: int) -> None:
    """Once its topics are known, all that agree in QoS, flags and properties."""
    random = Random(version)
    same: list[Message] = [
        (0, False, False, b"", random.choice("abc"), 0, random.randbytes(random.randint(0, 300))) for _ in range(50)
    ]
    connection = connected(version)
    raw = b"".join(raw_of(same, version))
    assert len(publishes(connection, raw)) <= 3
    [run] = publishes(connection, raw)
    assert run.topics == [message[4] for message in same]
    assert run.payloads == [message[6] for message in same]
    assert (run.qos, run.retain, run.dup, run.packet_ids, run.properties) == (0, False, False, [], NO_PROPERTIES)


def test_packets_that_end_a_run() -> None:
    base: Message = (1, False, False, TYPED, "a", 1, b"x")
    others: list[Message] = [
        (2, False, False, TYPED, "a", 1, b"x"),
        (1, True, False, TYPED, "a", 1, b"x"),
        (1, False, True, TYPED, "a", 1, b"x"),
        (1, False, False, EXPIRING, "a", 1, b"x"),
        (1, False, False, PLAIN, "a", 1, b"x"),
    ]
    for other in others:
        connection = connected(V5)
        found = publishes(connection, b"".join(raw_of([base, base, other, base, base], V5)))
        assert [len(run.topics) for run in found] == [2, 1, 2], other
    connection = connected(V5)
    unknown: Message = (1, False, False, TYPED, "new", 1, b"x")
    found = publishes(connection, b"".join(raw_of([base, base, unknown, base, unknown], V5)))
    assert [run.topics for run in found] == [["a", "a"], ["new", "a", "new"]]
    connection = connected(V5)
    raws = raw_of([base] * 4, V5)
    packets = feed(connection, [raws[0] + raws[1] + b"\xc0\0" + raws[2] + raws[3]])
    assert [type(packet) for packet in packets] == [Publish, Pingreq, Publish]


def test_properties_of_a_run() -> None:
    """Equal bytes, one object; the block of another packet is not taken for it."""
    connection = connected(V5)
    long = Properties([(CONTENT_TYPE, "text/plain+longer")]).raw
    same: Message = (0, False, False, TYPED, "a", 0, b"x")
    [one, two] = publishes(connection, b"".join(raw_of([same, same, (0, False, False, long, "a", 0, b"x")], V5)))
    assert one.properties.get(CONTENT_TYPE) == "text/plain"
    assert two.properties.get(CONTENT_TYPE) == "text/plain+longer"


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize(
    "bad",
    [
        frame(0x32, text("a") + b"\0\0\0"),
        frame(0x32, text("a")),
        frame(0x32, text("a#") + b"\0\1\0"),
        frame(0x32, b"\0\x09a\0\1\0"),
        frame(0x32, b"\0"),
        frame(0x32, b""),
        frame(0x32, b"\0\0\0\1\0"),
        b"\x32\xff\xff\xff\xff\1",
    ],
)
def test_an_error_within_what_could_be_a_run(version: int, bad: bytes) -> None:
    """What came before it comes out."""
    good: Message = (1, False, False, b"", "a", 1, b"x")
    connection = connected(version)
    before = b"".join(raw_of([good, good, good], version))
    found = feed(connection, [before + bad + before])
    assert shown(found) == [good] * 3
    assert isinstance(connection.error, MqttError)


def test_properties_that_reach_beyond_their_packet() -> None:
    """The bytes behind are those of a block that is known."""
    known = frame(0x30, text("a") + block(TYPED) + b"x")
    shared = Shared()
    connection = MqttConnection(shared)
    connection.receive_data(frame(0x10, text("MQTT") + b"\5\2\0\0\0\0\1c"))
    connection.events()
    connection.send(Connack())
    assert len(publishes(connection, known)) == 1
    cut = known[:-1] + b"x"
    short = bytes([cut[0], cut[1] - 4]) + cut[2:]
    assert feed(connection, [short]) == []
    assert connection.error is not None
    assert connection.error.reason == ReasonCode.MALFORMED_PACKET


def aliased(topic: str, alias: int, payload: bytes = b"x") -> bytes:
    """A PUBLISH with an alias."""
    return frame(0x30, text(topic) + block(TOPIC_ALIAS.prefix + alias.to_bytes(2, "big")) + payload)


def test_aliases_are_resolved() -> None:
    """3.3.4; MQTT-3.3.2-12: all of them up to the maximum that was announced."""
    connection = connected(V5)
    raw = aliased("a/b", 1) + aliased("", 1) + aliased("c", 256) + aliased("", 1) + aliased("", 256)
    raw += aliased("d", 1) + aliased("", 1)
    found = publishes(connection, raw)
    assert [topic for run in found for topic in run.topics] == ["a/b", "a/b", "c", "a/b", "c", "d", "d"]
    assert {run.properties.get(TOPIC_ALIAS) for run in found} == {1, 256}


def test_the_same_alias_again_and_again() -> None:
    connection = connected(V5)
    found = publishes(connection, aliased("a", 1) + aliased("b", 1) * 2 + aliased("", 1) * 3)
    assert [topic for run in found for topic in run.topics] == ["a", "b", "b", "b", "b", "b"]


def test_aliases_end_with_the_connection() -> None:
    """MQTT-3.3.2-7, although connections share what they know of topics."""
    shared = Shared()
    for first in (True, False):
        connection = MqttConnection(shared)
        feed(connection, [frame(0x10, text("MQTT") + b"\5\2\0\0\0\0\1c")])
        connection.send(Connack())
        raw = aliased("a", 1) if first else aliased("", 1)
        assert len(feed(connection, [raw])) == first
        assert (connection.error is None) == first


def test_no_aliases_at_all() -> None:
    """MQTT-3.2.2-18: the limit is 0."""
    limits = Limits(topic_alias_max=0)
    error = check_malformed(maker(V5, limits=limits), aliased("a", 1), MqttError)
    assert error.reason == ReasonCode.TOPIC_ALIAS_INVALID


def test_a_client_resolves_them_too() -> None:
    """MQTT-3.3.2-10."""
    connection = connected(V5, Role.CLIENT)
    [one, two] = publishes(connection, aliased("a", 7) + aliased("", 7))
    assert one.topics == two.topics == ["a"]


def test_remembered_heads_are_bounded() -> None:
    shared = Shared()
    for number in range(TOPICS_REMEMBERED_MAX + 5):
        assert shared.topic(b"%d" % number) == str(number)
    for number in range(BLOCKS_REMEMBERED_MAX + 3):
        raw = block(Properties([(MESSAGE_EXPIRY_INTERVAL, number)]).raw)
        properties, at = shared.properties(raw, 0, len(raw))
        assert (properties.get(MESSAGE_EXPIRY_INTERVAL), at) == (number, len(raw))
    assert (len(shared.topics), len(shared.blocks)) == (5, 3)
    for length, more in ((REMEMBERED_BYTES_MAX, 1), (REMEMBERED_BYTES_MAX + 1, 0)):
        before = len(shared.topics)
        shared.topic(b"t" * length)
        assert len(shared.topics) == before + more


def test_long_blocks_are_not_remembered() -> None:
    shared = Shared()
    for length, more in ((REMEMBERED_BYTES_MAX, 1), (REMEMBERED_BYTES_MAX + 1, 0)):
        raw = Properties([(CONTENT_TYPE, "x" * (length - 3))]).encode()
        before = len(shared.blocks)
        assert shared.properties(raw, 0, len(raw))[0].encode() == raw
        assert len(shared.blocks) == before + more


ACKS = [(P.PUBACK, 0x40), (P.PUBREC, 0x50), (P.PUBREL, 0x62), (P.PUBCOMP, 0x70)]


@pytest.mark.parametrize(("packet", "first"), ACKS)
@given(packet_ids=st.lists(st.integers(1, 65_535), min_size=1, max_size=50), form=st.sampled_from([0, 1, 2]))
def test_acknowledgements_in_a_row(packet: PacketType, first: int, packet_ids: list[int], form: int) -> None:
    """All forms of success, in one event, ids in order (MQTT-4.6.0-2, MQTT-4.6.0-3)."""
    raw = b"".join([frame(first, one.to_bytes(2, "big") + bytes(form)) for one in packet_ids])
    if not form:
        assert encode_acks(packet, packet_ids) == raw
    for version in VERSIONS:
        if form and version != V5:
            continue
        assert feed(connected(version), [raw]) == [Ack(packet, packet_ids)]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_acknowledgement_of_nothing_in_a_row(version: int) -> None:
    """MQTT-2.2.1-3; those before it come out."""
    connection = connected(version)
    assert feed(connection, [b"\x40\2\0\1\x40\2\0\2\x40\2\0\0\x40\2\0\3"]) == [Ack(P.PUBACK, [1, 2])]
    assert connection.error is not None


def test_acknowledgements_that_do_not_agree() -> None:
    raw = b"\x40\2\0\1\x40\3\0\2\0\x40\4\0\3\0\0\x40\3\0\4\x87\x40\2\0\5\x50\2\0\6"
    found = feed(connected(V5), [raw])
    assert found == [
        Ack(P.PUBACK, [1]),
        Ack(P.PUBACK, [2]),
        Ack(P.PUBACK, [3]),
        Ack(P.PUBACK, [4], 0x87),
        Ack(P.PUBACK, [5]),
        Ack(P.PUBREC, [6]),
    ]


def test_acknowledgements_cut_anywhere() -> None:
    raw = encode_acks(P.PUBREL, range(1, 40))
    for size in range(1, 20):
        connection = connected(V31)
        found = feed(connection, [raw[at : at + size] for at in range(0, len(raw), size)])
        assert [one for packet in found if isinstance(packet, Ack) for one in packet.packet_ids] == list(range(1, 40))


def test_a_read_is_parsed_some_packets_at_a_time() -> None:
    connection = connected(V5)
    connection.receive_data(b"\xc0\0" * 200 + b"\xc0")
    connection.receive_eof()
    lengths = []
    while found := connection.events():
        lengths.append(len(found))
    assert lengths == [PACKETS_MAX, PACKETS_MAX, PACKETS_MAX, 200 - 3 * PACKETS_MAX]
    assert connection.error is not None, "it has ended within a packet"


@pytest.mark.parametrize(("packets", "lengths"), [(RUN_MAX, [RUN_MAX]), (RUN_MAX + 1, [RUN_MAX, 1])])
def test_a_run_has_an_end(packets: int, lengths: list[int]) -> None:
    connection = connected(V311)
    connection.receive_data(b"\x30\x03\0\1t" * packets + b"\x30")
    found = []
    while runs := connection.events():
        found.append([len(run.topics) for run in runs if isinstance(run, Publish)])
    assert found == [[length] for length in lengths]
    assert not connection.has_more, "a packet is incomplete"


def test_runs_that_are_parsed_together_have_few_packets() -> None:
    connection = connected(V311)
    half = RUN_MAX // 2
    connection.receive_data((b"\x30\x03\0\1t" * half + b"\x31\x03\0\1t") * 5)
    assert [len(run.topics) for run in connection.events() if isinstance(run, Publish)] == [half, 1, half]
    assert connection.has_more
