"""What filters find of one message."""

from __future__ import annotations

from broker.engine.filter import Filter
from broker.engine.model.message import Message, PropertyView
from broker.engine.queues.cursors import HEAD_BYTES


class Matches:
    """What filters find of one message: each text is evaluated once, and the headers are read once.

    `cost` is what that has cost, in microseconds (`steps`).
    """

    __slots__ = ("_by_text", "_properties", "cost")

    def __init__(self, message: Message) -> None:
        self.cost = len(message.head) // HEAD_BYTES
        self._by_text: dict[str, bool] = {}
        self._properties = PropertyView(message)

    def match(self, filter: Filter) -> bool:
        """Whether the filter is true for the message."""
        found = self._by_text.get(filter.text)
        if found is None:
            found = self._by_text[filter.text] = filter.matches(self._properties)
            self.cost += filter.cost
        return found
