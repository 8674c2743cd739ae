"""Reads and writes the data types of packets (MQTT 5.0 section 1.5, MQTT 3.1.1 section 1.5).

A kind reads a value from `data[at:end]` and returns it with its end; no memory is allocated for a length before its
bytes have arrived.  Reading raises MqttError: Malformed Packet if the bytes end too early or are invalid for the type.
Writing raises ValueError for a value that the type cannot hold: that is the caller's fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from protocols.mqtt.codes import Role
from protocols.mqtt.errors import malformed
from protocols.mqtt.limits import Limits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """The context on which the meaning of a packet's bytes depends."""

    version: int
    sender: Role
    limits: Limits


class Kind(Generic[T]):
    """A data type."""

    __slots__ = ("name", "read", "write")

    def __init__(
        self, name: str, read: Callable[[bytes, int, int, Context], tuple[T, int]], write: Callable[[T], bytes]
    ) -> None:
        self.name = name
        self.read = read
        self.write = write


#: The largest Variable Byte Integer (1.5.5), and its bytes.
VARINT_MAX: Final = 268_435_455
VARINT_BYTES_MAX: Final = 4

#: The largest packet that the protocol knows.
PACKET_BYTES_MAX: Final = 1 + VARINT_BYTES_MAX + VARINT_MAX

#: The most bytes of a string, or of binary data (1.5.4, 1.5.6).
STRING_BYTES_MAX: Final = 65_535

#: Code points that a receiver may refuse: control characters and non-characters (1.5.4).
_NON_CHARACTERS: Final = "".join(
    chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)
)
_DISALLOWED: Final = re.compile(f"[\0-\x1f\x7f-\x9f\ufdd0-\ufdef{_NON_CHARACTERS}]")

#: Finds them in UTF-8, between two places of it.
refusable: Final = re.compile(
    rb"[\0-\x1f\x7f]|\xc2[\x80-\x9f]|\xef\xb7[\x90-\xaf]|(?:\xef|[\xf0-\xf4][\x8f\x9f\xaf\xbf])\xbf[\xbe\xbf]"
).search

#: What is sent in their place.  No usual name has it, so a changed topic is never mistaken for another one.
REPLACEMENT: Final = "\ufffd"


def read_byte(data: bytes, at: int, end: int, context: Context | None = None) -> tuple[int, int]:
    """A byte."""
    if at >= end:
        raise malformed("the packet ends before this byte")
    return data[at], at + 1


def read_two_bytes(data: bytes, at: int, end: int, context: Context | None = None) -> tuple[int, int]:
    """A Two Byte Integer (1.5.2)."""
    if end - at < 2:
        raise malformed("the packet ends within a two byte integer")
    return data[at] << 8 | data[at + 1], at + 2


def read_four_bytes(data: bytes, at: int, end: int, context: Context | None = None) -> tuple[int, int]:
    """A Four Byte Integer (1.5.3)."""
    if end - at < 4:
        raise malformed("the packet ends within a four byte integer")
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def read_varint(data: bytes, at: int, end: int, context: Context | None = None) -> tuple[int, int]:
    """A Variable Byte Integer of at most four bytes, in its shortest form [MQTT-1.5.5-1]."""
    value = 0
    for place in range(VARINT_BYTES_MAX):
        if at + place >= end:
            raise malformed("the packet ends within a variable byte integer")
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if byte == 0 and place:
                raise malformed("a variable byte integer with a needless byte", "MQTT-1.5.5-1")
            return value, at + place + 1
    raise malformed("a variable byte integer of more than four bytes", "MQTT-1.5.5-1")


def read_binary(data: bytes, at: int, end: int, context: Context | None = None) -> tuple[bytes, int]:
    """Binary Data: a length of two bytes, then that many bytes (1.5.6)."""
    length, at = read_two_bytes(data, at, end)
    stop = at + length
    if stop > end:
        raise malformed(f"a length of {length} bytes, of which the packet has {end - at}")
    return data[at:stop], stop


