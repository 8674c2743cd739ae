"""The open transactions of one STOMP connection, by the names that its client chose."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine import Engine, Transaction
from broker.engine.model.errors import EngineError
from broker.sessions.stomp.headers import Headers, error
from protocols.stomp.errors import format_value
from protocols.stomp.frames import Frame


class Transactions:
    """The open transactions of a connection, at most `most`."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._open: dict[bytes, Transaction] = {}

    def find(self, headers: Headers, command: str) -> Transaction:
        """Return the transaction that a frame names.  Raises StompError."""
        name = headers[b"transaction"]
        tx = self._open.get(name)
        if tx is None:
            raise error(command, "unknown transaction", f"transaction {format_value(name)} has not begun", headers)
        return tx

    def of(self, headers: Headers, command: str) -> Transaction | None:
        """Return the transaction that a frame names, None if it names none.  Raises StompError."""
        return self.find(headers, command) if b"transaction" in headers else None

    def begin(self, frame: Frame) -> None:
        """Process a BEGIN.  Raises StompError."""
        headers = frame.headers
        name = headers[b"transaction"]
        if name in self._open:
            raise error(
                "BEGIN", "duplicate transaction", f"transaction {format_value(name)} has begun already", headers
            )
        if len(self._open) >= self._most:
            raise error("BEGIN", "too many transactions", f"a connection may have {self._most} open", headers)
        self._open[name] = self._engine.transactions.begin(self)

    def commit(self, frame: Frame, done: Callable[[Transaction, EngineError | None], None]) -> None:
        """Process a COMMIT; call `done`, now or in a later tick, once it is done or refused.  Raises StompError."""
        tx = self.find(frame.headers, "COMMIT")

        def committed(refusal: EngineError | None) -> None:
            if refusal is None:
                self._open.pop(frame.headers[b"transaction"], None)
            done(tx, refusal)

        self._engine.transactions.commit(tx, committed)

    def abort(self, frame: Frame) -> None:
        """Process an ABORT.  Raises StompError."""
        tx = self.find(frame.headers, "ABORT")
        del self._open[frame.headers[b"transaction"]]
        self._engine.transactions.rollback(tx)

    def abandon(self) -> None:
        """Roll back all open transactions: the connection ends."""
        for tx in self._open.values():
            self._engine.transactions.rollback(tx)
        self._open.clear()
