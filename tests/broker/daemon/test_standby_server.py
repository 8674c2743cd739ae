"""How a standby stops to answer, when it is about to serve."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.config import Config
from broker.daemon.standby import UNASKED
from broker.daemon.standby_server import StandbyServer
from broker.management import http
from broker.net import handshake
from tests.support.certificates import Authority

PATIENCE_S = 20


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


async def test_nobody_who_stays_connected_delays_a_take_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients over TLS that do not answer to its end, in the middle of a call, or silent."""
    for module, name in ((handshake, "SHUTDOWN_SECONDS"), (http, "STOP_SECONDS_MAX")):
        monkeypatch.setattr(module, name, 60)
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker")
    tls = {"certificate": certificate, "key": key}
    config = Config.model_validate(
        {
            "acceptors": {"web": {"protocol": "http", "port": 0}, "safe": {"protocol": "http", "port": 0, "tls": tls}},
            "journal": {"log": "postgresql", "postgresql": {"dsn": "dbname=none", "single-copy": True}},
        }
    )

    def report(code: str, /, **fields: object) -> None:
        pass

    broker: Any = SimpleNamespace(
        name="b", version="1", started=0, engine=SimpleNamespace(report=report, now=0, spans=None), tick=None
    )
    server = StandbyServer(broker, config, report, lambda: UNASKED)
    listening = {each.acceptor: each for each in await server.open("token")}
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for request in (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /livez HTTP/1.1\r\nX-Half: ", b""):
        for name in listening:
            options: dict[str, Any] = (
                {"ssl": authority.client(), "server_hostname": "localhost"} if name == "safe" else {}
            )
            streams.append(await asyncio.open_connection("127.0.0.1", listening[name].port, **options))
            streams[-1][1].write(request)
            if request.endswith(b"\r\n\r\n"):
                assert b"200" in await asyncio.wait_for(streams[-1][0].readuntil(b"\r\n"), PATIENCE_S)
            cast(asyncio.Transport, streams[-1][1].transport).pause_reading()  # so that it does not answer
    await asyncio.wait_for(server.close(), PATIENCE_S)
    for reader, writer in streams:
        cast(asyncio.Transport, writer.transport).resume_reading()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
