"""The objects of an ended connection's socket are left to no collector of cycles (see the same test of sessions)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

import pytest

from broker.net.tls import TlsSettings, make_context
from tests.broker.net.logins import World, listening, until
from tests.support.certificates import Authority
from tests.support.cycles import nothing_left
from tests.support.process import PATIENCE_S


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of the acceptor's certificate."""
    return Authority(tmp_path_factory.mktemp("ca"))


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def log_in(port: int, context: ssl.SSLContext | None) -> None:
    with connected(port) as client:
        if context is None:
            client.sendall(b"LOGIN")
        else:
            with context.wrap_socket(client, server_hostname="localhost") as secured:
                secured.sendall(b"LOGIN")
                secured.unwrap()


def vanish(port: int, context: ssl.SSLContext | None) -> None:
    """Log in, and end without a word."""
    client = connected(port)
    if context is not None:
        client = context.wrap_socket(client, server_hostname="localhost")
    client.sendall(b"LOGIN")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()


def hesitate(port: int, context: ssl.SSLContext | None) -> None:
    """End after half of a login, or of a handshake."""
    with connected(port) as client:
        client.sendall(b"\x16\3\1\2\0\1" if context else b"LO")


def say_nothing(port: int, context: ssl.SSLContext | None) -> None:
    connected(port).close()


@pytest.mark.parametrize(
    ("client", "secure"), [(vanish, False), (log_in, True), (vanish, True), (hesitate, True), (say_nothing, True)]
)
async def test_the_socket_of_an_ended_connection_is_in_no_cycle(
    client: Callable[[int, ssl.SSLContext | None], None], secure: bool, authority: Authority
) -> None:
    world = World()
    theirs = authority.client() if secure else None
    context = make_context(TlsSettings(*authority.issue("broker"))) if secure else None
    async with listening(world, context=context) as (port, sessions):

        async def come() -> None:
            await asyncio.to_thread(partial(client, port, theirs))
            if client in (log_in, vanish):
                await until(lambda: bool(sessions) and b"lost" in sessions[-1].told)
            for _ in range(100):  # what the event loop has still to do with the socket
                await asyncio.sleep(0)
            sessions.clear()

        await come()
        with nothing_left():
            await come()
            await come()
