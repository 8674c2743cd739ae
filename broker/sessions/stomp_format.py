"""STOMP's encoding of application headers: lines of `name:value`, escaped as in STOMP 1.2, each ended by LF.

This is how the headers of a STOMP message lie in memory and in the journal, and, for a 1.2 subscriber, how they go
out again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from broker.engine.message import Annotations, Value
from protocols.stomp.headers import escape, unescape

STOMP_FORMAT: Final = 1

#: Headers that have a neutral name.
NEUTRAL_NAMES: Final = {
    "content-type": "_AMQ_CONTENT_TYPE",
    "correlation-id": "JMSCorrelationID",
    "reply-to": "JMSReplyTo",
    "type": "JMSType",
    "JMSXGroupID": "_AMQ_GROUP_ID",
}


class StompFormat:
    """The `Format` of messages that came over STOMP; `prefixes` are those that a `reply-to` may begin with."""

    number = STOMP_FORMAT
    name = "stomp"
    typed = False

    def __init__(self, prefixes: tuple[str, ...] = ()) -> None:
        self.prefixes = prefixes

    def noted(self, annotations: Annotations) -> Annotations:
        """The broker's annotations, which go out as headers under their own names."""
        return annotations

    def properties(self, head: bytes) -> dict[str, Value]:
        """The application headers as properties; every value is a string, as STOMP has no other type."""
        found: dict[str, Value] = {}
        for name, value in header_pairs(head):
            text = name.decode()
            if text != "content-length":
                found[NEUTRAL_NAMES.get(text, text)] = value.decode()
        return found

    def composed(self, properties: Mapping[str, str | int]) -> tuple[bytes, bytes]:
        """Head and body of a message that has headers only."""
        return self.edited(b"", (), properties), b""

    def duplicate_id(self, head: bytes) -> bytes | None:
        """The header _AMQ_DUPL_ID."""
        return dict(header_pairs(head)).get(b"_AMQ_DUPL_ID")

    def edited(self, head: bytes, remove: Collection[str], add: Mapping[str, str | int]) -> bytes:
        """The head with other headers."""
        gone = {name.encode() for name in (*remove, *add)}
        pairs = [pair for pair in header_pairs(head) if pair[0] not in gone]
        return encode_head(pairs + [(name.encode(), _text(value)) for name, value in add.items()])


def _text(value: str | int) -> bytes:
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


def header_pairs(head: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of an encoded head, unescaped."""
    pairs = []
    for line in head.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if b"\\" in line:
            name, value = unescape(name, "1.2"), unescape(value, "1.2")
        pairs.append((name, value))
    return pairs


def encode_head(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """The encoded form of headers: escaped only where something needs it."""
    head = b"".join([b"%b:%b\n" % pair for pair in pairs])
    count = len(pairs)
    if head.count(b":") == count and head.count(b"\n") == count and b"\\" not in head and b"\r" not in head:
        return head
    return b"".join([b"%b:%b\n" % (escape(name, "1.2"), escape(value, "1.2")) for name, value in pairs])


def head_for_version(head: bytes, version: str) -> bytes:
    """An encoded head as a peer of an older version reads it."""
    if version == "1.2" or b"\\" not in head:
        return head
    return b"".join(
        [b"%b:%b\n" % (escape(name, version), escape(value, version)) for name, value in header_pairs(head)]
    )
