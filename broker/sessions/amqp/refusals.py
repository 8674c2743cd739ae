"""Refused deliveries: how their producer is informed.

They are rejected.  If the producer cannot receive a rejection, because it has settled the delivery or its source lacks
that outcome, a link to the anonymous relay ends (Using the Anonymous Terminus for Message Routing, 2.2.2).  On other
links a refused delivery that was settled is only logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from broker.engine.model.errors import EngineError
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.terms import refused
from broker.sessions.amqp.transactions import OpenTransaction, rollback_only
from protocols.amqp.errors import AmqpError, link_error
from protocols.amqp.performatives import RECEIVER, Error, Rejected, TransactionalState
from protocols.amqp.receiver import Receiver


class Sent(Protocol):
    """How deliveries were sent; `second`: the broker states the outcome, then the producer settles (2.6.12)."""

    settled: bool
    second: bool


class Refusals:
    """The refusals of one link; `target` is its address, empty for the relay."""

    def __init__(self, owner: LinkOwner, link: Receiver, target: str) -> None:
        self._owner = owner
        self._link = link
        self._target = target
        self._tags: dict[int, bytes] = {}  # by delivery id

    def note_tags(self, ids: Iterable[int], tags: Iterable[bytes]) -> None:
        """Note the tags of the relay's deliveries, which name them if they are refused."""
        self._tags.update(zip(ids, tags, strict=True))

    def forget(self) -> None:
        """Forget the tags: all deliveries have their outcomes."""
        self._tags.clear()

    def refuse(
        self, error: EngineError | AmqpError, sent: Sent, id: int, tag: bytes, tx: OpenTransaction | None
    ) -> None:
        """Refuse a delivery, and the commit of its transaction.  Raises AmqpError as `reject` does."""
        self._tags[id] = tag
        self.reject([id], error, sent, tx)

    def reject(
        self, ids: Sequence[int], error: EngineError | AmqpError, sent: Sent, tx: OpenTransaction | None
    ) -> None:
        """Reject deliveries.  Raises AmqpError if the relay's producer cannot receive the rejection."""
        why = refused(error)
        if tx is not None:
            tx.refused = tx.refused or rollback_only(why)
        if self._target:
            self._send(ids, why, sent, tx)
            return
        rejectable = tx is not None if sent.settled else self._link.rejects
        for id in ids:
            info: dict[str, object] = {"delivery-tag": self._tags[id]}
            if not rejectable:
                raise link_error(why.condition, why.description or "", info)
            self._send([id], replace(why, info={**(why.info or {}), **info}), sent, tx)

    def _send(self, ids: Sequence[int], why: Error, sent: Sent, tx: OpenTransaction | None) -> None:
        owner = self._owner
        if not sent.settled:
            rejected = Rejected(why)
            state = rejected if tx is None else TransactionalState(tx.id, rejected)
            owner.answer(self._link.session, RECEIVER, ids, state, settled=not sent.second)
        elif tx is None:  # else its discharge tells
            fields: dict[str, str | int] = {"client": owner.container, "target": self._target}
            owner.report("amqp.transfer_dropped", **fields, messages=len(ids), error=why.description or "")
