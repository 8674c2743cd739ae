"""What a connection says of the frames that it has done: RECEIPTs in their order, and the ERROR that may end them.

A receipt waits for the disk if its frame does, or one before it.  An ERROR is the last frame of a connection: it waits
for the receipts before it, or else its client would send again what is done.
"""

from __future__ import annotations

from broker.engine import Engine, Waiter
from broker.sessions.confirmations import Confirmations
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError


class Receipts:
    """Those of one connection."""

    __slots__ = ("_codec", "_error", "_line")

    def __init__(self, engine: Engine, codec: StompConnection) -> None:
        self._codec = codec
        self._error: StompError | None = None
        # Each with how many SENDs of the connection there were up to its frame.
        self._line: Confirmations[tuple[int, bytes]] = Confirmations(engine, self._say)

    @property
    def waiting(self) -> bool:
        """Whether there are some that are not out yet."""
        return self._line.waiting

    def want(self, receipt: bytes, *, sends: int) -> None:
        """A frame has been handled that asks for one, after so many SENDs of the connection, itself among them."""
        self._line.owed.append((sends, receipt))

    def refuse(self, taken: int) -> None:
        """Of the SENDs only so many have been taken: what came behind them gets none."""
        self._line.owed = [each for each in self._line.owed if each[0] <= taken]

    def confirm(self, waiter: Waiter) -> None:
        """Receipts for the frames handled so far: now, or when what they did is on disk."""
        self._line.confirm(waiter)

    def _say(self, receipts: list[tuple[int, bytes]]) -> None:
        for _, receipt in receipts:
            self._codec.send_receipt(receipt)

    def durable(self, ticket: int) -> None:
        """Everything up to a tick is on disk."""
        self._line.durable(ticket)
        if self._error is not None and not self._line.waiting:
            self._codec.send_error(self._error)

    def end(self, error: StompError) -> None:
        """An ERROR follows the receipts; of several the first is sent."""
        if not self._line.waiting:
            self._codec.send_error(error)
        elif self._error is None:
            self._error = error

    def forget(self) -> None:
        """The peer hears nothing more."""
        self._line.drop()
        self._error = None
