"""The frames that a connection has to send, with bodies that are read only while they are sent.

A frame is one part, or three: its head, its body and END.  Sessions append ready-made MESSAGE frames to `parts`.
"""

from __future__ import annotations

from typing import cast

from protocols.stomp.frames import Source


class Output:
    """The frames that one connection has to send."""

    __slots__ = ("_sources", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes | Source] = []
        self._sources = 0  # in `parts`

    @property
    def streaming(self) -> bool:
        """Whether a body is still to be read: call `read` again once its last result has been sent."""
        return self._sources > 0

    def add_body(self, source: Source) -> None:
        """Add a body that is read while it is sent; add it between the head of its frame and END."""
        self.parts.append(source)
        self._sources += 1

    def take_back(self, count: int) -> None:
        """Remove the parts added since there were `count`."""
        self._sources -= sum([not isinstance(part, bytes) for part in self.parts[count:]])
        del self.parts[count:]

    def clear(self) -> None:
        """Remove all parts."""
        self.parts.clear()
        self._sources = 0

    def read(self) -> bytes:
        """The bytes added since the last call; if a body is to be read, only those before it and its next piece."""
        if self._sources:
            return b"".join(self.read_frames())
        data = b"".join(cast(list[bytes], self.parts))
        self.parts.clear()
        return data

    def read_frames(self) -> list[bytes]:
        """`read`, as a list of frames; a heart-beat counts as one.  While `streaming`, the last is not complete."""
        frames: list[bytes] = []
        parts, at = self.parts, 0
        while at < len(parts):
            lead = parts[at]
            head = lead if isinstance(lead, bytes) else b""
            # Only the head of a frame in three parts ends like this; its body and END follow.
            if head and not head.endswith(b"\n\n"):
                frames.append(head)
                at += 1
                continue
            at += bool(head)  # without a head, an earlier call has begun the body
            body, end = parts[at : at + 2]
            assert isinstance(end, bytes), "a body is followed by its END"
            if not isinstance(body, bytes):
                source, body = body, body.read()
                if source.left:
                    frames.append(head + body)
                    break
                self._sources -= 1
            frames.append(b"".join((head, body, end)))
            at += 2
        del parts[:at]
        return frames
