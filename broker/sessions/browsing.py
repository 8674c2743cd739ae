"""Browsers of every protocol: which messages of a queue they show."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.model.message import Message


def shown(found: Iterator[tuple[Message, str]]) -> Iterator[Message]:
    """The messages that are not scheduled, each read when it is the next: a queue may be larger than memory.

    This is no generator expression because a compiled module would make a list of it.
    """
    for message, place in found:
        if place != "scheduled":
            yield message
