"""The outcomes that a receiver states for deliveries, and their effects.

accepted                                consumed
released, modified                      back to the queue, not a failed delivery
modified with delivery-failed           back to the queue as a failed delivery
... with undeliverable-here             and never again to this consumer
rejected                                a dead letter, with the error's description as its text
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.engine import Consumer, DeadLetterReason, Engine, Transaction, redelivery
from broker.sessions.amqp.link_id import TOO_MANY_HOPS
from broker.sessions.amqp.message import notes_of
from protocols.amqp.performatives import Accepted, Error, Modified, Rejected, Released

Outcome = Accepted | Rejected | Released | Modified

OUTCOMES: Final = (Accepted, Rejected, Released, Modified)


def apply(
    engine: Engine,
    consumer: Consumer,
    outcome: Outcome,
    ids: Sequence[int],
    tx: Transaction | None = None,
    *,
    kept: bool = False,
) -> None:
    """Apply an outcome to those deliveries that the consumer has: with `tx` at its commit; `kept`: after a rollback it
    still has them.
    """
    consumers = engine.consumers
    if tx is None and isinstance(outcome, Released):
        consumers.return_run(consumer, ids, redelivery.RELEASED)
        return
    if tx is None and isinstance(outcome, Rejected) and not consumer.forwards:
        consumers.reject_run(consumer, ids, "" if outcome.error is None else str(outcome.error))
        return
    if tx is None and isinstance(outcome, Modified) and not outcome.message_annotations:
        consumers.return_run(consumer, ids, _modified(outcome))
        return
    for id in ids:
        if id not in consumer.unacked:
            continue
        if isinstance(outcome, Accepted):
            consumers.acknowledge(consumer, id, tx, kept=kept)
        elif isinstance(outcome, Rejected):
            _reject(engine, consumer, id, outcome.error, tx, kept=kept)
        elif isinstance(outcome, Released):
            consumers.give_back(consumer, id, redelivery.RELEASED, tx, kept=kept)
        else:
            _modify(engine, consumer, id, outcome, tx, kept=kept)


def _reject(
    engine: Engine, consumer: Consumer, id: int, error: Error | None, tx: Transaction | None, *, kept: bool
) -> None:
    text = "" if error is None else str(error)
    if consumer.forwards and error is not None and error.condition == TOO_MANY_HOPS:
        engine.consumers.undeliverable(consumer, consumer.unacked[id], text, DeadLetterReason.LINK_HOPS)
    else:
        engine.consumers.reject(consumer, id, text=text, tx=tx, kept=kept)


def _modify(
    engine: Engine, consumer: Consumer, id: int, outcome: Modified, tx: Transaction | None, *, kept: bool
) -> None:
    how = replace(_modified(outcome), notes=notes_of(consumer.unacked[id], outcome.message_annotations or {}))
    engine.consumers.give_back(consumer, id, how, tx, kept=kept)


def _modified(outcome: Modified) -> redelivery.DeliveryOutcome:
    how = redelivery.rejected("modified as failed") if outcome.delivery_failed else redelivery.RELEASED
    return replace(how, excluded=bool(outcome.undeliverable_here))
