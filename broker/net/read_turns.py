"""Peers that have not logged in: of those whose sockets are readable, some are read in each turn of the event loop.

The event loop reads all sockets that are readable before anything else happens.  Thousands of peers may send something
at the same moment, and to read each takes some 10 us.  So those that have not logged in are not read by it until their
turn comes: they are watched by a poll of their own, which is asked for a few of them at a time.  Clients that have
logged in are read at once.  Where there is no epoll, all are.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from typing import Final, Protocol

#: How many are read in one turn: 3 to 5 ms.
READ_TOGETHER: Final = 256


class Unread(Protocol):
    """A connection that is not read until its turn comes."""

    def read_next(self) -> None:
        """Read what has come."""


class ReadTurns:
    """The connections of all acceptors that are not read until their turn comes, by the numbers of their sockets."""

    def __init__(self) -> None:
        self._poll: select.epoll | None = None
        self._waiting: dict[int, Unread] = {}
        self._closed = not hasattr(select, "epoll")

    def wait(self, number: int, connection: Unread) -> bool:
        """Call `read_next` once the socket is readable and has its turn; False: it is to be read at once."""
        if self._closed:
            return False
        if self._poll is None:
            self._poll = select.epoll()
            asyncio.get_running_loop().add_reader(self._poll.fileno(), self._read_some)
        events = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
        try:
            if number in self._waiting:
                self._poll.modify(number, events)
            else:
                self._poll.register(number, events)
        except OSError:
            self.forget(number)
            return False
        self._waiting[number] = connection
        return True

    def forget(self, number: int) -> None:
        """Wait for a socket no longer: it is about to be closed."""
        if self._waiting.pop(number, None) is not None and self._poll is not None:
            with suppress(OSError):
                self._poll.unregister(number)

    def _read_some(self) -> None:
        assert self._poll is not None, "it is what the event loop has seen"
        for number, _ in self._poll.poll(0, READ_TOGETHER):
            connection = self._waiting.get(number)
            if connection is not None:
                connection.read_next()

    def close(self) -> None:
        """Watch nobody any more: those that wait are read at once."""
        self._closed = True
        poll, self._poll = self._poll, None
        if poll is not None:
            asyncio.get_running_loop().remove_reader(poll.fileno())
            poll.close()
        waiting, self._waiting = self._waiting, {}
        for connection in waiting.values():
            connection.read_next()
