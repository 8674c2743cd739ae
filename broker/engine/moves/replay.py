"""Replay: brings messages that left their queues back from the journal's records.

Each item is a message as it was stored, with the queue that it left.  It becomes a new message, like one that is moved:
a new id, no failed deliveries, and no time to live but what its new address imposes.  Its annotations say where it
comes from and which replay brought it (`_AMQ_REPLAY`, a name; `_AMQ_REPLAY_TIME`).  They are stored in the journal with
it, so the journal shows how far a replay came that broke off.

A full address refuses a replay unless it pages: a replay can be repeated, unlike a message sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.message import REPLAY, REPLAY_TIME, Message
from broker.engine.moves import move, transfer
from broker.engine.moves.move import Destination
from broker.engine.queues import arrival
from broker.engine.queues.state import State

#: The most characters of a replay's name: it is in every message.
NAME_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """A message as it was, under its old id; the queue that it left; the target, empty: that queue."""

    message: Message
    queue: str
    target: str


@dataclass(slots=True)
class Replayed:
    """How many messages were replayed, and how many refused, by reason in the words of `transfer`."""

    replayed: int = 0
    refused: dict[str, int] = field(default_factory=dict)


def replay(state: State, name: str, past: Iterable[ReplayItem], done: Replayed) -> None:
    """Bring messages back, each in one step; `done` counts them, also when this raises.

    Raises AddressFull, DiskFull, and for a named target NotFound, InvalidName, RoutingTypeMismatch: the messages
    before it are replayed.
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
    if not past.queue:
        return transfer.NO_QUEUE
    header = past.message.header
    return transfer.home(state, None, header.address, past.queue, header.routing_type)


def _bring(state: State, name: str, past: ReplayItem, destination: Destination) -> bool:
    address = destination.address
    state.room.check_brought_back(address)
    annotations = transfer.annotations_for(past.message, past.queue, destination)
    annotations[REPLAY] = name
    annotations[REPLAY_TIME] = state.now
    placed = move.place(state, destination, past.message, annotations)
    if placed is None:
        return False
    arrival.reserve(state, [placed.copy], essential=False)
    move.bring(state, [placed])
    return True
