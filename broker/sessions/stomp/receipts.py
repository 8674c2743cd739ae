"""RECEIPTs for the frames of a connection, in order, and the ERROR that may follow them.

A receipt waits for the disk if its frame does, or one before it.  An ERROR is the last frame of a connection: it waits
for the receipts before it, or else the client would repeat frames that were processed.
"""

from __future__ import annotations

from broker.engine import Engine, Waiter
from broker.sessions.confirmations import Confirmations
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError


class Receipts:
    """The receipts of one connection."""

    __slots__ = ("_codec", "_error", "_line")

    def __init__(self, engine: Engine, codec: StompConnection) -> None:
        self._codec = codec
        self._error: StompError | None = None
        # Each with the number of SENDs up to and including its frame.
        self._line: Confirmations[tuple[int, bytes]] = Confirmations(engine, self._say)

    @property
    def waiting(self) -> bool:
        """Whether receipts wait for the disk."""
        return self._line.waiting

    def want(self, receipt: bytes, *, sends: int) -> None:
        """Owe a receipt for a frame that was processed; `sends`: how many SENDs there were, including this frame."""
        self._line.owed.append((sends, receipt))

    def refuse(self, taken: int) -> None:
        """Drop receipts owed for frames after the first `taken` SENDs, since the next one was refused."""
        self._line.owed = [each for each in self._line.owed if each[0] <= taken]

    def confirm(self, waiter: Waiter) -> None:
        """Send the receipts for the frames processed so far, now or when their effects are on disk."""
        self._line.confirm(waiter)

    def _say(self, receipts: list[tuple[int, bytes]]) -> None:
        for _, receipt in receipts:
            self._codec.send_receipt(receipt)

    def durable(self, ticket: int) -> None:
        """Send the receipts that waited for ticks up to this one, and the ERROR if it was next."""
        self._line.durable(ticket)
        if self._error is not None and not self._line.waiting:
            self._codec.send_error(self._error)

    def end(self, error: StompError) -> None:
        """Send an ERROR after the receipts; only the first of several is sent."""
        if not self._line.waiting:
            self._codec.send_error(error)
        elif self._error is None:
            self._error = error

    def forget(self) -> None:
        """Send nothing more."""
        self._line.drop()
        self._error = None
