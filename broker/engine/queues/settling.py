"""Settles many deliveries in steps: those of a consumer that ends, or that one acknowledgement or rejection covers.

They have been taken from their consumer, and until their turn comes they are in `Queue.leaving`.  While any
return, the queue delivers nothing: they go before all that is younger.  Confirmations of the connection that has
settled them wait until all steps are durable (promise P1), those of others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.engine.model.message import Message
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import STEP, LongWork

#: Settles some deliveries, the next ones in order.
Settle = Callable[[list[Message]], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How many deliveries are settled in a step at most, and what each costs at least, in microseconds (`steps`).

    `returns`: they return to their queue, which waits for them.
    """

    together: int
    cost: int
    returns: bool = False


#: Most that are returned only go back to their queue, but any that has failed may die, which costs forty times as much.
RETURNED: Final = Pace(512, 2, returns=True)
FAILED: Final = Pace(64, 2, returns=True)
REJECTED: Final = Pace(64, 2)
ACKNOWLEDGED: Final = Pace(4096, 1)

#: How many are settled in the first step, when it is not known yet what they cost, and by how much steps may grow.
_FIRST_TOGETHER: Final = 16
_GROWTH: Final = 4

#: How many deliveries are taken from their consumer in a microsecond.
_TAKEN_FOR_A_MICROSECOND: Final = 20


def is_long(state: State, messages: Sequence[Message], pace: Pace) -> bool:
    """Whether so many deliveries must be settled in steps; a commit is one entry of the journal."""
    return len(messages) > state.steps.at_most(pace.together) and not state.atomic


def settle_in_steps(
    state: State, queue: Queue, messages: list[Message], settle: Settle, pace: Pace, transport: object
) -> None:
    """Settle deliveries in order, in this tick as far as its budget goes; `transport`: the connection they were for.

    A ring keeps the youngest of them: there they are settled in reverse.
    """
    assert messages, "nothing ends work that never begins"
    backwards = queue.attributes.ring_size >= 0
    rest = messages.copy() if backwards else messages[::-1]  # the next ones last
    queue.leaving += (rest,)
    queue.returning += pace.returns
    state.pending.unfinished.begin(transport)
    state.steps.spend(len(rest) // _TAKEN_FOR_A_MICROSECOND)
    state.steps.begin(("settling", queue), _work(state, queue, rest, settle, pace, transport, backwards=backwards))


def _work(
    state: State,
    queue: Queue,
    rest: list[Message],
    settle: Settle,
    pace: Pace,
    transport: object,
    *,
    backwards: bool,
) -> LongWork:
    most = state.steps.at_most(pace.together)
    together = min(_FIRST_TOGETHER, most)
    while rest:
        state.mark = NO_WAY_BACK  # whatever fails here ends the process: these deliveries are nobody's
        some = rest[-together:]
        del rest[-together:]
        if not backwards:
            some.reverse()
        if not rest:
            queue.leaving = tuple([each for each in queue.leaving if each is not rest])
            queue.returning -= pace.returns
            assert queue.returning >= 0, "else it would deliver before all have returned"
            state.pending.work.waiters.update(state.pending.unfinished.end(transport))
        left, cost = state.steps.measure(), pace.cost * len(some)
        settle(some)
        state.dirty[queue] = None
        spent = max(left - state.steps.measure(), cost)
        together = min(max(STEP * len(some) // spent, 1), _GROWTH * len(some), most)
        yield cost
