"""The HTTP acceptor: uvicorn on the broker's own event loop, without its signal handlers and its command line.

Limits for a peer: the size of a header, the time for one request, and the number of connections, where those that have
logged in take precedence (`connection_slots`).  A socket takes its place before anything is made for it; over TLS
that is before its handshake, which uses the certificate of that moment, as on every acceptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from broker.clock import thread_cpu_us
from broker.management.api import PROBES, PROTECTION, Api
from broker.management.callers import CALLER, CHALLENGE, LOG_IN, Caller, is_token
from broker.management.hosts import AllowedHosts
from broker.management.limits import RESERVED_MAX, Limits
from broker.management.ports import Broker
from broker.management.problems import problem
from broker.management.shared import Shared
from broker.management.turns import PART_BYTES, Turns
from broker.net.acceptor import ListeningSockets
from broker.net.admission import ConnectionSlots, Slot
from broker.net.handshake import name_and_origin, shake
from broker.net.login_turns import LoginTurns
from broker.net.tasks import supervised
from broker.security.certificates import subject_of
from broker.sessions.login import Peer
from broker.sessions.protocol_detection import FIRST_BYTES, advice, spoken

#: The protocols that a client's first bytes may belong to.
_SERVED: Final = ("HTTP",)

#: Connections at once: enough for some collectors, health checks and operators.
CONNECTIONS_MAX: Final = 64

#: Seconds for the first request of a reserved connection.
FIRST_REQUEST_SECONDS_MAX: Final = 2

#: The beginning of calls that nobody may make without a login, and the open ones among them.
_CALLS: Final = b"/api/v1/"
_OPEN: Final = (b"/api/v1/docs", b"/api/v1/openapi.json")

#: What ends a request's line and headers.
_HEAD_END: Final = b"\r\n\r\n"

#: Bytes of a refused call's body that are read, so that its client gets the answer: as many as any but a replay has.
_DISCARDED_MAX: Final = 2 << 20

#: Bytes of a request's line and headers: a queue's name of 1 KiB and a selector of 4 KiB, percent-encoded, fit.
HEADER_BYTES_MAX: Final = 32 << 10

#: Seconds in which a connection must complete a request, and for which an idle one is kept open.
REQUEST_SECONDS_MAX: Final = 30
KEEP_ALIVE_SECONDS: Final = 15

#: Seconds that an answer may take: a purge of millions of messages, a large body over a slow line.
ANSWER_SECONDS_MAX: Final = 600

#: Seconds for the TLS handshake, as on the other acceptors.
HANDSHAKE_SECONDS_MAX: Final = 10

#: Connections that the kernel may queue; most of a longer queue would be refused anyway.
BACKLOG: Final = 128

#: Seconds for requests in progress to finish when the broker stops.
STOP_SECONDS_MAX: Final = 2


class _Socket:
    """An accepted socket that is about to become a connection, over TLS in its handshake."""

    def __init__(self, client: socket.socket, address: object) -> None:
        self.known = False
        self.lingers = False  # its handshake has failed, but the peer may still read why
        self.remote, self.origin = name_and_origin(address)
        self.client = client
        self.begun = False
        self.left = False
        self.connecting = False  # without a handshake: some moments, in which the event loop cannot be interrupted
        self.task: asyncio.Task[None] | None = None

    def ended(self) -> None:
        """Close the socket unless it was taken over."""
        if not self.begun:
            self.client.close()

    def leave(self) -> None:
        assert self.task is not None
        self.left = True
        if not self.connecting:  # else its connection ends as it is made
            self.task.cancel()


class _Places:
    """The places of an acceptor's connections, and the reserved ones beyond them (see `_Reserved`).

    `refused` gets each connection that finds no place in either, or loses it to another one.
    """

    def __init__(self, allowed: int, reserved: int, refused: Callable[[Slot], None]) -> None:
        self.allowed = ConnectionSlots(allowed)
        self.reserved = ConnectionSlots(reserved)
        self._refused = refused

    def acquire(self, slot: Slot) -> ConnectionSlots | None:
        """Take a place, or else a reserved one.  Returns which, None if there is neither."""
        for slots, refused in ((self.allowed, partial(self._displaced, slot)), (self.reserved, self._refused)):
            if slots.acquire(slot, refused):
                return slots
        return None

    def _displaced(self, by: Slot, slot: Slot) -> None:
        if slot is not by:  # which may find a reserved place
            self._refused(slot)

    def release(self, slot: Slot) -> None:
        """Free the place of a connection; harmless if it had none."""
        self.allowed.release(slot)
        self.reserved.release(slot)


class _Reserved:
    """The application of a connection beyond the limit: it answers health probes and holders of the token, once.

    `refused` is called before others get their answer.
    """

    def __init__(self, app: ASGIApp, token: bytes, refused: Callable[[], None]) -> None:
        self._app = app
        self._token = token
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: answer or refuse a request, and close the connection."""

        async def closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        authorization = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        probes = scope["raw_path"].decode("latin-1") in PROBES
        allowed = probes or is_token(authorization, self._token)
        if not allowed:
            self._refused()
        await (self._app if allowed else _FULL)(scope, receive, closing)


