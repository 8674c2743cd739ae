"""Annotations of messages sent between brokers: a link id, and the brokers that the message has passed through.

    x-opt-bartleby-link-id    40 bytes: identifies the message by broker and queue, so that it is accepted only once
    x-opt-bartleby-hops       a list of texts, one per broker: "NAME LINK MS", when (ms since the epoch) it left that
                              broker, and over which link

Both are message annotations, which are no part of the bare message (part 3, 3.2): it passes byte for byte.  They count
on links whose ATTACH desires `bartleby-link`; from other senders they are dropped.  The receiving broker removes the
link id; hops stay with the message, and each broker that forwards it adds one.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from broker.engine.model.message import Message
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.message import Message as Encoded
from protocols.amqp.types import Symbol

#: The capability of a link between Bartlebys.
LINK_CAPABILITY: Final = "bartleby-link"

#: The property of a receiver that fetches only as many messages as consumers at its own broker wait for.
ON_DEMAND: Final = "bartleby-on-demand"

#: The properties of a receiver with which a Bartleby's link asks another to reserve the messages that are in flight
#: when the connection is lost: under which name, for how many ms, and whether this receiver is only a part of the link.
RESERVE_NAME: Final = "bartleby-reserve-name"
RESERVE_MS: Final = "bartleby-reserve-ms"
RESERVE_PART: Final = "bartleby-reserve-part"

#: The condition of a message that is refused for its hops.
TOO_MANY_HOPS: Final = "bartleby:too-many-hops"

#: The prefix of these annotations.
PREFIX: Final = "x-opt-bartleby-"
LINK_ID: Final = PREFIX + "link-id"
HOPS: Final = PREFIX + "hops"

LINK_ID_BYTES: Final = 40
_NUMBERS: Final = Struct(">QQQ")
_MARK: Final = LINK_ID.encode()
_HOPS_MARK: Final = HOPS.encode()

#: The beginning of a link id in annotations written by LinkEncoder, where it is the first entry.
ENTRY: Final = encode(Symbol(LINK_ID)) + encode(bytes(LINK_ID_BYTES))[:2]
_ENTRY_BYTES: Final = len(ENTRY) + LINK_ID_BYTES
_MAP_8: Final = b"\x00\x53\x72\xc1"


def link_id(broker_id: bytes, message: Message, queue_id: int) -> bytes:
    """Return the link id: the broker's id (16 bytes), the message's, when it arrived (ms), and the queue's.

    Several queues may have the message, and each forwards it; with `queue_id` 0 their copies count as one.
    """
    return broker_id + _NUMBERS.pack(message.id, message.header.timestamp, queue_id)


def take_link_id(head: bytes) -> tuple[bytes | None, bytes]:
    """Return the link id in a head, None without one, and the head without it.  Raises DecodeError."""
    if _MARK not in head:
        return None, head
    if head.startswith(_MAP_8) and head.startswith(ENTRY, 6) and head[4] > _ENTRY_BYTES and head[5] > 2:
        at = 6 + _ENTRY_BYTES
        return head[at - LINK_ID_BYTES : at], b"%b%c%c%b" % (_MAP_8, head[4] - _ENTRY_BYTES, head[5] - 2, head[at:])
    encoded = Encoded(head)
    annotations = encoded.message_annotations
    id = annotations.pop(LINK_ID, None)
    left = encode_annotations(MESSAGE_ANNOTATIONS, annotations) + encoded.bare
    return (bytes(id) if isinstance(id, bytes) and len(id) == LINK_ID_BYTES else None), left


def hop(broker: str, link: str, now: int) -> str:
    """Return the hop that a broker adds to a message that it sends over a link now."""
    return f"{_word(broker)} {_word(link)} {now}"


def _word(name: str) -> str:
    return "-".join(name.split())


def hops_of(head: bytes) -> list[str]:
    """Return the brokers that a message has passed through, the first one first, as written by `hop`."""
    if _HOPS_MARK not in head:
        return []
    if head.startswith(_MAP_8) and len(head) > len(_MAP_8):
        return [*_short_hops(head[: len(_MAP_8) + 1 + head[len(_MAP_8)]])]
    return _decoded_hops(head)


@lru_cache(maxsize=64)
def _short_hops(section: bytes) -> tuple[str, ...]:
    """Decode annotations of up to 255 bytes; cached, as messages sent in the same millisecond have the same."""
    return tuple(_decoded_hops(section))


def _decoded_hops(head: bytes) -> list[str]:
    try:
        found = Encoded(head).message_annotations.get(HOPS)
    except DecodeError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []
