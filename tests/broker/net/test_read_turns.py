"""Peers that have not logged in are read some at a time, however many are readable at once."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from broker.net import read_turns
from broker.net.read_turns import ReadTurns
from tests.broker.net.logins import World, listening, until


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


class Reader:
    """Notes when it is to read."""

    def __init__(self, name: str, noted: list[str]) -> None:
        self._name = name
        self._noted = noted

    def read_next(self) -> None:
        """See Unread."""
        self._noted.append(self._name)


async def test_some_of_those_that_are_readable_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "READ_TOGETHER", 2)
    watched, noted = ReadTurns(), list[str]()
    with ExitStack() as stack:
        pairs = [[stack.enter_context(each) for each in socket.socketpair()] for _ in range(5)]
        for number, (mine, _) in enumerate(pairs):
            assert watched.wait(mine.fileno(), Reader(f"{number}", noted))
        for _, other in pairs[:-1]:
            other.sendall(b"x")
        await until(lambda: bool(noted))
        assert len(noted) == 2
        await until(lambda: len(noted) == 4)
        await asyncio.sleep(0)
        assert sorted(noted) == ["0", "1", "2", "3"], "each has one turn, though it is still readable"
        assert watched.wait(pairs[0][0].fileno(), Reader("again", noted))
        await until(lambda: noted[4:] == ["again"])
        watched.forget(pairs[1][0].fileno())
        watched.close()
        assert noted[5:] == ["again", "2", "3", "4"], "those that are left are read at once"
        assert not watched.wait(pairs[0][0].fileno(), Reader("late", noted))


async def test_many_that_send_at_once_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "READ_TOGETHER", 2)
    world = World()
    async with listening(world) as (port, sessions):
        with ExitStack() as stack:
            peers = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
            await until(lambda: len(world.turns.reads._waiting) == 8)
            for number, peer in enumerate(peers):
                peer.sendall(b"LOGIN" if number % 2 else b"LOG")
            seen: list[int] = []
            while sum(seen) < 8:
                await asyncio.sleep(0)
                seen.append(sum([len(each.told) for each in sessions]) - sum(seen))
            assert max(seen) <= 4, "those of two polls, if the event loop has seen them together"
            peers[0].sendall(b"LOGIN")
            await until(lambda: sum([len(each.told) for each in sessions]) == 9)
            assert len(world.turns.reads._waiting) == 3, "who has logged in is read as ever"
            for peer in peers:
                peer.sendall(b"more")
            await until(lambda: sum([each.told[-1] == b"more" for each in sessions]) == 8)


@pytest.mark.parametrize("last", [b"", b"LOG"])
async def test_the_end_of_one_that_has_not_logged_in_is_seen(last: bytes) -> None:
    world = World()
    async with listening(world) as (port, sessions):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            await until(lambda: bool(world.turns.reads._waiting))
            peer.sendall(last)
        await until(lambda: b"eof" in sessions[0].told or b"lost" in sessions[0].told)
        assert sessions[0].told[0] in (last or b"eof", b"eof", b"lost")
