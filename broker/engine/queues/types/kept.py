"""The backlog of a non-destructive queue: each consumer gets every message once, and the messages stay.

A delivery takes nothing away: the message remains ready for all others, and whatever a consumer says of it changes
nothing.  Messages leave by expiry, by an operator, or replaced or evicted by newer ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from broker.engine.model.message import Message
from broker.engine.queues.selective import SelectiveBacklog


class KeptBacklog(SelectiveBacklog):
    """Messages that stay; a consumer's view is what it has not seen."""

    __slots__ = ()

    lasting: ClassVar[bool] = True

    def pop_for(self, key: Hashable) -> Message | None:
        """The next message that this consumer has not got; it stays."""
        return self._views[key].next_in(self._ready)
