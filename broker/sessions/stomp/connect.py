"""CONNECT: logs the client in, and answers with CONNECTED.

The codec parses nothing until the answer, which may take a while (see `login`).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.model.access import Identity
from broker.engine.model.report import Report
from broker.sessions.login import Gate, Peer
from broker.sessions.stomp.headers import Options, heartbeat
from protocols.stomp.connection import StompConnection, negotiate
from protocols.stomp.errors import FirstTooLarge, StompError
from protocols.stomp.frames import Frame


class Login:
    """The login of one connection.  `waiting`: CONNECT is not answered yet; `client_id` is set by `begin`."""

    def __init__(self, codec: StompConnection, gate: Gate, peer: Peer, options: Options, session: str) -> None:
        self.waiting = False
        self.client_id = ""
        self._codec = codec
        self._gate = gate
        self._peer = peer
        self._options = options
        self._session = session

    def begin(self, frame: Frame, then: Callable[[Identity | None], None]) -> None:
        """Start the login; `then` is called with the result, now or later.  Raises StompError for an invalid frame."""
        headers = frame.headers
        negotiate(headers.get(b"accept-version"))
        login, passcode = headers.get(b"login", b"").decode(), headers.get(b"passcode", b"")
        self.client_id = headers.get(b"client-id", b"").decode()
        self.waiting = True

        def known(identity: Identity | None) -> None:
            self.waiting = False
            then(identity)

        self._gate.login(self._peer, login, passcode, known)

    def welcome(self, frame: Frame, identity: Identity) -> tuple[int, int]:
        """Send CONNECTED.  Returns `send_interval` and `receive_timeout` in ms (see Session).

        Raises StompError for an invalid heart-beat header.
        """
        headers = frame.headers
        send_interval, receive_timeout, timers = heartbeat(headers.get(b"heart-beat"), self._options)
        answer = [
            (b"session", self._session.encode()),
            (b"server", self._options.server.encode()),
            (b"heart-beat", timers),
        ]
        if identity.user:
            answer.append((b"user-name", identity.user.encode()))
        if b"request-id" in headers:
            answer.append((b"response-id", headers[b"request-id"]))
        self._codec.send_connected(negotiate(headers.get(b"accept-version")), answer)
        return send_interval, receive_timeout


def report_error(report: Report, failure: StompError) -> None:
    """Log an error that ends a connection."""
    report(
        "login.too_large" if isinstance(failure, FirstTooLarge) else "stomp.error",
        message=failure.message,
        detail=failure.detail,
    )


def moved(why: str, servers: str) -> StompError:
    """Return the error that says that another broker of the pair has taken over."""
    return StompError("another broker has the journal", why, redirect=servers)


def login_refused() -> StompError:
    """Return the error for a refused login."""
    return StompError("login refused", "CONNECT: the login or the passcode is wrong.", None)
