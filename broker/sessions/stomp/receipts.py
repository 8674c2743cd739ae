"""What a connection says of the frames that it has done: RECEIPTs in their order, and the ERROR that may end them.

A receipt waits for the disk if its frame does, or one before it.  An ERROR is the last frame of a connection: it waits
for the receipts before it, or else its client would send again what is done.
"""

from __future__ import annotations

from broker.engine import Engine, Waiter
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError


class Receipts:
    """Those of one connection."""

    __slots__ = ("_codec", "_engine", "_error", "_waiting", "_wanted")

    def __init__(self, engine: Engine, codec: StompConnection) -> None:
        self._engine = engine
        self._codec = codec
        self._wanted: list[tuple[int, bytes]] = []  # with the sends up to the frame
        self._waiting: list[tuple[int, bytes]] = []  # with what has to be durable; an empty deque would cost 600 bytes
        self._error: StompError | None = None

    @property
    def waiting(self) -> bool:
        """Whether there are some that are not out yet."""
        return bool(self._waiting)

    def want(self, receipt: bytes, *, sends: int) -> None:
        """A frame has been handled that asks for one, after so many SENDs of the connection, itself among them."""
        self._wanted.append((sends, receipt))

    def refuse(self, taken: int) -> None:
        """Of the SENDs only so many have been taken: what came behind them gets none."""
        self._wanted = [each for each in self._wanted if each[0] <= taken]

    def confirm(self, waiter: Waiter) -> None:
        """Receipts for the frames handled so far: now, or when what they did is on disk."""
        if not self._wanted:
            return
        wanted, self._wanted = self._wanted, []
        ticket = self._engine.ticks.confirmation(waiter)
        if not ticket and self._waiting:
            ticket = self._waiting[-1][0]
        if ticket:
            self._waiting.extend([(ticket, receipt) for _, receipt in wanted])
            return
        for _, receipt in wanted:
            self._codec.send_receipt(receipt)

    def durable(self, ticket: int) -> None:
        """Everything up to a tick is on disk."""
        sent = 0
        for durable, receipt in self._waiting:
            if durable > ticket:
                break
            self._codec.send_receipt(receipt)
            sent += 1
        del self._waiting[:sent]
        if self._error is not None and not self._waiting:
            self._codec.send_error(self._error)

    def end(self, error: StompError) -> None:
        """An ERROR follows the receipts; of several the first is sent."""
        if not self._waiting:
            self._codec.send_error(error)
        elif self._error is None:
            self._error = error

    def forget(self) -> None:
        """The peer hears nothing more."""
        self._wanted.clear()
        self._waiting.clear()
        self._error = None
