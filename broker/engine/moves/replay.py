"""Replay: messages that left their queues, brought back from the journal's records.

What comes is a message as it was stored, with the queue that it left.  It becomes a message of its own, like one that
is moved: a new id, no failed deliveries, no time to live but what its new address imposes, and in its annotations where
it comes from and by which replay (`_AMQ_REPLAY`, a name; `_AMQ_REPLAY_TIME`).  These are in the journal with it, so
that it tells what a replay that broke off had done.

A full address takes no replay unless it pages: a replay can be asked for again, unlike a message sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.message import REPLAY, REPLAY_TIME, Message
from broker.engine.moves import move, transfer
from broker.engine.moves.insertion import check_room
from broker.engine.moves.move import Destination
from broker.engine.queues import arrival
from broker.engine.queues.state import State

#: Characters of a replay's name: it is in every message.
NAME_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """A message as it was, under its old id; the name of the queue that it left; where it is to come, empty: there."""

    message: Message
    queue: str
    target: str


@dataclass(slots=True)
class Replayed:
    """How many came back, and how many did not and why, in the words of `transfer`."""

    replayed: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def replay(state: State, name: str, past: Iterable[ReplayItem], done: Replayed) -> None:
    """Bring messages back, each in one step; `done` counts them, also when this raises.

    Raises AddressFull, DiskFull, and for a target that is named NotFound, InvalidName, RoutingTypeMismatch: what came
    before is done.
    """
    found: dict[tuple[str, str, str], Destination | str] = {}
    for each in past:
        place = (each.target, each.message.header.address, each.queue)
        if place not in found:
            found[place] = _place(state, each)
        destination = found[place]
        if isinstance(destination, str):
            refused = destination
        else:
            refused = "" if _bring(state, name, each, destination) else transfer.NO_QUEUE
        if refused:
            done.refused[refused] = done.refused.get(refused, 0) + 1
        else:
            done.replayed += 1


def _place(state: State, past: ReplayItem) -> Destination | str:
    if past.target:
        return transfer.destination(state, past.target)
    header = past.message.header
    return transfer.home(state, None, header.address, past.queue, header.routing_type)


def _bring(state: State, name: str, past: ReplayItem, destination: Destination) -> bool:
    address = destination.address
    check_room(state, address)
    annotations = transfer.annotations_for(past.message, past.queue, destination)
    annotations[REPLAY] = name
    annotations[REPLAY_TIME] = state.now
    placed = move.place(state, destination, past.message, annotations)
    if placed is None:
        return False
    arrival.reserve(state, [placed.copy], essential=False)
    move.bring(state, [placed])
    return True
