"""The server's side of a STOMP connection: bytes in, frames out, and the other way round.

A frame is a command line, header lines, an empty line, a body and a NUL; between frames there may be empty lines,
which are heart-beats.  A line ends with LF.  Only 1.2 allows CR LF, but implementations accept it in every version, and
so does this one.  The body ends at `content-length`, which must then be followed by NUL, or else at the first NUL.  No
header may contain a NUL: it cannot be escaped, and many clients would take it for the end of the frame.

    receive_data  only buffers the bytes
    events        parses them: complete frames, in order.  It stops after CONNECT: the rest is parsed by the rules of
                  the version that the server chooses with `send_connected`
    error         the protocol error, if any; `events` still returns the frames before it, and nothing after it

The body of a SEND above `whole_bytes_max` is not buffered: `events` returns a Begun with the headers, then Parts as the
bytes arrive.  After the last one nothing is parsed until `resume`, since the server may need time to store the body.

Only headers and bodies are copied.  An incomplete frame is parsed again only when it may be complete: when as many
bytes as its content-length says have arrived, or a NUL, or a LF while its head is incomplete.  The buffer never exceeds
the limits by more than one read.  A server that takes its time to answer CONNECT must stop reading from the socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from protocols.stomp.errors import StompError
from protocols.stomp.frames import HEARTBEAT, Acks, Begun, Frame, Part, encode
from protocols.stomp.headers import escape
from protocols.stomp.heads import Headers, first_too_large, head_reader, headers_too_large
from protocols.stomp.leads import Leads
from protocols.stomp.limits import Limits
from protocols.stomp.output import Output
from protocols.stomp.state import BODIES, COMMANDS, TRANSITIONS, State

VERSIONS: Final = ("1.2", "1.1", "1.0")

_CR: Final = 13
_NOT_EOL: Final = re.compile(rb"[^\r\n]").search
_HEAD_END: Final = re.compile(rb"\n\r?\n").search
_DEFAULT_LIMITS: Final = Limits()

#: Two or more ACKs as described at `heads.ACK_HEAD_BYTES_MAX`, and what separates their ids.
_ACK_RUN: Final = re.compile(rb"(?>ACK\nid:[0-9]{1,20}+,[0-9]{1,20}+\n\n\0\n?+){2,128}+").match
_ACK_LEAD: Final = b"ACK\nid:"
_BETWEEN_ACKS: Final = b"\n\n\0" + _ACK_LEAD
_A: Final = ord("A")

#: How many frames are parsed at a time, or some more: all those of a read may take long.
FRAMES_MAX: Final = 256

#: Bytes of line ends accepted in place of a body: hand-written clients may send a superfluous empty line.
_LINE_ENDS_MAX: Final = 4

#: Digits of a content-length: more than any limit needs, few enough for a cheap conversion.
_LENGTH_DIGITS_MAX: Final = 12

#: Digits of a heart-beat interval: four months.
_MS_DIGITS_MAX: Final = 10


class StompConnection:
    """One connection.

    Sessions append encoded MESSAGE frames to `output`; everything else is sent through `send_*`.  SENDs that begin with
    one of `leads` are returned as Known.
    """

    def __init__(self, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.version = "1.0"
        self.error: StompError | None = None
        self.close_expected = False
        self.output = Output()
        self._left: int | None = None  # bytes missing of a body in parts, -1: up to a NUL; None: there is no such body
        self._came = 0  # bytes received of that body
        self._held = False  # it is complete, and `resume` has not been called
        self._limits = limits
        self._whole_bytes_max = min(limits.whole_bytes_max, limits.body_bytes_max)
        self.leads = Leads(self._whole_bytes_max)
        self._buffer = b""
        self._at = 0  # where the next frame begins in `_buffer`
        self._pending = bytearray()  # bytes received since, while a frame was incomplete
        self._ready = False  # whether parsing may find something; if not, it may again ...
        self._wanted = 0  # ... with this many bytes in `_pending`
        self._marks = b""  # ... or when one of these arrives
        self._ended = False
        self._enter(State.CONNECTING)

    def _enter(self, state: State) -> None:
        """Change the state, and what is allowed in it."""
        self._state = state
        self._transitions = TRANSITIONS[state]
        self._reader = reader = head_reader(self._limits, self.version, state)
        self._read_head = reader.read_first if state is State.CONNECTING else reader.read
        self._first_of_run = _A if reader.acks_in_runs else -1  # the byte with which a run of ACKs may begin
        self._bodies = BODIES[self.version]

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Buffer bytes for `events`."""
        if self.error is not None or self._state is State.DISCONNECTED:
            return
        if not self._buffer and not self._pending:
            self._buffer = data
            self._ready = True
            return
        self._pending += data
        if len(self._pending) >= self._wanted or any(mark in data for mark in self._marks):
            self._ready = True

    @property
    def partial_bytes(self) -> int:
        """Bytes received and not returned by `events` yet, such as those of an incomplete frame."""
        return len(self._buffer) - self._at + len(self._pending)

    def receive_eof(self) -> None:
        """The peer will send no more: an incomplete frame is an error, once `events` has returned the complete ones."""
        self._ended = True
        if not self._ready and not self._held:
            self._check_end()

    def events(self) -> list[Frame]:
        """Return complete frames received since the last call, some at a time; call again until there are none."""
        frames: list[Frame] = []
        if not self._ready or not self._transitions or self.error is not None or self._held:
            return frames
        self._ready = False
        if self._pending:
            self._buffer = b"".join((self._buffer[self._at :], self._pending))
            self._at = 0
            self._pending.clear()
        try:
            if self._left is None:
                self._parse(frames)
            else:
                self._take_part(frames)
        except StompError as error:
            error.__traceback__ = error.__context__ = None  # their calls refer to this connection
            self.error = error
        if self._ended and not self._ready and not self._held:
            self._check_end()
        if self.error is not None or self._state is State.DISCONNECTED or self._at == len(self._buffer):
            self._drop()
        return frames

    def _check_end(self) -> None:
        left = self._buffer[self._at :] + self._pending
        if self.error is None and self._transitions and (self._left is not None or left.strip(b"\r\n")):
            self.error = StompError("incomplete frame", "The connection ended in the middle of a frame.")
            self._drop()

    def _drop(self) -> None:
        """Clear the buffer."""
        self._buffer = b""
        self._at = 0
        self._pending.clear()

    def _wait(self, wanted: int, marks: bytes) -> None:
        """Do not parse again before `wanted` more bytes or one of `marks` have arrived."""
        self._wanted = wanted
        self._marks = marks

    def _parse(self, frames: list[Frame]) -> None:
        """Append the complete frames in the buffer.  Raises StompError."""
        buffer, at, leads = self._buffer, self._at, self.leads
        end = len(buffer)
        read_head, whole_bytes_max, first_of_run = self._read_head, self._whole_bytes_max, self._first_of_run
        if at and leads.known:  # it goes on where it ended
            at = leads.read(frames, buffer, at, self._reader.plain_bytes_max, FRAMES_MAX)
        while True:
            if at < end and buffer[at] <= _CR:
                first = _NOT_EOL(buffer, at)
                at = end if first is None else first.start()
            self._at = at
            if at == end or len(frames) >= FRAMES_MAX:
                self._ready = at < end
                return
            if buffer[at] == first_of_run:
                run = _ACK_RUN(buffer, at)
                if run is not None:
                    frames.append(_acks(run[0]))
                    at = run.end()
                    continue
            # Search only as far as the frame can reach: heads with CRs end differently, and many may be buffered.
            stop = buffer.find(b"\0", at)
            head_end = buffer.find(b"\n\n", at, stop)
            body_at = head_end + 2
            head = buffer[at:head_end] if head_end >= 0 else b"\r"
            if _CR in head:
                found = _HEAD_END(buffer, at)
                if found is None or 0 <= stop < found.start():
                    self._await_head(at, stop)
                    return
                head_end, body_at = found.span()
                self._check_head(head_end - at)
                head = buffer[at:head_end].replace(b"\r\n", b"\n").removesuffix(b"\r")
            command, headers, lines = read_head(head)
            if b"content-length" in headers:
                stop = body_at + self._content_length(command, headers)
                if stop >= end:
                    if stop - body_at <= whole_bytes_max:
                        return self._await_body(at, stop + 1 - end)
                    return self._begin_parts(frames, headers, lines, body_at)
                if buffer[stop]:
                    raise _no_nul(command, stop - body_at, headers)
            elif stop < 0:
                left = min(self._check_body(command, end - body_at, headers), whole_bytes_max) - (end - body_at)
                if left >= 0:
                    return self._await_body(at, left + 1, b"\0")
                return self._begin_parts(frames, headers, lines, body_at)
            if command == "SEND":
                if stop - body_at > whole_bytes_max:
                    self._check_body(command, stop - body_at, headers)
                    return self._begin_parts(frames, headers, lines, body_at)
                frames.append(Frame(command, headers, buffer[body_at:stop], lines))
                at = stop + 1
                if leads.known:
                    at = leads.read(frames, buffer, at, self._reader.plain_bytes_max, FRAMES_MAX)
                continue
            if stop > body_at:
                self._check_body(command, stop - body_at, headers)
                if command not in self._bodies and _NOT_EOL(buffer, body_at, stop):
                    raise _no_body(command, headers)
            state = self._transitions[command]
            if state is not self._state:
                self._change(state, at, stop + 1)
                frames.append(Frame(command, headers))
                return
            frames.append(Frame(command, headers))
            at = stop + 1

    def _begin_parts(self, frames: list[Frame], headers: Headers, lines: bytes | None, at: int) -> None:
        """Begin to return the body at `at` in parts.  Raises StompError."""
        frames.append(Begun(headers, lines))
        self._at = at
        self._left = int(headers.get(b"content-length", -1))
        self._came = 0
        self._take_part(frames)

    def _take_part(self, frames: list[Frame]) -> None:
        """Append the part of the body that has arrived.  Raises StompError."""
        buffer, at, left = self._buffer, self._at, self._left
        assert left is not None, "a body has begun"
        end = len(buffer)
        stop = at + left if left >= 0 else buffer.find(b"\0", at)
        whole = 0 <= stop < end
        if whole and buffer[stop]:
            raise _no_nul("SEND", self._came + left, {})
        stop = stop if whole else end if left < 0 else min(stop, end)
        self._came += stop - at
        if left < 0:
            self._check_body("SEND", self._came, {})
        else:
            self._left = left - (stop - at)
        if stop > at or whole:
            frames.append(Part(buffer[at:stop], last=whole))
        self._at = stop
        if whole:
            self._at += 1
            self._left = None
            self._held = True
        else:
            self._wait(1, b"")

    def resume(self) -> None:
        """Parse what follows a body that was returned in parts."""
        assert self._held, "the last part has come"
        self._held = False
        self._ready = True

    def _change(self, state: State, at: int, next_at: int) -> None:
        """Enter another state after a frame from `at` to `next_at`."""
        if self._state is State.CONNECTING and next_at - at > self._limits.connect_bytes_max:
            raise first_too_large(self._limits.connect_bytes_max)
        self._at = next_at
        self._enter(state)

    # -- limits ----------------------------------------------------------------------------------------------------

    def _await_head(self, at: int, nul: int) -> None:
        """Wait for the rest of the head at `at`.  Raises StompError if it contains a NUL or is too large."""
        buffer = self._buffer
        kept = len(buffer) - at
        if nul >= 0:
            raise _nul_in_head(buffer[at:nul])
        line_end = buffer.find(b"\n", at) if self._state is State.CONNECTING else -1
        if line_end >= 0 and (line := buffer[at:line_end].removesuffix(b"\r")) not in COMMANDS:
            self._read_head(line)  # another protocol, in which an empty line may never come: it raises
        most = self._limits.header_bytes_max + 2  # the LF of the last line and the CR of the empty one
        if kept > most:
            self._check_head(kept - 2)
        count = self._limits.header_count_max
        if buffer.count(b"\n", at) > count + 1:
            raise StompError("too many headers", f"A frame may have {count} headers, this one has more.")
        self._await_body(at, most - kept + 1, b"\n\0")

    def _await_body(self, at: int, wanted: int, marks: bytes = b"") -> None:
        """Wait for the rest of the frame at `at`.  Raises StompError if it is the first and too large."""
        if self._state is State.CONNECTING:
            left = self._limits.connect_bytes_max - (len(self._buffer) - at)
            if left <= 0:
                raise first_too_large(self._limits.connect_bytes_max)
            wanted = min(wanted, left)
        self._wait(wanted, marks)

    def _check_head(self, nbytes: int) -> None:
        if nbytes > self._limits.header_bytes_max:
            raise headers_too_large(self._limits)

    def _check_body(self, command: str, nbytes: int, headers: Headers) -> int:
        """Return how many bytes the body of a frame may have.  Raises StompError if it has more."""
        allowed = command in self._bodies
        most = (
            self._limits.body_bytes_max if command == "SEND" else self._whole_bytes_max if allowed else _LINE_ENDS_MAX
        )
        if nbytes > most:
            if not allowed:
                raise _no_body(command, headers)
            detail = f"{command}: a body may have {most} bytes, this one has more"
            raise StompError("body too large", detail, headers.get(b"receipt"))
        return most

    def _content_length(self, command: str, headers: Headers) -> int:
        value = headers[b"content-length"]
        if not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
            detail = f"{command}: content-length must be a number of bytes, of at most {_LENGTH_DIGITS_MAX} digits"
            raise StompError("invalid content-length", detail, headers.get(b"receipt"))
        length = int(value)
        self._check_body(command, length, headers)
        return length

    # -- sending ---------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the output since the last call; there is more while `output` is streaming."""
        return self.output.read()

    def abandon(self) -> None:
        """Drop all pending output, even in the middle of a body."""
        self.output.clear()
        self.close_expected = True
        self._enter(State.DISCONNECTED)
        self._drop()

    def discard(self) -> None:
        """Drop all pending output.  An ERROR may follow, unless a body was being sent."""
        if self.output.streaming:
            self.abandon()
        else:
            self.output.clear()

    def send_connected(self, version: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Accept the connection, with `version` from now on.  The headers of CONNECTED are not escaped."""
        assert self._state is State.ANSWERING
        self.version = version
        self._enter(State.CONNECTED)
        self._ready = True  # what followed CONNECT can be read now
        plain = [(name, escape(value, "1.0")) for name, value in headers]
        self.output.parts.append(encode(b"CONNECTED", [(b"version", version.encode()), *plain]))

    def send_receipt(self, receipt_id: bytes) -> None:
        """Confirm a frame with this receipt header."""
        self.output.parts.append(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % escape(receipt_id, self.version))

    def send_error(self, error: StompError) -> None:
        """Send an ERROR, the last frame: nothing more is read, and only the first of several errors is sent."""
        if self.close_expected:
            return
        body = error.detail.encode() + b"\n"
        headers = [(b"message", escape(error.message.encode(), self.version))]
        if self._state in (State.CONNECTING, State.ANSWERING):
            headers.append((b"version", b",".join(version.encode() for version in reversed(VERSIONS))))
        if error.receipt is not None:
            headers.append((b"receipt-id", escape(error.receipt, self.version)))
        if error.redirect:
            headers.append((b"redirect", escape(error.redirect.encode(), self.version)))
        headers += [(b"content-type", b"text/plain;charset=utf-8"), (b"content-length", b"%d" % len(body))]
        self.output.parts.append(encode(b"ERROR", headers, body))
        self.close_expected = True
        self._enter(State.DISCONNECTED)
        self._drop()

    def send_heartbeat(self) -> None:
        """Send an empty line."""
        self.output.parts.append(HEARTBEAT)


def negotiate(accept_version: bytes | None) -> str:
    """Return the highest version that both sides support; a client that names none speaks 1.0.  Raises StompError."""
    if accept_version is None:
        return "1.0"
    offered = {version.strip() for version in accept_version.split(b",")}
    for version in VERSIONS:
        if version.encode() in offered:
            return version
    known = ", ".join(reversed(VERSIONS))
    raise StompError("unsupported version", f"CONNECT: the client supports none of the versions {known}")


def parse_heartbeat(value: bytes) -> tuple[int, int]:
    """Return the intervals that the client can send and wants, in ms (STOMP 1.2, heart-beating).  Raises StompError."""
    parts = [part.strip() for part in value.split(b",")]
    if len(parts) != 2 or not all(part.isdigit() and len(part) <= _MS_DIGITS_MAX for part in parts):
        raise StompError("invalid heart-beat", "CONNECT: heart-beat must be two numbers of ms, such as 10000,10000")
    return int(parts[0]), int(parts[1])


def _no_body(command: str, headers: Headers) -> StompError:
    return StompError("unexpected body", f"{command}: only SEND has a body", headers.get(b"receipt"))


def _acks(run: bytes) -> Acks:
    """Parse a match of `_ACK_RUN`."""
    run = run.replace(b"\0\n", b"\0")
    numbers = run[len(_ACK_LEAD) : -3].replace(_BETWEEN_ACKS, b",").split(b",")
    return Acks(numbers[::2], list(map(int, numbers[1::2])))


def _nul_in_head(head: bytes) -> StompError:
    line = head.count(b"\n") + 1
    return StompError("invalid header", f"NUL in line {line} of the frame, before the empty line that ends the headers")


def _no_nul(command: str, length: int, headers: Headers) -> StompError:
    detail = f"{command}: content-length says {length} bytes, but no NUL follows them"
    return StompError("invalid content-length", detail, headers.get(b"receipt"))
