"""The console as an ASGI application: access to pages, security headers, errors as pages.

Pages are made and actions done in a tick, under the permissions of the HTTP calls (`management.callers`).  An action in
a form needs the token of its session (CSRF); the API in front of this application has already refused requests of other
sites and unknown host names.  A browser may load and run only what the console serves: pages contain no inline script
or style (Content-Security-Policy).
"""

from __future__ import annotations

import asyncio
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from broker import clock
from broker.console.address_pages import AddressPages
from broker.console.broker_pages import BrokerPages
from broker.console.dead_letter_pages import DeadLetterPages
from broker.console.desk import Authorize, Desk, Page, Routes
from broker.console.divert_pages import DivertPages
from broker.console.link_pages import LinkPages
from broker.console.login import LoginPages
from broker.console.message_pages import MessagePages
from broker.console.overview import OverviewPages
from broker.console.peer_pages import PeerPages
from broker.console.queue_pages import QueuePages
from broker.console.reasons import ReasonPages
from broker.console.render import assets, environment
from broker.console.send_pages import SendPages
from broker.console.sessions import IDLE_SECONDS_MAX, Sessions
from broker.console.task_pages import TaskPages
from broker.console.trail_pages import TrailPages
from broker.console.visit import FORM_BYTES_MAX, LOGIN_BYTES_MAX, Refused, Visit, fields, link
from broker.engine.model.errors import EngineError
from broker.management.api import hardened
from broker.management.limits import Limits
from broker.management.operator_log import caller_fields
from broker.management.ports import Broker
from broker.management.problems import status_of
from broker.management.shared import Shared

#: A browser may load only what the console serves, send forms only to it, and not frame it or change its base URL.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; form-action 'self'; base-uri 'none'"
)

_PROTECTION: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: it makes a browser hide the origin of a form, which would be refused as another site's.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)

#: The header by which a page marks a request that it makes on its own, without the user.
BY_ITSELF: Final = "console-refresh"

#: The type of a form.
_FORM: Final = "application/x-www-form-urlencoded"

#: Seconds between checks for unused sessions.
_SWEEP_SECONDS: Final = IDLE_SECONDS_MAX / 30


