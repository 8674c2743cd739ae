"""The application headers of a message, from its `head`: texts by name, whatever protocol the message came by.

A STOMP head has lines of `name:value`, escaped as in STOMP 1.2.  An AMQP head has sections as they were received; only
the application properties are used: a map whose values are simple types.  Their values are converted as for STOMP's
consumers: numbers in decimal, true and false, times in ms since 1970, bytes in base64.  Null stays null; lists, maps
and decimals, which have no obvious text, also become null.

    section: 0 | descriptor (0x53 code, or other encodings of the code or its name) | value
    value:   format code, whose high half gives its size: none, 1, 2, 4, 8, 16 bytes, or a size before the content
"""

from __future__ import annotations

import base64
import re
from struct import Struct
from typing import Final
from uuid import UUID

Headers = list[tuple[str, str | None]]

_ESCAPE: Final = re.compile(r"\\[rnc\\]")
_ESCAPES: Final = {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"}

#: The descriptors of application properties: as a number of either width, and as a name.
_PROPERTIES: Final = (b"\x53\x74", b"\x80\0\0\0\0\0\0\0\x74", b"\xa3\x1famqp:application-properties:map")

_MAPS: Final = {0xC1: 1, 0xD1: 4}  # bytes of the size and of the count
_FIXED: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}  # bytes of a value, by the high half of its format code
_SIZED: Final = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
_NAMES: Final = frozenset({0xA1, 0xB1, 0xA3, 0xB3})  # strings and symbols
_CONSTANTS: Final = {0x41: "true", 0x42: "false", 0x43: "0", 0x44: "0"}
_NUMBERS: Final = {
    code: Struct(">" + form).unpack
    for code, form in {
        0x50: "B", 0x60: "H", 0x70: "I", 0x80: "Q", 0x52: "B", 0x53: "B",
        0x51: "b", 0x61: "h", 0x71: "i", 0x81: "q", 0x54: "b", 0x55: "b",
        0x72: "f", 0x82: "d", 0x83: "q",
    }.items()
}  # fmt: skip


def stomp_headers(head: bytes) -> Headers:
    """The headers of a STOMP head; if a name is repeated, the first counts."""
    found: dict[str, str | None] = {}
    for line in head.decode("utf-8", "backslashreplace").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if "\\" in line:
            name, value = _unescape(name), _unescape(value)
        found.setdefault(name, value)
    return list(found.items())


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], value)


def amqp_headers(head: bytes) -> Headers | None:
    """The application properties of an AMQP head; None if it cannot be decoded."""
    at = 0
    try:
        while at < len(head):
            if head[at]:
                return None
            described = at + 1
            at = _end(head, described)
            if head[described:at] in _PROPERTIES:
                return _entries(head, at)
            at = _end(head, at)
    except (IndexError, KeyError, ValueError):
        return None
    return [] if at == len(head) else None


def _end(head: bytes, at: int) -> int:
    """Where the value at `at` ends.  Raises IndexError, KeyError."""
    code = head[at]
    size = _FIXED.get(code >> 4)
    if size is not None:
        return at + 1 + size
    width = _SIZED[code >> 4]
    return at + 1 + width + int.from_bytes(head[at + 1 : at + 1 + width])


def _entries(head: bytes, at: int) -> Headers | None:
    """The pairs of the map at `at`.  Raises IndexError, KeyError, ValueError."""
    width = _MAPS[head[at]]
    stop = _end(head, at)
    if stop > len(head):
        return None
    content = at + 1 + width
    count = int.from_bytes(head[content : content + width])
    at = content + width
    found: dict[str, str | None] = {}
    for _ in range(count // 2):
        value_at = _end(head, at)
        end = _end(head, value_at)
        if head[at] not in _NAMES or end > stop:
            return None
        found.setdefault(str(_text(head, at, value_at)), _text(head, value_at, end))
        at = end
    return list(found.items()) if at == stop else None


def _text(head: bytes, at: int, end: int) -> str | None:
    """The value between these places as text.  Raises ValueError."""
    code = head[at]
    constant = _CONSTANTS.get(code)
    if constant is not None:
        return constant
    kind, low = code >> 4, code & 0xF
    if kind in (0xA, 0xB):
        raw = head[at + 1 + _SIZED[kind] : end]
        return base64.b64encode(raw).decode() if low == 0 else raw.decode()
    raw = head[at + 1 : end]
    number = _NUMBERS.get(code)
    if number is not None:
        return str(number(raw)[0])
    if code == 0x56:
        return "true" if raw == b"\1" else "false"
    if code == 0x73:
        return raw.decode("utf-32-be")
    if code == 0x98:
        return str(UUID(bytes=raw))
    return None
