"""The login: as a user of the broker, checked as in every protocol, or with the broker's own token.

Failed logins are throttled and logged, as everywhere.  A wrong token is treated like an invalid token of an issuer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from broker.console.desk import Desk
from broker.console.render import page, warm
from broker.console.sessions import ID_BYTES, Session, Sessions
from broker.console.visit import Fields, Visit, go_to
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.permissions import Permission
from broker.management.callers import CALLER, Caller, log_in
from broker.sessions.login import Peer

#: Characters of the path to redirect to after the login.
NEXT_CHARS_MAX: Final = 4_096

_WRONG: Final = "The user and password, or the token, are wrong."


class LoginPages:
    """The login form and its handling; `sweeping` is called when a session has begun."""

    def __init__(self, desk: Desk, token: str, sessions: Sessions, *, sweeping: Callable[[], None]) -> None:
        self._desk = desk
        self._token = token.encode()
        self._sessions = sessions
        self._sweeping = sweeping
        self._warm = False

    def _cookie(self, request: Request) -> str:
        """The name of the cookie: unique to a broker, as brokers may share a host; with TLS no other host sets it."""
        name = f"bartleby-{self._desk.engine.journal.broker_id.hex()[:8]}"
        return f"__Host-{name}" if request.url.scheme == "https" else name

    def session_of(self, request: Request, *, by_itself: bool) -> Session | None:
        """The session of a request; None: the user has not logged in."""
        session = self._sessions.find(cookie(request, self._cookie(request)), by_itself=by_itself)
        if session is not None:
            _caller(request).manages = session.access.anywhere(Permission.MANAGE)
        return session

    async def known(self, request: Request) -> Response:
        """Whether the browser has a session: 204 if so, else 200, as having none is no error."""
        return Response(status_code=200 if self.session_of(request, by_itself=True) is None else 204)

    async def show(self, request: Request) -> Response:
        """The form.  The templates of all pages, some 0.3 s, are compiled with it, before a login needs them."""
        if not self._warm:
            self._warm = True
            await asyncio.to_thread(warm, self._desk.templates)
        next = _local(request.query_params.get("next", ""))
        if self.session_of(request, by_itself=True) is not None:
            return RedirectResponse(next or "/", 303)
        return self._form(request, next)

    def _form(self, request: Request, next: str, *, wrong: str = "", status: int = 200) -> Response:
        """The form, with the same random text as a cookie, which no other site can set."""
        once = token_urlsafe(ID_BYTES)
        context = {"broker": self._desk.broker, "next": next, "wrong": wrong, "once": once}
        answer = HTMLResponse(page(self._desk.templates, "login.html", context), status)
        self._set_cookie(answer, request, f"{self._cookie(request)}-login", once)
        return answer

    async def enter(self, request: Request, form: Fields) -> Response:
        """Handle a submitted login form."""
        user, password, next, once = (form.get(name, [""])[0] for name in ("user", "password", "next", "once"))
        next = _local(next)
        expected = cookie(request, f"{self._cookie(request)}-login")
        if not expected or not compare_digest(once.encode(), expected.encode()):
            wrong = "The form has expired, or cookies are disabled: try again."
            return self._form(request, next, wrong=wrong, status=403)
        client = request.client
        host, port = (client.host, client.port) if client else ("unknown", 0)
        peer = Peer(f"{host}:{port}", host, request.url.scheme == "https")
        access = await self._checked(peer, user.strip(), password)
        if access is None:
            self._desk.broker.gate.left(peer)
            return self._form(request, next, wrong=_WRONG, status=403)
        old = self.session_of(request, by_itself=True)
        if old is not None:
            self._sessions.end(old, "logout")
        session = self._sessions.begin(peer, access)
        self._sweeping()
        answer = RedirectResponse(next or "/", 303)
        self._set_cookie(answer, request, self._cookie(request), session.id)
        return answer

    async def _checked(self, peer: Peer, user: str, password: str) -> Access | None:
        """The user's permissions, perhaps after a delay; None: the login is refused."""
        gate = self._desk.broker.gate
        if user:
            return await log_in(self._desk.broker, partial(gate.named, peer, user, password.encode()))
        token = password.strip().encode()
        if compare_digest(token, self._token):
            return UNRESTRICTED
        return await log_in(self._desk.broker, partial(gate.bearer, peer, "", token))

    async def leave(self, visit: Visit) -> Response:
        """Log out."""
        self._sessions.end(visit.session, "logout")
        answer = go_to("/login")
        secure = visit.request.url.scheme == "https"
        answer.delete_cookie(self._cookie(visit.request), secure=secure, httponly=True, samesite="strict")
        return answer

    def _set_cookie(self, answer: Response, request: Request, name: str, value: str) -> None:
        # Behind a TLS proxy only the browser knows about TLS: the form's Origin shows it.
        secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
        answer.set_cookie(name, value, path="/", httponly=True, samesite="strict", secure=secure)


def cookie(request: Request, name: str) -> str:
    """The value of a cookie of the console's own; empty: there is none.

    Its values are never quoted.  `Request.cookies` undoes the quotes of all cookies, which anybody may send, in time
    that grows with the square of their length: two seconds for one header.
    """
    found = ""
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            given, _, value = pair.partition("=")
            if given.strip() == name:
                found = value.strip()
    return found


def _caller(request: Request) -> Caller:
    caller: Caller = getattr(request.state, CALLER)
    return caller


def _local(next: str) -> str:
    """The path to redirect to, if it is a page of this console; else empty."""
    plain = next.startswith("/") and not next.startswith("//") and "\\" not in next and next.isprintable()
    return next if plain and next.isascii() and len(next) <= NEXT_CHARS_MAX else ""
