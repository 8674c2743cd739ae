"""What brokers note on the messages that they send each other: a link id, and the brokers that a message has passed.

    x-opt-bartleby-link-id    40 bytes: which message of which broker and queue this is, so that it is taken in once
    x-opt-bartleby-hops       a list of texts, one for each broker: "NAME LINK MS", since when (ms since the epoch) it
                              had left that broker, and by which link

Both are message annotations, which are no part of the bare message (part 3, 3.2): it passes byte for byte.  They count
on links whose ATTACH desires `bartleby-link`; from everybody else they are dropped.  A link id ends where it arrives;
hops stay with the message, and whoever sends it on adds one.
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

#: The property of a receiver that asks for no more than consumers at its own broker wait for.
ON_DEMAND: Final = "bartleby-on-demand"

#: The properties of a receiver by which a Bartleby's link asks another to keep for it what is under way when the
#: connection is lost: under which name, for how many ms, and whether this receiver is only a part of the link.
RESERVE_NAME: Final = "bartleby-reserve-name"
RESERVE_MS: Final = "bartleby-reserve-ms"
RESERVE_PART: Final = "bartleby-reserve-part"

#: The condition of a message that is refused for its hops.
TOO_MANY_HOPS: Final = "bartleby:too-many-hops"

#: How the names of these annotations begin.
PREFIX: Final = "x-opt-bartleby-"
LINK_ID: Final = PREFIX + "link-id"
HOPS: Final = PREFIX + "hops"

LINK_ID_BYTES: Final = 40
_NUMBERS: Final = Struct(">QQQ")
_MARK: Final = LINK_ID.encode()
_HOPS_MARK: Final = HOPS.encode()

#: How a link id stands in the annotations of a message by LinkEncoder: it is their first entry.
ENTRY: Final = encode(Symbol(LINK_ID)) + encode(bytes(LINK_ID_BYTES))[:2]
_ENTRY_BYTES: Final = len(ENTRY) + LINK_ID_BYTES
_MAP_8: Final = b"\x00\x53\x72\xc1"


def link_id(broker_id: bytes, message: Message, queue_id: int) -> bytes:
    """Of a message of the broker with this id (16 bytes): that id, the message's own, when it arrived (ms), and the id
    of the queue that it leaves: several may have it, and each passes it on.  0: they pass it on as one.
    """
    return broker_id + _NUMBERS.pack(message.id, message.header.timestamp, queue_id)


def take_link_id(head: bytes) -> tuple[bytes | None, bytes]:
    """The link id in a head, None without one, and the head without it.  Raises DecodeError."""
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
    """What the broker of this name adds to the hops of a message that it sends over a link now."""
    return f"{_word(broker)} {_word(link)} {now}"


def _word(name: str) -> str:
    return "-".join(name.split())


def hops_of(head: bytes) -> list[str]:
    """The brokers that a message has passed, the first one first, as `hop` writes them."""
    if _HOPS_MARK not in head:
        return []
    if head.startswith(_MAP_8) and len(head) > len(_MAP_8):
        return [*_short_hops(head[: len(_MAP_8) + 1 + head[len(_MAP_8)]])]
    return _decoded_hops(head)


@lru_cache(maxsize=64)
def _short_hops(section: bytes) -> tuple[str, ...]:
    """Those in annotations of up to 255 bytes, which messages that left in the same millisecond have in common."""
    return tuple(_decoded_hops(section))


def _decoded_hops(head: bytes) -> list[str]:
    try:
        found = Encoded(head).message_annotations.get(HOPS)
    except DecodeError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


def passed(head: bytes, broker: str) -> bool:
    """Whether a message has passed the broker of this name."""
    name = _word(broker)
    return any(each.split(" ", 1)[0] == name for each in hops_of(head))
