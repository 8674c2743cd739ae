"""The call that shows a message's trail through the journal."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from broker.engine.model.errors import NotFound, NotReadable
from broker.management.calls import Calls, authorize_whole
from broker.management.models.base import MessageId
from broker.management.models.trails import TrailShown, trail_shown
from broker.management.trails import TrailFinder


class TrailCalls:
    """The calls on one broker's trails; they cover all messages, so callers must manage the broker as a whole."""

    def __init__(self, finder: TrailFinder) -> None:
        self._finder = finder

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add(
            "GET",
            "/messages/{id}/trail",
            self.trail,
            authorize=authorize_whole,
            response_model=TrailShown,
            problems=(503,),
        )

    async def trail(self, id: MessageId) -> Response:
        """Everything that the journal, including its kept segments, records about a message, by any id it ever had."""
        try:
            trail = await self._finder.find(id)
        except OSError as error:
            raise NotReadable(f"the journal cannot be read: {error.strerror or error}") from None
        if not trail.steps:
            raise NotFound(self._finder.unknown(id, trail))
        text = await asyncio.to_thread(lambda: trail_shown(trail).model_dump_json())  # thousands of steps take a while
        return Response(text, media_type="application/json")
