"""Where the sections of a message are, in a few steps a message: for those who forward it.

`message` finds the same with all care and for every encoding.  Here only the encodings are known that encoders choose
(small descriptors; list0, list8, list32, map8, map32), and nothing is looked at but the sizes.
"""

from __future__ import annotations

from typing import Final

from protocols.amqp.errors import DecodeError
from protocols.amqp.message import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Message,
)

_SMALL_ULONG: Final = 0x53
_LIST_0: Final = 0x45
_SMALL: Final = frozenset({0xC0, 0xC1})
_LARGE: Final = frozenset({0xD0, 0xD1})

#: Bytes of a value behind its format code, of those that have a fixed size.
_FIXED: Final = (
    dict.fromkeys(range(0x40, 0x46), 0)
    | dict.fromkeys(range(0x50, 0x57), 1)
    | {0x60: 2, 0x61: 2}
    | dict.fromkeys(range(0x70, 0x75), 4)
    | dict.fromkeys(range(0x80, 0x85), 8)
    | {0x94: 16, 0x98: 16}
)
_SIZED_8: Final = frozenset({0xA0, 0xA1, 0xA3})
_SIZED_32: Final = frozenset({0xB0, 0xB1, 0xB3})
_NULL: Final = 0x40

#: Number of a property in its list.
ABSOLUTE_EXPIRY: Final = 8


class Sections:
    """Offsets in a payload; an empty section begins where the next one does.

    header from 0 to `header_end`, message annotations from `annotations_at` to `annotations_end`, the bare message from
    `bare_at`, its body from `body_at`.  `properties_at` is where the value of the properties begins, 0 without them.
    """

    __slots__ = ("annotations_at", "annotations_end", "bare_at", "body_at", "header_end", "properties_at")

    def __init__(self) -> None:
        self.header_end = 0
        self.annotations_at = 0
        self.annotations_end = 0
        self.properties_at = 0
        self.bare_at = 0
        self.body_at = 0


def split(payload: bytes) -> Sections:
    """The sections of a message.  Raises DecodeError."""
    found = Sections()
    end = len(payload)
    at = previous = 0
    bare = -1
    while at + 3 < end:
        code = payload[at + 2]
        if payload[at] or payload[at + 1] != _SMALL_ULONG or not previous < code <= FOOTER or code < HEADER:
            return _split_with_care(payload)
        if code >= DATA:
            break
        form = payload[at + 3]
        if form in _SMALL and at + 4 < end:
            stop = at + 5 + payload[at + 4]
        elif form in _LARGE and at + 7 < end:
            stop = at + 8 + int.from_bytes(payload[at + 4 : at + 8])
        elif form == _LIST_0:
            stop = at + 4
        else:
            return _split_with_care(payload)
        if code == HEADER:
            found.header_end = stop
        elif code == MESSAGE_ANNOTATIONS:
            found.annotations_at, found.annotations_end = at, stop
        elif code == PROPERTIES:
            found.properties_at = at + 3
            bare = at
        elif code == APPLICATION_PROPERTIES and bare < 0:
            bare = at
        previous = code
        at = stop
    if at + 3 >= end:  # no body: whether that is allowed, and whether all sizes are right
        return _split_with_care(payload)
    found.body_at = at
    found.bare_at = at if bare < 0 else bare
    return found


def _split_with_care(payload: bytes) -> Sections:
    """The same for any encoding."""
    message = Message(payload)
    found = Sections()
    found.body_at = message.body_at
    found.bare_at = message.bare_at
    found.header_end = len(message.section(HEADER))
    annotations = message.section(MESSAGE_ANNOTATIONS)
    found.annotations_at = found.header_end + len(message.section(DELIVERY_ANNOTATIONS))
    found.annotations_end = found.annotations_at + len(annotations)
    if message.section(PROPERTIES):
        if payload[found.bare_at + 1] != _SMALL_ULONG:
            raise DecodeError(found.bare_at, "properties have the descriptor smallulong 115")
        found.properties_at = found.bare_at + 3
    return found


def has_property(payload: bytes, at: int, number: int) -> bool:
    """Whether the properties whose value begins at `at` have the one with this number; True if it is hard to tell."""
    form = payload[at]
    if form == _LIST_0:
        return False
    if form == 0xC0:
        count, at = payload[at + 2], at + 3
    elif form == 0xD0:
        count, at = int.from_bytes(payload[at + 5 : at + 9]), at + 9
    else:
        return True
    if count <= number:
        return False
    end = len(payload)
    for _ in range(number):
        if at >= end:
            return True
        form = payload[at]
        size = _FIXED.get(form)
        if size is not None:
            at += 1 + size
        elif form in _SIZED_8 and at + 1 < end:
            at += 2 + payload[at + 1]
        elif form in _SIZED_32:
            at += 5 + int.from_bytes(payload[at + 1 : at + 5])
        else:
            return True
    return at >= end or payload[at] != _NULL
