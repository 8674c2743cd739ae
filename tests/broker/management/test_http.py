"""Health, the token, and what a peer may cost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.management import http
from broker.management.api import BODY_BYTES_MAX as REPLAY_BYTES_MAX
from broker.management.api import PAGE_BODY_BYTES_MAX
from broker.management.callers import CHALLENGE
from broker.management.calls import BODY_BYTES_MAX
from broker.management.http import HttpServer
from broker.management.limits import RESERVED_MAX
from broker.management.limits import Limits as CallLimits
from broker.management.resources.addresses import SEND_BYTES_MAX
from broker.management.resources.tasks import BODY_BYTES_MAX as TASK_BYTES_MAX
from broker.management.turns import PART_BYTES, Turns
from broker.net import handshake
from broker.net.tls import TlsSettings, make_context
from tests.broker.management.harness import TOKEN, Client, TestBroker, listening
from tests.support.certificates import Authority


async def test_health_is_for_everybody(client: Client) -> None:
    live = await client.call("GET", "/livez", token=None)
    assert (live.status, live.body) == (200, b"ok\n")
    ready = await client.call("GET", "/readyz", token=None)
    assert (ready.status, ready.json) == (200, {"ready": True, "reasons": []})


async def test_a_broker_that_is_not_ready_says_why(broker: TestBroker, client: Client) -> None:
    broker.reasons = ["the disk is full"]
    ready = await client.call("GET", "/readyz", token=None)
    assert (ready.status, ready.json) == (503, {"ready": False, "reasons": ["the disk is full"]})
    assert (await client.call("GET", "/livez", token=None)).status == 200


@pytest.mark.parametrize("call_limits", [CallLimits(tick_seconds_max=0.05)])
async def test_a_tick_that_does_not_end_is_seen(broker: TestBroker, client: Client) -> None:
    """The event loop turns, and answers: that is not enough."""
    ends = broker.tick.end
    broker.tick.end = lambda: None  # type: ignore[method-assign]
    live = await client.call("GET", "/livez", token=None)
    assert (live.status, live.body) == (503, b"no tick has ended for 0.05 s\n")
    ready = await client.call("GET", "/readyz", token=None)
    assert (ready.status, ready.json) == (503, {"ready": False, "reasons": ["no tick has ended for 0.05 s"]})
    broker.tick.end = ends  # type: ignore[method-assign]
    ends()
    assert (await client.call("GET", "/livez", token=None)).status == 200


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"]
)
async def test_without_the_token_nothing_is_said(client: Client, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = await client.call("GET", "/api/v1/status", token=None, headers=headers)
    assert (answer.status, answer.json["code"]) == (401, "not-logged-in")
    assert answer.headers["www-authenticate"] == CHALLENGE


@pytest.mark.parametrize("authorization", ["", "Authorization: Bearer wrong\r\n"], ids=["none", "wrong"])
@pytest.mark.parametrize("size", [0, 10, 300_000])
async def test_the_application_does_not_see_calls_that_are_sure_to_be_refused(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch, authorization: str, size: int
) -> None:
    """With a body or without, of which nothing is left to make the system drop the answer."""

    def unexpected(self: object, data: bytes) -> None:
        raise AssertionError(data[:100])

    monkeypatch.setattr(H11Protocol, "data_received", unexpected)
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    head = f"PUT /api/v1/queues/q?secret=s HTTP/1.1\r\nHost: b\r\n{authorization}Content-Length: {size}\r\n\r\n"
    writer.write(head.encode() + b"x" * (size // 2))
    await writer.drain()
    writer.write(b"x" * (size - size // 2))
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")
    [(_, denied)] = [each for each in broker.reports if each[0] == "management.denied"]
    assert denied["path"] == "/api/v1/queues/q"
    refused = [fields["reason"] for code, fields in broker.reports if code == "login.refused"]
    assert refused == (["tokens are not accepted here"] if authorization else []), "and it slows guessing as before"


async def test_a_request_that_may_be_right_is_left_to_the_application(client: Client) -> None:
    for right in (f"bearer {TOKEN}", f"Bearer   {TOKEN}"):
        answer = await client.raw(
            f"GET /api/v1/status HTTP/1.1\r\nHost: b\r\nConnection: close\r\nAUTHORIZATION: {right}\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_refusal_is_logged_without_the_token(broker: TestBroker, client: Client) -> None:
    await client.call("GET", "/api/v1/status", token="guess")
    ((code, fields),) = [each for each in broker.reports if each[0].startswith("management.")]
    assert code == "management.denied"
    assert str(fields["remote"]).startswith("127.0.0.1:")
    assert "guess" not in str(fields)


async def test_metrics_need_the_token_where_others_can_connect(broker: TestBroker) -> None:
    async with listening(broker, "0.0.0.0") as (_, client):
        assert (await client.call("GET", "/metrics", token=None)).status == 401
        assert (await client.call("GET", "/metrics")).status == 200
        assert (await client.call("GET", "/livez", token=None)).status == 200


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ("GET /livez", 0),
        ("GET /metrics", 0),
        ("GET /api/v1/status", 0),
        ("GET /api/v1/nothing", REPLAY_BYTES_MAX),
        ("GET /nothing", PAGE_BODY_BYTES_MAX),
        ("PATCH /api/v1/queues/a", BODY_BYTES_MAX),
        ("POST /api/v1/tasks", TASK_BYTES_MAX),
        ("POST /api/v1/addresses/a/messages", SEND_BYTES_MAX),
        ("POST /api/v1/messages:replay", REPLAY_BYTES_MAX),
    ],
)
async def test_a_large_body_is_refused_before_it_is_sent(client: Client, call: str, most: int) -> None:
    """And before it is asked what the caller may do."""
    known = f"Host: b\r\nAuthorization: Bearer {TOKEN}\r\n"
    head = f"{call} HTTP/1.1\r\n{known}Content-Type: application/json\r\nContent-Length: {most + 1}\r\n\r\n"
    refused = await client.raw(head.encode())
    assert (refused.split()[1], b"connection: close" in refused) == (b"413", True)
    if most < REPLAY_BYTES_MAX:
        headers = {"Content-Length": str(most)}
        method, _, path = call.partition(" ")
        taken = await client.call(method, path, token=None, headers=headers, body=b"x" * most)
        assert taken.status in (200, 401, 404)


async def test_a_body_of_unknown_length_is_refused(client: Client) -> None:
    answer = await client.raw(b"GET /livez HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert answer.split()[1] == b"411"


async def test_a_read_full_of_small_chunks_is_parsed_in_parts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is refused: parsed at once, they take 150 ms, and anybody may send them."""
    parts: list[int] = []
    parse = H11Protocol.data_received

    def noted(connection: H11Protocol, data: bytes) -> None:
        parts.append(len(data))
        parse(connection, data)

    monkeypatch.setattr(H11Protocol, "data_received", noted)
    head = b"POST /login HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(head + b"1\r\na\r\n" * 40_000)
    assert (await reader.readline()).split()[1] == b"411"
    assert max(parts) == PART_BYTES
    assert sum(parts) <= 3 * PART_BYTES
    writer.close()


