"""Large bodies of AMQP messages as other protocols have them: what is in their sections, read as it goes out.

Data sections follow each other as one body; of a value there is one.  Everything else would have to be decoded as a
whole, which is done only for bodies that fit into memory (`convert`).
"""

from __future__ import annotations

from typing import Final

from broker.engine import DeadLetterReason, LargeBody, Stream, Unreadable, read_body
from broker.sessions.convert import ConversionError
from protocols.amqp.message import AMQP_VALUE, DATA, FOOTER

#: Sections that are looked for: each costs a read of the file while other connections wait, some 10 us.
SECTIONS_MAX: Final = 16_384

#: Bytes up to the content of a section with a long length, and format codes of short and long binary and text.
_LEAD_BYTES: Final = 8
_SHORT: Final = frozenset({0xA0, 0xA1})
_LONG: Final = frozenset({0xB0, 0xB1})


class Joined:
    """Ranges of a file, one after the other, as one source."""

    def __init__(self, body: LargeBody, ranges: list[tuple[int, int]]) -> None:
        self._streams = [Stream(body, at, end) for at, end in reversed(ranges) if at < end]
        self.left = sum(stream.left for stream in self._streams)

    def read(self) -> bytes:
        """The next piece, none of what is empty.  Raises Unreadable."""
        if not self._streams:
            return b""
        stream = self._streams[-1]
        piece = stream.read()
        if not stream.left:
            self._streams.pop()
        self.left -= len(piece)
        return piece


def joined(body: LargeBody) -> Joined:
    """The contents of the sections of a body.  Raises ConversionError."""
    found: list[tuple[int, int]] = []
    at, end = 0, len(body)
    while at < end:
        try:
            lead = read_body(body, at, min(_LEAD_BYTES, end - at))
        except Unreadable as error:
            raise ConversionError(str(error), passing=error.passing) from error
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
