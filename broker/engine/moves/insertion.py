"""Insertion: puts exported messages on queues of this broker, unchanged.

Unlike a replay (`replay`), it preserves everything: priority, expiration, annotations, failed deliveries.  The messages
get new ids, in order of arrival.  A run is one journal entry, and with it the address remembers the run's id as it
remembers duplicate ids (`duplicates`): a run that broke off can be repeated and is inserted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.message import Message, size_of
from broker.engine.moves import move, transfer
from broker.engine.moves.move import Destination
from broker.engine.queues import arrival
from broker.engine.queues.state import State
from broker.engine.routing import registry

#: The reason for leaving out a message that an earlier run with this id inserted.
KNOWN: Final = "known"


@dataclass(frozen=True, slots=True)
class Insertion:
    """A message to insert; `count`: its failed deliveries, None: it was never delivered."""

    message: Message
    count: int | None = None


@dataclass(slots=True)
class Inserted:
    """How many messages were inserted, and how many refused, by reason (in the words of `transfer`).

    `known`: an earlier run with this id did it all.
    """

    inserted: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    known: bool = False


def insert(state: State, id: bytes, target: str, items: Sequence[Insertion]) -> Inserted:
    """Put a run of messages on an address, a queue or an FQQN; `id` identifies the run.

    Raises NotFound, InvalidName, RoutingTypeMismatch, TooManyAddresses, AddressFull, DiskFull, before any message is
    inserted.
    """
    destination = transfer.destination(state, target)
    address, targets = destination.address, destination.targets
    if state.duplicates.known(address, id):
        return Inserted(known=True)
    state.room.check_brought_back(address)
    for name in {item.message.header.address for item in items} - {address.name}:
        registry.ensure_address(state, name)  # a message's own address, if the queue is on a wildcard address
    durable = [item.message for item in items if item.message.header.durable]
    if durable:
        need = size_of(durable) + move.COPY_OVERHEAD_BYTES * len(durable) + move.bytes_noted(durable)
        arrival.reserve_bytes(state, need, essential=False)
    done = Inserted()
    last: Message | None = None  # to remember the run's id with: its last durable message, if it has any
    state.atomic = True
    try:
        for item in items:
            message = item.message
            takers = move.keepers(targets, message)
            if takers is None:
                done.refused[transfer.NO_QUEUE] = done.refused.get(transfer.NO_QUEUE, 0) + 1
                continue
            own = state.addresses[message.header.address]
            arrival.publish(state, own, [message], takers, state.room.admit_moved(own, takers), moved=True)
            done.inserted += 1
            queues = takers[0] + takers[1]
            if item.count is not None and len(queues) == 1:  # else nothing says on which of them it failed
                arrival.note_attempts(state, queues[0], [message], item.count)
            if last is None or message.header.durable or not last.header.durable:
                last = message
        if last is not None and address.settings.id_cache_size > 0:
            state.duplicates.remember(address, [(last, id)])
    finally:
        state.atomic = False
    return done


def dry_run(state: State, id: bytes, target: str, items: Sequence[Insertion]) -> Inserted:
    """What `insert` would do, judged by the queues that exist.  Raises InvalidName."""
    where = transfer.existing_destination(state, target)
    if isinstance(where, Destination) and state.duplicates.known(where.address, id):
        return Inserted(known=True)
    done = Inserted()
    for item in items:
        if isinstance(where, Destination) and move.keepers(where.targets, item.message) is None:
            done.refused[transfer.NO_QUEUE] = done.refused.get(transfer.NO_QUEUE, 0) + 1
        else:
            done.inserted += 1
    return done
