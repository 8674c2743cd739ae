"""The answers to CONNECT: CONNECTED, and errors."""

from __future__ import annotations

from broker.engine.model.report import Report
from broker.sessions.stomp.headers import Headers, heartbeat
from broker.sessions.stomp.port import Port
from protocols.stomp.connection import negotiate
from protocols.stomp.errors import FirstTooLarge, StompError


def welcome(port: Port, headers: Headers, user: str) -> tuple[int, int]:
    """Send CONNECTED.  Returns `send_interval` and `receive_timeout` in ms (see Session).

    Raises StompError for an invalid heart-beat header.
    """
    send_interval, receive_timeout, timers = heartbeat(headers.get(b"heart-beat"), port.options)
    answer = [
        (b"session", port.id.encode()),
        (b"server", port.options.server.encode()),
        (b"heart-beat", timers),
    ]
    if user:
        answer.append((b"user-name", user.encode()))
    if b"request-id" in headers:
        answer.append((b"response-id", headers[b"request-id"]))
    port.codec.send_connected(negotiate(headers.get(b"accept-version")), answer)
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
