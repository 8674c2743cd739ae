"""The overview of the broker: traffic, waiting messages, resources, and links that do not run."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import JSONResponse, Response

from broker.console.desk import Desk, Pages, Routes, authorize_whole, manages_all
from broker.console.render import format_value
from broker.console.visit import Visit, go_to
from broker.engine import Figures
from broker.management.models.broker import Status
from broker.management.models.broker import status as broker_status
from broker.management.turns import in_turns
from broker.sessions.links.model import State

#: Seconds for which a sample is shared by all visitors.
SAMPLE_SECONDS: Final = 1.0

#: A sample is kept for this many times the time it took, so that samples take at most 2 % of the event loop.
SAMPLE_SHARE: Final = 50


class OverviewPages(Pages):
    """The overview of one broker."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._status: Status | None = None
        self._sample: dict[str, object] = {}
        self._good_until = 0.0
        self._sampling = asyncio.Lock()

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/", self.show, None),
            ("GET", "/live", self.live, authorize_whole),
            ("GET", "/state", self.state, None),
        ]

    async def show(self, visit: Visit) -> Response:
        """The overview; users who manage only a part of the broker are redirected to their queues."""
        if not manages_all(visit.access):
            return go_to("/queues")
        live = await self._sampled()
        links = [each for each in self._desk.broker.links.by_name.values() if each.status is not State.RUNNING]
        return self._desk.page(visit, "overview.html", {"status": self._status, "live": live, "links": links})

    async def state(self, visit: Visit) -> Response:
        """Why the broker is not ready, which every page shows; a page that gets no answer shows that instead."""
        return JSONResponse({"unready": format_value("".join(self._desk.broker.unready()[:1]))})

    async def live(self, visit: Visit) -> Response:
        """The present figures for the charts; totals count from the start."""
        return JSONResponse(await self._sampled())

    async def _sampled(self) -> dict[str, object]:
        """The present figures, or recent ones; `_status` is from the same moment."""
        loop = asyncio.get_running_loop()
        async with self._sampling:
            begun = loop.time()
            if begun >= self._good_until:
                [figures] = await in_turns(self._desk.engine.statistics.figures())
                self._take(figures)
                self._good_until = begun + max(SAMPLE_SECONDS, SAMPLE_SHARE * (loop.time() - begun))
            return self._sample

    def _take(self, figures: Figures) -> None:
        self._desk.enter()
        engine = self._desk.engine
        totals, usage = engine.statistics.totals, engine.usage
        status = self._status = broker_status(self._desk.broker, figures)
        self._sample = {
            "now": engine.now,
            "started": self._desk.broker.started,
            "in": totals["received"],
            "out": totals["delivered"],
            "acknowledged": totals["acknowledged"],
            "dead": totals["dead_lettered"] + totals["killed"],
            "expired": totals["expired"],
            "messages": usage.messages + figures.paged,
            "memory": usage.bytes,
            "memory_max": usage.bytes_max,
            "disk_free": status.journal.disk_free_bytes,
            "connections": len(engine.connections.by_id),
            "consumers": status.consumers,
        }
