"""Encodes packets: by the table, except PUBLISH and its acknowledgements, which are most of the traffic.

A PUBLISH is composed of prepared parts: the part that messages of one topic share is made once (`PublishHead`), lengths
and packet ids are looked up in tables, and parts are joined only once, with everything else (`data_to_send`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

from protocols.mqtt.codes import V5, PacketType, Role
from protocols.mqtt.fields import VARINTS, write_text, write_varint
from protocols.mqtt.layout import LAYOUTS, Values
from protocols.mqtt.packets import Ack, Packet
from protocols.mqtt.properties import TOPIC_ALIAS

#: Packet identifiers ready to send, by number.
PACKET_IDS: Final = tuple(number.to_bytes(2, "big") for number in range(1 << 16))

#: Bytes of an acknowledgement with only a packet id.
ACK_BYTES: Final = 4

_PUBLISH: Final = PacketType.PUBLISH << 4
_SWAP: Final = sys.byteorder == "little"


def may_send(packet: PacketType, version: int, sender: Role) -> bool:
    """Whether this side may send such a packet in this version."""
    layout = LAYOUTS[version].get(packet)
    return layout is not None and sender in layout.senders


def encode(packet: Packet, version: int) -> bytes:
    """The bytes of a packet other than PUBLISH.  Raises ValueError if it cannot be encoded."""
    layout = LAYOUTS[version].get(packet.type)
    if layout is None:
        raise ValueError(f"no {packet.type.name} in this version, or not this way")
    values: Any = _Attributes(packet) if layout.take is None else layout.take(packet)
    parts: list[bytes] = []
    needed = 0
    seen: Values = {}
    for field in layout.fields:
        if field.when is not None and not field.when(seen):
            continue
        value = seen[field.name] = values[field.name]
        parts.append(field.kind.write(value))
        if not field.optional or value != field.default:
            needed = len(parts)
    body = b"".join(parts[:needed])
    return bytes([packet.type << 4 | layout.flags[0]]) + write_varint(len(body)) + body


class _Attributes:
    """A packet's attributes by name."""

    __slots__ = ("_packet",)

    def __init__(self, packet: Packet) -> None:
        self._packet = packet

    def __getitem__(self, name: str) -> Any:
        return getattr(self._packet, name)


def encode_acks(packet: PacketType, packet_ids: Sequence[int]) -> bytes:
    """The bytes of PUBACKs, PUBRECs, PUBRELs or PUBCOMPs with only packet ids, in one go."""
    header = _ACK_HEADERS[packet]
    if len(packet_ids) == 1:
        return header + PACKET_IDS[packet_ids[0]]
    ids = array("H", packet_ids)
    if _SWAP:  # pragma: no branch
        ids.byteswap()
    words = array("H", header * (2 * len(packet_ids)))
    words[1::2] = ids
    return words.tobytes()


#: The first two bytes of an acknowledgement with only a packet id.
_ACK_HEADERS: Final = {
    PacketType.PUBACK: b"\x40\2",
    PacketType.PUBREC: b"\x50\2",
    PacketType.PUBREL: b"\x62\2",
    PacketType.PUBCOMP: b"\x70\2",
}


def encode_ack(packet: Ack, version: int) -> bytes:
    """The bytes of acknowledgements in a row; before 5.0 they have only packet ids."""
    if version != V5 or (not packet.reason_code and not packet.properties):
        return encode_acks(packet.type, packet.packet_ids)
    # All are the same except for their packet id, which comes first behind the length.
    first = encode(Ack(packet.type, packet.packet_ids[:1], packet.reason_code, packet.properties), version)
    at = next(at for at in range(1, len(first)) if first[at] < 0x80) + 1
    head, tail = first[:at], first[at + 2 :]
    return b"".join([b"%b%b%b" % (head, id.to_bytes(2, "big"), tail) for id in packet.packet_ids])


