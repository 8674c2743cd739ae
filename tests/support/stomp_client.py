"""The client's side of STOMP, without any code of `protocols.stomp`: frames, and a client over any link.

It is written straight from the specifications and implements the server's grammar from the other side, so that a
mistake in the codec is not made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from tests.support.links import Link, Lost, SocketLink

_ESCAPES: Final[dict[str, dict[str, str]]] = {
    "1.0": {},
    "1.1": {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    "1.2": {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}
_TRANSLATIONS: Final = {version: str.maketrans(escapes) for version, escapes in _ESCAPES.items()}

#: Never escaped, in any version: a 1.0 peer must be able to read them (and STOMP is CONNECT by another name).
_GREETINGS: Final = frozenset({"CONNECT", "STOMP", "CONNECTED"})


@dataclass(frozen=True, slots=True)
class ServerFrame:
    """A frame from the server; `headers` are unescaped, the first of repeated ones."""

    command: str
    headers: dict[str, str]
    body: bytes


def escape(text: str, version: str) -> str:
    """Escape a header name or value."""
    return text.translate(_TRANSLATIONS[version])


def unescape(text: str, version: str) -> str:
    """The inverse of `escape`.  Raises ValueError on an escape that the version does not define."""
    if version == "1.0" or "\\" not in text:
        return text
    table = {escaped: plain for plain, escaped in _ESCAPES[version].items()}
    plain: list[str] = []
    at = 0
    while at < len(text):
        width = 2 if text[at] == "\\" else 1
        piece = text[at : at + width]
        if width == 2 and piece not in table:
            raise ValueError(f"{piece!r} is no escape of STOMP {version}")
        plain.append(table.get(piece, piece))
        at += width
    return "".join(plain)


def frame(
    command: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    version: str = "1.2",
    *,
    content_length: bool | None = None,
    eol: bytes = b"\n",
) -> bytes:
    """A client frame's bytes, escaped by the rules of `version`.

    `content_length` adds that header; None adds it where it is needed: when the body has a NUL in it and the headers
    do not say it already.  `eol` ends the command and header lines.
    """
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    if content_length is None:
        content_length = b"\0" in body and all(name != "content-length" for name, _ in pairs)
    if content_length:
        pairs.append(("content-length", str(len(body))))
    rules = "1.0" if command in _GREETINGS else version
    lines = [command, *(f"{escape(name, rules)}:{escape(value, rules)}" for name, value in pairs)]
    head = b"".join(line.encode() + eol for line in lines)
    return head + eol + body + b"\0"


class FrameReader:
    """Reads what the server sends.  A violation of the grammar is a ValueError: the server's fault.

    `version` follows the CONNECTED frame; `heartbeats` counts the empty lines between frames, beside the one that ends
    each; `pending` is the number of bytes of a frame that is not complete.
    """

    def __init__(self, version: str = "1.0") -> None:
        self.version = version
        self.heartbeats = 0
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes kept of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[ServerFrame]:
        """The frames that `data` completes, in order."""
        self._buffer += data
        frames: list[ServerFrame] = []
        at = 0
        while (step := self._step(at)) is not None:
            at, found = step
            if found is not None:
                frames.append(found)
        del self._buffer[:at]
        return frames

    def _step(self, at: int) -> tuple[int, ServerFrame | None] | None:
        """Read a heart-beat (None) or a frame at `at`, and return its end too; None if it is incomplete."""
        buffer = self._buffer
        if at == len(buffer):
            return None
        if buffer[at] == 10:
            self.heartbeats += 1
            return at + 1, None
        head_end = buffer.find(b"\n\n", at)
        if head_end < 0:
            return None
        command, headers = self._head(bytes(buffer[at:head_end]))
        body_at = head_end + 2
        if "content-length" in headers:
            stop = body_at + int(headers["content-length"])
        else:
            stop = buffer.find(b"\0", body_at)
        if stop < 0 or stop >= len(buffer):
            return None
        if buffer[stop] != 0:
            raise ValueError(f"{command}: no NUL where content-length says")
        if stop + 1 == len(buffer):
            return None
        if buffer[stop + 1] != 10:
            raise ValueError(f"{command}: no LF behind the NUL, which some clients count on")
        if command == "CONNECTED":
            self.version = headers.get("version", "1.0")
        return stop + 2, ServerFrame(command, headers, bytes(buffer[body_at:stop]))

    def _head(self, head: bytes) -> tuple[str, dict[str, str]]:
        command, *lines = head.decode().split("\n")
        if not command.isupper() or not command.isalpha():
            raise ValueError(f"{command!r} is no command")
        rules = "1.0" if command in _GREETINGS else self.version
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or (":" in value and rules != "1.0"):
                raise ValueError(f"{command}: {line!r} is no header line")
            headers.setdefault(unescape(name, rules), unescape(value, rules))
        return command, headers


class StompClient(Link):
    """One connection.  A broker in a process is waited for; a simulated one has already sent everything."""

    def __init__(self, version: str = "1.2") -> None:
        self.version = version
        self.frames: list[ServerFrame] = []
        self.reader = FrameReader(version)
        self._receipts = 0

    def heard(self, data: bytes) -> None:
        """Process bytes from the broker."""
        self.frames += self.reader.feed(data)

    # -- what a client does ----------------------------------------------------------------------------------------

    def do(self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """Send one frame to the broker."""
        self.raw(frame(command, headers or {}, body, version=self.version))

    def connect(self, **headers: str) -> Self:
        """Send CONNECT, and wait for its answer."""
        self.do("CONNECT", {"accept-version": self.version, "host": "h", **headers})
        self.wait(lambda: self.frames)
        assert self.take("CONNECTED"), self.frames
        return self

    def send(self, destination: str, body: bytes = b"", **headers: str) -> None:
        """Send a SEND."""
        self.do("SEND", {"destination": destination, **_dashed(headers)}, body)

    def confirmed(self, destination: str, body: bytes = b"", **headers: str) -> None:
        """Send a durable message, and wait for its receipt."""
        self._receipts += 1
        receipt = f"r{self._receipts}"
        self.send(destination, body, persistent="true", receipt=receipt, **headers)
        self.wait(lambda: any(frame.command == "RECEIPT" for frame in self.frames))
        assert [f.headers["receipt-id"] for f in self.take("RECEIPT")] == [receipt], self.frames

    def subscribe(self, destination: str, id: str = "s", ack: str = "client-individual", **headers: str) -> None:
        """Send SUBSCRIBE."""
        self.do("SUBSCRIBE", {"destination": destination, "id": id, "ack": ack, **_dashed(headers)})

    def ack(self, message: ServerFrame, **headers: str) -> None:
        """Send ACK, with the version's headers."""
        self.do("ACK", self._naming(message) | _dashed(headers))

    def nack(self, message: ServerFrame, **headers: str) -> None:
        """Send NACK, with the version's headers."""
        self.do("NACK", self._naming(message) | _dashed(headers))

    def _naming(self, message: ServerFrame) -> dict[str, str]:
        if self.version == "1.2":
            return {"id": message.headers["ack"]}
        return {"message-id": message.headers["message-id"], "subscription": message.headers["subscription"]}

    # -- received frames -------------------------------------------------------------------------------------------

    def take(self, command: str) -> list[ServerFrame]:
        """Remove and return the frames of a kind that have arrived."""
        taken = [f for f in self.frames if f.command == command]
        self.frames = [f for f in self.frames if f.command != command]
        return taken

    def messages(self) -> list[ServerFrame]:
        """Remove and return the MESSAGE frames that have arrived."""
        return self.take("MESSAGE")

    def bodies(self) -> list[bytes]:
        """Remove the MESSAGE frames that have arrived, and return their bodies."""
        return [f.body for f in self.messages()]

    def frame(self) -> ServerFrame:
        """Wait for the next frame.  Raises Lost, TimeoutError."""
        self.wait(lambda: self.frames)
        return self.frames.pop(0)

    def rest(self) -> list[ServerFrame]:
        """Return all frames until the broker hangs up.  Raises TimeoutError."""
        try:
            self.wait(lambda: False)
        except Lost:
            return self.frames
        raise AssertionError("the broker goes on")


class StompSocket(StompClient, SocketLink):
    """A client on a socket of its own, for behavior that no client library offers."""

    def __init__(self, port: int, version: str = "1.2") -> None:
        SocketLink.__init__(self, port)
        StompClient.__init__(self, version)


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    """Keyword arguments as header names: `client_id` is client-id; names with capitals stay as they are."""
    return {name if name != name.lower() else name.replace("_", "-"): value for name, value in headers.items()}


#: A CONNECT frame in 1.2.
CONNECT: Final = frame("CONNECT", {"accept-version": "1.2", "host": "h"})
