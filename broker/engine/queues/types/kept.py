"""The backlog of a non-destructive queue: each consumer gets every message once, and the messages stay.

A delivery removes nothing: the message remains ready for all other consumers, however it is settled.  Messages leave by
expiry, by an operator, or because newer ones replace or evict them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from broker.engine.model.message import Message
from broker.engine.queues.selective import Predicate, SelectiveBacklog


class KeptBacklog(SelectiveBacklog):
    """Messages that stay; a consumer's view holds those that it has not been sent."""

    __slots__ = ()

    lasting: ClassVar[bool] = True

    def pop_for(self, key: Hashable) -> Message | None:
        """The next message that this consumer has not been sent; it stays."""
        return self._views[key].next_in(self._ready)

    def rematch(self, key: Hashable, predicate: Predicate | None) -> None:
        """Replace a consumer's predicate, which leaves out more than before: what it was sent does not come again."""
        view = self._views.get(key)
        if view is None:
            self.attach(key, predicate)
        else:
            view.predicate = predicate
