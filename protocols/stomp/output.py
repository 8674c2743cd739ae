"""What a connection has to send, frame behind frame, and bodies that are read while they go out.

A frame is in one piece, or in three: its head, its body and END.  Sessions append ready-made MESSAGE frames to `parts`.
"""

from __future__ import annotations

from typing import cast

from protocols.stomp.frames import Source


class Output:
    """That of one connection."""

    __slots__ = ("_sources", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes | Source] = []
        self._sources = 0  # in `parts`

    @property
    def streaming(self) -> bool:
        """Whether a body is still to be read: call `read` again when what it gave has left."""
        return self._sources > 0

    def add_body(self, source: Source) -> None:
        """A body that is read while it goes out, between the head of its frame and END."""
        self.parts.append(source)
        self._sources += 1

    def take_back(self, count: int) -> None:
        """Send nothing of what was added since there were so many parts."""
        self._sources -= sum([not isinstance(part, bytes) for part in self.parts[count:]])
        del self.parts[count:]

    def clear(self) -> None:
        """Send nothing of what waits."""
        self.parts.clear()
        self._sources = 0

    def read(self) -> bytes:
        """Everything to send since the last call; with a body, what comes before it and a piece of it."""
        if self._sources:
            return self._read_piece()
        data = b"".join(cast(list[bytes], self.parts))
        self.parts.clear()
        return data

    def _read_piece(self) -> bytes:
        """What comes before the first body that a piece does not end, and the piece."""
        pieces: list[bytes] = []
        parts, done = self.parts, 0
        for part in parts:
            if isinstance(part, bytes):
                pieces.append(part)
            else:
                pieces.append(part.read())
                if part.left:
                    break
                self._sources -= 1
            done += 1
        del parts[:done]
        return b"".join(pieces)

    def read_frames(self) -> list[bytes]:
        """The same, frame by frame; a heart-beat counts as one.  While `streaming`, the last one is not complete."""
        frames: list[bytes] = []
        parts, at = self.parts, 0
        while at < len(parts):
            lead = parts[at]
            head = lead if isinstance(lead, bytes) else b""
            # Only the head of a frame whose body was not worth copying ends so; its body and END follow.
            if head and not head.endswith(b"\n\n"):
                frames.append(head)
                at += 1
                continue
            at += bool(head)  # else the body had begun before
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
