"""A fast way to read SENDs that begin alike: only the part that differs is parsed.

Sessions say how such SENDs begin (`Lead`).  Received bytes are split at their NULs, several frames at a time.  The
first frame that is anything else ends the fast way, and is parsed like all others.
"""

from __future__ import annotations

from typing import Final

from protocols.stomp.frames import Frame, Known, Lead
from protocols.stomp.heads import is_plain

_CR: Final = 13
_BACKSLASH: Final = 92

#: How many bytes are split at their NULs at a time: from the minimum on, twice as many after each part in which all
#: frames began as expected.
_WINDOW_BYTES_MIN: Final = 512
_WINDOW_BYTES_MAX: Final = 16 << 10

#: How many leads a connection expects at most (about 150 KiB), and in how many lengths: each frame is tried with each.
_LEADS_MAX: Final = 256
_LEAD_LENGTHS_MAX: Final = 8


class Leads:
    """The leads that one connection expects; SENDs with longer bodies than `body_bytes_max` are not read here."""

    __slots__ = ("_body_bytes_max", "_lengths", "known")

    def __init__(self, body_bytes_max: int) -> None:
        self.known: dict[bytes, Lead] = {}
        self._lengths: list[int] = []  # of the leads, the most recently found first
        self._body_bytes_max = body_bytes_max

    def expect(self, lead: Lead) -> None:
        """From the next read on, return SENDs that begin with this as Known if the rest of their head is plain."""
        if lead.begins in self.known:
            return
        if len(self.known) >= _LEADS_MAX:
            self.known.clear()
        self.known[lead.begins] = lead
        self._prefer(len(lead.begins))

    def _prefer(self, length: int) -> None:
        """Look for leads of this length first, and no longer for the least recently found length if there are many."""
        self._lengths = [length, *[other for other in self._lengths if other != length]][:_LEAD_LENGTHS_MAX]

    def read(self, frames: list[Frame], buffer: bytes, at: int, plain_bytes_max: int, enough: int) -> int:
        """Append the SENDs with a known lead from `at` on; returns where the first other frame begins.

        Heads of more than `plain_bytes_max` bytes are not read here (`HeadReader`).  It ends once there are `enough`
        frames, or some more.
        """
        window = _WINDOW_BYTES_MIN
        while len(frames) < enough:
            part = buffer[at : at + window]
            clean = _BACKSLASH not in part and _CR not in part and part.isascii()
            pieces = part.split(b"\0")
            del pieces[-1]  # not complete
            for piece in pieces:
                known = self._find(piece[1:] if piece[:1] == b"\n" else piece, plain_bytes_max, clean=clean)
                if known is None:
                    return at
                frames.append(known)
                at += len(piece) + 1
            if not pieces:
                return at
            window = min(2 * window, _WINDOW_BYTES_MAX)
        return at

    def _find(self, frame: bytes, plain_bytes_max: int, *, clean: bool) -> Known | None:
        """Read a frame without its NUL; None if it is not a SEND with a known lead and a plain head.

        `clean`: it is known to be ASCII without backslashes and CRs.
        """
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