def check_text(raw: bytes, limits: Limits) -> str:
    """Decode valid UTF-8: well-formed, no surrogates, no U+0000 [MQTT-1.5.4-1], [MQTT-1.5.4-2].

    U+FEFF is kept [MQTT-1.5.4-3].  The errors do not quote the text, which may be a part of a password.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        where = f"from byte {error.start}"
        raise malformed(f"a text of {len(raw)} bytes that is not UTF-8 {where}", "MQTT-1.5.4-1") from None
    if "\0" in text:
        raise malformed(f"a text of {len(raw)} bytes with U+0000, which no text may have", "MQTT-1.5.4-2")
    if not limits.control_characters and (found := _DISALLOWED.search(text)):
        what = f"a text of {len(text)} characters with the control or non-character U+{ord(found[0]):04X}"
        raise malformed(f"{what}, which is refused here")
    return text


def read_text(data: bytes, at: int, end: int, context: Context) -> tuple[str, int]:
    """A UTF-8 Encoded String (1.5.4)."""
    raw, at = read_binary(data, at, end)
    return check_text(raw, context.limits), at


def read_pair(data: bytes, at: int, end: int, context: Context) -> tuple[tuple[str, str], int]:
    """A UTF-8 String Pair: a name and a value [MQTT-1.5.7-1]."""
    name, at = read_text(data, at, end, context)
    value, at = read_text(data, at, end, context)
    return (name, value), at


def _integer(nbytes: int) -> Callable[[int], bytes]:
    def write(value: int) -> bytes:
        if not 0 <= value < 1 << 8 * nbytes:
            raise ValueError(f"{value} does not fit into {nbytes} bytes")
        return value.to_bytes(nbytes, "big")

    return write


def _varint(value: int) -> bytes:
    raw = bytearray()
    while value > 0x7F:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)
    return bytes(raw)


#: Encoded Variable Byte Integers, by value: the lengths of most packets.
VARINTS: Final = tuple(_varint(value) for value in range(4096))


def write_varint(value: int) -> bytes:
    """A Variable Byte Integer in as few bytes as it takes [MQTT-1.5.5-1]."""
    if 0 <= value < len(VARINTS):
        return VARINTS[value]
    if not 0 <= value <= VARINT_MAX:
        raise ValueError(f"{value} is not in 0 to {VARINT_MAX}")
    return _varint(value)


def write_binary(value: bytes) -> bytes:
    """Binary Data."""
    if len(value) > STRING_BYTES_MAX:
        raise ValueError(f"{len(value)} bytes are more than {STRING_BYTES_MAX}")
    return len(value).to_bytes(2, "big") + value


def is_text(value: str) -> bool:
    """Whether `write_text` accepts it."""
    if "\0" in value:
        return False
    return 3 * len(value) <= STRING_BYTES_MAX or len(value.encode()) <= STRING_BYTES_MAX


def acceptable(value: str) -> str:
    """Return a text as any receiver takes it (5.4.9): code points that it may refuse are replaced.

    They are left out instead if the replacements made it too long.
    """
    if _DISALLOWED.search(value) is None:
        return value
    replaced = _DISALLOWED.sub(REPLACEMENT, value)
    return replaced if is_text(replaced) else _DISALLOWED.sub("", value)


def write_text(value: str) -> bytes:
    """A UTF-8 Encoded String.  Raises ValueError for surrogates, U+0000 and too many bytes."""
    if "\0" in value:
        raise ValueError("U+0000 in a string")
    return write_binary(value.encode())


def write_pair(value: tuple[str, str]) -> bytes:
    """A UTF-8 String Pair."""
    return write_text(value[0]) + write_text(value[1])


BYTE: Final = Kind("byte", read_byte, _integer(1))
TWO_BYTES: Final = Kind("two byte integer", read_two_bytes, _integer(2))
FOUR_BYTES: Final = Kind("four byte integer", read_four_bytes, _integer(4))
VARINT: Final = Kind("variable byte integer", read_varint, write_varint)
BINARY: Final = Kind("binary data", read_binary, write_binary)
TEXT: Final = Kind("text", read_text, write_text)
PAIR: Final = Kind("text pair", read_pair, write_pair)
