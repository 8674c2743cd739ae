"""What a standby answers over HTTP: that it is alive, that it takes no clients, and how far it lags.

/livez           200
/readyz          503, with the reasons
/metrics         its role and its lag; with or without login, as on an owner
/api/v1/status   for the command line, with the broker's own token
all else         503: ask the owner
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from hmac import compare_digest

from fastapi import FastAPI
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from broker.build import COMPILED
from broker.management import problems
from broker.management.metrics import Metrics, replication_metrics
from broker.management.ports import Replicated

_Handler = Callable[[Request], Awaitable[Response]]


class StandbyApi:
    """The application of one standby."""

    def __init__(
        self,
        replicated: Callable[[], Replicated],
        token: str,
        *,
        name: str,
        version: str,
        started: int,
        now: Callable[[], int],
    ) -> None:
        self._replicated = replicated
        self._token = f"Bearer {token}".encode()
        self._name = name
        self._version = version
        self._started = started
        self._now = now
        self._metrics = Metrics(_Collector(replicated))

    def application(self, metrics_open: bool) -> FastAPI:
        """The application for an acceptor."""
        app = FastAPI(openapi_url=None, redirect_slashes=False)
        app.add_route("/livez", self._livez)
        app.add_route("/readyz", self._readyz)
        app.add_route("/metrics", self._metrics.answer if metrics_open else self._known(self._metrics.answer))
        app.add_route("/api/v1/status", self._known(self._status))
        app.add_route("/{path:path}", self._elsewhere, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
        return app

    def _reasons(self) -> list[str]:
        replicated = self._replicated()
        reasons = ["standby: this broker does not own the journal"]
        return [*reasons, replicated.trouble] if replicated.trouble else reasons

    async def _livez(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        return JSONResponse({"ready": False, "reasons": self._reasons()}, 503)

    async def _status(self, request: Request) -> Response:
        replicated = self._replicated()
        return JSONResponse(
            {
                "name": self._name,
                "version": self._version,
                "compiled": COMPILED,
                "started": self._started,
                "uptime": self._now() - self._started,
                "ready": False,
                "reasons": self._reasons(),
                "replication": asdict(replicated),
            }
        )

    async def _elsewhere(self, request: Request) -> Response:
        return problems.problem("standby", "this broker is a standby: ask the one that owns the journal")

    def _known(self, handler: _Handler) -> _Handler:
        """A handler for callers with the broker's token."""

        async def known(request: Request) -> Response:
            if not compare_digest(request.headers.get("authorization", "").encode(), self._token):
                detail = "a standby needs the token in its data directory"
                return problems.problem("not-logged-in", detail, headers={"www-authenticate": "Bearer"})
            return await handler(request)

        return known


class _Collector(Collector):
    def __init__(self, replicated: Callable[[], Replicated]) -> None:
        self._replicated = replicated

    def collect(self) -> Iterator[Metric]:
        yield from replication_metrics(self._replicated())
        yield GaugeMetricFamily("broker_ready", "1 while the broker accepts clients.", value=0)