class PublishHead:
    """The part that PUBLISH packets of one topic share: everything except packet id and payload.

    `properties` are their bytes (`Properties.raw`), ignored before 5.0.  It has no state of a connection, so it may
    serve all subscribers of a version.  Raises ValueError for a topic or QoS that cannot be sent.
    """

    __slots__ = ("_block", "_first", "_lead", "_properties", "_retain", "dup", "fixed_bytes", "qos", "topic", "version")

    def __init__(
        self,
        version: int,
        topic: str,
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        properties: bytes = b"",
    ) -> None:
        if not 0 <= qos <= 2 or (dup and not qos):
            raise ValueError(f"QoS {qos} with DUP {dup} cannot be sent")  # [MQTT-3.3.1-2], [MQTT-3.3.1-4]
        self.version = version
        self.topic = topic
        self.qos = qos
        self.dup = dup
        self._retain = retain
        self._properties = properties
        self._first = bytes([_PUBLISH | dup << 3 | qos << 1 | retain])
        self._lead = write_text(topic)
        self._block = write_varint(len(properties)) + properties if version == V5 else b""
        #: Bytes of a packet without its payload and its first bytes: the Remaining Length of an empty message.
        self.fixed_bytes = len(self._lead) + len(self._block) + (2 if qos else 0)

    def aliased(self, alias: int, *, known: bool) -> PublishHead:
        """The same with a topic alias, and without the topic if the peer knows the alias."""
        return PublishHead(
            self.version,
            "" if known else self.topic,
            qos=self.qos,
            retain=self._retain,
            dup=self.dup,
            properties=_ALIAS + PACKET_IDS[alias] + self._properties,
        )

    def up_to(self, count: int) -> PublishHead:
        """The head for the first `count` packets."""
        return self

    def only(self, places: Sequence[int]) -> PublishHead:
        """The head for the packets at these places."""
        return self

    def sizes(self, payloads: Sequence[bytes]) -> list[int]:
        """Bytes of the packets that carry these payloads."""
        return [self.packet_bytes(payload) for payload in payloads]

    def packet_bytes(self, payload: bytes) -> int:
        """Bytes of the packet that carries this payload."""
        return self.packet_bytes_with(len(payload))

    def packet_bytes_with(self, nbytes: int) -> int:
        """Bytes of the packet that carries `nbytes` bytes of payload."""
        length = self.fixed_bytes + nbytes
        return 1 + len(write_varint(length)) + length

    def encode_lead(self, out: list[bytes], nbytes: int, packet_ids: Sequence[int]) -> None:
        """Append the bytes before a payload of `nbytes` bytes.  Raises ValueError above 256 MiB."""
        ids = [PACKET_IDS[packet_id] for packet_id in packet_ids]
        out += (self._first, write_varint(self.fixed_bytes + nbytes), self._lead, *ids, self._block)

    def encode(self, out: list[bytes], payloads: Sequence[bytes], packet_ids: Sequence[int]) -> None:
        """Append packets in parts; `packet_ids` has one for each payload, and is ignored for QoS 0.

        Raises ValueError for a payload above 256 MiB.
        """
        first, fixed, varints, ready = self._first, self.fixed_bytes, VARINTS, len(VARINTS)
        if not self.qos:
            lead = self._lead + self._block
            for payload in payloads:
                length = fixed + len(payload)
                out += (first, varints[length] if length < ready else write_varint(length), lead, payload)
            return
        lead, block, ids = self._lead, self._block, PACKET_IDS
        for payload, packet_id in zip(payloads, packet_ids, strict=True):
            length = fixed + len(payload)
            varint = varints[length] if length < ready else write_varint(length)
            out += (first, varint, lead, ids[packet_id], block, payload)


class PublishHeads:
    """The heads of PUBLISH packets in a row with the same version and QoS, one for each packet."""

    __slots__ = ("_heads", "qos", "version")

    def __init__(self, heads: list[PublishHead]) -> None:
        self._heads = heads
        self.qos = heads[0].qos
        self.version = heads[0].version

    def up_to(self, count: int) -> PublishHeads:
        """The heads for the first `count` packets, at least one."""
        return PublishHeads(self._heads[:count])

    def only(self, places: Sequence[int]) -> PublishHeads:
        """The heads for the packets at these places, at least one."""
        return PublishHeads([self._heads[at] for at in places])

    def sizes(self, payloads: Sequence[bytes]) -> list[int]:
        """Bytes of the packets that carry these payloads."""
        return [head.packet_bytes(payload) for head, payload in zip(self._heads, payloads, strict=True)]

    def encode(self, out: list[bytes], payloads: Sequence[bytes], packet_ids: Sequence[int]) -> None:
        heads, varints, ready, ids = self._heads, VARINTS, len(VARINTS), PACKET_IDS
        qos = self.qos
        for at, payload in enumerate(payloads):
            head = heads[at]
            length = head.fixed_bytes + len(payload)
            varint = varints[length] if length < ready else write_varint(length)
            if qos:
                out.append(b"%b%b%b%b%b" % (head._first, varint, head._lead, ids[packet_ids[at]], head._block))
            else:
                out.append(b"%b%b%b%b" % (head._first, varint, head._lead, head._block))
            out.append(payload)


_ALIAS: Final = TOPIC_ALIAS.prefix
