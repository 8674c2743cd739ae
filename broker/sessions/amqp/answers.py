"""What an AMQP peer is told of deliveries, once it is true: after the disk has it (promise P1), in order, in ranges.

An answer settles deliveries: those that the peer sent, with the outcome they had; or ours that the peer gave an outcome
and left to us to settle.  Where the receiver settles second it only says the outcome, and the peer settles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from broker.engine import Engine, Waiter
from protocols.amqp.performatives import Accepted, DeliveryState
from protocols.amqp.serial import ranges
from protocols.amqp.session import Session

#: Session, our role, delivery ids, their state, whether they are settled by it.
_Answer = tuple[Session, bool, Sequence[int], DeliveryState | None, bool]

_ACCEPTED: Final = Accepted()


class Answers:
    """The answers of one connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted: list[_Answer] = []
        self._waiting: deque[tuple[int, list[_Answer]]] = deque()

    def add(
        self, session: Session, role: bool, ids: Sequence[int], state: DeliveryState | None, *, settled: bool
    ) -> None:
        """An answer to be given once everything done so far is durable."""
        self._wanted.append((session, role, ids, state, settled))

    def confirm(self, waiter: Waiter) -> bool:
        """What was done is complete: give the answers, or keep them until `release`; whether any were given."""
        if not self._wanted:
            return False
        wanted, self._wanted = self._wanted, []
        ticket = self._engine.ticks.confirmation(waiter)
        if ticket or self._waiting:
            self._waiting.append((ticket or self._waiting[-1][0], wanted))
            return False
        _say(wanted)
        return True

    def release(self, number: int) -> None:
        """Everything up to a tick is on disk."""
        while self._waiting and self._waiting[0][0] <= number:
            _say(self._waiting.popleft()[1])

    def forget(self, session: Session) -> None:
        """A session has ended: nobody is there to be told."""
        self._wanted = [answer for answer in self._wanted if answer[0] is not session]
        for _, answers in self._waiting:
            answers[:] = [answer for answer in answers if answer[0] is not session]


def _say(answers: list[_Answer]) -> None:
    """Settle deliveries, the accepted ones of consecutive ids together."""
    accepted: dict[tuple[Session, bool, bool], list[int]] = {}
    for session, role, ids, state, settled in answers:
        if type(state) is Accepted:
            accepted.setdefault((session, role, settled), []).extend(ids)
        else:
            _settle(session, role, ids, state, settled=settled)
    for (session, role, settled), ids in accepted.items():
        _settle(session, role, ids, _ACCEPTED, settled=settled)


def _settle(session: Session, role: bool, ids: Sequence[int], state: DeliveryState | None, *, settled: bool) -> None:
    for first, last in ranges(ids):
        session.send_disposition(role, first, last, settled=settled, state=state)
