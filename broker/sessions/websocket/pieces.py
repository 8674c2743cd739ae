"""WebSocket frames in pieces: what has not come whole need not be kept until it has.

The library keeps a frame until its last byte is there, and a client may put 200 MiB into one.  RFC 6455 (5.4) lets
whoever is between the two sides fragment a message anew where there are no extensions.  So this is between the socket
and the library: a frame that is long and has come in part becomes a first fragment, and what comes of it later others.

    came         | FIN BINARY 1000 | mask | 300 bytes           then 500 bytes        then 200 bytes
    handed on    | BINARY      300 | mask | 300 bytes           | CONT 500 | ...      | FIN CONT 200 | ...

The mask repeats every four bytes: each fragment but the last has a multiple of them, so that one mask fits all.  Wrong
frames are cut like others: their first bytes tell the library as much.  A long control frame, which must not be
fragmented, is found out by that.
"""

from __future__ import annotations

from typing import Final

#: Bytes of the payload of a frame that is left as it is and may wait in the library for its end: what a stranger's
#: frames cost beside what the session keeps of their bytes.  Most messages of MQTT and STOMP are shorter.
WHOLE_BYTES_MAX: Final = 2 << 10

_FIN: Final = 0x80
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127


class Pieces:
    """Frames as they come in, fragmented where they have to be.  Keeps at most a header or three bytes."""

    def __init__(self) -> None:
        self._kept = b""  # a part of a header, or what is no multiple of four
        self._left = 0  # bytes of the frame under way that are still to come, with those in `_kept`
        self._cutting = False  # it is being cut
        self._first = 0  # the first byte of its next fragment, without FIN
        self._fin = 0  # FIN, if its last fragment has it
        self._masked = 0  # the bit that tells of a mask
        self._mask = b""

    def cut(self, data: bytes) -> bytes:
        """What the library is to get for some bytes from the socket."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
        out: list[bytes] = []
        at, end, begun = 0, len(data), 0  # from `begun` to `at` everything stays as it is
        if self._cutting:
            at = begun = self._cut(data, 0, out)
        elif self._left:
            at = min(self._left, end)
            self._left -= at
        while at < end:
            payload, stop = _bounds(data, at, end)
            if not payload:
                self._kept = data[at:]
                break
            if stop <= end:
                at = stop
            elif stop - payload <= WHOLE_BYTES_MAX:
                self._left = stop - end
                at = end
            else:
                out.append(data[begun:at])
                self._begin(data, at, payload, stop)
                at = begun = self._cut(data, payload, out)
        if not out:
            return data[begun:at]
        out.append(data[begun:at])
        return b"".join(out)

    def _begin(self, data: bytes, at: int, payload: int, stop: int) -> None:
        """A frame that begins at `at` is to be cut."""
        self._cutting = True
        self._left = stop - payload
        self._first, self._fin = data[at] & ~_FIN, data[at] & _FIN
        self._masked = data[at + 1] & _MASKED
        self._mask = data[payload - _MASK_BYTES : payload] if self._masked else b""

    def _cut(self, data: bytes, at: int, out: list[bytes]) -> int:
        """A fragment of what there is of the frame's payload from `at` on; where what follows it begins."""
        nbytes = min(self._left, len(data) - at)
        last = nbytes == self._left
        if not last:
            nbytes -= nbytes % _MASK_BYTES
        stop = at + nbytes
        if nbytes:
            first = self._first | (self._fin if last else 0)
            out.extend((bytes((first,)), _length(nbytes, self._masked), self._mask, data[at:stop]))
            self._first = 0  # CONT, and no reserved bits
            self._left -= nbytes
        if last:
            self._cutting = False
            return stop
        self._kept = data[stop:]
        return len(data)


def _length(nbytes: int, masked: int) -> bytes:
    """The length of a payload as a header has it, in as few bytes as there may be (5.2)."""
    if nbytes < _LENGTH_16:
        return bytes((masked | nbytes,))
    if nbytes < 1 << 16:
        return bytes((masked | _LENGTH_16,)) + nbytes.to_bytes(2, "big")
    return bytes((masked | _LENGTH_64,)) + nbytes.to_bytes(8, "big")


def _bounds(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the payload of the frame at `at` begins, and where it ends; (0, 0): its header has not come whole."""
    payload = at + 2
    if payload > end:
        return 0, 0
    length = data[at + 1] & ~_MASKED
    if length >= _LENGTH_16:
        nbytes = 2 if length == _LENGTH_16 else 8
        length = int.from_bytes(data[payload : payload + nbytes], "big")
        payload += nbytes
    if data[at + 1] & _MASKED:
        payload += _MASK_BYTES
    return (payload, payload + length) if payload <= end else (0, 0)
