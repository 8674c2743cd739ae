"""Large bodies of AMQP messages for other protocols: the contents of their sections, read while they are sent.

Several data sections are joined into one body; a value has one section.  Everything else would have to be decoded as a
whole, which is done only for bodies that fit into memory (`convert`).
"""

from __future__ import annotations

from typing import Final

from broker.engine import DeadLetterReason, LargeBody, Stream, Unreadable, read_body
from broker.sessions.convert import ConversionError
from protocols.amqp.limits import Limits
from protocols.amqp.message import AMQP_VALUE, DATA, FOOTER

#: Most sections of a body, as many as a small one may have: finding each costs a read of the file, some 10 us, in which
#: other connections wait.
SECTIONS_MAX: Final = Limits().sections_max

#: Bytes that are read to find a section: they may hold the beginnings of many short ones.
_READ_BYTES: Final = 4 << 10

#: Bytes up to the content of a section with a long length, and format codes of short and long binary and text.
_LEAD_BYTES: Final = 8
_SHORT: Final = frozenset({0xA0, 0xA1})
_LONG: Final = frozenset({0xB0, 0xB1})


class Joined:
    """Several ranges of a file, read as one stream."""

    def __init__(self, body: LargeBody, ranges: list[tuple[int, int]]) -> None:
        self._streams = [Stream(body, at, end) for at, end in reversed(ranges) if at < end]
        self.left = sum(stream.left for stream in self._streams)

    def read(self) -> bytes:
        """Return the next piece; empty at the end.  Raises Unreadable."""
        if not self._streams:
            return b""
        stream = self._streams[-1]
        piece = stream.read()
        if not stream.left:
            self._streams.pop()
        self.left -= len(piece)
        return piece


def joined(body: LargeBody) -> Joined:
    """Return the contents of the sections of a body.  Raises ConversionError."""
    found: list[tuple[int, int]] = []
    at, end = 0, len(body)
    read_at, read = 0, b""
    while at < end:
        lead = read[at - read_at : at - read_at + _LEAD_BYTES]
        if len(lead) < min(_LEAD_BYTES, end - at):
            try:
                read_at, read = at, read_body(body, at, min(_READ_BYTES, end - at))
            except Unreadable as error:
                raise ConversionError(str(error), passing=error.passing) from error
            lead = read[:_LEAD_BYTES]
        if lead[2:3] == bytes([FOOTER]):
            break
        known = lead[:2] == b"\0\x53" and lead[2] in (DATA, AMQP_VALUE) and not (found and lead[2] == AMQP_VALUE)
        if known and lead[3] in _SHORT:
            start = at + 5
            at = start + lead[4]
        elif known and lead[3] in _LONG:
            start = at + _LEAD_BYTES
            at = start + int.from_bytes(lead[4:8])
        else:
            raise ConversionError(f"a body of {end} bytes that is neither data nor text", DeadLetterReason.TOO_LARGE)
        if at > end or len(found) >= SECTIONS_MAX:
            raise ConversionError(
                f"a body of {end} bytes in more than {SECTIONS_MAX} sections", DeadLetterReason.TOO_LARGE
            )
        found.append((start, at))
    return Joined(body, found)
