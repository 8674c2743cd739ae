"""What a producer hears of deliveries that are refused.

They are rejected.  The anonymous relay's link ends if the producer could not hear that, because it has settled the
delivery or its source has no such outcome (Using the Anonymous Terminus for Message Routing, 2.2.2).  What another
link's producer has settled, nobody can be told of: that is logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from broker.engine.model.errors import EngineError
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.terms import REJECTED, refused
from broker.sessions.amqp.transactions import OpenTransaction, rollback_only
from protocols.amqp.errors import AmqpError, link_error
from protocols.amqp.performatives import RECEIVER, Error, Rejected, Source, TransactionalState
from protocols.amqp.receiver import Receiver


class Sent(Protocol):
    """How deliveries were sent; `second`: the outcome is told first, and the producer settles (2.6.12)."""

    settled: bool
    second: bool


class Refusals:
    """Those of one link; `target` is what it sends to, empty for the relay."""

    def __init__(self, owner: LinkOwner, link: Receiver, target: str) -> None:
        self._owner = owner
        self._link = link
        self._target = target
        self._tags: dict[int, bytes] = {}  # by delivery id

    def keep(self, ids: Iterable[int], tags: Iterable[bytes]) -> None:
        """The relay's deliveries are named by their tags, if they are refused later."""
        self._tags.update(zip(ids, tags, strict=True))

    def forget(self) -> None:
        """All that was kept has its outcome."""
        self._tags.clear()

    def refuse(self, error: Exception, sent: Sent, id: int, tag: bytes, tx: OpenTransaction | None) -> None:
        """A delivery is refused, and with it the transaction that it is in.  Raises AmqpError if unheard."""
        if isinstance(error, EngineError):
            why = refused(error)
        else:
            assert isinstance(error, AmqpError)
            why = Error(error.condition, error.description)
        self._tags[id] = tag
        self.reject([id], why, sent, tx)

    def reject(self, ids: Sequence[int], why: Error, sent: Sent, tx: OpenTransaction | None) -> None:
        """Tell the producer that deliveries are refused.  Raises AmqpError if the relay's does not hear it."""
        if tx is not None:
            tx.refused = tx.refused or rollback_only(why)
        if self._target:
            self._tell(ids, why, sent, tx)
            return
        heard = tx is not None if sent.settled else rejects(self._link)
        for id in ids:
            info: dict[str, object] = {"delivery-tag": self._tags[id]}
            if not heard:
                raise link_error(why.condition, why.description or "", info)
            self._tell([id], replace(why, info=info), sent, tx)

    def _tell(self, ids: Sequence[int], why: Error, sent: Sent, tx: OpenTransaction | None) -> None:
        owner = self._owner
        if not sent.settled:
            rejected = Rejected(why)
            state = rejected if tx is None else TransactionalState(tx.id, rejected)
            owner.answer(self._link.session, RECEIVER, ids, state, settled=not sent.second)
        elif tx is None:  # else its discharge tells
            facts: dict[str, str | int] = {"client": owner.container, "target": self._target}
            owner.report("amqp.transfer_dropped", **facts, messages=len(ids), error=why.description or "")


def rejects(link: Receiver) -> bool:
    """Whether a message that comes on a link can be rejected: its source has this outcome, or says nothing of any."""
    source = link.attach.source if link.attach is not None else None
    outcomes = source.outcomes if isinstance(source, Source) else ()
    return not outcomes or REJECTED in outcomes
