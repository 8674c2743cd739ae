"""The network between a client and its server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from random import Random

import pytest

from tests.support.peers import free_port
from tests.support.process import PATIENCE_S
from tests.support.proxy import Proxy


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[Proxy]:
    with Proxy(listener.getsockname()[1]) as proxy:
        yield proxy


@pytest.fixture
def ends(listener: socket.socket, proxy: Proxy) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client, and its server."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as client:
        server, _ = listener.accept()
        server.settimeout(PATIENCE_S)
        with server:
            yield client, server


def _got_nothing(proxy: Proxy, end: socket.socket) -> bool:
    """Whether nothing arrives, whatever the proxy has to move."""
    proxy._do(lambda: None)
    proxy._do(lambda: None)
    end.setblocking(False)
    try:
        end.recv(1)
    except BlockingIOError:
        return True
    finally:
        end.settimeout(PATIENCE_S)
    return False


def _ended(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def test_bytes_go_through(proxy: Proxy, ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    server.sendall(b"an answer")
    assert client.recv(100) == b"an answer"
    assert (proxy.connections, proxy.open, proxy.to_server, proxy.to_client) == (1, 1, 8, 9)


def test_more_than_any_buffer_holds_arrives_unchanged(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    sent = Random(1).randbytes(20_000_000)
    sender = threading.Thread(target=client.sendall, args=(sent,))
    sender.start()
    received = bytearray()
    while len(received) < len(sent):
        received += server.recv(1_000_000)
    sender.join()
    assert received == sent


def test_the_last_words_arrive(proxy: Proxy, ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    server.sendall(b"FATAL")
    server.close()
    assert client.recv(100) == b"FATAL"
    assert _ended(client)
    assert (proxy.open, proxy.to_client) == (0, 5)


def test_a_cut_drops_and_refuses(
    listener: socket.socket, proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    proxy.cut()
    assert all(map(_ended, ends))
    assert proxy.open == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port)):
        listener.accept()[0].close()
    assert proxy.connections == 2


def test_a_blackhole_holds_what_arrives_once_it_is_healed(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    client, server = ends
    proxy.blackhole()
    client.sendall(b"late")
    server.sendall(b"later")
    assert _got_nothing(proxy, server)
    assert _got_nothing(proxy, client)
    proxy.heal()
    assert server.recv(100) == b"late"
    assert client.recv(100) == b"later"


def test_bytes_in_a_blackhole_never_arrive_when_it_is_cut(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    client, server = ends
    proxy.blackhole()
    client.sendall(b"lost")
    proxy.cut()
    assert _ended(server)
    assert proxy.to_server == 0


def test_a_blackhole_takes_connections_and_answers_none(listener: socket.socket, proxy: Proxy) -> None:
    proxy.cut()
    proxy.blackhole()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as client:
        client.sendall(b"hello")
        assert _got_nothing(proxy, client)
        assert proxy.to_server == 0
        proxy.heal()
        server, _ = listener.accept()
        with server:
            assert server.recv(100) == b"hello"


def test_bytes_that_went_through_are_known_afterwards(listener: socket.socket) -> None:
    with Proxy(listener.getsockname()[1]) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"five!")
            assert server.recv(100) == b"five!"
    assert (proxy.connections, proxy.open, proxy.to_server, proxy.to_client) == (1, 0, 5, 0)


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with Proxy(free_port()) as proxy, socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client:
        assert _ended(client)
        assert proxy.open == 0
