"""The HTTP acceptor's application: health, metrics, the API, and the console for everything else.

    /livez  /readyz       health; without login
    /metrics              Prometheus; with login, or without (open-metrics)
    /api/v1/...           the API: `resources` has its calls, `models` their request and response bodies
    /api/v1/openapi.json  its OpenAPI document, and /api/v1/docs a page made from it; without login
    everything else       the console, if there is one

Names are percent-encoded: they may hold `/`, `::`, `#` and anything else, so paths are routed before they are decoded.
Each call is a few engine verbs in one tick, without an `await` between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.engine.model.errors import EngineError
from broker.management import openapi, problems, replaying
from broker.management.callers import Callers
from broker.management.calls import Calls, RequestGuard
from broker.management.health import Health
from broker.management.hosts import AllowedHosts
from broker.management.limits import Limits
from broker.management.metrics import BrokerCollector, Metrics
from broker.management.ports import Broker
from broker.management.problems import Refused
from broker.management.resources import reasons
from broker.management.resources.addresses import AddressCalls
from broker.management.resources.broker import BrokerCalls
from broker.management.resources.clients import ConnectionCalls, ConsumerCalls
from broker.management.resources.dead_letter_rules import DeadLetterRuleCalls
from broker.management.resources.dead_letters import DeadLetterCalls
from broker.management.resources.definitions import DefinitionCalls
from broker.management.resources.diverts import DivertCalls
from broker.management.resources.exports import ExportCalls
from broker.management.resources.links import LinkCalls
from broker.management.resources.messages import MessageCalls
from broker.management.resources.queues import QueueCalls
from broker.management.resources.tasks import TaskCalls
from broker.management.resources.trails import TrailCalls
from broker.management.shared import Shared
from broker.management.turns import Turns

#: What load balancers ask, under any host name: their answers hold nothing that a foreign page must not read.
PROBES: Final = ("/livez", "/readyz")

#: Paths that are not the console's, besides those below `/api`.
_OWN: Final = (*PROBES, "/metrics", "/api")

#: Bytes of the longest body that any call takes; each call declares its own limit.
BODY_BYTES_MAX: Final = replaying.BODY_BYTES_MAX

#: Bytes of the longest form sent to the console.
PAGE_BODY_BYTES_MAX: Final = 2 << 20

#: A parameter in the path of a route.
_PARAMETER: Final = re.compile(r"\{[\w:]+\}")

#: Headers of every answer that does not set its own: do not guess the type, load nothing, store nothing.
PROTECTION: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


class Api:
    """One broker's HTTP interface, as an ASGI application.

    `hosts`: the host names that it answers to, None: any; `name`: the acceptor's name in the configuration; `console`:
    the application for all paths that are not the API's, None: there is none; `shared`: common to all acceptors and the
    console; `standby`: the application that replaces the API on a standby; `turns`: common to all acceptors.
    """

    def __init__(
        self,
        broker: Broker,
        token: str,
        *,
        metrics_open: bool,
        hosts: AllowedHosts | None,
        name: str = "http",
        limits: Limits | None = None,
        console: ASGIApp | None = None,
        shared: Shared | None = None,
        standby: FastAPI | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns or Turns()
        self._hosts = hosts
        self._name = name
        self._console = console
        self._app = standby or application(broker, token, limits or Limits(), metrics_open=metrics_open, shared=shared)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: answer in turns, health probes first."""
        assert scope["type"] == "http", "neither websockets nor lifespan are served"
        path = scope["raw_path"].decode("ascii", "replace")
        await self._turns.run(self._answer(path, scope, receive, send), probe=path in PROBES)

    async def _answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse requests that no application should see, and pass on the rest."""
        headers = dict(scope["headers"])
        refused = self._refused(path, scope["method"], headers)
        if refused is not None:
            await refused(scope, receive, hardened(send))
        elif self._console is not None and not _is_own(path):
            await self._console({**scope, "path": path}, receive, hardened(self._paced(send)))
        else:
            method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server leaves out the body
            sending = hardened(self._paced(send))
            await self._app({**scope, "path": path, "method": method}, receive, sending)

    def _paced(self, send: Send) -> Send:
        """A `send` that waits for a turn after each part of a stream, which its own task makes."""

        async def sending(message: Message) -> None:
            await send(message)
            if message.get("more_body"):
                await self._turns.next()

        return sending

    def _refused(self, path: str, method: str, headers: Mapping[bytes, bytes]) -> Response | None:
        """The refusal of a foreign host or origin, or of a body without a known and allowed length; else None."""
        host = headers.get(b"host", b"")
        if self._hosts is not None and path not in PROBES and not self._hosts.allow(host):
            unknown = f"this broker is not known as {host[:200].decode('latin-1')}"
            remedy = f"call it by its address, or name it in acceptors.{self._name}.allowed-hosts"
            return problems.problem("wrong-host", f"{unknown}: {remedy}")
        if method not in ("GET", "HEAD") and not _from_here(headers):
            return problems.problem("cross-origin", "a page of another site must not change anything on this broker")
        if b"transfer-encoding" in headers or not headers.get(b"content-length", b"0").isdigit():
            detail = "send the body with Content-Length, not in chunks"
            return problems.problem("length-required", detail, headers={"connection": "close"})
        longest = BODY_BYTES_MAX if path.startswith("/api/") else 0 if _is_own(path) else PAGE_BODY_BYTES_MAX
        if int(headers.get(b"content-length", b"0")) > longest:
            detail = f"a body has at most {longest} bytes" if longest else "send no body: this call takes none"
            return problems.problem("body-too-large", detail, headers={"connection": "close"})
        return None


def _is_own(path: str) -> bool:
    """Whether a path is not the console's."""
    return path in _OWN or path.startswith("/api/")


