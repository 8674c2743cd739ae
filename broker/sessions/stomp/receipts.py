"""RECEIPTs for the frames of a connection, in order, and the ERROR that may follow them.

A receipt waits for the disk if its frame does, or one before it.  An ERROR is the last frame of a connection: it waits
for the receipts before it, or else the client would repeat frames that were processed.
"""

from __future__ import annotations

from broker.engine import Engine
from broker.sessions.confirmations import Confirmations
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError


class Receipts(Confirmations[tuple[int, bytes]]):
    """The receipts of one connection, each with the number of SENDs up to and including its frame."""

    __slots__ = ("_codec", "_error")

    def __init__(self, engine: Engine, codec: StompConnection) -> None:
        super().__init__(engine, self._send)
        self._codec = codec
        self._error: StompError | None = None

    def want(self, receipt: bytes, *, sends: int) -> None:
        """Owe a receipt for a frame that was processed; `sends`: how many SENDs there were, including this frame."""
        self.owed.append((sends, receipt))

    def refuse(self, published: int) -> None:
        """Drop receipts owed for frames after the first `published` SENDs, since the next one was refused."""
        self.owed = [each for each in self.owed if each[0] <= published]

    def _send(self, receipts: list[tuple[int, bytes]]) -> None:
        for _, receipt in receipts:
            self._codec.send_receipt(receipt)

    def durable(self, number: int) -> None:
        """Send the receipts that waited for ticks up to this one, and the ERROR if it was next."""
        super().durable(number)
        if self._error is not None and not self.waiting:
            self._codec.send_error(self._error)

    def end(self, error: StompError) -> None:
        """Send an ERROR after the receipts; only the first of several is sent."""
        if not self.waiting:
            self._codec.send_error(error)
        elif self._error is None:
            self._error = error

    def forget(self) -> None:
        """Send nothing more."""
        self.drop()
        self._error = None
