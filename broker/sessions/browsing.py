"""Which messages of a queue a browser shows, in every protocol."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.model.message import Message


def shown(found: Iterator[tuple[Message, str]]) -> Iterator[Message]:
    """Yield the messages that are not scheduled, reading each only when it is next: a queue may be larger than memory.

    This is not a generator expression because mypyc would make a list of it.
    """
    for message, place in found:
        if place != "scheduled":
            yield message
