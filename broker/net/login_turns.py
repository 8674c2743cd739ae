"""What peers that have not logged in cost, in CPU time: some milliseconds of each turn of the event loop.

Thousands of sockets may become readable at once, each with the end of a login, or of a TLS handshake, which costs up to
some milliseconds.  So what is beyond the budget of a turn waits for later ones, and only some of the sockets are read
in each (`read_turns`).  There addresses (of IPv6: /64 networks) take turns, so that a flood from one of them delays its
own logins.  Clients that have logged in do not wait here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from broker.net.read_turns import ReadTurns
from broker.security.throttle import block

#: Microseconds of CPU time for logins in one turn of the event loop.
TURN_US: Final = 5_000

#: Bytes of unread input of one address that may wait: 8 KiB each of 8,192 clients.
BYTES_WAITING_MAX: Final = 64 << 20

#: The same for all addresses together: two that flood, or many that do a little.
BYTES_WAITING_TOTAL_MAX: Final = 128 << 20

#: Something that is to be done, and the bytes that it holds meanwhile.
_Waiting = tuple[Callable[[], None], int]


class LoginTurns:
    """The turns of logins at all acceptors.  `cpu_us` returns the CPU time of the thread, in microseconds."""

    def __init__(self, cpu_us: Callable[[], int]) -> None:
        self._cpu_us = cpu_us
        #: Those that are not read until their turn comes.
        self.reads = ReadTurns()
        self._left = TURN_US
        self._scheduled = False
        # By address, oldest first; the address whose turn is next comes first.
        self._lines: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._total = 0

    @property
    def free(self) -> bool:
        """Whether there is time left in this turn, for which nothing waits."""
        return self._left > 0 and not self._lines

    def run(self, call: Callable[[], None]) -> None:
        """Make a call now, in the time of this turn."""
        self._schedule()
        begun = self._cpu_us()
        try:
            call()
        finally:
            self._left -= max(self._cpu_us() - begun, 1)

    def wait(self, origin: str, call: Callable[[], None], held: int = 0) -> bool:
        """Make a call in a later turn, after those of the same address; False: too many bytes are `held`."""
        address = block(origin)
        waiting = self._bytes.get(address, 0) + held
        if held and (waiting > BYTES_WAITING_MAX or self._total + held > BYTES_WAITING_TOTAL_MAX):
            return False
        self._bytes[address] = waiting
        self._total += held
        self._lines.setdefault(address, deque()).append((call, held))
        self._schedule()
        return True

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin a turn with what waits."""
        self._scheduled = False
        self._left = TURN_US
        while self._lines and self._left > 0:
            self.run(self._take())
        if self._lines:
            self._schedule()

    def _take(self) -> Callable[[], None]:
        address, line = next(iter(self._lines.items()))
        call, held = line.popleft()
        self._total -= held
        if line:
            self._bytes[address] -= held
            self._lines.move_to_end(address)
        else:
            del self._lines[address], self._bytes[address]
        return call
