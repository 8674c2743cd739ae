"""Parses heads: the command and the headers of a frame, by the rules of one version in one state.

There are two ways.  The fast one splits lines and is right for plain heads: ASCII, no escapes, no CR, one colon a line,
no repeated names, and so short that no limit can be exceeded.  Everything else is parsed line by line.  Colons and CRs
within a value are accepted although 1.2 forbids them, because clients send them.

Errors name a line by its number and never quote it: it may hold a password, or the rest of one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from protocols.stomp.errors import FirstTooLarge, StompError, format_value
from protocols.stomp.headers import unescape
from protocols.stomp.limits import Limits
from protocols.stomp.state import COMMANDS, REQUIRED, TRANSITIONS, UNSUBSCRIBE_NAMES, State

_LF: Final = 10
_CR: Final = 13
_COLON: Final = 58
_BACKSLASH: Final = 92  # as a number: `b"x" in data` first tries to convert to one, which costs more than the search

#: The content-length of short bodies, as nearly all clients write it.
_LENGTHS_MAX: Final = 4096
_LENGTHS: Final = [b"%d" % nbytes for nbytes in range(_LENGTHS_MAX)]

#: The longest head of an ACK with only an id assigned by the broker: two numbers of at most 20 digits and a comma.
ACK_HEAD_BYTES_MAX: Final = len(b"ACK\nid:") + 20 + 1 + 20

#: What else is named in an error if a frame begins with it: the frames of a server, and what clients of HTTP send.
_WORDS: Final = frozenset(b"CONNECTED MESSAGE RECEIPT ERROR GET HEAD POST PUT DELETE OPTIONS PATCH PRI".split())

Headers = dict[bytes, bytes]


class HeadReader:
    """Reads the heads that `version` allows in `state`."""

    __slots__ = (
        "_commands",
        "_limits",
        "_names",
        "_required",
        "_state",
        "_version",
        "acks_in_runs",
        "plain_bytes_max",
    )

    def __init__(self, limits: Limits, version: str, state: State) -> None:
        self._limits = limits
        self._version = version
        self._state = state
        self._required = REQUIRED[version]
        self._names = UNSUBSCRIBE_NAMES[version]
        allowed = TRANSITIONS[state].keys() & REQUIRED[version].keys()
        self._commands = {name: command for name, command in COMMANDS.items() if command in allowed}
        smallest = min(limits.header_line_bytes_max, limits.header_bytes_max, 3 * limits.header_count_max)
        #: Heads up to this length cannot exceed any limit, as a header line with a name takes at least three bytes with
        #: its LF.  -1 in 1.0 and before the version is known: 1.0 trims spaces, which the fast way does not.
        self.plain_bytes_max = -1 if version == "1.0" else smallest
        #: Whether ACKs with only an id assigned by the broker can be read in runs.
        self.acks_in_runs = version == "1.2" and "ACK" in allowed and smallest >= ACK_HEAD_BYTES_MAX

    def read_first(self, head: bytes) -> tuple[str, Headers, bytes | None]:
        """`read` for the first frame, which has a limit on its length.  Raises StompError."""
        if len(head) > self._limits.connect_bytes_max:
            raise first_too_large(self._limits.connect_bytes_max)
        return self.read(head)

    def read(self, head: bytes) -> tuple[str, Headers, bytes | None]:
        """Parse a head, given without its empty line and without NULs, with LF line ends.  Raises StompError.

        Returns the command, the headers and the forwardable lines (see `Frame`).
        """
        lines = head.split(b"\n")
        name = lines[0]
        command = self._commands.get(name)
        if command is None:
            raise self._unexpected(lines)
        del lines[0]
        forwardable: bytes | None = head[len(name) + 1 :] + b"\n"
        headers: Headers = {}
        try:
            for line in lines:
                name, value = line.split(b":")
                headers[name] = value
        except ValueError:
            headers.clear()  # no colon or several: parse line by line
        if (
            len(headers) != len(lines)
            or len(head) > self.plain_bytes_max
            or _BACKSLASH in head
            or not head.isascii()
            or _CR in head
            or b"" in headers
        ):
            headers = self._read_lines(command, head, lines)
            if not self._forwardable(head, lines, headers):
                forwardable = None
        for required in self._required[command]:
            if required not in headers:
                raise _missing(command, required, headers)
        if command == "UNSUBSCRIBE" and not any(name in headers for name in self._names):
            raise _missing(command, b"id", headers)
        return command, headers, forwardable

    def _read_lines(self, command: str, head: bytes, lines: list[bytes]) -> Headers:
        """Parse line by line: limits, UTF-8, the padding of 1.0, escapes, repeated names."""
        limits = self._limits
        if len(head) > limits.header_bytes_max:
            raise headers_too_large(limits)
        if len(lines) > limits.header_count_max:
            detail = f"{command}: a frame may have {limits.header_count_max} headers, this one has {len(lines)}"
            raise self._refused("too many headers", detail, lines)
        try:
            head.decode()
        except UnicodeDecodeError as error:
            number = head.count(b"\n", 0, error.start)
            raise self._refused("invalid header", f"{command}: header line {number} is not UTF-8", lines) from None
        trimming = self._trims(lines)
        headers: Headers = {}
        for number, line in enumerate(lines, 1):
            if len(line) > limits.header_line_bytes_max:
                most = f"a header line may have {limits.header_line_bytes_max} bytes"
                raise self._refused("header too large", f"{command}: {most}, line {number} has {len(line)}", lines)
            name, colon, value = line.partition(b":")
            if trimming:
                name, value = name.strip(b" \t"), value.strip(b" \t")
            if _BACKSLASH in line:
                where = f"{command}: header line {number}"
                name, value = self._unescape(where, name, lines), self._unescape(where, value, lines)
            if not name or not colon:
                detail = f"{command}: header line {number} is not NAME:VALUE"
                raise self._refused("invalid header", detail, lines)
            headers.setdefault(name, value)
        return headers

    def _forwardable(self, head: bytes, lines: list[bytes], headers: Headers) -> bool:
        """Whether the lines are exactly the headers as STOMP 1.2 writes them.

        The escapes of 1.1 mean the same in 1.2.  If they are valid and none is missing, there is only one way to write
        each header.
        """
        escaped = self._version != "1.0" and _CR not in head and head.count(b":") == len(lines)
        return escaped and len(headers) == len(lines)

    def _trims(self, lines: list[bytes]) -> bool:
        """Whether to trim: 1.0 shows `login: <username>`, later versions forbid trimming; CONNECT tells the version."""
        if self._version != "1.0":
            return False
        return self._state is not State.CONNECTING or not any(line.startswith(b"accept-version:") for line in lines)

    def _unescape(self, where: str, value: bytes, lines: list[bytes]) -> bytes:
        try:
            return unescape(value, self._version)
        except StompError as error:
            raise self._refused(error.message, f"{where}: {error.detail}", lines) from None

    def _unexpected(self, lines: list[bytes]) -> StompError:
        name = lines[0]
        what = _named(name)
        if name not in COMMANDS:
            return self._refused("unknown command", f"{what} is not a command of STOMP", lines)
        if self._state is State.CONNECTING:
            return self._refused("not connected", f"{what}: the first frame must be CONNECT or STOMP", lines)
        if COMMANDS[name] not in self._required:
            return self._refused("unknown command", f"{what} is not a command of STOMP {self._version}", lines)
        return self._refused("already connected", f"{what} comes once, as the first frame", lines)

    def _refused(self, message: str, detail: str, lines: list[bytes]) -> StompError:
        """An error about a head that was not parsed to its end; its receipt is searched for."""
        receipt = next((line[8:] for line in lines if line.startswith(b"receipt:")), None)
        if receipt is not None:
            try:
                receipt = unescape(receipt, self._version)
                receipt.decode()
            except (StompError, UnicodeDecodeError):
                receipt = None
        return StompError(message, detail, receipt)


def _named(line: bytes) -> str:
    """A line in a command's place, as an error names it: any other text may be a password that lost its place."""
    if line.strip().upper() in COMMANDS:
        return format_value(line)
    word = line.split(b" ", 1)[0]
    return format_value(word) if word in _WORDS else f"a first line of {len(line)} bytes"


