"""Reads runs of DISPOSITION frames cheaply, by the same idea as in `transfers`.

A consumer that settles its deliveries one by one sends frames that differ only in `first` and `last`, mostly with
consecutive ids.  A FrameTemplate is their common part, and a run of frames of one template becomes a few ranges of ids.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Generic, TypeVar

from protocols.amqp.encode import ENCODERS, FALSE, NULL, TRUE, encode, encode_list
from protocols.amqp.frames import LIST_AT, Unpack, begins_with, frame
from protocols.amqp.performatives import Accepted, DeliveryState, Disposition
from protocols.amqp.serial import HALF, MASK

_DESCRIPTOR: Final = b"\x00\x53\x15"
_LIST_HEAD_BYTES: Final = {0xC0: 3, 0xD0: 9}
_BOOLEAN_BYTES: Final = {0x41: 1, 0x42: 1, 0x56: 2}
_ID_FORMATS: Final = {0x52: ("B", 1), 0x70: ("I", 4)}
_NULL: Final = 0x40

_ACCEPTED: Final = encode(Accepted())
_uint: Final = ENCODERS["uint"]

#: A range of ids: the first, and how many.
Range = tuple[int, int]


Owner = TypeVar("Owner")

#: Ranges that are not adjacent, of frames that are read together: all those of a read may take long.
RANGES_MAX: Final = 64


class FrameTemplate(Generic[Owner]):
    """The common part of dispositions on one session, their `Owner`."""

    __slots__ = ("has_last", "head", "last_head", "nbytes", "role", "session", "settled", "state", "tail", "unpack")

    def __init__(
        self, session: Owner, disposition: Disposition, unpack: Unpack, parts: tuple[bytes, bytes, bytes, int]
    ) -> None:
        self.session = session
        self.role = disposition.role
        self.settled = disposition.settled
        self.state = disposition.state
        self.has_last = disposition.last is not None
        self.unpack = unpack
        self.head, self.last_head, self.tail, self.nbytes = parts


def shape_of(session: Owner, disposition: Disposition, buffer: bytes, at: int, end: int) -> FrameTemplate[Owner] | None:
    """The shape of the frame from `at` to `end`, which is this disposition; None if it has none."""
    head_bytes = _LIST_HEAD_BYTES.get(buffer[at + LIST_AT])
    if head_bytes is None or not begins_with(_DESCRIPTOR, buffer, at):
        return None
    role_at = at + LIST_AT + head_bytes
    first_code_at = role_at + _BOOLEAN_BYTES[buffer[role_at]]
    first = _ID_FORMATS.get(buffer[first_code_at])
    if first is None:
        return None
    first_format, first_bytes = first
    last_code_at = first_code_at + 1 + first_bytes
    last_format, last_bytes = "", 0
    if disposition.last is not None:
        last = _ID_FORMATS.get(buffer[last_code_at])
        if last is None:
            return None
        last_format, last_bytes = last
    last_at = min(last_code_at + 1, end)
    head, last_head = buffer[at + 4 : first_code_at + 1], buffer[last_code_at:last_at]
    tail = buffer[last_at + last_bytes : end]
    form = f">I{len(head)}s{first_format}{len(last_head)}s{last_format}{len(tail)}s"
    return FrameTemplate(session, disposition, Struct(form).unpack_from, (head, last_head, tail, end - at))


def read_run(template: FrameTemplate[Owner], buffer: bytes, at: int, ranges: list[Range]) -> int:
    """Append the ranges of ids of the frames of this shape from `at` on; returns where the first other frame begins.

    It ends after `RANGES_MAX` ranges, too.

    Adjacent ranges are merged, as long as the result is shorter than half of all ids.
    """
    unpack = template.unpack
    head, last_head, tail, nbytes, has_last = (
        template.head,
        template.last_head,
        template.tail,
        template.nbytes,
        template.has_last,
    )
    final = len(buffer) - nbytes
    start = following = -1
    size: int
    first: int
    last: int
    its_head: bytes
    its_last_head: bytes
    its_tail: bytes
    while at <= final:
        if has_last:
            size, its_head, first, its_last_head, last, its_tail = unpack(buffer, at)
        else:
            size, its_head, first, its_last_head, its_tail = unpack(buffer, at)
            last = first
        if size != nbytes or its_head != head or its_tail != tail or its_last_head != last_head:
            break
        if (last - first) & MASK >= HALF:
            break
        if first != following or (last - start) & MASK >= HALF:
            if start >= 0:
                ranges.append((start, (following - start) & MASK))
                if len(ranges) >= RANGES_MAX:
                    return at
            start = first
        following = (last + 1) & MASK
        at += nbytes
    if start >= 0:
        ranges.append((start, (following - start) & MASK))
    return at


def disposition_frame(
    channel: int, role: bool, first: int, last: int, *, settled: bool, state: DeliveryState | None
) -> bytes:
    """A frame about the deliveries from `first` to `last`."""
    raw = _ACCEPTED if type(state) is Accepted else NULL if state is None else encode(state)
    parts = [
        TRUE if role else FALSE,
        _uint(first),
        NULL if last == first else _uint(last),
        TRUE if settled else FALSE,
        raw,
    ]
    if state is None:
        parts.pop()
    return frame(channel, _DESCRIPTOR + encode_list(parts))
