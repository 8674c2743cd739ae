"""Handles jumps of the wall clock: set by hand, by a time server reached late, or after the machine slept.

There are two kinds of times.  A date fixed by a sender or a setting (an expiration, a scheduled delivery) follows the
wall clock.  A length of time after an event (a redelivery, the end of a session, the timeout of a transaction, the next
scan) does not: setting a clock does not make time pass.  So when the wall clock diverges from the monotonic clock, all
times of the second kind are shifted: none of them comes early, and none waits until the wall clock has caught up.

Redelivery delays in the journal are written again, because a restart reads them there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store.pages import SCRATCH_FIRST

#: A smaller divergence since the last reading, in ms, is slewing, or a delay between reading the two clocks.
JUMP_MS_MIN: Final = 1_000


class JumpDetectingClock:
    """The wall clock in ms, as the engine reads it once a tick; after a jump `follow` is called with its length."""

    def __init__(self, wall_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self.follow: Callable[[int], None] = lambda jump: None
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
    """Shift the times stored in addresses and queues: since when they are unused, when redeliveries are due."""
    for address in state.addresses.values():
        address.unbound_since += jump
    for queue in state.queues.values():
        queue.unused_since += jump
        queue.rules.clock_jumped(jump)
        if queue.scheduled_count:
            _delay(state, queue, jump)


def _delay(state: State, queue: Queue, jump: int) -> None:
    """Shift the redeliveries of a queue; messages that their senders scheduled keep their dates."""
    moved: dict[int, list[int]] = {}
    for id, (due, message) in list(queue.scheduled.items()):
        if due == message.header.scheduled:
            continue
        state.schedule.scheduled.remove(due, (queue.id, id))
        state.schedule.hold(queue, message, due + jump)
        if message.segment and queue.durable and state.journal.segment:
            moved.setdefault(due + jump, []).append(id)
            state.journal.refer(message.segment)
    for chunk in () if queue.tail is None else queue.tail.scheduled_chunks():
        if chunk.retries:
            _delay_on_disk(state, queue, chunk, jump, moved)
    state.ledger.scheduled(queue, moved)


def _delay_on_disk(state: State, queue: Queue, chunk: Chunk, jump: int, moved: dict[int, list[int]]) -> None:
    """Shift the redeliveries of a chunk, and add those that the journal has to `moved`, by their new times."""
    dues = chunk.dues
    assert dues is not None, "they wait"
    rows = chunk.rows()
    for row in rows:
        dues[row] += jump
        segment = chunk.segments[row]
        if 0 < segment < SCRATCH_FIRST and queue.durable and state.journal.segment:
            moved.setdefault(dues[row], []).append(chunk.ids[row])
            state.journal.refer(segment)
    state.schedule.unwatch_chunk(chunk)
    state.schedule.hold_chunk(queue, chunk, chunk.next_due())
