"""SENDs that begin alike: of those that are expected only what differs is read.

Sessions say how such SENDs begin (`Lead`).  What follows each other in a read is cut at its NULs, some at a time, and
looked at in one go; the first frame that is anything else ends that, and is read as all others are.
"""

from __future__ import annotations

from typing import Final

from protocols.stomp.frames import Frame, Known, Lead
from protocols.stomp.heads import is_plain

_CR: Final = 13
_BACKSLASH: Final = 92

#: SENDs in a row are cut at their NULs, so many bytes at a time; more each time that all of them began as expected.
_WINDOW_BYTES_MIN: Final = 512
_WINDOW_BYTES_MAX: Final = 16 << 10

#: Leads that are expected: some 150 KiB a connection; and their different lengths, each of which is looked for.
_LEADS_MAX: Final = 256
_LEAD_LENGTHS_MAX: Final = 8


class Leads:
    """Those that one connection expects, before bodies of at most `whole_bytes_max`."""

    __slots__ = ("_body_bytes_max", "_lengths", "known")

    def __init__(self, body_bytes_max: int) -> None:
        self.known: dict[bytes, Lead] = {}
        self._lengths: list[int] = []  # the last ones met first
        self._body_bytes_max = body_bytes_max

    def expect(self, lead: Lead) -> None:
        """From the next read on SENDs that begin with this come as Known, if all that follows is plain."""
        if lead.begins in self.known:
            return
        if len(self.known) >= _LEADS_MAX:
            self.known.clear()
        self.known[lead.begins] = lead
        self._prefer(len(lead.begins))

    def _prefer(self, length: int) -> None:
        """Look for leads of this length first, and no longer for those that were not met for long."""
        self._lengths = [length, *[other for other in self._lengths if other != length]][:_LEAD_LENGTHS_MAX]

    def read(self, frames: list[Frame], buffer: bytes, at: int, plain_bytes_max: int) -> int:
        """Append the SENDs with a known lead that are next; where the first other frame begins.

        What follows the lead has `plain_bytes_max` bytes at most (`HeadReader`).
        """
        window = _WINDOW_BYTES_MIN
        while True:
            part = buffer[at : at + window]
            clean = _BACKSLASH not in part and _CR not in part and part.isascii()
            pieces = part.split(b"\0")
            del pieces[-1]  # has no end yet
            for piece in pieces:
                known = self._find(piece[1:] if piece[:1] == b"\n" else piece, plain_bytes_max, clean=clean)
                if known is None:
                    return at
                frames.append(known)
                at += len(piece) + 1
            if not pieces:
                return at
            window = min(2 * window, _WINDOW_BYTES_MAX)

    def _find(self, frame: bytes, plain_bytes_max: int, *, clean: bool) -> Known | None:
        """The frame without its NUL, if it is a SEND with a known lead, and as plain as most; `clean`: it is."""
        lead: Lead | None = None
        for length in self._lengths:
            lead = self.known.get(frame[:length])
            if lead is not None:
                break
        if lead is None:
            return None
        start = len(lead.begins)
        stop = frame.find(b"\n\n", start - 1) + 1
        if not 0 < stop <= plain_bytes_max:
            return None
        lines, body = frame[start:stop], frame[stop + 1 :]
        if len(body) > self._body_bytes_max or not is_plain(lines, body, lead.excluded):
            return None
        if not clean and (_BACKSLASH in lines or _CR in lines or not lines.isascii()):
            return None
        if self._lengths[0] != start:
            self._prefer(start)
        return Known(lead, lines, body)
