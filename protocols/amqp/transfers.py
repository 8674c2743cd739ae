"""The common parts of a link's TRANSFER frames, for reading and for writing.

Successive transfers of a link differ only in their delivery id, their tag and their payload.  A FrameTemplate is their
common part, learned from one that was fully parsed:

    size | head: doff, type, channel, descriptor, list, handle, the id's code | id | a0 n | tag | tail | payload

If the next frame has the same bytes in the same places and the next id, it is the next delivery of the run
(`transfer_batch`): one `unpack` and a few comparisons.  This works for every client's encoding, whether its lists are
list8 (proton, Qpid JMS) or list32 (go-amqp), its ids uint or smalluint, its tail short or long; a transaction's state
is part of the tail, too.  Frames without a template (several frames for a message, aborted, resumed, other formats of
tags) are read one by one.

For writing, a Prefix has all parts of a link's frames ready except size, id and tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from protocols.amqp.frames import FRAME_HEADER_BYTES, LIST_AT, Unpack, begins_with
from protocols.amqp.performatives import Transfer
from protocols.amqp.serial import MASK

if TYPE_CHECKING:
    from protocols.amqp.receiver import Receiver


#: Format codes of a uint, and the bytes after each.
_UINT_BYTES: Final = {0x43: 0, 0x52: 1, 0x70: 4}
#: Format codes of a delivery id that changes from frame to frame, and struct's codes for them.
_ID_FORMATS: Final = {0x52: "B", 0x70: "I"}

_LIST_8: Final = 0xC0
_LIST_32: Final = 0xD0
#: From the list's format code to its first element.
_LIST_HEAD_BYTES: Final = {_LIST_8: 3, _LIST_32: 9}
_BINARY_8: Final = 0xA0

_DESCRIPTOR: Final = b"\x00\x53\x14"


class FrameTemplate:
    """The common part of a link's transfers in single frames."""

    __slots__ = ("head", "link", "nbytes", "settled", "state", "tag_head", "tail", "unpack")

    def __init__(
        self, link: Receiver, transfer: Transfer, unpack: Unpack, parts: tuple[bytes, bytes, bytes, int]
    ) -> None:
        self.link = link
        self.settled = bool(transfer.settled)
        self.state = transfer.state
        self.unpack = unpack
        self.head, self.tag_head, self.tail, self.nbytes = parts


def key_end(buffer: bytes, at: int) -> int:
    """The end of the key of the frame at `at`: before the delivery id, in the usual encodings."""
    return 22 if buffer[at + LIST_AT] == _LIST_32 else 16


def key(buffer: bytes, at: int) -> bytes:
    """The part of a frame's first bytes by which its template is looked up."""
    return buffer[at + 4 : at + key_end(buffer, at)]


#: The constructor and size of a tag of four bytes.
TAG_HEAD: Final = b"\xa0\x04"
#: Sizes of frames, and bytes, made once: packing a number costs as much as the rest of a frame.
_SIZES: Final = [nbytes.to_bytes(4) for nbytes in range(4096)]
_OCTETS: Final = [bytes([number]) for number in range(256)]

_ID_AND_TAG: Final = b"\x70\xff\xff\xff\xff" + TAG_HEAD + b"\xff\xff\xff\xff"


def shape_of(link: Receiver, transfer: Transfer, buffer: bytes, at: int, end: int) -> FrameTemplate | None:
    """The shape of the frame at `at`, a well-formed transfer whose performative ends at `end`; None if it has none."""
    if transfer.more or transfer.aborted or transfer.resume or transfer.rcv_settle_mode is not None:
        return None
    if transfer.delivery_id is None or transfer.delivery_tag is None:
        return None
    head_bytes = _LIST_HEAD_BYTES.get(buffer[at + LIST_AT])
    if head_bytes is None or not begins_with(_DESCRIPTOR, buffer, at):
        return None
    handle_at = at + LIST_AT + head_bytes
    id_code_at = handle_at + 1 + _UINT_BYTES[buffer[handle_at]]
    id_format = _ID_FORMATS.get(buffer[id_code_at])
    if id_format is None:
        return None
    tag_at = id_code_at + 1 + _UINT_BYTES[buffer[id_code_at]]
    if buffer[tag_at] != _BINARY_8:
        return None
    tag_bytes = buffer[tag_at + 1]
    tail_at = tag_at + 2 + tag_bytes
    head = buffer[at + 4 : id_code_at + 1]
    tail = buffer[tail_at:end]
    unpack = Struct(f">I{len(head)}s{id_format}2s{tag_bytes}s{len(tail)}s").unpack_from
    return FrameTemplate(link, transfer, unpack, (head, buffer[tag_at : tag_at + 2], tail, end - at))


class Prefix:
    """The common part of a link's outgoing transfers.  Their tags are their delivery ids."""

    __slots__ = ("head", "nbytes", "tail")

    def __init__(self, channel: int, transfer: Transfer) -> None:
        """`transfer` has its handle, and all fields after the tag."""
        transfer.delivery_id = MASK  # makes id and tag four bytes each, to be found in the encoding
        transfer.delivery_tag = _ID_AND_TAG[-4:]
        body = transfer.encode()
        id_at = body.index(_ID_AND_TAG) + 1
        tail_at = id_at + len(_ID_AND_TAG) - 1
        self.head = b"\x02\x00" + channel.to_bytes(2) + body[:id_at]
        self.tail = body[tail_at:]
        self.nbytes = FRAME_HEADER_BYTES + len(body)

    def encode(self, out: list[bytes], delivery_id: int, payloads: Sequence[bytes]) -> None:
        """Append the frames of these payloads, with ids from `delivery_id` on."""
        fixed, tail, sizes, ready = self.nbytes, self.tail, _SIZES, len(_SIZES)
        at = 0x100  # the lowest byte of an id; the bytes before it are prepared while the others are the same
        head = tag_head = b""
        for payload in payloads:
            if at > 0xFF:
                delivery_id &= MASK
                at = delivery_id & 0xFF
                high = (delivery_id >> 8).to_bytes(3)
                head, tag_head = self.head + high, TAG_HEAD + high
            nbytes = fixed + len(payload)
            size, low = sizes[nbytes] if nbytes < ready else nbytes.to_bytes(4), _OCTETS[at]
            out.append(b"%b%b%b%b%b%b" % (size, head, low, tag_head, low, tail))
            out.append(payload)
            delivery_id += 1
            at += 1