class Console:
    """The console of one broker, served by each of its HTTP acceptors; `token`: the broker's own.

    `reports`: the directory of nightly audit reports, None: there is none.
    """

    def __init__(
        self,
        broker: Broker,
        token: str,
        *,
        reports: Path | None = None,
        limits: Limits | None = None,
        shared: Shared | None = None,
    ) -> None:
        self._broker = broker
        self._report = broker.engine.report
        self._assets = assets()
        loop = asyncio.get_running_loop()
        self.sessions = Sessions(lambda: broker.gate, self._report, now=loop.time, wall_ms=clock.wall_ms)
        self._desk = Desk(broker, shared or Shared(broker), limits or Limits(), environment())
        self._login = LoginPages(self._desk, token, self.sessions, sweeping=self._sweep)
        self._sweeping: asyncio.TimerHandle | None = None
        self._app = Starlette(
            routes=[
                Route("/static/{name}", self._static),
                Route("/session", self._login.known),
                Route("/login", self._login.show, methods=["GET"]),
                Route("/login", self._logging_in, methods=["POST"]),
                self._route("/logout", self._login.leave, None, methods=["POST"]),
                *(
                    self._route(path, page, authorize, methods=[method])
                    for method, path, page, authorize in self._pages(reports)
                ),
            ],
            exception_handlers={HTTPException: self._on_http_exception, Exception: self._on_bug},
        )
        self._app.router.redirect_slashes = False

    def _pages(self, reports: Path | None) -> Routes:
        """All pages behind the login."""
        desk = self._desk
        return [
            *OverviewPages(desk).routes(),
            *QueuePages(desk).routes(),
            *MessagePages(desk).routes(),
            *SendPages(desk).routes(),
            *TaskPages(desk).routes(),
            *DeadLetterPages(desk).routes(),
            *AddressPages(desk).routes(),
            *PeerPages(desk).routes(),
            *DivertPages(desk).routes(),
            *LinkPages(desk).routes(),
            *BrokerPages(desk, reports).routes(),
            *ReasonPages(desk).routes(),
            *TrailPages(desk).routes(),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI, HTTP only: answer with a page and the protecting headers."""
        await self._app(scope, receive, hardened(send, _PROTECTION))

    # -- access ------------------------------------------------------------------------------------------------------

    def _route(self, path: str, page: Page, authorize: Authorize | None, *, methods: list[str]) -> Route:
        """The route to a page for logged-in users who pass its `about` check."""

        async def guarded(request: Request) -> Response:
            session = self._login.session_of(request, by_itself=BY_ITSELF in request.headers)
            if session is None:
                return _to_login(request)
            visit = Visit(request, session, self._report)
            try:
                visit.query = fields(request.url.query)
                if request.method == "POST":
                    visit.form = await _form(request, FORM_BYTES_MAX)
                    if not compare_digest(visit.text("csrf").encode(), session.csrf.encode()):
                        raise Refused("this form belongs to another session: load its page again", 403)
                checked = None if authorize is None else authorize(visit)
                if checked is not None:
                    await checked
                if request.method == "POST":
                    self._report(
                        "management.called", method="POST", path=path, **caller_fields(request, session.access)
                    )
                self._broker.engine.ticks.begin_verb()
                return await page(visit)
            except (EngineError, Refused) as error:
                return self._refused(visit, error)
            except HTTPException:
                raise
            except Exception as error:  # before anything else happens: a verb may have been interrupted
                self._broker.tick.failed(None, error)
                return _plain(500, "The broker failed to answer; its log has the reason.")

        return Route(path, guarded, methods=methods)

    async def _logging_in(self, request: Request) -> Response:
        try:
            form = await _form(request, LOGIN_BYTES_MAX)
        except Refused as error:
            return _plain(error.status, str(error))
        return await self._login.enter(request, form)

    def _sweep(self) -> None:
        """End sessions in time even if no page is requested."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        self.sessions.sweep()
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep) if len(self.sessions) else None

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _static(self, request: Request) -> Response:
        """A script, a style or a picture: its URL changes with its content."""
        found = self._assets.get(request.path_params["name"])
        if found is None:
            return _plain(404, "There is no such file.")
        content, kind = found
        headers = {"content-type": f"{kind}; charset=utf-8", "cache-control": "public, max-age=31536000, immutable"}
        return Response(content, headers=headers)

    def _refused(self, visit: Visit, error: EngineError | Refused) -> Response:
        """A page that says why a request is refused."""
        status = error.status if isinstance(error, Refused) else status_of(error)
        context = {"title": HTTPStatus(status).phrase, "detail": str(error)}
        return self._desk.page(visit, "error.html", context, status=status)

    def _on_http_exception(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _plain(error.status_code, f"{HTTPStatus(error.status_code).phrase}.")

    def _on_bug(self, request: Request, error: Exception) -> Response:
        return _plain(500, "The broker failed to answer; its log has the reason.")


async def _form(request: Request, bytes_max: int) -> dict[str, list[str]]:
    """The fields of a submitted form.  Raises Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Refused("send the form of a page of this console", 415)
    if int(request.headers.get("content-length", "0")) > bytes_max:
        raise Refused(f"a form has at most {bytes_max} bytes", 413)
    try:
        text = (await request.body()).decode("ascii")
    except UnicodeDecodeError:
        raise Refused("a form must be percent-encoded") from None
    except ClientDisconnect:
        raise Refused("the connection ended before the form did") from None
    return dict(fields(text))


def _to_login(request: Request) -> Response:
    """Redirect to the login, which returns to the page; requests that a page makes on its own redirect the page."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if BY_ITSELF in request.headers or "hx-request" in request.headers:
        return Response(status_code=401, headers={"hx-redirect": "/login"})
    return RedirectResponse(link("/login", next=wanted if request.method == "GET" and wanted != "/" else ""), 303)


def _plain(status: int, text: str) -> Response:
    """A plain answer, also for users who have not logged in."""
    return HTMLResponse(
        f'<!doctype html><meta charset="utf-8"><title>{status}</title><p>{text} <a href="/">To the console</a></p>',
        status,
        {"connection": "close"} if status == 413 else None,
    )