def is_plain(lines: bytes, body: bytes, excluded: frozenset[bytes]) -> bool:
    """Whether header lines, each ended by LF, have one colon each, no name twice, and none of the `excluded` names.

    A content-length among them must be that of the body.
    """
    flat = lines.replace(b":", b"\n").split(b"\n")
    names: set[bytes] = set()
    at = 0
    for place in range(0, len(flat) - 1, 2):
        name, value = flat[place], flat[place + 1]
        colon = at + len(name)
        at = colon + 1 + len(value)
        if not name or lines[colon] != _COLON or lines[at] != _LF:
            return False
        if name == b"content-length" and (len(body) >= _LENGTHS_MAX or value != _LENGTHS[len(body)]):
            return False  # a NUL within the body, or the number is written differently
        names.add(name)
        at += 1
    return 2 * len(names) == len(flat) - 1 and excluded.isdisjoint(names)


@lru_cache(maxsize=64)  # every version and state, for a few limits
def head_reader(limits: Limits, version: str, state: State) -> HeadReader:
    """A reader without state of a connection: all connections share it, so an unknown client costs no memory for it."""
    return HeadReader(limits, version, state)


def first_too_large(most: int) -> StompError:
    """The error for a first frame, complete or not, above its limit."""
    return FirstTooLarge("frame too large", f"The first frame may have {most} bytes, this one has more.")


def headers_too_large(limits: Limits) -> StompError:
    """The error for a head, complete or not, above its limit."""
    most = limits.header_bytes_max
    return StompError("headers too large", f"The headers of a frame may have {most} bytes, these have more.")


def _missing(command: str, name: bytes, headers: Headers) -> StompError:
    detail = f"{command}: the header {name.decode()} is missing"
    return StompError("missing header", detail, headers.get(b"receipt"))
