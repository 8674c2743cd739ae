"""STOMP's encoding of application headers: lines of `name:value`, escaped as in STOMP 1.2, each ended by LF.

The headers of a STOMP message are stored like this in memory and in the journal, and sent like this to 1.2 subscribers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from broker.engine.model.message import Annotations, Body, ReplyTo, RoutingType, Value
from broker.sessions.plain_values import header_text
from broker.sessions.reply_to import split_reply_to
from protocols.stomp.errors import StompError
from protocols.stomp.headers import escape, is_name, unescape

STOMP_FORMAT: Final = 1

#: Characters that STOMP 1.2 escapes besides colons and line ends, and NUL, which no version can express.
_ESCAPED: Final = re.compile(rb"[\\\r\0]").search

#: Headers that have a neutral name.
NEUTRAL_NAMES: Final = {
    "content-type": "_AMQ_CONTENT_TYPE",
    "correlation-id": "JMSCorrelationID",
    "reply-to": "JMSReplyTo",
    "type": "JMSType",
    "JMSXGroupID": "_AMQ_GROUP_ID",
}


#: Headers of MESSAGE that only the broker sets, never the sender, whatever its protocol.
BROKERS: Final = frozenset(
    {
        b"destination",
        b"destination-type",
        b"persistent",
        b"priority",
        b"expires",
        b"message-id",
        b"subscription",
        b"ack",
        b"browser",
        b"redelivered",
        b"timestamp",
        b"ingress-timestamp",
        b"JMSXUserID",
    }
)

CONTENT_LENGTH: Final = b"content-length"

#: Headers that an edit of a stored message cannot change: the frame's length, and those that the broker sets.
FRAMES: Final = BROKERS | {CONTENT_LENGTH}


class StompFormat:
    """The `Format` of messages received through STOMP; `prefixes`: those that a `reply-to` may begin with."""

    number = STOMP_FORMAT
    name = "stomp"
    typed = False

    def __init__(self, prefixes: tuple[tuple[str, RoutingType], ...] = ()) -> None:
        self.prefixes = prefixes

    def content(self, part: bytes) -> bytes:
        """Return the body itself."""
        return part

    def noted(self, annotations: Annotations) -> Annotations:
        """Return the broker's annotations, which are sent as headers under their own names."""
        return annotations

    def readable(self, head: bytes, body_bytes: int) -> bool:
        """Whether the head is valid: UTF-8 lines of name and value that can be unescaped, a correct content-length."""
        try:
            head.decode()
            pairs = header_pairs(head)
        except (UnicodeDecodeError, StompError):
            return False
        if any(value != b"%d" % body_bytes for name, value in pairs if name == CONTENT_LENGTH):
            return False
        lines = head.split(b"\n")
        return not lines.pop() and all(b":" in line for line in lines) and b"\0" not in head

    def properties(self, head: bytes) -> dict[str, Value]:
        """Return the application headers as properties; every value is a string, as STOMP has no other type."""
        found: dict[str, Value] = {}
        for name, value in header_pairs(head):
            text = name.decode()
            if text != "content-length":
                found[NEUTRAL_NAMES.get(text, text)] = value.decode()
        return found

    def composed(self, properties: Mapping[str, str | int]) -> tuple[bytes, bytes]:
        """Return head and body of a message with headers only."""
        return self.edited(b"", (), properties), b""

    def hops(self, head: bytes) -> int:
        """Return 0: links between brokers do not use STOMP."""
        return 0

    def reply_to(self, head: bytes) -> ReplyTo:
        """Return the address in the header reply-to, with the routing type that its prefix states."""
        if b"reply-to:" not in head:
            return "", None
        return split_reply_to(dict(header_pairs(head)).get(b"reply-to", b"").decode(), self.prefixes)

    def duplicate_id(self, head: bytes) -> bytes | None:
        """Return the header _AMQ_DUPL_ID."""
        return dict(header_pairs(head)).get(b"_AMQ_DUPL_ID")

    def edited(self, head: bytes, remove: Collection[str], add: Mapping[str, str | int]) -> bytes:
        """Return the head with headers removed and added, except those in FRAMES."""
        added = {name.encode(): header_text(value).encode() for name, value in add.items()}
        gone = {*added, *(name.encode() for name in remove)} - FRAMES
        pairs = [pair for pair in header_pairs(head) if pair[0] not in gone]
        return encode_head(pairs + [pair for pair in added.items() if pair[0] not in FRAMES])

    def refilled(self, head: bytes, body: Body, content: bytes) -> tuple[bytes, bytes]:
        """Return the head without the encoding (gzip ...) of the old body, and the new content.

        Bytes stay bytes, even if they are text now: a head with a length has the new one.
        """
        gone = (CONTENT_LENGTH, b"content-encoding")
        pairs = [pair for pair in header_pairs(head) if pair[0] not in gone]
        if has_content_length(head):
            pairs.append((CONTENT_LENGTH, b"%d" % len(content)))
        return encode_head(pairs), content


def header_pairs(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of an encoded head, unescaped."""
    pairs = []
    for line in head.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if b"\\" in line:
            name, value = unescape(name, "1.2"), unescape(value, "1.2")
        pairs.append((name, value))
    return pairs


def has_content_length(head: bytes) -> bool:
    """Whether an encoded head has a content-length."""
    return head.startswith(b"content-length:") or b"\ncontent-length:" in head


def encode_head(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Encode headers, escaping only where necessary."""
    head = b"".join([b"%b:%b\n" % pair for pair in pairs])
    count = len(pairs)
    if head.count(b":") == count and head.count(b"\n") == count and not _ESCAPED(head):
        return head
    return b"".join([b"%b:%b\n" % (escape(name, "1.2"), escape(value, "1.2")) for name, value in pairs])


def head_for_version(head: bytes, version: str) -> bytes:
    """Convert an encoded head for a peer of an older version, without headers whose names it cannot express."""
    if version == "1.2" or b"\\" not in head:
        return head
    return b"".join(
        [
            b"%b:%b\n" % (escape(name, version), escape(value, version))
            for name, value in header_pairs(head)
            if is_name(name, version)
        ]
    )
