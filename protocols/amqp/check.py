"""Checks that the body of a message can be decoded, without decoding it: for forwarding.

It walks over constructors, sizes and counts, and makes no values.  Texts are checked, as they must be UTF-8 or ASCII;
the types of fields and duplicate keys of maps are not.  The usual body, one data section or one short value, takes a
comparison or two.

Values and sections are counted: the check ends (TooMany) with more than decoding allows, so that neither takes more
than a few milliseconds.
"""

from __future__ import annotations

from typing import Final

from protocols.amqp.decode import DEFAULT_LIMITS
from protocols.amqp.errors import DecodeError, TooMany
from protocols.amqp.message import AMQP_SEQUENCE, AMQP_VALUE, DATA, FOOTER, Message
from protocols.amqp.types import COMPOUND, FIXED, VARIABLE

# The kinds of format codes whose data have no fixed width.
_SIZED_8, _SIZED_32, _COMPOUND_8, _COMPOUND_32, _ARRAY_8, _ARRAY_32, _DESCRIBED, _UNKNOWN = range(-1, -9, -1)

_KINDS: Final = {1: (_SIZED_8, _COMPOUND_8, _ARRAY_8), 4: (_SIZED_32, _COMPOUND_32, _ARRAY_32)}


def _table() -> list[int]:
    table = [_UNKNOWN] * 256
    table[0] = _DESCRIBED
    for code, (_, width) in FIXED.items():
        table[code] = width
    for code, (_, width) in VARIABLE.items():
        table[code] = _KINDS[width][0]
    for code, (name, width) in COMPOUND.items():
        table[code] = _KINDS[width][2 if name == "array" else 1]
    return table


#: By format code: bytes of data, or one of the kinds above.
_TABLE: Final = _table()

_TEXTS: Final = {0xA1: "utf-8", 0xB1: "utf-8", 0xA3: "ascii", 0xB3: "ascii"}
_MAPS: Final = frozenset({0xC1, 0xD1})
_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_LONG_DATA: Final = b"\x00\x53\x75\xb0"
_SHORT_TEXT: Final = b"\x00\x53\x77\xa1"
_LONG_TEXT: Final = b"\x00\x53\x77\xb1"
#: The allowed format codes of a body's section; any for a section not listed.
_BODY_CODES: Final = {DATA: b"\xa0\xb0", AMQP_SEQUENCE: b"\x45\xc0\xd0", FOOTER: b"\xc1\xd1"}


def check_body(body: bytes) -> None:
    """Check that these are the sections of a body and perhaps a footer, or nothing.  Raises DecodeError, TooMany."""
    end = len(body)
    lead = body[:4]
    if end > 4:
        if lead == _SHORT_DATA and body[4] + 5 == end:
            return
        if lead == _SHORT_TEXT and body[4] + 5 == end:
            _check_text(body, 5, end, "utf-8")
            return
    if end > 7:
        if lead == _LONG_DATA and int.from_bytes(body[4:8]) + 8 == end:
            return
        if lead == _LONG_TEXT and int.from_bytes(body[4:8]) + 8 == end:
            _check_text(body, 8, end, "utf-8")
            return
    _check_sections(body, end)


def _check_sections(body: bytes, end: int) -> None:
    message, walk = Message(body), _Walk(body)
    at = kind = sections = 0
    while at < end:
        sections += 1
        if sections > DEFAULT_LIMITS.sections_max:
            raise TooMany(at, f"a body has at most {DEFAULT_LIMITS.sections_max} sections")
        code, value_at = message.section_at(at)
        if code < DATA or kind == FOOTER or (kind and code not in (kind, FOOTER)) or kind == code == AMQP_VALUE:
            raise DecodeError(at, "a section that does not belong there")
        allowed = _BODY_CODES.get(code)
        if allowed is not None and value_at < end and body[value_at] not in allowed:
            raise DecodeError(value_at, "a section with a value of another type than it has")
        walk.count(1, value_at)
        at = walk.value(value_at, end, DEFAULT_LIMITS.depth_max)
        kind = code


def walk(buffer: bytes, at: int, end: int) -> int:
    """The end of the value at `at`, which must not be beyond `end`.  Raises DecodeError."""
    walking = _Walk(buffer)
    walking.count(1, at)
    return walking.value(at, end, DEFAULT_LIMITS.depth_max)


