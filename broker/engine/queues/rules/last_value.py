"""The values of a last-value queue: for each key the newest message that is on the queue.

A message replaces an older one with the same key, wherever that waits.  One that a consumer holds is not replaced; when
it is returned, it stays only if there is no newer value.  Newer means sent later; a scheduled message counts from the
time for which it was scheduled.  Messages without the key are never replaced.
"""

from __future__ import annotations

from broker.engine.model.message import Message, PropertyView
from broker.engine.model.names import remembered


class LastValues:
    """The newest message of each key.  It tracks messages from their arrival until they leave the queue."""

    __slots__ = ("_away", "_keys", "_newest", "_older", "_property")

    def __init__(self, property: str) -> None:
        self._property = property
        self._keys: dict[int, str] = {}  # of every message on the queue that has one
        self._newest: dict[str, Message] = {}
        self._older: dict[str, dict[int, Message]] = {}  # beside the newest: they are away
        self._away: set[int] = set()  # with a consumer, or settled in an open transaction

    def __len__(self) -> int:
        return len(self._newest)

    def knows(self, message: Message) -> bool:
        """Whether the message has arrived before."""
        return message.id in self._keys

    def arrived(self, message: Message) -> Message | None:
        """Add a message; returns the one that must leave: an older one that waits, the message itself, or None."""
        value = PropertyView(message).get(self._property)
        if value is None:
            return None
        key = remembered(str(value))
        self._keys[message.id] = key
        other = self._newest.get(key)
        if other is not None and _is_newer(other, message):
            return message
        self._newest[key] = message
        if other is None or other.id not in self._away:
            return other
        self._older.setdefault(key, {})[other.id] = other
        return None

    def delivered(self, messages: list[Message]) -> None:
        """Note messages sent to a consumer: they cannot be replaced."""
        self._away.update([message.id for message in messages if message.id in self._keys])

    def returned(self, message: Message) -> bool:
        """Note a message returned by a consumer; returns whether it stays."""
        key = self._keys.get(message.id)
        if key is None:
            return True
        self._away.discard(message.id)
        return self._newest[key].id == message.id

    def left(self, messages: list[Message]) -> None:
        """Forget messages that left the queue."""
        for message in messages:
            key = self._keys.pop(message.id, None)
            if key is None:
                continue
            self._away.discard(message.id)
            older = self._older.get(key, {})
            if self._newest[key].id != message.id:
                older.pop(message.id, None)
            elif older:
                self._newest[key] = older.pop(max(older, key=lambda id: _arrival(older[id])))
            else:
                del self._newest[key]
            if not older:
                self._older.pop(key, None)


def _is_newer(one: Message, other: Message) -> bool:
    """Whether the first is a newer value than the second."""
    if one.header.scheduled or other.header.scheduled:
        return _arrival(one) > _arrival(other)
    return one.id > other.id


def _arrival(message: Message) -> tuple[int, int]:
    header = message.header
    return header.scheduled or header.timestamp, message.id
