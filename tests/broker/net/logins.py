"""Peers that log in: their turns, an acceptor, and what their sessions are told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from broker.net.admission import ConnectionSlots
from broker.net.listener import Listener
from broker.net.login_turns import LoginTurns
from broker.sessions.session import Session
from broker.sessions.tick import Transport
from tests.support.process import PATIENCE_S


class World:
    """Turns in which each call takes a millisecond, and what was called."""

    def __init__(self) -> None:
        self.used_us = 0
        self.turns = LoginTurns(lambda: self.used_us)
        self.called: list[str] = []

    def work(self, name: str) -> None:
        """Take a millisecond."""
        self.used_us += 1_000
        self.called.append(name)

    def wait(self, origin: str, name: str) -> None:
        """Let some work wait."""
        assert self.turns.wait(origin, partial(self.work, name))

    async def next(self) -> list[str]:
        """Return what is called in the next turn."""
        before = len(self.called)
        await asyncio.sleep(0)
        return self.called[before:]

    def exhaust(self) -> None:
        """Use up this turn."""
        while self.turns.free:
            self.turns.run(lambda: self.work("other"))


class Tick:
    """Makes calls at once."""

    def enter(self) -> None:
        """Begin nothing."""

    def touch(self, transport: Transport) -> None:
        """Flush nothing."""

    def end_connection(self, transport: Transport, call: Callable[[], None]) -> None:
        """Call it now."""
        call()

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """Let the test fail."""
        raise error


class Client:
    """The session of a connection, and what it was told; after `LOGIN` the client has logged in."""

    close_expected = False
    receive_timeout = 0
    send_interval = 0

    def __init__(self, world: World) -> None:
        self._world = world
        self.established = False
        self.told: list[bytes] = []

    def receive_data(self, data: bytes) -> None:
        """Take a millisecond."""
        self._world.work("read")
        self.told.append(data)
        self.established = self.established or data.endswith(b"LOGIN")

    def receive_eof(self) -> None:
        """Note the end."""
        self.told.append(b"eof")

    def connection_lost(self) -> None:
        """Note the end."""
        self.told.append(b"lost")

    def write_blocked(self) -> None:
        """Do nothing."""

    def flushed(self) -> None:
        """Do nothing."""


def acceptor(
    world: World, sessions: list[Client], *, context: ssl.SSLContext | None = None, connections_max: int = -1
) -> Listener:
    """An acceptor, and the sessions that it makes."""

    def make(*_: object) -> Session:
        sessions.append(Client(world))
        return cast(Session, sessions[-1])

    return Listener(
        "front",
        Tick(),
        make,
        report=lambda *_, **__: None,
        monotonic_ms=lambda: 0,
        connections_max=connections_max,
        total=ConnectionSlots(10_000),
        logins=world.turns,
        handshake_timeout=int(PATIENCE_S * 1_000),
        context=None if context is None else lambda: context,
    )


@asynccontextmanager
async def listening(
    world: World, *, context: ssl.SSLContext | None = None, connections_max: int = -1
) -> AsyncIterator[tuple[int, list[Client]]]:
    """An acceptor, until all of its connections have ended: its port and its sessions."""
    sessions: list[Client] = []
    listener = acceptor(world, sessions, context=context, connections_max=connections_max)
    [(_, port)] = await listener.open("127.0.0.1", 0)
    try:
        yield port, sessions
    finally:
        listener.close()
        listener.abort()
        world.turns.reads.close()
        await until(lambda: not listener.connections)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that is told by no event."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)