#: The answer to those who find no place.
_FULL: Final = problem("too-many-connections", "all connections of this acceptor are taken by users who may manage it")


def _refusal() -> bytes:
    """The whole answer to a call without a login, as bytes."""
    refused = problem("not-logged-in", LOG_IN, headers={"www-authenticate": CHALLENGE})
    headers = [*refused.raw_headers, *PROTECTION, (b"connection", b"close")]
    lines = [b"HTTP/1.1 401 Unauthorized", *(name + b": " + value for name, value in headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(refused.body)


_REFUSAL: Final = _refusal()


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the API: its path without the query, what may be its bearer token, and the bytes of it to come."""

    path: str
    bearer: bytes | None
    missing: int


def _call_of(data: bytes) -> _Call | None:
    """The call that is sure to be refused unless its bearer token is right; None: what is not plain at a glance.

    That is left to the application.  A query may hold a secret.
    """
    head, end, rest = data.partition(_HEAD_END)
    method, _, line = head.partition(b" ")
    if not end or not method.isalpha() or not line.startswith(_CALLS) or line.startswith(_OPEN):
        return None
    lowered = head.lower()
    if b"\ntransfer-encoding" in lowered or b"\norigin" in lowered:
        return None
    fields = [field.partition(b":") for field in head.split(b"\r\n")[1:]]
    given = [value.strip() for name, _, value in fields if name.lower() == b"authorization"]
    lengths = [value.strip() for name, _, value in fields if name.lower() == b"content-length"] or [b"0"]
    if len(given) != lowered.count(b"\nauthorization") or len(given) > 1:
        return None
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 9 or int(lengths[0]) < len(rest):
        return None
    scheme, _, text = given[0].partition(b" ") if given else (b"bearer", b"", b"")
    if scheme.lower() != b"bearer":
        return None
    path = line.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    return _Call(path, text.strip() if given else None, int(lengths[0]) - len(rest))


class _Connection(H11Protocol):
    """Uvicorn's connection with a caller, a limit on their number, and one on the time without a completed request."""

    foreign: Callable[[Peer, str, str], None]
    denied: Callable[[Peer, str, str], None]
    refused: Callable[[Slot], None]
    places: _Places
    turns: Turns
    token: bytes
    seconds_max: float = REQUEST_SECONDS_MAX
    left: Callable[[Peer], None]
    #: Refuses a bearer token that is certainly wrong, perhaps after a delay; False: it may be right.
    refuse_token: Callable[[Peer, bytes, Callable[[object], None]], bool]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.socket: _Socket | None = None
        self._spoken_to = False
        self._completed = False
        self._answered = False  # the refusal has been written
        self._discarded: int | None = None  # bytes to come of a refused call; None: no call has been refused here
        self._answering = 0  # checks in a row that found the broker answering
        self._check: asyncio.TimerHandle | None = None
        self._unparsed = bytearray()
        self._held = False  # the application takes no more of a body now, or has not answered yet
        self._peer = Peer("local")
        self._caller = Caller(self._peer)

    @property
    def known(self) -> bool:
        return self._caller.manages

    @property
    def origin(self) -> str:
        return self._peer.origin

    @property
    def remote(self) -> str:
        return self._peer.remote

    def leave(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = FlowControl(_Holding(self))  # type: ignore[arg-type]  # it uses two methods
        if self.client is not None:
            host, port = self.client
            subject = subject_of(transport.get_extra_info("peercert"))
            self._peer = Peer(f"{host}:{port}", host, self.scheme == "https", subject)
        self._caller = Caller(self._peer)
        self.app_state = {**self.app_state, CALLER: self._caller}
        if self.socket is not None:
            self.places.release(self.socket)  # this connection takes its place
        left = self.socket is not None and self.socket.left
        place = None if left else self.places.acquire(self)
        if place is None:
            transport.abort()
        elif place is self.places.reserved:
            self.app = _Reserved(self.app, self.token, partial(self.refused, self))
            self._check = self.loop.call_later(FIRST_REQUEST_SECONDS_MAX, self._check_progress)
        else:
            self._check = self.loop.call_later(self.seconds_max, self._check_progress)

    def data_received(self, data: bytes) -> None:
        if self._discarded is not None:
            self._discard(len(data))
            return
        protocol = "" if self._spoken_to else spoken(data[:FIRST_BYTES])
        self._spoken_to = True
        idle = self._is_idle and not self._unparsed
        if idle and not self._peer.subject and (call := _call_of(data)) and self._refuse(data, call):
            return
        self._unparsed += data
        if found := advice(protocol, _SERVED):
            self.parse_part()
            self.foreign(self._peer, protocol, found)
            self.transport.close()
            return
        if len(self._unparsed) > PART_BYTES and not self.transport.is_closing():
            self.transport.pause_reading()
        if not self._held:
            self.turns.enter(self)

    def parse_part(self) -> bool:
        """Parse some of what was read; returns whether more of it can be parsed now."""
        if self.transport.is_closing():  # as the acceptor stops: what was read meanwhile gets no answer
            self._unparsed.clear()
            return False
        size = PART_BYTES
        if self._is_idle:  # h11 limits the bytes of a head of which only a part is there
            size = max(size, self._unparsed.find(_HEAD_END) + len(_HEAD_END))
        part = bytes(self._unparsed[:size])
        del self._unparsed[:size]
        super().data_received(part)
        if self.transport.is_closing():
            self._unparsed.clear()
        elif not (self._unparsed or self._held):
            self.transport.resume_reading()
        return bool(self._unparsed) and not self._held

    def hold(self) -> None:
        """Read and parse no more until `go_on`."""
        self._held = True
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Parse what was read meanwhile, and read on."""
        self._held = False
        if self._unparsed:
            self.turns.enter(self)
        elif not self.transport.is_closing():
            self.transport.resume_reading()

    def _refuse(self, data: bytes, call: _Call) -> bool:
        """Refuse a call that lacks a login or has a wrong token, without the application; whether it is such a call."""

        def answer(_: object) -> None:
            if not self.transport.is_closing():
                self.denied(self._peer, data.partition(b" ")[0].decode("latin-1"), call.path)
                self.transport.write(_REFUSAL)
                self._answered = True
                self._discard(0)

        self._discarded = call.missing
        if call.bearer is None:
            answer(None)
        elif isinstance(self.app, _Reserved) or not self.refuse_token(self._peer, call.bearer, answer):
            self._discarded = None
        return self._discarded is not None

    def _discard(self, count: int) -> None:
        """Read what follows a refused call, and close then: closed with unread bytes, it would lose its answer."""
        assert self._discarded is not None
        self._discarded -= count
        if self._answered and not 0 < self._discarded <= _DISCARDED_MAX:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check is not None:
            self._check.cancel()
        self.turns.leave(self)
        self.places.release(self)
        self.left(self._peer)
        super().connection_lost(exc)
        # These refer to this connection, which would be left to the collector of cycles.
        self._check = self.timeout_keep_alive_task = None
        self.flow = FlowControl(self.transport)
        self.cycle = None  # type: ignore[assignment]

    @property
    def _is_idle(self) -> bool:
        """Whether no request has begun, or is being answered."""
        cycle: Any = self.cycle
        return (cycle is None or cycle.response_complete) and not self.conn.trailing_data[0]

    @property
    def _is_answered(self) -> bool:
        """Whether a complete request of a logged-in caller is being answered, which may take a while."""
        cycle: Any = self.cycle  # None before the first, whatever its type says
        return self.known and cycle is not None and not (cycle.more_body or cycle.response_complete)

    def on_response_complete(self) -> None:
        self._completed = True
        super().on_response_complete()

    def _check_progress(self) -> None:
        self._answering = self._answering + 1 if self._is_answered else 0
        if not self._completed and not 0 < self._answering * self.seconds_max <= ANSWER_SECONDS_MAX:
            if isinstance(self.app, _Reserved):
                self.refused(self)
            self.transport.abort()
            return
        self._completed = False
        self._check = self.loop.call_later(self.seconds_max, self._check_progress)


class _Holding:
    """What uvicorn takes for the transport when it asks for a pause, or for the end of one."""

    def __init__(self, connection: _Connection) -> None:
        self.pause_reading = connection.hold
        self.resume_reading = connection.go_on


class HttpServer:
    """One HTTP acceptor; `name`: its name in the configuration; `context`: returns the current TLS context.

    `logins`: the turns of TLS handshakes, common to all acceptors.

    `open_metrics`: whether /metrics needs no login; None: only if the acceptor listens on loopback alone.
    `allowed_hosts`: host names that it answers to besides those always allowed; None: any over TLS, where browsers
    check the certificate, else no others.  `console`: the application for all paths that are not the API's. `shared`:
    common to all acceptors and the console.  `standby`: makes the application that a standby serves instead; its
    argument says whether metrics need no login.
    """

    def __init__(
        self,
        broker: Broker,
        token: str,
        *,
        name: str = "http",
        context: Callable[[], ssl.SSLContext] | None = None,
        logins: LoginTurns | None = None,
        open_metrics: bool | None = None,
        allowed_hosts: Sequence[str] | None = None,
        connections_max: int = CONNECTIONS_MAX,
        reserved_max: int = RESERVED_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        limits: Limits | None = None,
        console: ASGIApp | None = None,
        shared: Shared | None = None,
        standby: Callable[[bool], FastAPI] | None = None,
    ) -> None:
        turns = Turns() if shared is None else shared.turns
        self._api = partial(Api, broker, token, name=name, limits=limits, console=console, shared=shared, turns=turns)
        self._broker = broker
        self._token = token.encode()
        self._standby = standby
        self._report = broker.engine.report
        self._name = name
        self._context = context
        self._logins = logins or LoginTurns(thread_cpu_us)
        self._open_metrics = open_metrics
        self._allowed_hosts = allowed_hosts
        self.refused = 0
        self._places = _Places(connections_max, reserved_max, self._on_refused)
        bounds = {
            "foreign": staticmethod(self._on_foreign),
            "denied": staticmethod(self._on_denied),
            "refuse_token": staticmethod(self._refuse_token),
            "refused": staticmethod(self._on_refused),
            "left": staticmethod(self._left),
            "places": self._places,
            "turns": turns,
            "seconds_max": request_seconds_max,
            "token": self._token,
        }
        self._protocol = type("Connection", (_Connection,), bounds)
        self._server: uvicorn.Server | None = None
        self._sockets: ListeningSockets | None = None
        self._one_closed = asyncio.Event()
        self._begun: set[_Socket] = set()

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections) if self._server is not None else 0

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses bound (port 0 picks a port).  Raises OSError."""
        sockets = ListeningSockets(self._name, self._accept, self._report)
        bound = await sockets.open(host, port, BACKLOG)
        self._sockets = sockets
        local = all(ip_address(address.partition("%")[0]).is_loopback for address, _ in bound)
        names = self._allowed_hosts
        hosts = None if names is None and self._context is not None else AllowedHosts([host, *(names or ())])
        open_metrics = local if self._open_metrics is None else self._open_metrics
        standby = None if self._standby is None else self._standby(open_metrics)
        config = uvicorn.Config(
            self._api(metrics_open=open_metrics, hosts=hosts, standby=standby),
            http=self._protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([])
        self._server = server
        sockets.serve()
        return bound

    def _accept(self, client: socket.socket, address: object) -> None:
        """Give an accepted socket a place, and begin its connection or its TLS handshake; or close it."""
        accepted = _Socket(client, address)
        if self._places.acquire(accepted) is None:
            client.close()
            return
        accepted.task = supervised(f"accept {accepted.remote}", self._connect(accepted))
        self._begun.add(accepted)
        accepted.task.add_done_callback(lambda _: self._has_ended(accepted))

    def _has_ended(self, accepted: _Socket) -> None:
        self._begun.discard(accepted)
        accepted.ended()
        accepted.task = None  # it may have an exception, whose traceback has this socket

    def _connection(self, accepted: _Socket) -> _Connection:
        server = self._server
        assert server is not None, "sockets are accepted once it has started"
        made: _Connection = self._protocol(
            config=server.config, server_state=server.server_state, app_state=server.lifespan.state
        )
        made.socket = accepted
        return made

    async def _connect(self, accepted: _Socket) -> None:
        connection = partial(self._connection, accepted)
        accepted.begun = True
        try:
            if self._context is None:
                accepted.connecting = True
                await asyncio.get_running_loop().connect_accepted_socket(connection, accepted.client)
            else:
                failed = partial(self._on_failed, accepted)
                await shake(
                    accepted.client,
                    self._context(),
                    connection,
                    turns=self._logins,
                    origin=accepted.origin,
                    seconds=HANDSHAKE_SECONDS_MAX,
                    failed=failed,
                )
        except OSError as error:  # as without memory
            accepted.client.close()
            if self._sockets is not None:
                self._sockets.unaccepted(error)
        finally:
            self._places.release(accepted)

    def _on_failed(self, accepted: _Socket, reason: str) -> None:
        accepted.lingers = True
        self._report("tls.failed", acceptor=self._name, remote=accepted.remote, reason=reason)

    def _refuse_token(self, peer: Peer, text: bytes, then: Callable[[object], None]) -> bool:
        if self._standby is not None:  # no client logs in to a standby
            return False
        gate = self._broker.gate
        if gate.takes_tokens or is_token(f"bearer {text.decode('latin-1')}", self._token):
            return False
        self._broker.tick.enter()
        gate.bearer(peer, "", text, then)
        return True

    def _on_denied(self, peer: Peer, method: str, path: str) -> None:
        self._report("management.denied", remote=peer.remote, method=method, path=path)

    def _on_foreign(self, peer: Peer, protocol: str, found: str) -> None:
        self._report("connection.foreign", acceptor=self._name, remote=peer.remote, speaks=protocol, advice=found)

    def _on_refused(self, slot: Slot) -> None:
        if isinstance(slot, _Socket) and slot.lingers:
            return
        self.refused += 1
        self._report("connection.refused", acceptor=self._name, remote=slot.remote, allowed=self._places.allowed.limit)

    def _left(self, peer: Peer) -> None:
        self._one_closed.set()
        if self._standby is None:  # no client logs in to a standby
            self._broker.gate.left(peer)

    async def stop(self, seconds: float = STOP_SECONDS_MAX) -> None:
        """Stop accepting, give requests in progress some seconds to finish, and close."""
        server, self._server = self._server, None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        for accepted in list(self._begun):
            accepted.leave()
        if server is not None:
            await self._close(server.server_state, seconds)

    async def _close(self, state: ServerState, seconds: float) -> None:
        """Close each connection once it has answered, or when the time is over."""
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while state.connections:
                    self._one_closed.clear()
                    await self._one_closed.wait()
                await asyncio.gather(*state.tasks, return_exceptions=True)
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()
