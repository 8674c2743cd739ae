"""Answers to the peer: sent when they are durable (promise P1), in order, those for deliveries in ranges.

An answer settles deliveries: the peer's, with their outcome; or ours, for which the peer stated an outcome and left the
settlement to us.  If the receiver settles second, an answer only states the outcome, and the peer settles.
A DETACH is answered behind the outcomes of the link's deliveries: some clients forget these with the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocols.amqp.link import Channel, Link
from protocols.amqp.performatives import Accepted, DeliveryState, Error
from protocols.amqp.serial import ranges


class Settlement(NamedTuple):
    """The state of deliveries, which are settled by it unless the peer has to; `role` is ours."""

    session: Channel
    role: bool
    ids: Sequence[int]
    state: DeliveryState | None
    settled: bool

    def send(self) -> None:
        """Send it, consecutive ids together."""
        for first, last in ranges(self.ids):
            self.session.send_disposition(self.role, first, last, settled=self.settled, state=self.state)


class Parting(NamedTuple):
    """The answer to the peer's DETACH of a link."""

    session: Channel
    link: Link
    closed: bool
    error: Error | None

    def of(self, link: Link) -> bool:
        """Whether it is the answer for this link, or for another one of its name."""
        return (self.link.name, self.link.role) == (link.name, link.role)

    def send(self) -> None:
        """Send it, unless it was sent before."""
        self.link.send_detach(closed=self.closed, error=self.error)


Answer = Settlement | Parting


def count(answer: Answer) -> int:
    """How many frames an answer may take."""
    return len(answer.ids) if isinstance(answer, Settlement) else 1


def send(answers: list[Answer]) -> None:
    """Send answers; the accepted deliveries up to the next parting are settled together."""
    accepted: dict[tuple[Channel, bool, bool], list[int]] = {}
    for answer in answers:
        if isinstance(answer, Settlement) and type(answer.state) is Accepted:
            accepted.setdefault((answer.session, answer.role, answer.settled), []).extend(answer.ids)
            continue
        if isinstance(answer, Parting):
            _accept(accepted)
            accepted = {}
        answer.send()
    _accept(accepted)


def _accept(accepted: dict[tuple[Channel, bool, bool], list[int]]) -> None:
    for (session, role, settled), ids in accepted.items():
        Settlement(session, role, ids, Accepted(), settled).send()
