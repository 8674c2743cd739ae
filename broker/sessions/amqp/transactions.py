"""Transactions of one AMQP connection (part 4): declared and discharged by messages to a coordinator (`coordinator`).

A transaction belongs to the link that declared it, and is rolled back if that ends.  A refused message makes its
transaction roll back at its discharge, which states the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from broker.engine import Engine, Transaction
from broker.engine.model.errors import EngineError
from broker.sessions.amqp.terms import condition
from protocols.amqp.errors import (
    ILLEGAL_STATE,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_UNKNOWN_ID,
    format_value,
    link_error,
)
from protocols.amqp.link import Channel
from protocols.amqp.performatives import Declared, Error, Outcome
from protocols.amqp.receiver import Receiver

#: Called with why a commit failed, and with the deliveries to settle.
Discharged = Callable[[Error | None, Sequence[tuple[Channel, Sequence[int], Outcome]]], None]


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """A declared transaction.

    `refused`: why it can no longer be committed; `unsettled`: the deliveries, by session and ids, which the broker
    settles with their outcome once it is committed; `postings`: the links on which a message of it is arriving.
    """

    id: bytes
    transaction: Transaction
    coordinator: Receiver
    refused: Error | None = None
    unsettled: list[tuple[Channel, Sequence[int], Outcome]] = field(default_factory=list)
    postings: set[object] = field(default_factory=set)

    def refuse(self, error: EngineError) -> None:
        """Refuse to commit, as a part of it was refused."""
        if self.refused is None:
            self.refused = rollback_only(Error(condition(error), str(error)))

    def let_only_roll_back(self) -> None:
        """Refuse to commit: a message or an outcome of it is lost."""
        if self.refused is None:
            self.refused = rollback_only(Error(ILLEGAL_STATE, "A message or an outcome came when its link had ended."))


class Transactions:
    """The open transactions of a connection, at most `most`."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._open: dict[bytes, OpenTransaction] = {}
        self._committing: dict[OpenTransaction, None] = {}
        self._next = 0

    def find(self, txn_id: bytes) -> OpenTransaction:
        """Return an open transaction.  Raises AmqpError."""
        found = self._open.get(txn_id)
        if found is None:
            raise link_error(TRANSACTION_UNKNOWN_ID, f"There is no transaction {format_value(txn_id.hex())}.")
        return found

    def let_only_roll_back(self, txn_id: bytes) -> None:
        """Let a transaction, if it is open, only roll back: a part of it came when its link had ended."""
        found = self._open.get(txn_id)
        if found is not None:
            found.let_only_roll_back()

    def is_partial(self, txn_id: bytes) -> bool:
        """Whether a message of a transaction has not arrived completely."""
        found = self._open.get(txn_id)
        return found is not None and bool(found.postings)

    def declare(self, coordinator: Receiver) -> Declared:
        """Begin a transaction; returns its id.  Raises AmqpError."""
        if len(self._open) >= self._most:
            raise link_error(RESOURCE_LIMIT_EXCEEDED, f"A connection may have {self._most} open transactions.")
        self._next += 1
        id = self._next.to_bytes(8)
        self._open[id] = OpenTransaction(id, self._engine.transactions.begin(self), coordinator)
        return Declared(id)

    def discharge(self, txn_id: bytes, *, fail: bool, done: Discharged) -> None:
        """Commit or roll back; calls `done`, now or in a later tick.  Raises AmqpError."""
        found = self.find(txn_id)
        del self._open[txn_id]
        if fail:
            self._engine.transactions.rollback(found.transaction, partial(done, None, []))
        elif found.refused is None:
            self._committing[found] = None
            self._engine.transactions.commit(found.transaction, partial(self._committed, found, done))
        else:
            self._engine.transactions.rollback(found.transaction, partial(done, found.refused, []))

    def _committed(self, found: OpenTransaction, done: Discharged, refusal: EngineError | None) -> None:
        self._committing.pop(found, None)
        if refusal is None:
            done(None, found.unsettled)
        else:
            error = Error(TRANSACTION_ROLLBACK, f"{condition(refusal)}: {refusal}")
            self._engine.transactions.rollback(found.transaction, partial(done, error, []))

    def abandon(self, coordinator: Receiver | None = None) -> None:
        """Roll back the open transactions of a coordinator's link; without one, all."""
        for found in [*self._open.values(), *self._committing]:
            if coordinator is None or found.coordinator is coordinator:
                self._open.pop(found.id, None)
                self._engine.transactions.rollback(found.transaction)


def rollback_only(error: Error) -> Error:
    """Return why a transaction cannot be committed, from the error of a refused message."""
    return Error(TRANSACTION_ROLLBACK, f"{error.condition}: {error.description}")
