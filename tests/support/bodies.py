"""The bodies of messages in tests, whether in memory or in a file."""

from __future__ import annotations

from broker.engine.model.message import Message


def body_of(message: Message) -> bytes:
    """Return the whole body of a message."""
    body = message.body
    return body if isinstance(body, bytes) else body.whole()
