"""The HTTP calls.

    GET    /livez  /readyz                          health; for everybody
    GET    /metrics                                 Prometheus; for callers, or for everybody (open-metrics)
    GET    /api/v1/status
    GET    /api/v1/queues?page=&size=               by name
    GET    /api/v1/queues/NAME
    GET    /api/v1/queues/NAME/messages?filter=&page=&size=
    DELETE /api/v1/queues/NAME/messages             answers when the removal is durable
    POST   /api/v1/queues/NAME/messages:retry?filter=&id=&after=&below=       back to where they came from; so do these
    POST   /api/v1/queues/NAME/messages:move?to=&filter=&id=&after=&below=    to another address or queue
    GET    /api/v1/diverts                          and PUT, DELETE /api/v1/diverts/NAME: see diverts.py
    POST   /api/v1/queues/NAME/pause  .../resume    stop its deliveries, let them go on
    POST   /api/v1/addresses/NAME/pause  .../resume    the same for all queues on an address
    POST   /api/v1/queues/NAME/attributes?ring-size=5&...    change them; what is not named stays
    POST   /api/v1/messages:replay?name=            bring messages back from the journal: see replaying.py
    GET    /api/v1/balance                          what the journal has of each queue, when all of that is durable

Who may make them is asked in one place (`_guarded`, see callers.py), before anything else.

Names are percent-encoded: they may hold `/`, `::`, `#` and anything else, so paths are routed before they are decoded.
Each call is a few engine verbs in one tick, without an `await` between them.  Errors are `{"error": CODE, "detail":
SENTENCE}`; an engine's refusal has the engine's code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.engine import alter
from broker.engine.access import Access
from broker.engine.attributes import dashed, parse
from broker.engine.configured import remove_divert
from broker.engine.diverts import Divert
from broker.engine.errors import AlreadyInUse, Denied, EngineError, NotFound
from broker.engine.filter import Filter
from broker.engine.message import Message, PropertyView
from broker.engine.permissions import Permission
from broker.engine.queue import Queue
from broker.engine.subscribe import parse_selector
from broker.engine.transfer import Selection
from broker.log import report
from broker.management import replaying
from broker.management.callers import (
    ACCESS,
    CHALLENGE,
    Callers,
    Unknown,
    require_address,
    require_queue,
    require_target,
    require_whole,
    shown_caller,
)
from broker.management.diverts import divert_view, make_divert, places
from broker.management.durable import durable
from broker.management.metrics import Metrics, render
from broker.management.names import Names
from broker.management.ports import Broker
from broker.management.views import (
    Json,
    balance_view,
    message_view,
    queue_counts,
    queue_view,
    status_view,
    step_view,
)

#: Queues on a page, and the most that may be asked for: a page is made within some ms.
QUEUES_PER_PAGE: Final = 100
PAGE_SIZE_MAX: Final = 1_000

#: Messages of a queue that one request may look at, and may try a filter on: some 40 ms of the event loop, in which
#: every client waits.  Whoever asks for what lies beyond is told that it was not looked at.
LOOKED_AT_MAX: Final = 200_000
FILTERED_MAX: Final = 5_000

#: The largest message id.
ID_MAX: Final = (1 << 63) - 1

#: Bytes of a request's body: no call but a replay has one, so a client that sends more is in error.
BODY_BYTES_MAX: Final = 64 << 10

Handler = Callable[[Request], Awaitable[Response]]

#: What a call is about: raises Denied, or NotFound, for a caller who may not make it.
About = Callable[[Request, Access], None]


class Refused(Exception):
    """A request that cannot be answered as asked."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.detail = detail


