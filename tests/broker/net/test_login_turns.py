"""Logins that come all at once: they wait for their turns, and nobody else does."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial

import pytest

from broker.net.connection import Connection
from broker.net.handshake import Handshake
from broker.net.login_turns import BYTES_WAITING_MAX, BYTES_WAITING_TOTAL_MAX, TURN_US
from broker.net.tls import TlsSettings, make_context
from tests.broker.net.logins import Client, World, acceptor, listening, until
from tests.support.certificates import Authority
from tests.support.process import PATIENCE_S

#: As many logins as fit a turn, when each takes a millisecond.
FITTING = TURN_US // 1_000


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


async def test_a_turn_has_a_budget_and_the_next_one_has_it_again() -> None:
    world = World()
    world.exhaust()
    assert len(world.called) == FITTING
    await world.next()
    assert world.turns.free
    world.exhaust()
    assert len(world.called) == 2 * FITTING


async def test_waiting_logins_have_their_turn_in_order() -> None:
    world = World()
    world.exhaust()
    names = [f"{number}" for number in range(2 * FITTING + 1)]
    for name in names:
        world.wait("192.0.2.1", name)
    assert await world.next() == names[:FITTING]
    assert not world.turns.free, "others wait"
    assert await world.next() == names[FITTING : 2 * FITTING]
    assert await world.next() == names[-1:]
    assert world.turns.free


@pytest.mark.parametrize(("one", "other"), [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8:0:1::1")])
async def test_addresses_take_turns(one: str, other: str) -> None:
    world = World()
    for number in range(100):
        world.wait(one, f"flood {number}")
    world.wait(other, "guest")
    assert (await world.next())[:3] == ["flood 0", "guest", "flood 1"]


async def test_a_network_of_ipv6_is_one_address() -> None:
    world = World()
    for number in range(100):
        world.wait(f"2001:db8::{number:x}", f"flood {number}")
    world.wait("2001:db8::ffff", "its last")
    assert "its last" not in await world.next()


async def test_one_address_does_not_fill_the_memory() -> None:
    world = World()
    held = BYTES_WAITING_MAX // 4
    for name in "abcd":
        assert world.turns.wait("192.0.2.1", partial(world.work, name), held)
    assert not world.turns.wait("192.0.2.1", partial(world.work, "e"), 1)
    assert world.turns.wait("192.0.2.1", partial(world.work, "end"))
    assert world.turns.wait("192.0.2.2", partial(world.work, "other"), held)
    await world.next()
    await world.next()
    assert sorted(world.called) == ["a", "b", "c", "d", "end", "other"]
    assert world.turns.wait("192.0.2.1", partial(world.work, "f"), BYTES_WAITING_MAX)


async def test_many_addresses_do_not_fill_the_memory() -> None:
    world = World()
    held = BYTES_WAITING_TOTAL_MAX // 4
    for number in range(4):
        assert world.turns.wait(f"192.0.2.{number}", partial(world.work, "x"), held)
    assert not world.turns.wait("192.0.2.4", partial(world.work, "more"), 1)
    await world.next()
    assert world.called == ["x"] * 4
    assert world.turns.wait("192.0.2.4", partial(world.work, "more"), BYTES_WAITING_MAX)


async def test_a_fault_in_one_login_does_not_stop_the_others() -> None:
    world, faults = World(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    world.wait("192.0.2.1", "before")
    assert world.turns.wait("192.0.2.1", lambda: 1 // 0)  # type: ignore[arg-type]
    world.wait("192.0.2.1", "behind")
    assert await world.next() == ["before"]
    assert await world.next() == ["behind"]
    assert [type(each) for each in faults] == [ZeroDivisionError]


# -- connections -------------------------------------------------------------------------------------------------------


class Reads:
    """A transport: whether it is read, and whether it was aborted."""

    def __init__(self) -> None:
        self.reads = True
        self.aborted = False

    def pause_reading(self) -> None:
        """Read no more."""
        self.reads = False

    def resume_reading(self) -> None:
        """Read again."""
        self.reads = True

    def is_closing(self) -> bool:
        """Whether it ends."""
        return self.aborted

    def abort(self) -> None:
        """End at once."""
        self.aborted = True

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Do nothing."""

    def get_extra_info(self, name: str) -> object:
        """Return the address."""
        return ("192.0.2.1", 1) if name == "peername" else None


def connected(world: World) -> tuple[Connection, Client, Reads]:
    """A connection to an acceptor."""
    sessions, transport = list[Client](), Reads()
    listener = acceptor(world, sessions)
    connection = Connection(listener, listener.tick)
    listener._held.add(connection)  # as if it had been accepted
    listener._origins["192.0.2.1"] = 1
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, sessions[0], transport


async def test_a_login_waits_for_its_turn_and_is_not_read_meanwhile() -> None:
    world = World()
    connection, client, transport = connected(world)
    world.exhaust()
    connection.data_received(b"LOGIN")
    assert (client.told, transport.reads) == ([], False)
    await world.next()
    assert (client.told, transport.reads) == ([b"LOGIN"], True)