def application(
    broker: Broker, token: str, limits: Limits, *, metrics_open: bool, shared: Shared | None = None
) -> FastAPI:
    """The API, with health and metrics."""
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={
            Refused: _answering(problems.of_refusal),
            EngineError: _answering(problems.of_engine),
            RequestValidationError: _answering(problems.of_validation),
            HTTPException: _on_http_exception,
            Exception: _answering(lambda _: problems.of_bug()),
        },
    )
    guard, health = RequestGuard(broker, Callers(broker, token)), Health(broker, limits)
    metrics = Metrics(BrokerCollector(broker, limits.measured_queues_max))
    shared = shared or Shared(broker)
    app.add_route("/livez", health.livez)
    app.add_route("/readyz", health.readyz)
    app.add_route("/metrics", metrics.answer if metrics_open else guard.whole_broker(metrics.answer))
    BrokerCalls(broker).add_to(Calls(app, guard, "Broker"))
    QueueCalls(broker, shared.names).add_to(Calls(app, guard, "Queues"))
    MessageCalls(broker, limits).add_to(Calls(app, guard, "Messages"))
    ExportCalls(broker, shared.uploads).add_to(Calls(app, guard, "Exports"))
    AddressCalls(broker, shared.names).add_to(Calls(app, guard, "Addresses"))
    TaskCalls(broker).add_to(Calls(app, guard, "Tasks"))
    DefinitionCalls(broker, shared.names).add_to(Calls(app, guard, "Definitions"))
    DivertCalls(broker).add_to(Calls(app, guard, "Diverts"))
    ConnectionCalls(broker).add_to(Calls(app, guard, "Connections"))
    ConsumerCalls(broker).add_to(Calls(app, guard, "Consumers"))
    LinkCalls(broker).add_to(Calls(app, guard, "Links"))
    DeadLetterRuleCalls(broker).add_to(Calls(app, guard, "Dead-letter rules"))
    reasons.add_to(Calls(app, guard, "Reasons"))
    DeadLetterCalls(broker, shared.groups).add_to(Calls(app, guard, "Dead letters"))
    TrailCalls(shared.trails).add_to(Calls(app, guard, "Trails"))
    # A new resource adds its calls above; nothing else has to know of it.
    openapi.Reference(app).add_to(app)
    return app


def hardened(send: Send, protection: Iterable[tuple[bytes, bytes]] = PROTECTION) -> Send:
    """A `send` that adds the protecting headers that the answer does not set itself."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            said = {name.lower() for name, _ in headers}
            message["headers"] = headers + [each for each in protection if each[0] not in said]
        await send(message)

    return sending


def _from_here(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from a page of this very host and port, or from no page.

    Browsers add a user's password to requests of any page unasked.
    """
    scheme, separator, host = headers.get(b"origin", b"").partition(b"://")
    return not scheme or bool(separator and host.lower() == headers.get(b"host", b"").lower())


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def _answering(problem: Callable[[Any], Response]) -> Callable[[Request, Any], Coroutine[Any, Any, Response]]:
    """A handler that answers an exception with this problem."""

    async def answer(request: Request, error: Any) -> Response:
        return problem(error)

    return answer


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path}: {error.detail}"
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(_methods(request))
    return problems.of_status(error.status_code, detail, headers)


def _methods(request: Request) -> list[str]:
    """The methods that a path allows: those of the matching route with the most literal text."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    closest = max(found, key=lambda route: len(_PARAMETER.sub("", route.path)))
    return sorted({method for route in found if route.path == closest.path for method in route.methods or ()})
