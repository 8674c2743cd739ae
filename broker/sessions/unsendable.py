"""Deliveries that a session cannot make: the protocol has no words for the message, or its receiver no room.

A session learns that while the engine hands it messages, when it must not call the engine; so they are kept until the
tick is over.  They are dead letters: nobody would ever be able to take them from this queue by this protocol.
"""

from __future__ import annotations

from broker.engine.consumer import Consumer
from broker.engine.message import Message
from broker.sessions.turn import Turn


class Unsendable:
    """Those of one connection."""

    __slots__ = ("_found", "_turn")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._found: list[tuple[Consumer, Message, str, bool]] = []

    def add(self, consumer: Consumer, message: Message, why: str, *, too_large: bool = False) -> None:
        """A delivery that cannot be made."""
        self._found.append((consumer, message, why, too_large))

    def bury(self) -> list[Consumer]:
        """Make dead letters of them; whose they were.  Call when the tick is over."""
        if not self._found:
            return []
        self._turn.enter()
        found, self._found = self._found, []
        for consumer, message, why, too_large in found:
            if not consumer.closed and message.id in consumer.unacked:
                self._turn.engine.undeliverable(consumer, message, why, too_large=too_large)
        return [each[0] for each in found]
