"""The server's side of a STOMP connection: bytes in, frames out, and the other way round.

A frame is a command line, header lines, an empty line, a body and a NUL; between frames there may be empty lines,
which are heart-beats.  A line ends with LF; 1.2 allows CR LF, and so does everybody in practice, so it is taken in
every version.  The body ends at `content-length`, which must then be followed by NUL, or else at the first NUL.

    receive_data  only keeps the bytes
    events        parses them: whole frames, in order; it stops after CONNECT, because what follows is read by the
                  rules of the version that the server picks with `send_connected`
    error         what was wrong; the frames before it still come out of `events`, nothing after it does

Nothing is copied but headers and bodies.  A frame that is not complete is looked at again only when it can be: after
as many bytes as its content-length asks for, or when a NUL has come.  What is kept never exceeds the limits by more
than one read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protocols.stomp.errors import StompError
from protocols.stomp.frames import HEARTBEAT, Frame, encode
from protocols.stomp.headers import escape, unescape
from protocols.stomp.limits import Limits
from protocols.stomp.state import COMMANDS, REQUIRED, TRANSITIONS, UNKNOWN, State

VERSIONS: Final = ("1.2", "1.1", "1.0")

_LF: Final = 10
_CR: Final = 13
_BACKSLASH: Final = 92  # as a number: `b"x" in data` first fails to be one, which costs more than the search
_DEFAULT_LIMITS: Final = Limits()

#: What may name a subscription in UNSUBSCRIBE: its id, or its durable name under the names in use.
UNSUBSCRIBE_NAMES: Final = (
    b"id",
    b"durable-subscription-name",
    b"durable-subscriber-name",
    b"activemq.subscriptionName",
)

#: Digits of a content-length: more than any limit has, few enough to be converted at once.
_LENGTH_DIGITS_MAX: Final = 12


class StompConnection:
    """One connection.  Sessions append ready-made MESSAGE frames to `out`; everything else goes through `send_*`."""

    def __init__(self, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.version = "1.0"
        self.error: StompError | None = None
        self.close_expected = False
        self.out: list[bytes] = []
        self._limits = limits
        self._enter(State.CONNECTING)
        self._buffer = b""
        self._at = 0  # where the next frame begins in `_buffer`
        self._pieces: list[bytes] = []  # what came since, not yet joined to it
        self._pieces_bytes = 0
        self._wanted = 0  # bytes of `_pieces` without which parsing again is no use ...
        self._until_nul = False  # ... or it is no use before a NUL

    def _enter(self, state: State) -> None:
        """Another state, or another version: what is allowed now."""
        self._state = state
        self._connecting = state is State.CONNECTING
        self._trimming = self.version == "1.0"
        # Shorter heads cannot exceed any limit: a header line takes at least two bytes with its LF.
        limits = self._limits
        smallest = min(limits.header_line_bytes_max, limits.header_bytes_max, 2 * limits.header_count_max)
        self._head_checked_above = 0 if self._connecting else smallest
        self._required = REQUIRED[self.version]
        allowed = TRANSITIONS[state].keys() - UNKNOWN[self.version]
        self._commands = {name: command for name, command in COMMANDS.items() if command in allowed}

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Keep bytes for `events`."""
        if self.error is not None or self._state is State.DISCONNECTED:
            return
        self._pieces.append(data)
        self._pieces_bytes += len(data)

    def receive_eof(self) -> None:
        """The peer will send no more: half a frame is an error."""
        if self.error is None and self._state is State.CONNECTED:
            left = self._buffer[self._at :] + b"".join(self._pieces)
            if left.strip(b"\r\n"):
                self.error = StompError("incomplete frame", "The connection ended in the middle of a frame.")

    def events(self) -> list[Frame]:
        """The whole frames received since the last call; call again until there are none."""
        frames: list[Frame] = []
        if self._pieces and self._ready():
            rest = self._buffer[self._at :] if self._at < len(self._buffer) else b""
            self._buffer = b"".join([rest, *self._pieces]) if rest or len(self._pieces) > 1 else self._pieces[0]
            self._at = 0
            self._pieces.clear()
            self._pieces_bytes = 0
        elif self._pieces:
            return frames
        self._wanted = 0
        self._until_nul = False
        try:
            if self._state is not State.DISCONNECTED and self.error is None and self._at < len(self._buffer):
                self._parse(frames)
        except StompError as error:
            self.error = error
        if self.error is not None or self._state is State.DISCONNECTED:
            self._buffer = b""
            self._at = 0
        return frames

    def _ready(self) -> bool:
        if self._pieces_bytes < self._wanted:
            return False
        if not self._until_nul or 0 in self._pieces[-1]:
            return True
        # A body without content-length: nothing can be done before its NUL, but it must not grow for ever.
        waiting = len(self._buffer) - self._at + self._pieces_bytes
        return waiting > self._limits.body_bytes_max + self._limits.header_bytes_max

    def _parse(self, frames: list[Frame]) -> None:
        """Append the whole frames in the buffer.  Raises StompError."""
        buffer = self._buffer
        end = len(buffer)
        at = self._at
        find = buffer.find
        append = frames.append
        while True:
            while at < end and (buffer[at] == _LF or buffer[at] == _CR):
                at += 1
            self._at = at
            if at == end:
                return
            head_end = find(b"\n\n", at)
            body_at = head_end + 2
            head = buffer[at:head_end]
            if head_end < 0 or _CR in head:
                head_end, body_at = self._find_head(at)
                if head_end < 0:
                    return
                head = buffer[at:head_end]
            command, headers, lines = self._read_head(head)
            if b"content-length" in headers:
                stop = body_at + self._content_length(command, headers)
                if stop >= end:
                    self._wanted = stop + 1 - end
                    return
                self._check_nul(command, headers, stop, body_at)
            else:
                stop = find(b"\0", body_at)
                if stop < 0:
                    self._check_body(command, end - body_at, headers)
                    self._until_nul = True
                    return
            if command == "SEND":
                if stop - body_at > self._limits.body_bytes_max:
                    self._check_body(command, stop - body_at, headers)
                append(Frame(command, headers, buffer[body_at:stop], lines))
                at = self._at = stop + 1
                continue
            if stop > body_at:
                self._check_body(command, stop - body_at, headers)
            append(Frame(command, headers))
            at = self._at = stop + 1
            state = TRANSITIONS[self._state][command]
            if state is not self._state:
                self._enter(state)
                return

    def _check_nul(self, command: str, headers: dict[bytes, bytes], stop: int, body_at: int) -> None:
        if self._buffer[stop]:
            raise StompError(
                "invalid content-length",
                f"{command}: content-length says {stop - body_at} bytes, but no NUL follows them",
                headers.get(b"receipt"),
            )

    def _find_head(self, at: int) -> tuple[int, int]:
        """Where a head with CRs ends and its body begins; (-1, 0) if it is not complete.  Raises StompError."""
        buffer = self._buffer
        end = buffer.find(b"\n\n", at)
        with_cr = buffer.find(b"\n\r\n", at, end + 1 if end >= 0 else len(buffer))
        if with_cr >= 0:
            return with_cr, with_cr + 3
        if end < 0:
            self._check_head(len(buffer) - at)
            return -1, 0
        return end, end + 2

    def _check_head(self, nbytes: int) -> None:
        limits = self._limits
        if self._connecting and nbytes > limits.connect_bytes_max:
            raise StompError(
                "frame too large", f"The first frame may have {limits.connect_bytes_max} bytes before CONNECTED."
            )
        if nbytes > limits.header_bytes_max:
            raise StompError("headers too large", f"The headers of a frame may have {limits.header_bytes_max} bytes.")

    def _check_body(self, command: str, nbytes: int, headers: dict[bytes, bytes]) -> None:
        most = self._limits.body_bytes_max if command == "SEND" else 0
        if nbytes > most:
            receipt = headers.get(b"receipt")
            if command != "SEND":
                raise StompError("unexpected body", f"{command}: only SEND has a body", receipt)
            raise StompError("body too large", f"SEND: a body may have {most} bytes, this one has more", receipt)

    def _content_length(self, command: str, headers: dict[bytes, bytes]) -> int:
        value = headers[b"content-length"]
        if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
            detail = f"{command}: content-length is a number of bytes, not {_shown(value)}"
            raise StompError("invalid content-length", detail, headers.get(b"receipt"))
        length = int(value)
        if length > self._limits.body_bytes_max or command != "SEND":
            self._check_body(command, length, headers)
        return length

    # -- heads -----------------------------------------------------------------------------------------------------

    def _read_head(self, head: bytes) -> tuple[str, dict[bytes, bytes], list[bytes] | None]:
        """Command, headers and forwardable lines of a head without its empty line.  Raises StompError."""
        size = len(head)
        if size > self._head_checked_above:
            self._check_head(size)
        if _CR in head:
            head = head.replace(b"\r\n", b"\n").removesuffix(b"\r")
        lines = head.split(b"\n")
        command = self._commands.get(lines[0])
        if command is None:
            raise self._unexpected(lines[0])
        del lines[0]
        headers: dict[bytes, bytes] = {}
        try:
            for line in lines:
                name, value = line.split(b":", 1)
                headers[name] = value
        except ValueError:
            raise _bad_line(command, lines) from None
        forwardable: list[bytes] | None = lines
        if (
            _BACKSLASH in head
            or len(headers) != len(lines)
            or not head.isascii()
            or self._trimming
            or _CR in head
            or size > self._head_checked_above
            or b"" in headers
        ):
            headers, forwardable = self._read_headers(command, lines)
        for required in self._required[command]:
            if required not in headers:
                detail = f"{command}: the header {required.decode()} is missing"
                raise StompError("missing header", detail, headers.get(b"receipt"))
        if command == "UNSUBSCRIBE":
            self._check_unsubscribe(headers)
        return command, headers, forwardable

    def _read_headers(
        self, command: str, lines: list[bytes]
    ) -> tuple[dict[bytes, bytes], list[bytes] | None]:
        """Headers that need more than being split: escapes, repetitions, the rules of 1.0, UTF-8."""
        if len(lines) > self._limits.header_count_max:
            raise StompError("too many headers", f"{command}: a frame may have {self._limits.header_count_max} headers")
        greeting = command in ("CONNECT", "STOMP")
        trimmed = self._trimming and not any(line.startswith(b"accept-version:") for line in lines)
        most = self._limits.header_line_bytes_max
        headers: dict[bytes, bytes] = {}
        for line in lines:
            if len(line) > most:
                raise StompError("header too large", f"{command}: a header line may have {most} bytes")
            name, _, value = line.partition(b":")
            if trimmed:  # 1.0 shows `login: <username>`; later versions forbid to trim
                name, value = name.strip(b" \t"), value.strip(b" \t")
            if not greeting:
                name, value = unescape(name, self.version), unescape(value, self.version)
            if not name:
                raise _bad_line(command, lines)
            headers.setdefault(name, value)
            _check_utf8(command, line)
        forwardable = self.version == "1.2" and len(headers) == len(lines)
        return headers, lines if forwardable else None

    def _unexpected(self, name: bytes) -> StompError:
        shown = _shown(name)
        if name not in COMMANDS:
            return StompError("unknown command", f"{shown} is no command of STOMP")
        if self._connecting:
            return StompError("not connected", f"{shown}: the first frame must be CONNECT or STOMP")
        if COMMANDS[name] in UNKNOWN[self.version]:
            return StompError("unknown command", f"{shown} is no command of STOMP {self.version}")
        return StompError("already connected", f"{shown} comes once, as the first frame")

    def _check_unsubscribe(self, headers: dict[bytes, bytes]) -> None:
        """1.0 takes id or destination; later versions id, or the name of a durable subscription alone."""
        either = UNSUBSCRIBE_NAMES if self.version != "1.0" else (b"destination", *UNSUBSCRIBE_NAMES)
        if not any(name in headers for name in either):
            raise StompError("missing header", "UNSUBSCRIBE: the header id is missing", headers.get(b"receipt"))

    # -- sending ---------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Everything to send since the last call."""
        out = self.out
        if len(out) == 1:
            data = out[0]
        else:
            data = b"".join(out)
        out.clear()
        return data

    def send_connected(self, version: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Accept the connection; from now on `version` rules.  The headers of CONNECTED are not escaped."""
        self.version = version
        self._enter(self._state)
        plain = [(name, escape(value, "1.0")) for name, value in headers]
        self.out.append(encode(b"CONNECTED", [(b"version", version.encode()), *plain]))

    def send_receipt(self, receipt_id: bytes) -> None:
        """A frame with this receipt header is done."""
        self.out.append(b"RECEIPT\nreceipt-id:%b\n\n\0" % escape(receipt_id, self.version))

    def send_error(self, error: StompError) -> None:
        """Say what is wrong; nothing may follow."""
        body = error.detail.encode() + b"\n"
        headers = [(b"message", escape(error.message.encode(), self.version))]
        if self._connecting or error.message == "unsupported version":
            headers.append((b"version", b",".join(version.encode() for version in reversed(VERSIONS))))
        if error.receipt is not None:
            headers.append((b"receipt-id", escape(error.receipt, self.version)))
        headers += [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
        self.out.append(encode(b"ERROR", headers, body))
        self.close_expected = True

    def send_heartbeat(self) -> None:
        """An empty line."""
        self.out.append(HEARTBEAT)


def negotiate(accept_version: bytes | None) -> str:
    """The highest version that both sides know; a client that names none speaks 1.0.  Raises StompError."""
    if accept_version is None:
        return "1.0"
    offered = {version.strip() for version in accept_version.decode().split(",")}
    for version in VERSIONS:
        if version in offered:
            return version
    known = ", ".join(reversed(VERSIONS))
    raise StompError("unsupported version", f"CONNECT: supported are {known}, not {_shown(accept_version)}")


def parse_heartbeat(value: bytes) -> tuple[int, int]:
    """What the client can send and what it wants, in ms (STOMP 1.2, heart-beating).  Raises StompError."""
    parts = [part.strip() for part in value.split(b",")]
    if len(parts) != 2 or not all(part.isdigit() and len(part) <= 10 for part in parts):
        raise StompError("invalid heart-beat", f"CONNECT: heart-beat is two numbers of ms, not {_shown(value)}")
    return int(parts[0]), int(parts[1])


def _bad_line(command: str, lines: list[bytes]) -> StompError:
    line = next((line for line in lines if b":" not in line or line.startswith(b":")), b"")
    return StompError("invalid header", f"{command}: the line {_shown(line)} is not NAME:VALUE")


def _check_utf8(command: str, line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError:
        raise StompError("invalid header", f"{command}: the line {_shown(line)} is not UTF-8") from None


def _shown(value: bytes) -> str:
    """Bytes of the peer in a sentence: short, and nothing that is not printable."""
    text = value[:80].decode("utf-8", "backslashreplace")
    return "'" + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + ("...'" if len(value) > 80 else "'")
