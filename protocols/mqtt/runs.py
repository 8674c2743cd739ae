"""Reads PUBLISH and its acknowledgements in runs: they are most of the traffic, and cost little each this way.

The first packet of a run is fully parsed and checked.  A following packet belongs to the run if its first byte is the
same, its properties are the same bytes, its topic was seen and checked before, its packet id is not 0 and it is
complete.  Any other packet ends the run and begins the next one, fully checked.  So a packet of a run costs a
dictionary lookup and the copy of its payload.  A run ends at `RUN_MAX`.

Topics and blocks of properties that passed the checks are cached, within bounds, for all connections with the same
`Shared`; those that never repeat are fully checked each time.
"""

from __future__ import annotations

import re
import sys
from array import array
from typing import Final

from protocols.mqtt.aliases import TopicAliases
from protocols.mqtt.codes import V5, V31, PacketType, Role
from protocols.mqtt.errors import MqttError, malformed, violation
from protocols.mqtt.fields import Context, check_text, read_binary, read_two_bytes, read_varint
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Ack, Begun, Publish
from protocols.mqtt.properties import NO_PROPERTIES, TOPIC_ALIAS, Properties, decode_properties
from protocols.mqtt.topics import check_topic_name

#: How many topics and blocks of properties are cached, and the most bytes of each: at most some 5 MiB in all.
TOPICS_REMEMBERED_MAX: Final = 8192
BLOCKS_REMEMBERED_MAX: Final = 1024
REMEMBERED_BYTES_MAX: Final = 256

#: The most PUBLISH packets of a run: a read may bring 40,000, and each takes a microsecond to parse.
RUN_MAX: Final = 2_048

#: The largest length that two bytes can encode.
_TWO_BYTE_LENGTH_MAX: Final = 16_383

_DEFAULT_LIMITS: Final = Limits()


