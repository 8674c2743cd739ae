"""The HTTP calls.

    GET    /livez  /readyz                          health; for everybody
    GET    /metrics                                 Prometheus; for callers, or for everybody (open-metrics)
    GET    /api/v1/status
    ...    /api/v1/queues...                       see queues.py
    ...    /api/v1/addresses...                    see addresses.py
    ...    /api/v1/connections...  /consumers...   see peers.py
    ...    /api/v1/diverts...                      see diverts.py
    POST   /api/v1/messages:replay?name=            bring messages back from the journal: see replaying.py
    GET    /api/v1/balance                          what the journal has of each queue, when all of that is durable

Who may make them is asked in one place (`_guarded`, see callers.py), before anything else.

Names are percent-encoded: they may hold `/`, `::`, `#` and anything else, so paths are routed before they are decoded.
Each call is a few engine verbs in one tick, without an `await` between them.  Errors are `{"error": CODE, "detail":
SENTENCE}`; an engine's refusal has the engine's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.engine import Divert
from broker.engine.model.access import Access
from broker.engine.model.errors import AlreadyInUse, Denied, EngineError, NoQueue, NotFound, NotReadable
from broker.engine.model.permissions import Permission
from broker.management import replaying
from broker.management.addresses import AddressCalls
from broker.management.asking import Refused, access_of, anybody, check_known, name_of
from broker.management.callers import (
    ACCESS,
    CHALLENGE,
    About,
    Callers,
    Handler,
    Unknown,
    require_address,
    require_whole,
)
from broker.management.deeds import REPORT, told, who
from broker.management.diverts import divert_view, new_divert, places
from broker.management.durable import durable
from broker.management.hosts import AllowedHosts
from broker.management.limits import Limits
from broker.management.metrics import Metrics, render
from broker.management.names import Names
from broker.management.peers import PeerCalls
from broker.management.ports import Broker
from broker.management.queues import QueueCalls
from broker.management.views import (
    balance_view,
    status_view,
)

#: Bytes of a request's body: no call but a replay has one.  Who sends one means something by it, a filter perhaps, and
#: without it the call would do more than was meant.
BODY_BYTES_MAX: Final = 0

#: What load balancers ask, by whatever name; there is nothing in it that a page should not read.
PROBES: Final = ("/livez", "/readyz")

#: What a browser is told about every answer: it is what it says it is, may load nothing, and is not kept.
_PROTECTION: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


#: Where the paths of calls begin; the console has all others.
CALLS: Final = ("/api/", *PROBES, "/metrics")


def _error(status: int, error: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": error, "detail": detail}, status, headers)


class Api:
    """The calls on one broker.

    `hosts`: the names that it may be called by, None: any; `name`: what the configuration calls its acceptor;
    `console`: what answers whatever is no call.
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
    ) -> None:
        limits = limits or Limits()
        self._console = console
        self._tick_seconds_max = limits.tick_seconds_max
        self._stuck = f"no tick has ended for {limits.tick_seconds_max:g} s"
        self._broker = broker
        self._hosts = hosts
        self._name = name
        self._report = broker.engine.report
        self._callers = Callers(broker, token)
        self._metrics = Metrics(broker, queues_max=limits.measured_queues_max)
        names = Names(broker.engine)
        divert = "/api/v1/diverts/{name}"
        self._app = Starlette(
            routes=[
                Route("/livez", self.livez),
                Route("/readyz", self.readyz),
                Route("/metrics", self.metrics if metrics_open else self._guarded(self.metrics)),
                Route("/api/v1/status", self._guarded(self.status)),
                *QueueCalls(broker, names, limits).routes(self._guarded),
                *AddressCalls(broker, names).routes(self._guarded),
                *PeerCalls(broker).routes(self._guarded),
                Route("/api/v1/diverts", self._guarded(self.diverts, anybody)),
                Route(divert, self._guarded(self.make_divert, self._about_new_divert), methods=["PUT"]),
                Route(divert, self._guarded(self.delete_divert, self._about_divert), methods=["DELETE"]),
                Route(replaying.PATH, self._guarded(self.replay), methods=["POST"]),
                Route("/api/v1/balance", self._guarded(self.balance)),
            ],
            exception_handlers={
                Refused: _on_refused,
                EngineError: _on_engine_error,
                HTTPException: _on_http_exception,
                Exception: _on_bug,
            },
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: route on the path as it was sent, without what no call has."""
        assert scope["type"] == "http", "neither websockets nor lifespan are served"
        app: ASGIApp = self._app
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        headers = dict(scope["headers"])
        body_max = replaying.BODY_BYTES_MAX if scope["path"] == replaying.PATH else BODY_BYTES_MAX
        host = headers.get(b"host", b"")
        if self._hosts is not None and scope["path"] not in PROBES and not self._hosts.allow(host):
            told = f"this broker is not known as {host[:200].decode('latin-1')}: call it by its address, or name it in "
            app = _error(421, "wrong-host", f"{told}acceptors.{self._name}.allowed-hosts")
        elif scope["method"] not in ("GET", "HEAD") and not _from_here(headers):
            app = _error(403, "cross-origin", "a page of another site must not change anything here")
        elif b"transfer-encoding" in headers or not headers.get(b"content-length", b"0").isdigit():
            app = _error(411, "length-required", "send no body", {"connection": "close"})
        elif self._console is not None and not scope["path"].startswith(CALLS):
            await self._console(scope, receive, send)
            return
        elif int(headers.get(b"content-length", b"0")) > body_max:
            told = f"a body has at most {body_max} bytes" if body_max else "send no body: parameters are in the query"
            app = _error(413, "body-too-large", told, {"connection": "close"})
        await app(scope, receive, _hardened(send))

    # -- who may -----------------------------------------------------------------------------------------------------

    def _guarded(self, handler: Handler, about: About | None = None) -> Handler:
        """The handler for those who may; `about` says what a call needs, None: the broker as a whole."""

        async def guarded(request: Request) -> Response:
            client = request.client
            where = f"{client.host}:{client.port}" if client else "unknown"
            try:
                access = await self._callers.access(request)
            except Unknown:
                self._report("management.denied", remote=where, method=request.method, path=request.url.path)
                detail = "log in as a user of the broker, or with the token of management.token in the data directory"
                return _error(401, "denied", detail, {"www-authenticate": CHALLENGE})
            if about is None:
                require_whole(access)
            else:
                about(request, access)
            setattr(request.state, ACCESS, access)
            setattr(request.state, REPORT, self._report)
            if request.method not in ("GET", "HEAD"):
                self._report("management.called", method=request.method, path=request.url.path, **who(request, access))
            self._broker.engine.ticks.begin_verb()
            try:
                return await handler(request)
            except (EngineError, Refused, HTTPException):
                raise
            except Exception as error:  # before anything else happens: a verb may have been interrupted
                self._broker.tick.failed(None, error)
                return _on_bug(request, error)

        return guarded

    def _about_new_divert(self, request: Request, access: Access) -> None:
        for address in places(request):
            require_address(access, address)

    def _about_divert(self, request: Request, access: Access) -> None:
        """Who may not manage all that a divert joins, does not know of it."""
        name = name_of(request)
        divert = self._broker.engine.diverts.get(name)
        if divert is None or not _manages(access, divert):
            require_whole(access)
            raise NotFound(f"divert {name} does not exist")

    # -- health and metrics ------------------------------------------------------------------------------------------

    async def livez(self, request: Request) -> Response:
        """A tick begins and ends: else the broker does nothing for anybody, and has to be started again."""
        if await self._ticks():
            return PlainTextResponse("ok\n")
        return PlainTextResponse(self._stuck + "\n", 503)

    async def _ticks(self) -> bool:
        """Whether a tick ends within `tick_seconds_max`, which is begun for it."""
        tick, loop = self._broker.tick, asyncio.get_running_loop()
        ended, deadline, wait = tick.ended, loop.time() + self._tick_seconds_max, 0.0
        tick.enter()
        while tick.ended == ended:
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(wait)  # it ends before the loop looks at its sockets again, as a rule
            wait = 0.05
        return True

    async def readyz(self, request: Request) -> Response:
        """Whether clients should be sent here, and if not, why."""
        reasons = self._broker.unready()
        if not await self._ticks():
            reasons.append(self._stuck)
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics(self, request: Request) -> Response:
        """Prometheus's text, made beside the event loop."""
        snapshot = self._metrics.snapshot()
        content, content_type = await asyncio.to_thread(render, snapshot, request.headers.get("accept", ""))
        return Response(content, headers={"content-type": content_type})

    # -- the operator's calls ------------------------------------------------------------------------------------------

    async def status(self, request: Request) -> Response:
        """The broker as a whole."""
        check_known(request, ())
        self._broker.tick.enter()
        return JSONResponse(status_view(self._broker, self._broker.engine.now))

    async def diverts(self, request: Request) -> Response:
        """The diverts that the caller manages, by name."""
        check_known(request, ())
        diverts, access = self._broker.engine.diverts, access_of(request)
        chosen = [name for name in sorted(diverts) if _manages(access, diverts[name])]
        return JSONResponse({"diverts": [divert_view(diverts[name]) for name in chosen]})

    async def make_divert(self, request: Request) -> Response:
        """Make a divert; answered when that is on disk."""
        self._broker.tick.enter()
        operators = self._broker.engine.operators
        divert = new_divert(name_of(request), request, self._broker.engine.syntax)
        operators.add_divert(divert)
        told(
            request, "divert.made", divert=divert.name, address=divert.address, forwarding=", ".join(divert.forwarding)
        )
        await durable(self._broker.engine)
        return JSONResponse(divert_view(divert) | {"without-queue": operators.lacking_queues(divert)}, 201)

    async def delete_divert(self, request: Request) -> Response:
        """Delete a divert; answered when that is on disk."""
        check_known(request, ())
        self._broker.tick.enter()
        name = name_of(request)
        self._broker.engine.operators.remove_divert(name)
        told(request, "divert.deleted", divert=name)
        await durable(self._broker.engine)
        return JSONResponse({"divert": name})

    async def replay(self, request: Request) -> Response:
        """Bring messages back from the journal; answered when they are on disk."""
        check_known(request, {"name"})
        name, engine = request.query_params.get("name", ""), self._broker.engine
        past = replaying.read_replay(engine, await request.body(), name)
        self._broker.tick.enter()
        answer = replaying.perform(engine, name, past)
        told(request, "journal.replayed", replay=name, messages=answer.replayed, stopped=answer.stopped)
        await durable(self._broker.engine)
        return JSONResponse(asdict(answer))

    async def balance(self, request: Request) -> Response:
        """How many messages the journal has of each queue below a position, answered when all below it is on disk."""
        check_known(request, ())
        engine = self._broker.engine
        self._broker.tick.enter()
        position, counts = engine.balance()
        await durable(self._broker.engine)
        # Beside the event loop: of 100,000 queues this takes a third of a second.
        broker_id = engine.journal.broker_id
        return await asyncio.to_thread(lambda: JSONResponse(balance_view(broker_id, position, counts)))


def _manages(access: Access, divert: Divert) -> bool:
    return all(access.might(Permission.MANAGE, address) for address in (divert.address, *divert.forwarding))


def _hardened(send: Send) -> Send:
    """Answers that no browser takes for a page, whatever the names in them are."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_PROTECTION]
        await send(message)

    return sending


def _from_here(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser, which sends a user's password along unasked, got the page that calls from this very port."""
    scheme, separator, host = headers.get(b"origin", b"").partition(b"://")
    return not scheme or bool(separator and host.lower() == headers.get(b"host", b"").lower())


def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _error(error.status, error.error, error.detail)


def _on_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    status = {Denied: 403, NotFound: 404, AlreadyInUse: 409, NotReadable: 503, NoQueue: 409}.get(type(error), 400)
    return _error(status, error.code, str(error))


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no-such-call", 405: "no-such-method"}.get(error.status_code, "refused")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return _error(error.status_code, code, detail, dict(error.headers or {}))


def _on_bug(request: Request, error: Exception) -> Response:
    return _error(500, "internal", "the broker failed to answer; its log has the reason")
