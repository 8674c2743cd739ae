"""Heads: the command and the headers of a frame, by the rules of one version in one state.

There are two ways.  The short one splits lines and is right for heads in which nothing is special: ASCII, no escapes,
no CR, one colon a line, no repeated names, and so short that no limit can be exceeded.  Everything else goes the long
way, line by line.  What the field sends is taken even where 1.2 forbids it: colons and CRs within a value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from protocols.stomp.errors import FirstTooLarge, StompError, shown
from protocols.stomp.headers import unescape
from protocols.stomp.limits import Limits
from protocols.stomp.state import COMMANDS, REQUIRED, TRANSITIONS, UNSUBSCRIBE_NAMES, State

_LF: Final = 10
_CR: Final = 13
_COLON: Final = 58
_BACKSLASH: Final = 92  # as a number: `b"x" in data` first fails to be one, which costs more than the search

#: The content-length of short bodies, as nearly everybody writes it.
_LENGTHS_MAX: Final = 4096
_LENGTHS: Final = [b"%d" % nbytes for nbytes in range(_LENGTHS_MAX)]

#: The head of an ACK with nothing but two numbers of at most 20 digits with a comma between: the ids that the broker
#: gives.
ACK_HEAD_BYTES_MAX: Final = len(b"ACK\nid:") + 20 + 1 + 20

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
        #: Heads that are not longer cannot exceed any limit: a header line with a name takes at least three bytes with
        #: its LF.  None in 1.0, which trims, as clients do that have not said what they speak: the short way does not.
        self.plain_bytes_max = -1 if version == "1.0" else smallest
        #: Whether ACKs with nothing but an id of the broker's need not be read one by one.
        self.acks_in_runs = version == "1.2" and "ACK" in allowed and smallest >= ACK_HEAD_BYTES_MAX

    def read_first(self, head: bytes) -> tuple[str, Headers, bytes | None]:
        """`read` of the first frame, whose length alone may be too much.  Raises StompError."""
        if len(head) > self._limits.connect_bytes_max:
            raise first_too_large(self._limits)
        return self.read(head)

    def read(self, head: bytes) -> tuple[str, Headers, bytes | None]:
        """Command, headers and forwardable lines (see `Frame`) of a head: without its empty line, without NULs, the
        ends of its lines made LF.  Raises StompError.
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
            headers.clear()  # no colon or several: the long way
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
        """The long way: limits, UTF-8, the padding of 1.0, escapes, repeated names."""
        limits = self._limits
        if len(head) > limits.header_bytes_max:
            raise headers_too_large(limits)
        if len(lines) > limits.header_count_max:
            detail = f"{command}: a frame may have {limits.header_count_max} headers, this one has {len(lines)}"
            raise self._refused("too many headers", detail, lines)
        try:
            head.decode()
        except UnicodeDecodeError as error:
            line = head[: error.start].rpartition(b"\n")[2] + head[error.start :].partition(b"\n")[0]
            detail = f"{command}: the line {shown(line)} is not UTF-8"
            raise self._refused("invalid header", detail, lines) from None
        trimming = self._trims(lines)
        headers: Headers = {}
        for line in lines:
            if len(line) > limits.header_line_bytes_max:
                detail = f"{command}: a header line may have {limits.header_line_bytes_max} bytes, not {shown(line)}"
                raise self._refused("header too large", detail, lines)
            name, colon, value = line.partition(b":")
            if trimming:
                name, value = name.strip(b" \t"), value.strip(b" \t")
            if _BACKSLASH in line:
                name, value = self._unescape(command, name, lines), self._unescape(command, value, lines)
            if not name or not colon:
                raise self._bad_line(command, line, lines)
            headers.setdefault(name, value)
        return headers

    def _forwardable(self, head: bytes, lines: list[bytes], headers: Headers) -> bool:
        """Whether the lines say just what the headers say, in STOMP 1.2.

        The escapes of 1.1 mean the same in 1.2.  Where they were right and nothing that needs one lacks it, each line
        is the only way to write its header.
        """
        escaped = self._version != "1.0" and _CR not in head and head.count(b":") == len(lines)
        return escaped and len(headers) == len(lines)

    def _trims(self, lines: list[bytes]) -> bool:
        """1.0 shows `login: <username>`; later versions forbid to trim, and CONNECT tells which it is."""
        if self._version != "1.0":
            return False
        return self._state is not State.CONNECTING or not any(line.startswith(b"accept-version:") for line in lines)

    def _unescape(self, command: str, value: bytes, lines: list[bytes]) -> bytes:
        try:
            return unescape(value, self._version)
        except StompError as error:
            raise self._refused(error.message, f"{command}: {error.detail}: {shown(value)}", lines) from None

    # -- errors ----------------------------------------------------------------------------------------------------

    def _unexpected(self, lines: list[bytes]) -> StompError:
        name = lines[0]
        what = shown(name)
        if name not in COMMANDS:
            return self._refused("unknown command", f"{what} is not a command of STOMP", lines)
        if self._state is State.CONNECTING:
            return self._refused("not connected", f"{what}: the first frame must be CONNECT or STOMP", lines)
        if COMMANDS[name] not in self._required:
            return self._refused("unknown command", f"{what} is not a command of STOMP {self._version}", lines)
        return self._refused("already connected", f"{what} comes once, as the first frame", lines)

    def _bad_line(self, command: str, line: bytes, lines: list[bytes]) -> StompError:
        return self._refused("invalid header", f"{command}: the line {shown(line)} is not NAME:VALUE", lines)

    def _refused(self, message: str, detail: str, lines: list[bytes]) -> StompError:
        """An error about a head that was not read to its end; its receipt is looked for."""
        receipt = next((line[8:] for line in lines if line.startswith(b"receipt:")), None)
        if receipt is not None:
            try:
                receipt = unescape(receipt, self._version)
                receipt.decode()
            except (StompError, UnicodeDecodeError):
                receipt = None
        return StompError(message, detail, receipt)


def is_plain(lines: bytes, body: bytes, excluded: frozenset[bytes]) -> bool:
    """Whether header lines, each ended by LF, have one colon each, no name twice, and none of those `excluded`.

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
            return False  # a NUL within the body, or another way to write the number
        names.add(name)
        at += 1
    return 2 * len(names) == len(flat) - 1 and excluded.isdisjoint(names)


@lru_cache(maxsize=64)  # of a few limits each version and state
def head_reader(limits: Limits, version: str, state: State) -> HeadReader:
    """A reader, which knows nothing of a connection: all share it, so that none costs a stranger memory."""
    return HeadReader(limits, version, state)


def first_too_large(limits: Limits) -> StompError:
    """The error about a first frame, complete or not, above its limit."""
    return FirstTooLarge(
        "frame too large", f"The first frame may have {limits.connect_bytes_max} bytes, this one has more."
    )


def headers_too_large(limits: Limits) -> StompError:
    """The error about a head, complete or not, above its limit."""
    most = limits.header_bytes_max
    return StompError("headers too large", f"The headers of a frame may have {most} bytes, these have more.")


def _missing(command: str, name: bytes, headers: Headers) -> StompError:
    detail = f"{command}: the header {name.decode()} is missing"
    return StompError("missing header", detail, headers.get(b"receipt"))
