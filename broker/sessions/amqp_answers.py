"""What an AMQP peer is told of deliveries, once it is true: after the disk has it (promise P1), in order, in ranges.

An answer settles deliveries: those that the peer sent, with the outcome they had; or ours that the peer gave an outcome
and left to us to settle.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.engine.core import Waiter
from broker.engine.engine import Engine
from protocols.amqp.performatives import Accepted, DeliveryState
from protocols.amqp.serial import MASK
from protocols.amqp.session import Session

#: Session, our role, first delivery id, how many, their state.
_Answer = tuple[Session, bool, int, int, DeliveryState | None]

_ACCEPTED: Final = Accepted()


class Answers:
    """The answers of one connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wanted: list[_Answer] = []
        self._waiting: deque[tuple[int, list[_Answer]]] = deque()

    def add(self, session: Session, role: bool, first: int, count: int, state: DeliveryState | None) -> None:
        """An answer to be given once everything done so far is durable."""
        self._wanted.append((session, role, first, count, state))

    def confirm(self, waiter: Waiter) -> bool:
        """What was done is complete: give the answers, or keep them until `release`; whether any were given."""
        if not self._wanted:
            return False
        wanted, self._wanted = self._wanted, []
        ticket = self._engine.confirmation(waiter)
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
    accepted: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    sessions: dict[int, Session] = {}
    for session, role, first, count, state in answers:
        if type(state) is Accepted:
            sessions[id(session)] = session
            accepted.setdefault((id(session), role), []).append((first, count))
        elif count:
            session.send_disposition(role, first, (first + count - 1) & MASK, settled=True, state=state)
    for (key, role), ranges in accepted.items():
        for first, last in merged(ranges):
            sessions[key].send_disposition(role, first, last & MASK, settled=True, state=_ACCEPTED)


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of ids, first and number, as first and last, those that meet as one.  A last one may be beyond the end."""
    ranges.sort()
    found: list[tuple[int, int]] = []
    for first, count in ranges:
        if count and found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], first + count - 1)
        elif count:
            found.append((first, first + count - 1))
    return found
