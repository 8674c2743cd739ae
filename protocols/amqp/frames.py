"""Frames (part 2, 2.3) and protocol headers (2.2): splits the input into frames.

     0      size of the whole frame, 4 bytes
     4      doff: where the body begins, in units of 4 bytes
     5      type: 0 AMQP, 1 SASL
     6      channel, 2 bytes (AMQP)
     8      extended header, up to doff; ignored
    4*doff  a performative, and for TRANSFER the payload

An AMQP frame without a body is a heart-beat.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from protocols.amqp.errors import FRAMING_ERROR, FrameTooLarge, connection_error

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
PROTOCOL_HEADER_BYTES: Final = 8

FRAME_HEADER_BYTES: Final = 8
DOFF_MIN: Final = 2

TYPE_AMQP: Final = 0
TYPE_SASL: Final = 1

#: The largest frame that every peer must accept (MIN-MAX-FRAME-SIZE).
MIN_MAX_FRAME_BYTES: Final = 512

HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_HEADER: Final = Struct(">IBBH")
unpack_header: Final = _HEADER.unpack_from


#: The offset of the list's format code in a frame with doff 2 and a smallulong descriptor.
LIST_AT: Final = 11

#: `unpack_from` of a template's struct, which returns the fields of a frame.
Unpack = Callable[[bytes, int], tuple[Any, ...]]


def frame(channel: int, body: bytes, kind: int = TYPE_AMQP) -> bytes:
    """A frame with this body."""
    return _HEADER.pack(FRAME_HEADER_BYTES + len(body), DOFF_MIN, kind, channel) + body


def check_header(size: int, doff: int, kind: int, wanted: int, bytes_max: int, *, opened: bool) -> None:
    """Check that a frame header is valid, and of the expected kind.  Raises AmqpError."""
    if size < FRAME_HEADER_BYTES:
        raise connection_error(FRAMING_ERROR, f"A frame has at least {FRAME_HEADER_BYTES} bytes, not {size}.")
    if size > bytes_max:
        until = "" if opened else " until the connection is open"
        raise FrameTooLarge(FRAMING_ERROR, f"A frame may have {bytes_max} bytes{until}, this one has {size}.")
    if doff < DOFF_MIN or 4 * doff > size:
        raise connection_error(FRAMING_ERROR, f"The data offset of a frame of {size} bytes cannot be {doff}.")
    if kind != wanted:
        names = {TYPE_AMQP: "an AMQP frame", TYPE_SASL: "a SASL frame"}
        what = names.get(kind, f"a frame of type {kind}")
        raise connection_error(FRAMING_ERROR, f"Expected {names[wanted]} here, not {what}.")


class Input:
    """Received bytes, collected into frames: `buffer` from `at` on is yet to be read.

    A frame is looked at again only once it is complete, so one that arrives in many pieces costs no more than its
    length.
    """

    __slots__ = ("_pending", "_wanted", "at", "buffer", "ready")

    def __init__(self) -> None:
        self.buffer = b""
        self.at = 0
        self.ready = False  # whether reading may find something
        self._pending = bytearray()
        self._wanted = 0

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if not self.buffer and not self._pending:
            self.buffer = data
            self.ready = bool(data)
            return
        self._pending += data
        if len(self._pending) >= self._wanted:
            self.ready = True

    def take(self) -> None:
        """Begin to read: put all received bytes into `buffer`."""
        self.ready = False
        if self._pending:
            self.buffer = b"".join((self.buffer[self.at :], self._pending))
            self.at = 0
            self._pending.clear()

    def wait(self, at: int, wanted: int) -> None:
        """Stop reading at `at`, until `wanted` more bytes have arrived."""
        self.at = at
        self._wanted = wanted
        if at == len(self.buffer):
            self.drop()

    def pause(self, at: int) -> None:
        """Stop reading at `at` for now."""
        self.wait(at, 0)
        self.ready = self.kept > 0

    def drop(self) -> None:
        """Discard all received bytes."""
        self.buffer = b""
        self.at = 0
        self.ready = False
        self._pending.clear()

    @property
    def kept(self) -> int:
        """Number of bytes not read yet."""
        return len(self.buffer) - self.at + len(self._pending)


def begins_with(descriptor: bytes, buffer: bytes, at: int) -> bool:
    """Whether the frame at `at` has no extended header, and has this descriptor."""
    return buffer[at + 4] == DOFF_MIN and buffer[at + FRAME_HEADER_BYTES : at + LIST_AT] == descriptor