async def test_requests_in_one_read_are_answered_in_order(client: Client) -> None:
    request = b"GET /%s HTTP/1.1\r\nHost: b\r\nX-Padding: " + b"x" * 3_000 + b"\r\n%s\r\n"
    sent = [request % (b"livez", b"")] * 9 + [request % (b"readyz", b"Connection: close\r\n")]
    answers = (await client.raw(b"".join(sent))).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * 10
    assert [b"ready" in answer for answer in answers] == [False] * 9 + [True]


@pytest.mark.parametrize(
    ("length", "status"), [(http.HEADER_BYTES_MAX // 2, b"200"), (http.HEADER_BYTES_MAX + 1, b"400")]
)
async def test_long_headers_are_refused(client: Client, length: int, status: bytes) -> None:
    end = b"\r\n\r\n" if status == b"200" else b""
    answer = await client.raw(b"GET /livez HTTP/1.1\r\nHost: b\r\nConnection: close\r\nX-Long: " + b"x" * length + end)
    assert answer.split()[1] == status


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\nHost: b\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: b\r\nContent-Length: -1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\n\r\n",
        b"CONNECT\nstomp\n\n\x00",
    ],
)
async def test_bytes_that_are_no_request_cost_their_sender_only(client: Client, request_bytes: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(request_bytes)
    writer.write_eof()
    assert b" 500 " not in await reader.read()
    writer.close()
    await writer.wait_closed()
    assert (await client.call("GET", "/livez")).status == 200


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def is_cut(stream: Stream) -> bool:
    """The broker has closed it; what it answered before is gone."""
    reader, writer = stream
    with contextlib.suppress(ConnectionResetError):
        assert b"HTTP" not in await reader.read()
    writer.close()
    return True


async def say(stream: Stream, path: bytes, token: str = "") -> bytes:
    """A call on a connection that stays; the line of its status."""
    reader, writer = stream
    authorization = b"Authorization: Bearer %b\r\n" % token.encode() if token else b""
    writer.write(b"GET %b HTTP/1.1\r\nHost: b\r\n%b\r\n" % (path, authorization))
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    await reader.readexactly(next(int(line.split()[1]) for line in lines if line.startswith(b"content-length:")))
    return head.split(b"\r\n")[0]


@pytest.fixture
async def connect(broker: TestBroker) -> AsyncIterator[Callable[[], Awaitable[Stream]]]:
    """Connects to a server that takes two connections."""
    opened: list[Stream] = []
    async with listening(broker, connections_max=2) as (_, client):

        async def connect() -> Stream:
            opened.append(await asyncio.open_connection("127.0.0.1", client.port))
            return opened[-1]

        yield connect
        for _, writer in opened:
            writer.close()


async def test_connections_are_limited_and_those_who_manage_stay(connect: Callable[[], Awaitable[Stream]]) -> None:
    """Beyond the limit one request of a probe or a holder of the token is answered, and no other."""
    held = [await connect() for _ in range(2)]
    for stream in held:
        assert b"200" in await say(stream, b"/api/v1/status", TOKEN)
    for path, token, status in [
        (b"/livez", "", b"200"),
        (b"/readyz", "", b"200"),
        (b"/api/v1/status", TOKEN, b"200"),
        (b"/api/v1/status", "guess", b"503"),
        (b"/metrics", "", b"503"),
    ]:
        assert status in await say(beyond := await connect(), path, token), path
        assert await is_cut(beyond)
    for stream in held:
        assert b"200" in await say(stream, b"/livez", TOKEN)


async def test_a_probe_finds_a_place_among_silent_connections_beyond_the_limit(
    broker: TestBroker, connect: Callable[[], Awaitable[Stream]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_REQUEST_SECONDS_MAX", 0.05)
    for stream in [await connect() for _ in range(2)]:
        assert b"200" in await say(stream, b"/api/v1/status", TOKEN)
    silent = [await connect() for _ in range(RESERVED_MAX + 1)]
    assert b"200" in await say(await connect(), b"/livez")
    for stream in silent:
        assert await is_cut(stream)  # the first ones at once, the others as they ask nothing
    lines = broker.reported("connection.refused")
    assert len(lines) == len(silent), "each of them once, and not the probe, which was answered"
    assert lines[0] | {"remote": ""} == {"acceptor": "http", "remote": "", "allowed": 2}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_call_answered_beyond_the_limit_is_not_logged_as_refused(
    broker: TestBroker, tmp_path: Path, secure: bool
) -> None:
    """And who is not is told once, whatever place its handshake had."""
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker")
    settings = TlsSettings(certificate=certificate, key=key)
    trusted: dict[str, Any] = {"ssl": authority.client(), "server_hostname": "localhost"} if secure else {}
    context = (lambda: make_context(settings)) if secure else None
    async with listening(broker, connections_max=1, context=context) as (server, client):

        async def call(path: bytes, token: str) -> tuple[bytes, Stream]:
            stream = await asyncio.open_connection("127.0.0.1", client.port, **trusted)
            return await say(stream, path, token), stream

        status, held = await call(b"/api/v1/status", TOKEN)
        assert b"200" in status
        for path, token, expected, refused in [
            (b"/livez", "", b"200", 0),
            (b"/api/v1/status", TOKEN, b"200", 0),
            (b"/metrics", "", b"503", 1),
            (b"/readyz", "", b"200", 1),
        ]:
            status, beyond = await call(path, token)
            assert (expected in status, server.refused) == (True, refused), path
            beyond[1].close()
        assert len(broker.reported("connection.refused")) == 1
        held[1].close()


async def test_a_call_without_a_login_is_refused_before_the_framework(broker: TestBroker, client: Client) -> None:
    """With the same answer, but that the connection is closed."""
    plain = await client.call("GET", "/api/v1/status", token=None)
    framework = await client.call("GET", "/api/v1/status", token=None, headers={"Authorization": ""})
    assert (plain.status, plain.json) == (framework.status, framework.json)
    assert plain.headers == framework.headers | {"connection": "close"}
    assert len(broker.reported("management.denied")) == 2
    for path in ("/api/v1/docs", "/api/v1/openapi.json"):
        assert (await client.call("GET", path, token=None)).status == 200


async def test_an_error_of_the_system_with_sockets_is_logged_once(
    broker: TestBroker, connect: Callable[[], Awaitable[Stream]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs its peer only, and leaves no place taken."""
    loop = asyncio.get_running_loop()

    async def fails(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOMEM, "planted")

    with monkeypatch.context() as planted:
        planted.setattr(loop, "connect_accepted_socket", fails, raising=False)
        for _ in range(5):
            assert await is_cut(await connect())
    assert broker.reported("connection.accept_failed") == [{"acceptor": "http", "error": "planted"}]
    assert broker.reported("connection.refused") == []
    assert b"200" in await say(await connect(), b"/livez")


async def test_a_displaced_connection_is_reported(broker: TestBroker, connect: Callable[[], Awaitable[Stream]]) -> None:
    strangers = [await connect() for _ in range(3)]
    assert await is_cut(strangers[0])
    assert len(broker.reported("connection.refused")) == 1


async def test_a_displaced_connection_is_gone_while_it_connects(broker: TestBroker) -> None:
    """The event loop has accepted its socket, and has not made its connection yet."""
    async with listening(broker, connections_max=2, reserved_max=1) as (server, client):
        with contextlib.ExitStack() as sockets:
            for _ in range(20):
                stranger = sockets.enter_context(socket.create_connection(("127.0.0.1", client.port)))
                stranger.sendall(b"GET /livez HTTP/1.1\r\nHost: b\r\n")
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(broker.reported("connection.refused")) >= 17
            assert server.connections <= 3
        assert (await client.call("GET", "/livez", token=None)).status == 200


@pytest.mark.parametrize("wait", ["silent", "in the middle", "health", "wrong"])
async def test_a_stranger_does_not_keep_the_operator_out(connect: Callable[[], Awaitable[Stream]], wait: str) -> None:
    """Whatever a stranger does to stay: the one who came first makes room, again and again."""
    strangers = []
    for _ in range(2):
        strangers.append(await connect())
        if wait == "in the middle":
            strangers[-1][1].write(b"GET /livez HTTP/1.1\r\nHost: b\r\nX-Slow: ")
        elif wait == "health":
            assert b"200" in await say(strangers[-1], b"/livez")
        elif wait == "wrong":
            assert b"401" in await say(strangers[-1], b"/api/v1/status", "guess")
    operator = await connect()
    assert b"200" in await say(operator, b"/api/v1/status", TOKEN)
    assert await is_cut(strangers[0])
    for _ in range(3):
        await connect()
    assert b"200" in await say(operator, b"/api/v1/status", TOKEN)
    assert await is_cut(strangers[1])


async def test_a_connection_that_completes_no_request_is_cut(broker: TestBroker) -> None:
    async with listening(broker, request_seconds_max=0.05) as (server, client):
        stream = await asyncio.open_connection("127.0.0.1", client.port)
        stream[1].write(b"GET /livez HTTP/1.1\r\nHost: b\r\nX-Slow: ")
        assert await is_cut(stream)
        assert server.connections == 0


@pytest.mark.parametrize("patience", [600, 0])
async def test_an_answer_may_take_longer_than_a_request(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    monkeypatch.setattr(http, "ANSWER_SECONDS_MAX", patience)
    async with listening(broker, request_seconds_max=0.05) as (_, client):
        broker.disk_works = False
        broker.send("a", [b"x"])
        head = b"GET /api/v1/balance HTTP/1.1\r\nHost: b\r\nConnection: close\r\nAuthorization: Bearer "
        reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
        writer.write(head + TOKEN.encode() + b"\r\n\r\n")
        await asyncio.wait_for(broker.waiting.wait(), 20)
        for _ in range(2):  # so much time has gone when others are cut
            assert await is_cut(await asyncio.open_connection("127.0.0.1", client.port))
        broker.disk_works = True
        broker.tick.enter()
        await broker.settled()
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            answer = await asyncio.wait_for(reader.read(), 20)
        assert answer.startswith(b"HTTP/1.1 200") if patience else not answer
        writer.close()


# -- as a guest on the loop --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("client")
async def test_it_leaves_signals_and_logging_alone() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert logging.getLogger("uvicorn").handlers == []


async def test_a_port_that_is_taken_is_an_error_of_the_caller(broker: TestBroker, client: Client) -> None:
    with pytest.raises(OSError, match="in use"):
        await HttpServer(broker, TOKEN).start("127.0.0.1", client.port)


async def test_a_host_that_is_not_known_is_an_error_of_the_caller(broker: TestBroker) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - the text is the operating system's
        await HttpServer(broker, TOKEN).start("no-such-host.invalid", 0)


async def test_after_stop_nobody_listens(broker: TestBroker) -> None:
    await HttpServer(broker, TOKEN).stop()
    async with listening(broker) as (_, client):
        assert (await client.call("GET", "/livez")).status == 200
    with pytest.raises(ConnectionRefusedError):
        await client.call("GET", "/livez")


async def test_a_stop_waits_for_the_answers_only(broker: TestBroker) -> None:
    """Neither for connections that are idle, nor for a while after the last answer."""
    async with listening(broker) as (server, client):
        silent = await asyncio.open_connection("127.0.0.1", client.port)
        idle = await asyncio.open_connection("127.0.0.1", client.port)
        assert b"200" in await say(idle, b"/livez")
        busy = await asyncio.open_connection("127.0.0.1", client.port)
        head = f"PATCH /api/v1/queues/q HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {TOKEN}\r\n"
        busy[1].write(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{".encode())
        await busy[1].drain()
        assert b"200" in await say(idle, b"/livez"), "so the broker has read the other call"
        stopping = asyncio.create_task(server.stop(seconds=3_600))
        assert await is_cut(silent)
        assert await is_cut(idle)
        assert not stopping.done()
        busy[1].write(b"}")
        assert (await asyncio.wait_for(busy[0].read(), 20)).startswith(b"HTTP/1.1 404 ")
        await asyncio.wait_for(stopping, 20)
        busy[1].close()


async def test_a_stop_that_may_not_wait_closes_what_is_open(
    broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is never completed, and a client that does not answer to the end of TLS."""
    monkeypatch.setattr(handshake, "SHUTDOWN_SECONDS", 60)
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker")
    context = make_context(TlsSettings(certificate=certificate, key=key))
    fields = f"Host: b\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: 2"
    head = f"PATCH /api/v1/queues/q HTTP/1.1\r\n{fields}\r\n\r\n{{"
    async with listening(broker, context=lambda: context) as (server, client):
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", client.port)) as raw:
            tls = await loop.run_in_executor(
                None, lambda: authority.client().wrap_socket(raw, server_hostname="localhost")
            )
            with tls:
                tls.settimeout(20)
                tls.sendall(head.encode())
                busy = await asyncio.open_connection(
                    "127.0.0.1", client.port, ssl=authority.client(), server_hostname="localhost"
                )
                assert b"200" in await say(busy, b"/livez")
                await asyncio.wait_for(server.stop(seconds=0), 20)
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    assert not await loop.run_in_executor(None, tls.recv, 1)
                busy[1].close()


async def test_a_request_read_during_the_stop_is_not_answered(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read, and its turn to be parsed comes once the connection is closed."""
    read: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    async with listening(broker) as (server, client):
        stream = await asyncio.open_connection("127.0.0.1", client.port)
        assert b"200" in await say(stream, b"/livez")
        monkeypatch.setattr(Turns, "enter", lambda _, connection: read.set_result(connection))
        stream[1].write(b"GET /livez HTTP/1.1\r\nHost: b\r\n\r\n")
        connection = await read
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        assert not connection.parse_part()
        assert await is_cut(stream)
        await stopping
    assert broker.reports == []


@pytest.mark.parametrize("call", ["PUT /api/v1/queues/q", "POST /api/v1/messages:replay"])
async def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_fault(
    broker: TestBroker, client: Client, call: str
) -> None:
    kind = "Content-Type: application/json\r\nContent-Length: 100"
    head = f"{call} HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {TOKEN}\r\n{kind}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(head.encode() + b'{"durable"')
    writer.write_eof()
    await reader.read()
    writer.close()
    assert (await client.call("GET", "/api/v1/status")).status == 200
    assert "broker.error" not in [code for code, _ in broker.reports]


async def test_a_bug_in_a_verb_costs_the_call_and_is_a_line_in_the_log(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> NoReturn:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(broker, "acceptors", fail)
        answer = await client.call("GET", "/api/v1/status")
    assert (answer.status, answer.json["code"]) == (500, "internal")
    assert b"a bug" not in answer.body
    ((code, fields),) = broker.reports
    assert code == "broker.error"
    assert "RuntimeError: a bug" in str(fields["traceback"])
    assert not broker.journal.abandoned
    assert (await client.call("GET", "/api/v1/status")).status == 200
