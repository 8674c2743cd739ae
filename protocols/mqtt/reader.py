"""Reads packets from the bytes of a peer: whole packets, in order, similar ones in runs.

A packet is a byte with its type and flags, its length in one to four bytes, and that many bytes.  Only the contents of
packets are copied.  An incomplete packet is looked at again once its missing bytes have arrived; its first bytes tell
whether it is too large.  Buffered bytes never exceed the limits by more than one read.

A payload above `Limits.whole_bytes_max` is read in parts, as its bytes arrive: `Begun`, then `Part`s; after the last
one nothing is read until `resume`.  `state` defines which packets are allowed when.
"""

from __future__ import annotations

from typing import Final

from protocols.mqtt.aliases import NO_ALIASES, TopicAliases
from protocols.mqtt.codes import V5, PacketType
from protocols.mqtt.decode import connect_version, decode, early_version
from protocols.mqtt.errors import malformed, too_large
from protocols.mqtt.fields import VARINT_BYTES_MAX
from protocols.mqtt.packets import Begun, Packet, Part
from protocols.mqtt.runs import Shared, payload_at, read_acks, read_begun, read_publishes
from protocols.mqtt.state import View, unexpected

_PUBLISH: Final = PacketType.PUBLISH
_PUBACK: Final = PacketType.PUBACK
_PUBCOMP: Final = PacketType.PUBCOMP


class PacketReader:
    """Reads the packets of one connection.

    `version` is that of its CONNECT, 0 before; `aliases` are the peer's; `ended`: no more bytes will arrive.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_left",
        "_limits",
        "_pending",
        "_shared",
        "_wanted",
        "aliases",
        "ended",
        "held",
        "version",
    )

    def __init__(self, shared: Shared) -> None:
        self.version = 0
        self.aliases: TopicAliases = NO_ALIASES
        self.held = False  # a payload in parts is complete, and `resume` was not called yet
        self._shared = shared
        self._limits = shared.limits
        self._buffer = b""
        self._at = 0  # where the next packet begins in `_buffer`
        self._pending: bytearray | None = None  # bytes that arrived since, while a packet is incomplete
        self._wanted = 0  # how many bytes in `_pending` it takes before reading makes sense again
        self.ended = False
        self._left = 0  # missing bytes of a payload in parts

    def __len__(self) -> int:
        """How many bytes are buffered."""
        return len(self._buffer) - self._at + len(self._pending or b"")

    def add(self, data: bytes) -> None:
        """Buffer bytes."""
        if self._pending is not None:
            self._pending += data
        elif self._buffer:
            self._pending = bytearray(data)
        else:
            self._buffer = data
            self._wanted = 0

    @property
    def has_more(self) -> bool:
        """Whether `read` may find a packet."""
        return bool(self._buffer) and not self.held and self._wanted <= (len(self._pending) if self._pending else 0)

    def begin(self) -> bool:
        """Prepare `read`: call this before it; returns whether it may find a packet."""
        pending = self._pending
        if not self.has_more:
            return False
        if pending is not None:
            self._buffer = b"".join((self._buffer[self._at :], pending))
            self._at = 0
            self._pending = None
        self._wanted = 0
        return True

    def drop(self) -> None:
        """Discard all buffered bytes."""
        self._buffer = b""
        self._at = 0
        self._pending = None

    def trim(self) -> None:
        """Release the buffer if all of it was read."""
        if self._at == len(self._buffer):
            self.drop()

    def check_end(self) -> None:
        """Check the end of the peer's bytes, after all were read.  Raises MqttError if it is within a packet."""
        if not self.held and (self._buffer or self._left):
            raise malformed("the connection ended in the middle of a packet")

    def read(self, view: View) -> Packet | None:
        """Read the next packet, or run of packets; None if it is incomplete.  Raises MqttError."""
        if self._left:
            return self._part()
        if self.held:
            self.trim()
            return None
        frame = self._frame(view)
        if frame is None:
            return None
        body, stop = frame
        data, at = self._buffer, self._at
        kind = data[at] >> 4
        if not self.version:
            self.version, error = connect_version(data, body, stop)
            if error is not None:
                raise error
        if self.version == V5 and body - at > 2 and not data[body - 1]:
            raise malformed("the length of a packet has a needless byte", "MQTT-1.5.5-1")
        packet: Packet
        if kind == _PUBLISH:
            if stop - body > self._limits.whole_bytes_max:
                whole = self._whole(body, stop)
                if not whole or isinstance(whole, Begun):
                    return whole or None
            packet, self._at = read_publishes(data, at, body, stop, self.version, self._shared, self.aliases)
            return packet
        run = read_acks(data, at, self.version) if _PUBACK <= kind <= _PUBCOMP else None
        if run is not None:
            packet, self._at = run
            return packet
        packet = decode(data[at], data, body, stop, self._shared.contexts[self.version])
        self._at = stop
        return packet

    def _frame(self, view: View) -> tuple[int, int] | None:
        """Return where the fields of the next packet begin and end; None if it is incomplete.  Raises MqttError."""
        data, at = self._buffer, self._at
        end = len(data)
        if at == end:
            self.drop()
            return None
        if data[at] >> 4 not in view.kinds:
            raise unexpected(data[at] >> 4, view.state, self._shared.role.peer, self.version)
        length = 0
        body = at + 1
        for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
            if body == end:
                self._wanted = 1
                return None
            byte = data[body]
            body += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            sentence = "the length of a packet takes more than four bytes"
            raise malformed(sentence, "MQTT-1.5.5-1", silent=not self.version)
        stop = body + length
        most = self._limits.connect_bytes_max if view.before_login else self._limits.packet_bytes_max
        if stop - at > most:
            if not self.version:  # only a client whose version of MQTT is known gets an answer
                self.version, self._wanted = early_version(data, body), 1
            if self.version:
                raise too_large(stop - at, most, before_login=view.before_login)
            return None
        if stop > end and not (length > self._limits.whole_bytes_max and data[at] >> 4 == _PUBLISH):
            self._wanted = stop - end
            return None
        return body, stop

    def _whole(self, body: int, stop: int) -> bool | Begun:
        """Decide how to read a large PUBLISH: as one packet, whether it is complete; or in parts, its `Begun`.

        Raises MqttError.
        """
        data, at, end = self._buffer, self._at, len(self._buffer)
        payload, certain = payload_at(data, data[at], body, self.version, self._limits)
        if payload <= stop and (not certain or payload > end):
            self._wanted = max(payload - end, 1)
            return False
        if 0 <= stop - payload <= self._limits.whole_bytes_max:
            self._wanted = max(stop - end, 0)
            return stop <= end
        begun = read_begun(data, at, body, stop, payload, self.version, self._shared, self.aliases)
        self._at, self._left = payload, begun.nbytes
        return begun

    def _part(self) -> Part | None:
        """Read the available bytes of a payload in parts."""
        at = self._at
        stop = min(at + self._left, len(self._buffer))
        if stop == at:
            self.drop()
            return None
        self._left -= stop - at
        self._at = stop
        self.held = not self._left
        return Part(self._buffer[at:stop], last=self.held)

    def resume(self) -> None:
        """Go on reading after a payload in parts."""
        assert self.held, "the last part has come"
        self.held = False
