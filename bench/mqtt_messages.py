"""PUBLISH packets made before the clock starts: all different, and cheap to send and to check.

As for STOMP a *lap* is 10,000 packets joined into one buffer, with a mark where the number of the lap belongs; the
buffer is split at the marks, and `number.join(pieces)` makes the next lap in one C call.  Packet ids have two bytes at
places that are known, and are stamped all at once.

    30 6f 00 08 topic/03 [packet id] <random letters>#0000120003

The last eleven bytes of each payload are its number: lap * 10,000 + index; the topic is number % destinations.

A broker hands a message on as the very bytes that it got, but for the packet id.  So what a subscriber receives can be
compared as a whole: with the lap itself where messages come in the order of sending, else packet by packet.
"""

from __future__ import annotations

import random
import re
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.link import BrokerFailed
from bench.messages import LAP, MARK, TAG_BYTES, FrameTemplate

#: Packet ids go round after so many messages; more must not be without acknowledgement.
PACKET_IDS: Final = 65_535
PREFIX: Final = "topic/"  # not the addresses of the cases in STOMP and AMQP: their queues would get it all, too
LAPS_KEPT: Final = 8  # laps in memory: those that messages in flight can belong to

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;-_"
_TAG: Final = re.compile(rb"#(\d{10})")

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


class MqttPool:
    """The packets of one lap, ready to be stamped.

    offsets: LAP + 1 byte positions.  id_places: for QoS 1 the position of each packet id in its packet.
    """

    def __init__(self, shape: FrameTemplate, qos: int) -> None:
        self.shape = shape
        self.qos = qos
        chance = random.Random(shape.seed)
        packets, places = zip(*(self._packet(chance, index) for index in range(LAP)), strict=True)
        self.lengths: Numbers = np.array([len(packet) for packet in packets], np.int64)
        self.offsets: Numbers = np.concatenate(([0], np.cumsum(self.lengths)))
        self.id_places: Numbers = np.array(places, np.int64)
        self._pieces = b"".join(packets).split(MARK)
        self._laps: dict[int, bytes] = {}

    @property
    def filter(self) -> str:
        """The topic filter of all topics."""
        return f"{PREFIX}#"

    def _packet(self, chance: random.Random, index: int) -> tuple[bytes, int]:
        """Packet `index` with a packet id of 0, and where in it that is."""
        size = chance.randint(self.shape.size_min, self.shape.size_max)
        text = "".join(chance.choices(_ALPHABET, k=size - TAG_BYTES))
        topic = f"{PREFIX}{index % self.shape.destinations:02d}".encode()
        lead = len(topic).to_bytes(2, "big") + topic
        body = lead + (bytes(2) if self.qos else b"") + text.encode() + b"#" + MARK + b"%04d" % index
        head = bytes([0x30 | self.qos << 1]) + varint(len(body))
        return head + body, len(head) + len(lead)

    def lap(self, number: int) -> bytes:
        """All packets of lap `number`, with packet ids of 0."""
        found = self._laps.get(number)
        if found is None:
            while len(self._laps) >= LAPS_KEPT:
                del self._laps[min(self._laps)]
            found = self._laps[number] = (b"%06d" % number).join(self._pieces)
        return found

    def outgoing(self, number: int) -> bytes:
        """The same with the producer's packet ids: of message n it is 1 + n % 65,535."""
        if not self.qos:
            return self.lap(number)
        raw: Bytes = np.frombuffer(self.lap(number), np.uint8).copy()
        ids = 1 + (number * LAP + np.arange(LAP)) % PACKET_IDS
        places = self.offsets[:-1] + self.id_places
        raw[places] = ids >> 8
        raw[places + 1] = ids & 255
        return raw.tobytes()


def varint(value: int) -> bytes:
    """A length as MQTT writes it."""
    found = bytearray()
    while True:
        value, digit = divmod(value, 128)
        found.append(digit | (128 if value else 0))
        if not value:
            return bytes(found)