class _Walk:
    """Walks over values, and counts them as decoding does.  Its methods raise DecodeError."""

    __slots__ = ("_buffer", "_left")

    def __init__(self, buffer: bytes) -> None:
        self._buffer = buffer
        self._left = DEFAULT_LIMITS.values_max

    def count(self, values: int, at: int) -> None:
        """Count values, before walking over them."""
        self._left -= values
        if self._left < 0:
            raise TooMany(at, f"a body has at most {DEFAULT_LIMITS.values_max} values")

    def value(self, at: int, end: int, depth: int) -> int:
        """The end of the value at `at`, which is counted."""
        buffer = self._buffer
        if at >= end:
            raise DecodeError(at, "the end, where a value should begin")
        code = buffer[at]
        at += 1
        width = _TABLE[code]
        if width >= 0:
            if code == 0x56 or code == 0x73:
                _check_narrow(buffer, at, end, code)
            return _within(at, at + width, end)
        if width == _DESCRIBED:
            if not depth:
                raise DecodeError(at, "values are nested too deeply")
            self.count(2, at)
            return self.value(self.value(at, end, depth - 1), end, depth - 1)
        return self._sized(code, at, end, depth)

    def _sized(self, code: int, at: int, end: int, depth: int) -> int:
        buffer, width = self._buffer, _TABLE[code]
        if width == _UNKNOWN:
            raise DecodeError(at - 1, f"0x{code:02X} is no format code")
        size_bytes = 1 if width in (_SIZED_8, _COMPOUND_8, _ARRAY_8) else 4
        start = _within(at, at + size_bytes, end)
        stop = _within(start, start + int.from_bytes(buffer[at:start]), end)
        if width >= _SIZED_32:
            encoding = _TEXTS.get(code)
            if encoding is not None:
                _check_text(buffer, start, stop, encoding)
            return stop
        if not depth:
            raise DecodeError(at, "values are nested too deeply")
        inner = _within(start, start + size_bytes, stop)
        count = int.from_bytes(buffer[start:inner])
        if width in (_ARRAY_8, _ARRAY_32):
            inner = self._array(inner, stop, count, depth - 1)
        else:
            if count > stop - inner:
                raise DecodeError(start, f"{count} values cannot be in {stop - inner} bytes")
            if count % 2 and code in _MAPS:
                raise DecodeError(start, f"a map of {count} values has a key without a value")
            self.count(count, start)
            for _ in range(count):
                inner = self.value(inner, stop, depth - 1)
        if inner != stop:
            raise DecodeError(inner, f"{stop - inner} bytes behind the last value")
        return stop

    def _array(self, at: int, end: int, count: int, depth: int) -> int:
        """The end of an array's elements, which share one constructor before the first of them."""
        buffer = self._buffer
        while True:
            if at >= end:
                raise DecodeError(at, "the end, where the constructor of an array should begin")
            code = buffer[at]
            at += 1
            if code:
                break
            self.count(1, at)
            at = self.value(at, end, depth)
        width = _TABLE[code]
        if width == _UNKNOWN:  # even if no element follows
            raise DecodeError(at - 1, f"0x{code:02X} is no format code")
        if width and count > end - at:
            raise DecodeError(at, f"{count} values cannot be in {end - at} bytes")
        self.count(count, at)
        if width >= 0 and code not in (0x56, 0x73):
            return _within(at, at + count * width, end)
        for _ in range(count):
            if width >= 0:
                _check_narrow(buffer, at, end, code)
                at = _within(at, at + width, end)
            else:
                at = self._sized(code, at, end, depth)
        return at


def _within(at: int, stop: int, end: int) -> int:
    if stop > end:
        raise DecodeError(at, f"{stop - at} bytes are needed, {end - at} are there")
    return stop


def _check_text(buffer: bytes, at: int, end: int, encoding: str) -> None:
    try:
        str(buffer[at:end], encoding)
    except UnicodeDecodeError as error:
        raise DecodeError(at + error.start, f"a text that is not {encoding.upper()}") from None


def _check_narrow(buffer: bytes, at: int, end: int, code: int) -> None:
    """Check a boolean or a char, which have fewer values than their bytes allow."""
    if code == 0x56:
        if at < end and buffer[at] > 1:
            raise DecodeError(at, f"a boolean is 0 or 1, not {buffer[at]}")
        return
    number = int.from_bytes(buffer[at : at + 4])
    if at + 4 <= end and (number > 0x10FFFF or 0xD800 <= number < 0xE000):
        raise DecodeError(at, f"0x{number:X} is no Unicode character")
