"""Health, for load balancers and service managers."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from broker.management.limits import Limits
from broker.management.ports import Broker


class Health:
    """The health of one broker."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._seconds_max = limits.tick_seconds_max
        self._stuck = f"no tick has ended for {limits.tick_seconds_max:g} s"

    async def livez(self, request: Request) -> Response:
        """Whether ticks begin and end; if not, the broker serves no client and has to be restarted."""
        if await self._ticks():
            return PlainTextResponse("ok\n")
        return PlainTextResponse(self._stuck + "\n", 503)

    async def _ticks(self) -> bool:
        """Begin a tick, and return whether it ends within `tick_seconds_max`."""
        tick, loop = self._broker.tick, asyncio.get_running_loop()
        ended, deadline, wait = tick.ended, loop.time() + self._seconds_max, 0.0
        tick.enter()
        while tick.ended == ended:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(wait)  # it usually ends before the loop looks at its sockets again
            wait = 0.05
        return True

    async def readyz(self, request: Request) -> Response:
        """Whether clients should be sent to this broker, and if not, why."""
        reasons = self._broker.unready()
        if not await self._ticks():
            reasons.append(self._stuck)
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)