class Checker:
    """What one subscriber receives: every message once, in the order of its topic, unchanged.

    received: messages so far.  Of a broker that is not `ordered` they may come in any order.
    """

    __slots__ = ("_carry", "_next", "_pool", "_seen", "_want", "received")

    def __init__(self, pool: MqttPool, producers: int = 1, *, ordered: bool = True) -> None:
        self._pool = pool
        self._seen: set[int] | None = None if ordered else set()
        self._carry = b""
        self._next = 0  # all before it have come; -1 once messages of different topics have overtaken each other
        self._want = np.arange(pool.shape.lanes(producers))
        self.received = 0

    def take(self, data: bytes) -> bytes:
        """Check bytes that have come; the PUBACKs to send for them.  Raises BrokerFailed."""
        if self._carry:
            data = self._carry + data
        answers = []
        at = 0
        while self._next >= 0:
            taken, answer = self._in_order(data, at)
            if not taken:
                break
            at += taken
            answers.append(answer)
        if self._next < 0:
            taken, answer = self._in_any_order(data, at)
            at += taken
            answers.append(answer)
        self._carry = data[at:]
        return answers[0] if len(answers) == 1 else b"".join(answers)

    def _in_order(self, data: bytes, at: int) -> tuple[int, bytes]:
        """Packets of one lap that are exactly those that come next: their bytes and their PUBACKs."""
        pool = self._pool
        lap, index = divmod(self._next, LAP)
        start = int(pool.offsets[index])
        stop_index = int(np.searchsorted(pool.offsets, start + len(data) - at, "right")) - 1
        if stop_index <= index:
            return 0, b""
        size = int(pool.offsets[stop_index]) - start
        found, answer = data[at : at + size], b""
        if pool.qos:
            places = pool.offsets[index:stop_index] - start + pool.id_places[index:stop_index]
            found, answer = _ids_out(found, places)
        if found != pool.lap(lap)[start : start + size]:
            self._overtaken()
            return 0, b""
        self._next += stop_index - index
        self.received += stop_index - index
        return size, answer

    def _overtaken(self) -> None:
        count = len(self._want)
        numbers = np.arange(self._next, self._next + count)
        self._want[numbers % count] = numbers
        if self._seen is not None:
            self._seen.update(range(self._next))
        self._next = -1

    def _in_any_order(self, data: bytes, at: int) -> tuple[int, bytes]:
        """Whole packets, each the next of its topic: their bytes and their PUBACKs.  Raises BrokerFailed."""
        pool = self._pool
        tags = _TAG.findall(data, at)
        if not tags:
            return 0, b""
        numbers: Numbers = np.array(tags, "S10").astype(np.int64)
        self._check_order(numbers)
        lengths = pool.lengths[numbers % LAP]
        stops = np.cumsum(lengths)
        size, answer = int(stops[-1]), b""
        found = data[at : at + size]
        if pool.qos:
            found, answer = _ids_out(found, stops - lengths + pool.id_places[numbers % LAP])
        offsets = pool.offsets
        places = [(n // LAP, int(offsets[n % LAP]), int(offsets[n % LAP + 1])) for n in numbers.tolist()]
        if found != b"".join([pool.lap(lap)[start:stop] for lap, start, stop in places]):
            raise BrokerFailed(f"a message among {numbers[0]} to {numbers[-1]} was changed on its way: {found[:200]!r}")
        self.received += len(tags)
        return size, answer

    def _check_order(self, numbers: Numbers) -> None:
        if self._seen is not None:
            self._check_once(numbers, self._seen)
            return
        count = len(self._want)
        lanes = numbers % count
        order = np.argsort(lanes, kind="stable")
        mine, first, many = np.unique(lanes[order], return_index=True, return_counts=True)
        expected = np.repeat(self._want[mine], many) + count * (np.arange(len(order)) - np.repeat(first, many))
        wrong = np.flatnonzero(numbers[order] != expected)
        if wrong.size:
            at = int(wrong[0])
            raise BrokerFailed(
                f"message {numbers[order][at]} came where {expected[at]} is due: lost, repeated or out of order"
            )
        self._want[mine] += count * many

    def _check_once(self, numbers: Numbers, seen: set[int]) -> None:
        for number in numbers.tolist():
            if number in seen:
                raise BrokerFailed(f"message {number} comes again")
            seen.add(number)


def _ids_out(found: bytes, places: Numbers) -> tuple[bytes, bytes]:
    """Packets with their packet ids made 0, and the PUBACKs for these."""
    raw: Bytes = np.frombuffer(found, np.uint8).copy()
    if places[-1] + 1 >= len(raw):
        raise BrokerFailed(f"a packet ends early: {found[-200:]!r}")
    answers = np.empty((len(places), 4), np.uint8)
    answers[:, 0] = 0x40
    answers[:, 1] = 2
    answers[:, 2] = raw[places]
    answers[:, 3] = raw[places + 1]
    raw[places] = 0
    raw[places + 1] = 0
    return raw.tobytes(), answers.tobytes()