def _error(status: int, error: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": error, "detail": detail}, status, headers)


class Api:
    """The calls on one broker."""

    def __init__(self, broker: Broker, token: str, *, metrics_open: bool) -> None:
        self._broker = broker
        self._callers = Callers(broker, token)
        self._metrics = Metrics(broker)
        self._names = Names(broker.engine.router)
        queue, address = "/api/v1/queues/{name}", "/api/v1/addresses/{name}"
        divert = "/api/v1/diverts/{name}"
        self._app = Starlette(
            routes=[
                Route("/livez", self.livez),
                Route("/readyz", self.readyz),
                Route("/metrics", self.metrics if metrics_open else self._guarded(self.metrics)),
                Route("/api/v1/status", self._guarded(self.status)),
                Route("/api/v1/queues", self._guarded(self.queues, _chosen)),
                Route(queue, self._guarded(self.queue, self._about_queue)),
                Route(f"{queue}/messages", self._guarded(self.browse, self._about_queue), methods=["GET"]),
                Route(f"{queue}/messages", self._guarded(self.purge, self._about_queue), methods=["DELETE"]),
                Route(f"{queue}/messages:retry", self._guarded(self.retry, self._about_queue), methods=["POST"]),
                Route(f"{queue}/messages:move", self._guarded(self.move, self._about_move), methods=["POST"]),
                Route("/api/v1/diverts", self._guarded(self.diverts, _chosen)),
                Route(divert, self._guarded(self.make_divert, self._about_new_divert), methods=["PUT"]),
                Route(divert, self._guarded(self.delete_divert, self._about_divert), methods=["DELETE"]),
                Route(f"{queue}/pause", self._guarded(self.pause_queue, self._about_queue), methods=["POST"]),
                Route(f"{queue}/resume", self._guarded(self.pause_queue, self._about_queue), methods=["POST"]),
                Route(f"{queue}/attributes", self._guarded(self.change_queue, self._about_queue), methods=["POST"]),
                Route(f"{address}/pause", self._guarded(self.pause_address, _about_address), methods=["POST"]),
                Route(f"{address}/resume", self._guarded(self.pause_address, _about_address), methods=["POST"]),
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
        if scope["method"] not in ("GET", "HEAD") and not _from_here(headers):
            app = _error(403, "cross-origin", "a page of another site may not change anything here")
        elif b"transfer-encoding" in headers or not headers.get(b"content-length", b"0").isdigit():
            app = _error(411, "length-required", "send no body", {"connection": "close"})
        elif int(headers.get(b"content-length", b"0")) > body_max:
            app = _error(413, "body-too-large", f"a body has {body_max} bytes at most", {"connection": "close"})
        await app(scope, receive, send)

    # -- who may -----------------------------------------------------------------------------------------------------

    def _guarded(self, handler: Handler, about: About | None = None) -> Handler:
        """The handler for those who may; `about` says what a call needs, None: the broker as a whole."""

        async def guarded(request: Request) -> Response:
            client = request.client
            where = f"{client.host}:{client.port}" if client else "unknown"
            try:
                access = await self._callers.access(request)
            except Unknown:
                report("management.denied", remote=where, method=request.method, path=request.url.path)
                detail = "log in as a user of the broker, or with the token of management.token in the data directory"
                return _error(401, "denied", detail, {"www-authenticate": CHALLENGE})
            if about is None:
                require_whole(access)
            else:
                about(request, access)
            setattr(request.state, ACCESS, access)
            if request.method not in ("GET", "HEAD"):
                user, path = shown_caller(access), request.url.path
                report("management.called", user=user, remote=where, method=request.method, path=path)
            return await handler(request)

        return guarded

    def _about_queue(self, request: Request, access: Access) -> None:
        require_queue(access, self._broker.engine, _name(request))

    def _about_move(self, request: Request, access: Access) -> None:
        self._about_queue(request, access)
        require_target(access, self._broker.engine, request.query_params.get("to", ""))

    def _about_new_divert(self, request: Request, access: Access) -> None:
        for address in places(request):
            require_address(access, address)

    def _about_divert(self, request: Request, access: Access) -> None:
        """Who may not manage all that a divert joins, does not know of it."""
        name = _name(request)
        divert = self._broker.engine.router.diverts.by_name.get(name)
        if divert is None or not _manages(access, divert):
            require_whole(access)
            raise NotFound(f"divert {name} does not exist")

    # -- health and metrics ------------------------------------------------------------------------------------------

    async def livez(self, request: Request) -> Response:
        """The event loop turns: that it answers is the answer."""
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """Whether clients should be sent here, and if not, why."""
        reasons = self._broker.unready()
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics(self, request: Request) -> Response:
        """Prometheus's text, made beside the event loop."""
        snapshot = self._metrics.snapshot()
        content, content_type = await asyncio.to_thread(render, snapshot, request.headers.get("accept", ""))
        return Response(content, headers={"content-type": content_type})

    # -- the operator's calls ------------------------------------------------------------------------------------------

    async def status(self, request: Request) -> Response:
        """The broker as a whole."""
        self._broker.turn.enter()
        return JSONResponse(status_view(self._broker, self._broker.engine.now))

    async def queues(self, request: Request) -> Response:
        """A page of the queues that the caller manages, by name; the broker's own only if they are asked for."""
        page, size = _page(request, QUEUES_PER_PAGE)
        queues = self._broker.engine.router.queues
        internal = request.query_params.get("internal") == "true"
        names = [name for name in self._names.queues() if internal or not queues[name].internal]
        access: Access = getattr(request.state, ACCESS)
        if not access.everywhere(Permission.MANAGE):
            places = [(queues[name].address.name, name) for name in names]
            chosen = await asyncio.to_thread(access.chosen, Permission.MANAGE, places)
            names = [name for name, managed in zip(names, chosen, strict=True) if managed and name in queues]
        shown = names[(page - 1) * size : page * size]
        return JSONResponse(
            {"queues": [queue_counts(queues[n]) for n in shown], "page": page, "size": size, "total": len(names)}
        )

    async def queue(self, request: Request) -> Response:
        """One queue."""
        return JSONResponse(queue_view(self._named(request)))

    async def browse(self, request: Request) -> Response:
        """A page of a queue's messages that a filter fits."""
        queue = self._named(request)
        page, size = _page(request, max(queue.address.settings.management_browse_page_size, 1))
        filter = parse_selector(request.query_params.get("filter", ""))
        self._broker.turn.enter()
        messages, complete = _browse(self._broker.engine.browse(queue), filter, (page - 1) * size, size)
        answer: Json = {
            "messages": [message_view(message, queue, state) for message, state in messages],
            "page": page,
            "size": size,
            "complete": complete,
        }
        return JSONResponse(answer)

    async def purge(self, request: Request) -> Response:
        """Remove all messages that no consumer holds; answered when that is on disk."""
        queue = self._named(request)
        engine = self._broker.engine
        self._broker.turn.enter()
        purged = engine.purge(queue)
        await self._durable()
        return JSONResponse({"queue": queue.name, "purged": purged, "delivering": queue.delivering})

    async def pause_queue(self, request: Request) -> Response:
        """Stop the deliveries of a queue, or let them go on; answered when that is on disk."""
        queue, paused = self._named(request), request.url.path.endswith("/pause")
        queue.check_public()
        self._broker.turn.enter()
        if alter.pause(self._broker.engine.router, queue, paused=paused):
            report("queue.paused" if paused else "queue.resumed", queue=queue.name)
        await self._durable()
        return JSONResponse(queue_counts(queue))

    async def pause_address(self, request: Request) -> Response:
        """Stop the deliveries of all queues on an address, or let them go on; answered when that is on disk."""
        name, paused = _name(request), request.url.path.endswith("/pause")
        address = self._broker.engine.router.addresses.get(name)
        if address is None:
            raise NotFound(f"address {name} does not exist")
        self._broker.turn.enter()
        if alter.pause_address(self._broker.engine.router, address, paused=paused):
            report("address.paused" if paused else "address.resumed", address=name)
        await self._durable()
        return JSONResponse({"name": name, "paused": address.paused, "queues": len(address.queues)})

    async def change_queue(self, request: Request) -> Response:
        """Change attributes of a queue; answered when that is on disk."""
        queue = self._named(request)
        queue.check_public()
        asked: dict[str, object] = {}
        for name, value in request.query_params.multi_items():
            asked |= parse(name, value)
        if not asked:
            raise Refused(400, "invalid-parameter", "name attributes and their values, as ring-size=5")
        self._broker.turn.enter()
        if alter.change(self._broker.engine.router, queue, asked):
            shown = ", ".join(f"{dashed(name)}={value}" for name, value in asked.items())
            report("queue.changed", queue=queue.name, attributes=shown)
        await self._durable()
        return JSONResponse(queue_view(queue))

    async def retry(self, request: Request) -> Response:
        """Move messages back to where they came from, one step; answered when that is on disk."""
        queue, selection = self._named(request), _selection(request)
        self._broker.turn.enter()
        step = self._broker.engine.retry(queue, selection)
        report("queue.retried", queue=queue.name, messages=step.moved, refused=sum(step.refused.values()))
        await self._durable()
        return JSONResponse(step_view(step, queue))

    async def move(self, request: Request) -> Response:
        """Move messages to another address or queue, one step; answered when that is on disk."""
        queue, selection, target = self._named(request), _selection(request), request.query_params.get("to", "")
        if not target:
            raise Refused(400, "invalid-parameter", "to is the address or queue that gets the messages")
        self._broker.turn.enter()
        step = self._broker.engine.move(queue, target, selection)
        refused = sum(step.refused.values())
        report("queue.moved", queue=queue.name, target=target, messages=step.moved, refused=refused)
        await self._durable()
        return JSONResponse(step_view(step, queue))

    async def diverts(self, request: Request) -> Response:
        """The diverts that the caller manages, by name."""
        diverts, access = self._broker.engine.router.diverts.by_name, getattr(request.state, ACCESS)
        chosen = [name for name in sorted(diverts) if _manages(access, diverts[name])]
        return JSONResponse({"diverts": [divert_view(diverts[name]) for name in chosen]})

    async def make_divert(self, request: Request) -> Response:
        """Make a divert; answered when that is on disk."""
        self._broker.turn.enter()
        divert = make_divert(self._broker.engine.router, _name(request), request)
        report("divert.made", divert=divert.name, address=divert.address, forwarding=", ".join(divert.forwarding))
        await self._durable()
        return JSONResponse(divert_view(divert), 201)

    async def delete_divert(self, request: Request) -> Response:
        """Delete a divert; answered when that is on disk."""
        self._broker.turn.enter()
        name = _name(request)
        remove_divert(self._broker.engine.router, name)
        report("divert.deleted", divert=name)
        await self._durable()
        return JSONResponse({"divert": name})

    async def replay(self, request: Request) -> Response:
        """Bring messages back from the journal; answered when they are on disk."""
        name, engine = request.query_params.get("name", ""), self._broker.engine
        past = replaying.read_replay(engine, await request.body(), name)
        self._broker.turn.enter()
        answer = replaying.perform(engine, name, past)
        await self._durable()
        return JSONResponse(answer)

    async def balance(self, request: Request) -> Response:
        """How many messages the journal has of each queue below a position, answered when all below it is on disk."""
        engine = self._broker.engine
        self._broker.turn.enter()
        position, counts = engine.balance()
        await self._durable()
        # Beside the event loop: of 100,000 queues this takes a third of a second.
        broker_id = engine.core.journal.broker_id
        return await asyncio.to_thread(lambda: JSONResponse(balance_view(broker_id, position, counts)))

    async def _durable(self) -> None:
        await durable(self._broker.engine)

    def _named(self, request: Request) -> Queue:
        return self._broker.engine.queue(_name(request))


def _chosen(request: Request, access: Access) -> None:
    """A list shows what the caller manages."""


def _about_address(request: Request, access: Access) -> None:
    require_address(access, _name(request))


def _manages(access: Access, divert: Divert) -> bool:
    return all(access.might(Permission.MANAGE, address) for address in (divert.address, *divert.forwarding))


def _name(request: Request) -> str:
    """The name in a path."""
    try:
        return unquote(request.path_params["name"], errors="strict")
    except UnicodeDecodeError:
        raise Refused(400, "invalid-name", "the name is not percent-encoded UTF-8") from None


def _from_here(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser, which sends a user's password along unasked, got the page that calls from this very port."""
    scheme, separator, host = headers.get(b"origin", b"").partition(b"://")
    return not scheme or bool(separator and host.lower() == headers.get(b"host", b"").lower())


def _page(request: Request, size_default: int) -> tuple[int, int]:
    """Number (from 1) and size of the page that is asked for."""
    return (
        _number(request, "page", 1, 1 << 31),
        _number(request, "size", min(size_default, PAGE_SIZE_MAX), PAGE_SIZE_MAX),
    )


def _number(request: Request, name: str, default: int, largest: int) -> int:
    value = request.query_params.get(name, "")
    if not value:
        return default
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(largest))
    if not (digits and 1 <= int(value) <= largest):
        raise Refused(400, "invalid-parameter", f"{name} is a number from 1 to {largest}")
    return int(value)


def _selection(request: Request) -> Selection:
    """Which messages a call is about."""
    filter = parse_selector(request.query_params.get("filter", ""))
    id, after, below = (_number(request, name, 0, ID_MAX) for name in ("id", "after", "below"))
    if id and (filter or after or below):
        raise Refused(400, "invalid-parameter", "id names one message: give nothing else")
    return Selection(filter, id, after, below)


def _browse(
    places: Iterator[tuple[Message, str]], filter: Filter | None, skip: int, size: int
) -> tuple[list[tuple[Message, str]], bool]:
    """The messages that the filter fits, after so many others; and whether all were looked at that had to be."""
    looked_at_max = LOOKED_AT_MAX if filter is None else FILTERED_MAX
    looked_at = 0
    found: list[tuple[Message, str]] = []
    for message, state in islice(places, looked_at_max):
        looked_at += 1
        if filter is not None and not filter.matches(PropertyView(message)):
            continue
        if skip:
            skip -= 1
            continue
        found.append((message, state))
        if len(found) == size:
            return found, True
    return found, looked_at < looked_at_max or next(places, None) is None


def _on_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _error(error.status, error.error, error.detail)


def _on_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    status = {Denied: 403, NotFound: 404, AlreadyInUse: 409}.get(type(error), 400)
    return _error(status, error.code, str(error))


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no-such-call", 405: "no-such-method"}.get(error.status_code, "refused")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return _error(error.status_code, code, detail, dict(error.headers or {}))


def _on_bug(request: Request, error: Exception) -> Response:
    return _error(500, "internal", "the broker failed to answer; its log says more")
