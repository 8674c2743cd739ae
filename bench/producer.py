"""The sending half of a run: laps of prebuilt frames pushed into a socket as fast as it takes them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from bench.link import BrokerFailed, Link
from bench.messages import LAP, Pool

SEND_BYTES: Final = 1 << 18  # bytes a send; about a thousand messages
LAST_RECEIPT: Final = b"last"


class Producer:
    """Sends messages 0, 1, 2, ... ; the one before `total` alone is sent by itself and asks for the final receipt.

    total: number of messages of this run, or None while that is still open (`finish` closes it).
    confirmed: the broker's receipt for the last message has come.
    """

    __slots__ = (
        "_carry", "_data", "_lap", "_lap_number", "_last_sent", "_link", "_offset", "_pool",
        "confirmed", "receipts", "total",
    )  # fmt: skip

    def __init__(self, link: Link, pool: Pool, total: int | None) -> None:
        self._link = link
        self._pool = pool
        self._lap_number = 0
        self._lap = memoryview(pool.lap(0))
        self._offset = 0
        self._carry = b""
        self._data = memoryview(b"")  # of the last message, once it is due
        self._last_sent = False
        self.total = total
        self.receipts = 0
        self.confirmed = False

    @property
    def sent(self) -> int:
        """Messages that the kernel has taken whole."""
        if self._last_sent:
            assert self.total is not None
            return self.total
        return self._lap_number * LAP + bisect_right(self._pool.offsets, self._offset) - 1

    def finish(self) -> None:
        """One more message after those begun, then no more."""
        if self.total is None:
            self.total = self._lap_number * LAP + bisect_left(self._pool.offsets, self._offset) + 1

    def pump(self, limit: int) -> int:
        """One send of messages numbered below `limit`; returns the bytes that the socket took."""
        if self._last_sent:
            return 0
        if self._data:
            return self._send_last()
        stop = limit if self.total is None else min(limit, self.total - 1)
        end = self._pool.offsets[min(max(stop - self._lap_number * LAP, 0), LAP)]
        if self._offset < end:
            taken = self._link.send(self._lap[self._offset : min(end, self._offset + SEND_BYTES)])
            self._offset += taken
            return taken
        if self.total is not None and stop == self.total - 1 and self.sent == stop:
            self._data = memoryview(self._pool.last(stop, LAST_RECEIPT))
            return self._send_last()
        if stop > (self._lap_number + 1) * LAP:
            self._lap_number += 1
            self._lap = memoryview(self._pool.lap(self._lap_number))
            self._offset = 0
            return self.pump(limit)
        return 0

    def listen(self) -> None:
        """Takes the receipts that have come. Raises BrokerFailed on an ERROR."""
        data = self._link.receive()
        if not data:
            return
        *frames, self._carry = (self._carry + data).split(b"\0")
        for frame in frames:
            answer = frame.lstrip(b"\r\n")
            if not answer.startswith(b"RECEIPT"):
                raise BrokerFailed(f"the producer was told {answer.decode(errors='replace')}")
            self.receipts += 1
            self.confirmed = self.confirmed or b"receipt-id:" + LAST_RECEIPT in answer

    def _send_last(self) -> int:
        taken = self._link.send(self._data)
        self._data = self._data[taken:]
        self._last_sent = not self._data
        return taken
