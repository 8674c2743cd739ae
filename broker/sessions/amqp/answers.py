"""Answers for deliveries: sent to the peer when they are durable (promise P1), in order, in ranges.

An answer settles deliveries: the peer's, with their outcome; or ours, for which the peer stated an outcome and left the
settlement to us.  If the receiver settles second, an answer only states the outcome, and the peer settles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocols.amqp.link import Channel
from protocols.amqp.performatives import Accepted, DeliveryState
from protocols.amqp.serial import ranges

#: Channel, our role, delivery ids, their state, whether the answer settles them.
Answer = tuple[Channel, bool, Sequence[int], DeliveryState | None, bool]

_ACCEPTED: Final = Accepted()


def settle(answers: list[Answer]) -> None:
    """Settle deliveries, the accepted ones of consecutive ids together."""
    accepted: dict[tuple[Channel, bool, bool], list[int]] = {}
    for session, role, ids, state, settled in answers:
        if type(state) is Accepted:
            accepted.setdefault((session, role, settled), []).extend(ids)
        else:
            _settle(session, role, ids, state, settled=settled)
    for (session, role, settled), ids in accepted.items():
        _settle(session, role, ids, _ACCEPTED, settled=settled)


def _settle(session: Channel, role: bool, ids: Sequence[int], state: DeliveryState | None, *, settled: bool) -> None:
    for first, last in ranges(ids):
        session.send_disposition(role, first, last, settled=settled, state=state)
