"""The broker as a whole: what goes in and out, what waits, what it takes; and whether it is ready."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import JSONResponse, Response

from broker.console.desk import Desk, Routes, about_whole, manages_all
from broker.console.visit import Visit, go_to
from broker.management.models.broker import Status
from broker.management.models.broker import status as broker_status
from broker.sessions.links.model import State

#: Seconds for which a sample is good: everybody who looks shares it.
SAMPLE_SECONDS: Final = 1.0

#: A sample is good for so many times what it took, so that looking takes at most 2 % of the event loop.
SAMPLE_SHARE: Final = 50


class OverviewPages:
    """The pages of one broker's."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._status: Status | None = None
        self._sample: dict[str, object] = {}
        self._good_until = 0.0

    def routes(self) -> Routes:
        """The pages."""
        return [("GET", "/", self.show, None), ("GET", "/live", self.live, about_whole)]

    async def show(self, visit: Visit) -> Response:
        """The broker as a whole; for those who manage a part of it, their queues."""
        if not manages_all(visit.access):
            return go_to("/queues")
        live = self._sampled()
        links = [each for each in self._desk.broker.links.by_name.values() if each.shown is not State.RUNNING]
        return self._desk.page(visit, "overview.html", {"status": self._status, "live": live, "links": links})

    async def live(self, visit: Visit) -> Response:
        """The figures of the charts as they are now; totals since the start."""
        return JSONResponse(self._sampled())

    def _sampled(self) -> dict[str, object]:
        """The figures of now, or of a moment ago; `_status` is of the same moment."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if begun >= self._good_until:
            self._take()
            self._good_until = begun + max(SAMPLE_SECONDS, SAMPLE_SHARE * (loop.time() - begun))
        return self._sample

    def _take(self) -> None:
        self._desk.enter()
        engine = self._desk.engine
        totals, usage = engine.statistics.totals, engine.usage
        status = self._status = broker_status(self._desk.broker, engine.now)
        self._sample = {
            "now": engine.now,
            "started": self._desk.broker.started,
            "in": totals["received"],
            "out": totals["delivered"],
            "acknowledged": totals["acknowledged"],
            "dead": totals["dead_lettered"] + totals["killed"],
            "expired": totals["expired"],
            "messages": usage.messages + engine.statistics.paged_messages,
            "memory": usage.bytes,
            "memory_max": usage.bytes_max,
            "disk_free": status.journal.disk_free_bytes,
            "connections": len(engine.connections.by_id),
            "consumers": status.consumers,
        }
