"""Splits long WebSocket frames into fragments: a frame need not be buffered until its last byte arrives.

The library buffers a frame until it is complete, and a client may put 200 MiB into one.  RFC 6455 (5.4) permits an
intermediary to change the fragmentation of a message if no extension is in use.  So this sits between the socket and
the library: the part of a long frame that has arrived becomes a first fragment, and later parts become further ones.

    received     | FIN BINARY 1000 | mask | 300 bytes           then 500 bytes        then 200 bytes
    passed on    | BINARY      300 | mask | 300 bytes           | CONT 500 | ...      | FIN CONT 200 | ...

The mask repeats every four bytes.  The length of each fragment but the last is a multiple of four, so the same mask
fits all.  Invalid frames are split like others: the library recognises them by their first bytes.  A long control
frame, which must not be fragmented, is therefore rejected.
"""

from __future__ import annotations

from typing import Final

#: Longest payload, in bytes, of a frame that is passed on unchanged and may wait in the library for its end.  A client
#: that has not logged in can occupy that much memory beyond what the session buffers.  Most MQTT and STOMP messages are
#: shorter.
WHOLE_BYTES_MAX: Final = 2 << 10

#: How many frames are passed on together: the library needs about 4 us for each, and one may hold a client's message.
FRAMES_MAX: Final = 128

_FIN: Final = 0x80
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127


class Pieces:
    """Splits the frames of one connection where necessary.  Buffers at most a header or three bytes.

    `rest`: what `cut` has left, from the first frame beyond `FRAMES_MAX` on; to be cut next.
    """

    __slots__ = ("_cutting", "_fin", "_first", "_left", "_mask", "_masked", "_partial", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self._partial = b""  # part of a header, or the bytes beyond a multiple of four
        self._left = 0  # bytes of the current frame still to be passed on, with those in `_kept`
        self._cutting = False  # whether the current frame is being split
        self._first = 0  # the first byte of its next fragment, without FIN
        self._fin = 0  # FIN, if its last fragment has it
        self._masked = 0  # the MASK bit
        self._mask = b""

    def cut(self, data: bytes) -> bytes:
        """Return what to pass on to the library for some bytes from the socket: for all but `rest`."""
        if self._partial:
            data = self._partial + data
            self._partial = b""
        out: list[bytes] = []
        at, end, begun = 0, len(data), 0  # from `begun` to `at` nothing is changed
        if self._cutting:
            at = begun = self._cut(data, 0, out)
        elif self._left:
            at = min(self._left, end)
            self._left -= at
        frames = 0
        self.rest = b""
        while at < end:
            if frames == FRAMES_MAX:
                self.rest = data[at:]
                break
            frames += 1
            payload, stop = _bounds(data, at, end)
            if not payload:
                self._partial = data[at:]
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
        """Begin to split a frame that starts at `at`."""
        self._cutting = True
        self._left = stop - payload
        self._first, self._fin = data[at] & ~_FIN, data[at] & _FIN
        self._masked = data[at + 1] & _MASKED
        self._mask = data[payload - _MASK_BYTES : payload] if self._masked else b""

    def _cut(self, data: bytes, at: int, out: list[bytes]) -> int:
        """Make a fragment of the frame's payload from `at` on, as far as it has arrived; return where it ends."""
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
        self._partial = data[stop:]
        return len(data)


def _length(nbytes: int, masked: int) -> bytes:
    """Encode the length of a payload for a header, in as few bytes as possible (5.2)."""
    if nbytes < _LENGTH_16:
        return bytes((masked | nbytes,))
    if nbytes < 1 << 16:
        return bytes((masked | _LENGTH_16,)) + nbytes.to_bytes(2, "big")
    return bytes((masked | _LENGTH_64,)) + nbytes.to_bytes(8, "big")


def _bounds(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the payload of the frame at `at` begins and ends; (0, 0): its header is incomplete."""
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
