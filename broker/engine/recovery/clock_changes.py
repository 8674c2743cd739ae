"""Jumps of the wall clock: set by hand, by a time server that was reached at last, after a machine that slept.

Two kinds of times are kept.  What a sender or a setting fixed to a date (an expiration, a scheduled delivery) holds by
what the wall clock says.  What comes so long after something (a redelivery, the end of a session, the timeout of a
transaction, the next look) is a length of time, and setting a clock does not make time pass.  So when the wall
clock has gone otherwise than the clock that never goes back, all times of the second kind move along: nothing of them
comes early, and nothing waits until the wall clock has caught up.

Redelivery delays that are in the journal are written anew, because a restart takes them from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.queues import arrival
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store import record

#: A clock that differs by less than this since it was read last, in ms, is being slewed, or its reader was held up.
JUMP_MS_MIN: Final = 1_000

#: Messages in one record of new due times.
IDS_MAX: Final = 10_000


def _nobody(milliseconds: int) -> None:
    pass


class Steady:
    """The wall clock in ms, as the engine reads it once a tick; `follow` is told how far it has jumped before."""

    def __init__(self, wall_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self.follow: Callable[[int], None] = _nobody
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._apart = wall_ms() - int(monotonic() * 1000)

    def __call__(self) -> int:
        now = self._wall_ms()
        apart = now - int(self._monotonic() * 1000)
        jump, self._apart = apart - self._apart, apart
        if not -JUMP_MS_MIN < jump < JUMP_MS_MIN:
            self.follow(jump)
        return now


def follow(state: State, jump: int) -> None:
    """Move along what addresses and queues keep: how long they have been unused, when redeliveries are due."""
    for address in state.addresses.values():
        address.unbound_since += jump
    for queue in state.queues.values():
        queue.unused_since += jump
        if queue.kind is not None:
            queue.kind.clock_jumped(jump)
        if queue.scheduled:
            _delay(state, queue, jump)


def _delay(state: State, queue: Queue, jump: int) -> None:
    """Move the redeliveries of a queue; what its sender has scheduled keeps its date."""
    moved: dict[int, list[int]] = {}
    for id, (due, message) in list(queue.scheduled.items()):
        if due == message.header.scheduled:
            continue
        state.schedule.remove(due, (queue.id, id))
        arrival.schedule(state, queue, message, due + jump)
        if message.segment and queue.durable and state.journal.segment:
            moved.setdefault(due + jump, []).append(id)
            state.journal.refer(message.segment)
    for due, ids in moved.items():
        for at in range(0, len(ids), IDS_MAX):
            state.journal.ensure_defined(queue.id)
            state.journal.add(record.scheduled(queue.id, due, ids[at : at + IDS_MAX]))