async def test_a_client_that_has_logged_in_does_not_wait() -> None:
    world = World()
    connection, client, _ = connected(world)
    connection.data_received(b"LOGIN")
    world.exhaust()
    world.wait("192.0.2.1", "flood")
    connection.data_received(b"message")
    assert client.told == [b"LOGIN", b"message"]


async def test_bytes_behind_a_login_stay_behind_it() -> None:
    world = World()
    connection, client, _ = connected(world)
    world.exhaust()
    for number in range(FITTING - 1):
        world.wait("192.0.2.1", f"flood {number}")
    connection.data_received(b"LOGIN")
    connection.data_received(b"message")
    connection.eof_received()
    connection.connection_lost(None)
    await world.next()
    assert client.told == [b"LOGIN"]
    await world.next()
    assert client.told == [b"LOGIN", b"message", b"eof", b"lost"]


async def test_input_that_finds_no_room_ends_its_connection() -> None:
    world = World()
    connection, client, transport = connected(world)
    world.exhaust()
    assert world.turns.wait("192.0.2.1", lambda: None, BYTES_WAITING_MAX)
    connection.data_received(b"LOGIN")
    assert (client.told, transport.aborted) == ([], True)


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of the acceptor's certificate."""
    return Authority(tmp_path_factory.mktemp("ca"))


def secured(
    world: World, authority: Authority, *, connections_max: int = -1
) -> AbstractAsyncContextManager[tuple[int, list[Client]]]:
    """An acceptor with TLS: its port and its sessions."""
    context = make_context(TlsSettings(*authority.issue("broker")))
    return listening(world, context=context, connections_max=connections_max)


async def greet(port: int, context: ssl.SSLContext) -> asyncio.StreamWriter:
    """Do a handshake and send a login."""
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    writer.write(b"LOGIN")
    await writer.drain()
    return writer


async def test_handshakes_wait_for_their_turns(authority: Authority) -> None:
    world = World()
    async with secured(world, authority) as (port, sessions):
        for number in range(100 * FITTING):
            world.wait("127.0.0.1", f"flood {number}")
        writer = await greet(port, authority.client())
        await until(lambda: len(sessions) == 1 and sessions[0].told == [b"LOGIN"])
        assert world.called[-2:] == [f"flood {100 * FITTING - 1}", "read"]
        writer.close()


async def test_hundreds_of_handshakes_at_once_all_succeed(authority: Authority) -> None:
    world, context = World(), authority.client()
    async with secured(world, authority) as (port, sessions):
        clients = await asyncio.gather(*(greet(port, context) for _ in range(200)))
        await until(lambda: sum(len(each.told) for each in sessions) >= len(clients))
        assert [each.told for each in sessions] == [[b"LOGIN"]] * len(clients)
        for each in clients:
            each.close()


async def test_peers_that_leave_while_their_handshakes_wait(authority: Authority) -> None:
    world, context = World(), authority.client()
    async with secured(world, authority) as (port, sessions):
        world.exhaust()
        with ExitStack() as stack:
            for first in hellos():
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
                client.sendall(first)
            for _ in range(20):
                world.exhaust()
                await asyncio.sleep(0)
        writer = await greet(port, context)
        await until(lambda: [each.told for each in sessions] == [[b"LOGIN"]])
        writer.close()


async def test_handshakes_leave_no_garbage(authority: Authority) -> None:
    """Each holds 256 KiB, and a broker with many messages looks for garbage in cycles very seldom."""
    world, context = World(), authority.client()
    async with secured(world, authority) as (port, sessions):
        gc.collect()
        gc.disable()
        try:
            for first in hellos():
                with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
                    client.sendall(first)
                    for _ in range(10):
                        await asyncio.sleep(0)
            for _ in range(2):
                (await greet(port, context)).close()
            await until(lambda: [each.told[-1:] for each in sessions] == [[b"lost"]] * 2)
            await until(lambda: not any(isinstance(each, Handshake) for each in gc.get_objects()))
            assert not [each for each in gc.get_objects() if type(each).__name__ == "SSLProtocol"]
        finally:
            gc.enable()


async def test_displaced_handshakes_leave_no_garbage(authority: Authority) -> None:
    world = World()
    async with secured(world, authority, connections_max=2) as (port, _):
        gc.collect()
        gc.disable()
        try:
            with ExitStack() as stack:
                for _ in range(5):
                    for first in hellos():
                        client = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
                        client.sendall(first)
                        for _ in range(5):
                            await asyncio.sleep(0)
                await until(lambda: sum(isinstance(each, Handshake) for each in gc.get_objects()) <= 2)
        finally:
            gc.enable()


def hellos() -> Iterator[bytes]:
    """The first flights of some peers: whole, half, nonsense, nothing."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    first = outgoing.read()
    yield from (first, first[:100], b"GET / HTTP/1.1\r\n\r\n", b"", first + bytes(50_000))
