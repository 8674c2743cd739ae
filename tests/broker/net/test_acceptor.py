"""Sockets that the system cannot accept: each episode is reported once, and those that come later are accepted."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.net import acceptor
from broker.net.acceptor import ListeningSockets

PATIENCE_S = 30.0


class Faults:
    """The next results of `accept`: an error, or 0: as it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned: list[int] = []
        real = socket.socket.accept

        def accept(listening: socket.socket) -> tuple[socket.socket, object]:
            if self.planned and (number := self.planned.pop(0)):
                raise OSError(number, os.strerror(number))
            return real(listening)

        monkeypatch.setattr(socket.socket, "accept", accept)
        monkeypatch.setattr(acceptor, "RETRY_SECONDS", 0.0)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Faults of all listening sockets."""
    return Faults(monkeypatch)


class World:
    """An acceptor; `told`: the errors that it reported."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self._arrived: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._sockets = ListeningSockets("front", lambda client, _: self._arrived.put_nowait(client), self._report)
        self._clients: list[socket.socket] = []
        self._port = 0

    def _report(self, code: str, /, **fields: object) -> None:
        assert (code, fields["acceptor"]) == ("connection.accept_failed", "front")
        self.told.append(fields["error"])

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        """Accept, for a while."""
        [(_, self._port)] = await self._sockets.open("127.0.0.1", 0, 16)
        self._sockets.serve()
        try:
            yield self
        finally:
            self._sockets.close()
            for each in self._clients:
                each.close()

    async def connect(self) -> None:
        """A client that is accepted in the end."""
        async with asyncio.timeout(PATIENCE_S):
            client = socket.create_connection(("127.0.0.1", self._port))
            self._clients += [client, await self._arrived.get()]
        assert self._clients[-1].getpeername() == client.getsockname()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_a_lack_of_the_system_is_logged_once_an_episode(
    faults: Faults, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async with World().open() as world:
        faults.planned = [number] * 5
        await world.connect()
        faults.planned = [0, number, number]  # it comes and goes
        await world.connect()
        await world.connect()
        assert (world.told, faults.planned) == ([os.strerror(number)], [])
        monkeypatch.setattr(acceptor, "QUIET_SECONDS", -1.0)
        faults.planned = [number]
        await world.connect()
        await world.connect()
        assert world.told == [os.strerror(number)] * 2


async def test_errors_are_told_apart(faults: Faults) -> None:
    async with World().open() as world:
        faults.planned = [errno.EMFILE, errno.ENOMEM, errno.EMFILE]
        await world.connect()
        assert world.told == [os.strerror(errno.EMFILE), os.strerror(errno.ENOMEM)]


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ETIMEDOUT])
async def test_a_peer_that_has_gone_stops_nothing(faults: Faults, number: int) -> None:
    async with World().open() as world:
        faults.planned = [number] * 5
        for _ in range(3):
            await world.connect()
        assert (world.told, faults.planned) == ([], [])


async def test_it_tries_no_more_once_closed(faults: Faults) -> None:
    async with World().open() as world:
        faults.planned = [errno.EMFILE] * 2
        await world.connect()
        faults.planned = [errno.EMFILE] * 1_000
    await asyncio.sleep(0)
    assert len(faults.planned) == 1_000