class Shared:
    """State shared by the connections of one side: the limits, and the topics and properties checked against them.

    `role` is our side.
    """

    __slots__ = ("blocks", "contexts", "limits", "plain_bytes_max", "role", "topics")

    def __init__(self, role: Role = Role.SERVER, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.role = role
        self.limits = limits
        self.contexts = {version: Context(version, role.peer, limits) for version in (3, 4, 5)}
        self.topics: dict[bytes, str] = {}
        self.blocks: dict[bytes, Properties] = {}
        #: The length up to which no packet is too large or read in parts, and the length takes one or two bytes.
        self.plain_bytes_max = min(_TWO_BYTE_LENGTH_MAX, limits.packet_bytes_max - 3, limits.whole_bytes_max)

    def topic(self, raw: bytes) -> str:
        """A topic name.  Raises MqttError."""
        topic = self.topics.get(raw)
        if topic is None:
            topic = check_text(raw, self.limits)  # [MQTT-3.3.2-1]
            check_topic_name(topic, self.limits)
            if len(raw) <= REMEMBERED_BYTES_MAX:
                if len(self.topics) >= TOPICS_REMEMBERED_MAX:
                    self.topics.clear()
                self.topics[raw] = topic
        return topic

    def properties(self, data: bytes, at: int, end: int) -> tuple[Properties, int]:
        """The properties of a PUBLISH.  Raises MqttError."""
        length, start = read_varint(data, at, end)
        if not length:
            return NO_PROPERTIES, start
        block = data[start : start + length] if length <= end - start else b""
        properties = self.blocks.get(block)
        if properties is None:
            properties, _ = decode_properties(data, at, end, PacketType.PUBLISH, self.contexts[V5])
            if length <= REMEMBERED_BYTES_MAX:
                if len(self.blocks) >= BLOCKS_REMEMBERED_MAX:
                    self.blocks.clear()
                self.blocks[block] = properties
        return properties, start + length


def read_publishes(
    data: bytes, at: int, body: int, stop: int, version: int, shared: Shared, aliases: TopicAliases
) -> tuple[Publish, int]:
    """The run of PUBLISH packets from `at` on, the first with its fields at `data[body:stop]`; and the end of the run.

    Raises MqttError if the first is invalid.
    """
    first = data[at]
    try:
        run, block = _read_first(first, data, body, stop, version, shared, aliases)
    except MqttError as error:
        raise error.within("PUBLISH") from None
    at = stop
    qos, end = run.qos, len(data)
    known, most = shared.topics, shared.plain_bytes_max
    topics, payloads, packet_ids = run.topics, run.payloads, run.packet_ids
    skipped = len(block) + (2 if qos else 0)
    bare, block_bytes = block == b"\0", len(block) if len(block) > 1 else 0
    if TOPIC_ALIAS in run.properties:
        end = at  # each packet may change the meaning of the next
    try:
        for _ in range(1, RUN_MAX):
            if data[at] != first:
                break
            length = data[at + 1]
            body = at + 2
            if length > 127:
                length = length & 127 | data[body] << 7
                body += 1
                if not 127 < length <= most:
                    break
            stop = body + length
            topic_stop = body + 2 + (data[body] << 8 | data[body + 1])
            payload_at = topic_stop + skipped
            if not payload_at <= stop <= end:
                break
            topic = known.get(data[body + 2 : topic_stop])
            if topic is None or (bare and data[payload_at - 1]):
                break
            if block_bytes and not data.startswith(block, payload_at - block_bytes):
                break
            if qos:
                packet_id = data[topic_stop] << 8 | data[topic_stop + 1]
                if not packet_id:
                    break
                packet_ids.append(packet_id)
            topics.append(topic)
            payloads.append(data[payload_at:stop])
            at = stop
    except IndexError:
        pass  # the next packet is incomplete
    return run, at


def payload_at(data: bytes, first: int, at: int, version: int, limits: Limits) -> tuple[int, bool]:
    """Where the payload of a PUBLISH begins whose fields begin at `at`, and whether that is certain.

    If not, it is the number of bytes needed to tell more.  Nothing is checked: a block of properties beyond the limit
    is left out, for its decoder to refuse it.
    """
    end = len(data)
    if at + 2 > end:
        return at + 2, False
    at += 2 + (data[at] << 8 | data[at + 1]) + (2 if first & 6 else 0)
    length = 0
    for shift in range(0, 28 if version == V5 else 0, 7):
        if at >= end:
            return at + 1, False
        length |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
    return at + (length if length <= limits.properties_bytes_max else 0), True


def read_begun(
    data: bytes, at: int, body: int, stop: int, payload: int, version: int, shared: Shared, aliases: TopicAliases
) -> Begun:
    """The PUBLISH at `at` with its fields at `data[body:stop]`, whose payload follows in parts.  Raises MqttError."""
    try:
        run, _ = _read_first(data[at], data[: min(payload, stop)], body, stop, version, shared, aliases)
    except MqttError as error:
        raise error.within("PUBLISH") from None
    run.payloads.clear()
    return Begun(run, stop - payload)


def _read_first(
    first: int, data: bytes, at: int, stop: int, version: int, shared: Shared, aliases: TopicAliases
) -> tuple[Publish, bytes]:
    """A single PUBLISH, as a run of one, and the bytes of its properties with their length.  Raises MqttError."""
    qos = first >> 1 & 3
    if qos == 3:
        raise malformed("QoS 3", "MQTT-3.3.1-4")
    if not qos and first & 8 and version != V31:
        raise malformed("DUP with QoS 0", "MQTT-3.3.1-2")
    raw_topic, at = read_binary(data, at, stop)
    packet_id = 0
    if qos:
        packet_id, at = read_two_bytes(data, at, stop)
        if not packet_id:
            raise violation("a packet identifier is not 0", "MQTT-2.2.1-3")
    properties, block = NO_PROPERTIES, b""
    if version == V5:
        block_at = at
        properties, at = shared.properties(data, at, stop)
        block = data[block_at:at]
    alias = properties.get(TOPIC_ALIAS)
    if not raw_topic and version == V5:
        if alias is None:
            raise violation("neither a topic name nor a topic alias")
        topic = aliases.resolve(alias, "")
    else:
        topic = shared.topic(raw_topic)
        if alias is not None:
            aliases.resolve(alias, topic)
    return Publish(first, properties, topic, packet_id, data[at:stop]), block


def _runs_of(first: int) -> dict[int, re.Pattern[bytes]]:
    """Patterns of successful acknowledgements in a row, by length: 5.0 may add reason code 0 and empty properties."""
    forms = {2: rb"\x02..", 3: rb"\x03..\x00", 4: rb"\x04..\x00\x00"}
    lead = re.escape(bytes([first]))
    return {length: re.compile(rb"(?s:(?:%b%b)++)" % (lead, form)) for length, form in forms.items()}


_RUNS: Final = {first: _runs_of(first) for first in (0x40, 0x50, 0x62, 0x70)}
_SWAP: Final = sys.byteorder == "little"


def read_acks(data: bytes, at: int, version: int) -> tuple[Ack, int] | None:
    """The run of acknowledgements from `at` on, all of the same form, and its end.

    None if the one at `at` has more than a packet id, or is invalid: it must be decoded by the table.
    """
    forms = _RUNS.get(data[at])
    length = data[at + 1]
    if forms is None or length not in forms or (version != V5 and length != 2):
        return None
    found = forms[length].match(data, at)
    if found is None:
        return None
    run = found[0]
    packet_ids = _packet_ids(run, length + 2)
    if 0 in packet_ids:
        packet_ids = packet_ids[: packet_ids.index(0)]
        if not packet_ids:
            return None
    return Ack(PacketType(data[at] >> 4), packet_ids), at + len(packet_ids) * (length + 2)


def _packet_ids(run: bytes, size: int) -> list[int]:
    """The third and fourth byte of every `size` bytes."""
    pairs = bytearray(len(run) // size * 2)
    pairs[0::2] = run[2::size]
    pairs[1::2] = run[3::size]
    words = array("H", bytes(pairs))
    if _SWAP:  # pragma: no branch
        words.byteswap()
    return words.tolist()
