"""The bodies of messages in tests, whether in memory or in a file."""

from __future__ import annotations

from broker.engine.model.message import Message


def body_of(message: Message) -> bytes:
    """The body of a message that has it in memory, or all of one that is in a file."""
    body = message.body
    return body if isinstance(body, bytes) else body.whole()
