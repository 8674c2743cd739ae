"""Thousands of lost connections of an acceptor: their places are freed some at a time, and when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from broker.net.admission import ConnectionSlots
from broker.net.connection import Connection
from broker.net.listener import FORGOTTEN_TOGETHER, Listener
from broker.net.login_turns import LoginTurns
from broker.sessions.login import Peer
from broker.sessions.session import Session
from broker.sessions.tick import Transport

CONNECTIONS = 2 * FORGOTTEN_TOGETHER + 50
ORIGIN = "192.0.2.1"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


class Tick:
    """Counts the sessions that are told of their end."""

    def __init__(self) -> None:
        self.ended = 0

    def enter(self) -> None:
        """Begin nothing."""

    def touch(self, transport: Transport) -> None:
        """Flush nothing."""

    def end_connection(self, transport: Transport, call: Callable[[], None]) -> None:
        """Call it later: never."""
        self.ended += 1

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """Let the test fail."""
        raise error


class Known:
    """A session of a client that has logged in."""

    established = True
    close_expected = False

    def connection_lost(self) -> None:
        """Do nothing."""


class World:
    """An acceptor with `CONNECTIONS` connections, as many as it may have or as one address may have."""

    def __init__(self, *, origin_max: int = -1) -> None:
        self.tick, self.reported = Tick(), list[str]()
        self.listener = Listener(
            "front",
            self.tick,
            lambda *_: cast(Session, Known()),
            report=lambda code, /, **_: self.reported.append(code),
            monotonic_ms=lambda: 0,
            connections_max=CONNECTIONS if origin_max < 0 else -1,
            total=ConnectionSlots(2 * CONNECTIONS),
            logins=LoginTurns(lambda: 0),
            handshake_timeout=0,
            origin_max=origin_max,
        )
        self.connections = [Connection(self.listener, self.tick) for _ in range(CONNECTIONS)]

    async def open(self) -> None:
        """Connect all."""
        await self.listener.open("127.0.0.1", 0)
        assert all(self.connect(each) for each in self.connections)

    def connect(self, connection: Connection) -> bool:
        """Whether the acceptor takes a connection."""
        connection.peer = Peer(f"{ORIGIN}:1", ORIGIN)
        return self.listener._acquire(connection) and self.listener.admit(connection)

    @property
    def left(self) -> int:
        """How many connections it knows."""
        return len(self.listener.connections)


async def test_many_lost_connections_are_forgotten_some_at_a_time() -> None:
    world = World()
    await world.open()
    for each in world.connections:
        each.connection_lost(None)
    assert world.tick.ended == CONNECTIONS
    left = [world.left]
    while world.left:
        await asyncio.sleep(0)
        left.append(world.left)
    assert left == [CONNECTIONS, CONNECTIONS - FORGOTTEN_TOGETHER, CONNECTIONS - 2 * FORGOTTEN_TOGETHER, 0]
    assert world.reported.count("connection.closed") == CONNECTIONS
    await world.listener.idle()
    world.listener.close()


async def test_a_fault_at_a_lost_connection_keeps_no_place_of_another() -> None:
    world, faults = World(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    await world.open()
    world.listener._left = lambda _: faults.append(1 // 0) if not faults else None
    for each in world.connections:
        each.connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(faults), world.left) == (1, 0)
    world.listener.close()


@pytest.mark.parametrize("origin_max", [-1, CONNECTIONS])
async def test_a_new_connection_gets_the_place_of_one_that_is_lost_and_not_forgotten_yet(origin_max: int) -> None:
    world = World(origin_max=origin_max)
    await world.open()
    assert not world.connect(Connection(world.listener, world.tick))
    for each in world.connections[:3]:
        each.connection_lost(None)
    assert world.connect(Connection(world.listener, world.tick))
    assert world.left == CONNECTIONS, "no more than needed are forgotten"
    await asyncio.sleep(0)
    assert world.left == CONNECTIONS - 2
    world.listener.close()


async def test_a_connection_that_is_displaced_before_it_begins_never_begins() -> None:
    """It would have no place: nothing would count it, or see that it does not log in."""
    world = World()
    await world.open()
    displaced = Connection(world.listener, world.tick)
    displaced.peer = Peer(f"{ORIGIN}:1", ORIGIN)
    world.listener.release(world.connections[0])
    assert world.listener._acquire(displaced)
    displaced.leave()
    assert not world.listener.admit(displaced)
    await asyncio.sleep(0)
    assert displaced not in world.listener.connections
    assert "connection.closed" not in world.reported
    world.listener.close()
