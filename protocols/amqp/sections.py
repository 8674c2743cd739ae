"""Finds the sections of a message in a few steps, for forwarding.

`message` finds the same with every check and for every encoding.  This module knows only the encodings that encoders
choose (small descriptors; list0, list8, list32, map8, map32), and looks at nothing but the sizes.
"""

from __future__ import annotations

from typing import Final

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
from protocols.amqp.types import FIXED, VARIABLE

_SMALL_ULONG: Final = 0x53
_NULL: Final = 0x40
_LIST_0: Final = 0x45
_SMALL: Final = frozenset({0xC0, 0xC1})
_LARGE: Final = frozenset({0xD0, 0xD1})

#: By format code: bytes of data of a fixed size, and of the size before other data.
_FIXED: Final = {code: width for code, (_, width) in FIXED.items()}
_VARIABLE: Final = {code: width for code, (_, width) in VARIABLE.items()}

#: Indexes of properties in their list.
ABSOLUTE_EXPIRY: Final = 8
GROUP_ID: Final = 10


#: Offsets in a payload; an empty section begins where the next one does.
#:
#:     header end         the header begins at 0
#:     annotations begin  the message annotations; 0 without them
#:     annotations end    0 without them
#:     properties         the beginning of their value; 0 without them
#:     bare               the beginning of the bare message
#:     body               the beginning of its body
Sections = tuple[int, int, int, int, int, int]

_HEADER_0: Final = b"\x00\x53\x70\x45"
_HEADER_8: Final = b"\x00\x53\x70\xc0"
_ANNOTATIONS_8: Final = b"\x00\x53\x72\xc1"
_PROPERTIES_8: Final = b"\x00\x53\x73\xc0"
_APPLICATION_PROPERTIES_8: Final = b"\x00\x53\x74\xc1"
_APPLICATION_PROPERTIES_32: Final = b"\x00\x53\x74\xd1"
_DATA_8: Final = b"\x00\x53\x75\xa0"
_DATA_32: Final = b"\x00\x53\x75\xb0"


def plain_body(payload: bytes, at: int) -> int:
    """Where the body of a plain message begins, whose header ends at `at`; 0 if it is not plain, or hard to tell.

    A plain message has no annotations, short properties without an expiry time and a group, short application
    properties or none, and one complete data section.
    """
    try:
        if payload[at : at + 4] != _PROPERTIES_8 or payload[at + 5] > ABSOLUTE_EXPIRY:
            return 0
        at += 5 + payload[at + 4]
        lead = payload[at : at + 4]
        if lead == _APPLICATION_PROPERTIES_8:
            at += 5 + payload[at + 4]
            lead = payload[at : at + 4]
        if lead == _DATA_8:
            return at if at + 5 + payload[at + 4] == len(payload) else 0
        if lead == _DATA_32:
            return at if at + 8 + int.from_bytes(payload[at + 4 : at + 8]) == len(payload) else 0
    except IndexError:
        pass
    return 0


def split(payload: bytes) -> Sections:
    """The sections of a message.  Raises DecodeError."""
    end = len(payload)
    # The usual message first: short header, annotations or none, short properties, application properties, the body.
    at = begin = stop = 0
    lead = payload[:4]
    if lead == _HEADER_8 and end > 4:
        at = 5 + payload[4]
    elif lead == _HEADER_0:
        at = 4
    header_end = at
    lead = payload[at : at + 4]
    if lead == _ANNOTATIONS_8 and at + 4 < end:
        begin = at
        at = stop = at + 5 + payload[at + 4]
        lead = payload[at : at + 4]
    if lead == _PROPERTIES_8 and at + 4 < end:
        bare = at
        at += 5 + payload[at + 4]
        lead = payload[at : at + 4]
        if lead == _APPLICATION_PROPERTIES_8 and at + 4 < end:
            at += 5 + payload[at + 4]
        elif lead == _APPLICATION_PROPERTIES_32 and at + 7 < end:
            at += 8 + int.from_bytes(payload[at + 4 : at + 8])
        if at + 3 < end and not payload[at] and payload[at + 1] == _SMALL_ULONG and DATA <= payload[at + 2] <= FOOTER:
            return header_end, begin, stop, bare + 3, bare, at
    return _split_step_by_step(payload)


def _split_step_by_step(payload: bytes) -> Sections:
    end = len(payload)
    at = previous = header_end = annotations_at = annotations_end = properties_at = 0
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
            header_end = stop
        elif code == MESSAGE_ANNOTATIONS:
            annotations_at, annotations_end = at, stop
        elif code == PROPERTIES:
            properties_at = at + 3
            bare = at
        elif code == APPLICATION_PROPERTIES and bare < 0:
            bare = at
        previous = code
        at = stop
    if at + 3 >= end:  # no body: whether that is allowed, and whether all sizes are right
        return _split_with_care(payload)
    return header_end, annotations_at, annotations_end, properties_at, at if bare < 0 else bare, at


def _split_with_care(payload: bytes) -> Sections:
    """The same for any encoding."""
    message = Message(payload)
    bare_at, body_at = message.bare_at, message.body_at
    header_end = len(message.section(HEADER))
    annotations_at = header_end + len(message.section(DELIVERY_ANNOTATIONS))
    annotations_end = annotations_at + len(message.section(MESSAGE_ANNOTATIONS))
    return header_end, annotations_at, annotations_end, message.properties_at, bare_at, body_at


def has_property(payload: bytes, at: int, *numbers: int) -> bool:
    """Whether the properties whose value begins at `at` include one with these indexes, which must rise; True if it is
    hard to tell.
    """
    form = payload[at]
    if form == _LIST_0:
        return False
    if form == 0xC0:
        count, at = payload[at + 2], at + 3
    elif form == 0xD0:
        count, at = int.from_bytes(payload[at + 5 : at + 9]), at + 9
    else:
        return True
    if count <= numbers[0]:
        return False
    end = len(payload)
    for number in range(min(numbers[-1] + 1, count)):
        if at >= end:
            return True
        form = payload[at]
        if number in numbers and form != _NULL:
            return True
        size = _FIXED.get(form)
        if size is not None:
            at += 1 + size
            continue
        width = _VARIABLE.get(form)
        if width is None:
            return True
        at += 1 + width + int.from_bytes(payload[at + 1 : at + 1 + width])
    return at > end
