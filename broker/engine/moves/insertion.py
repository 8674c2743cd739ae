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
from broker.engine.queues.address import Address
from broker.engine.queues.bindings import Targets
from broker.engine.queues.state import State

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


def insert(state: State, id: bytes, target: str, items: Sequence[Insertion], *, dry_run: bool = False) -> Inserted:
    """Put a run of messages on an address, a queue or an FQQN; `id` identifies the run.

    `dry_run`: only count what would be done, judged by the queues that exist.  Raises NotFound, InvalidName,
    RoutingTypeMismatch, TooManyAddresses, AddressFull, DiskFull, before any message is inserted.
    """
    destination = transfer.destination(state, target, create=not dry_run)
    if isinstance(destination, Destination) and state.duplicates.known(destination.address, id):
        return Inserted(known=True)
    done = Inserted()
    fitting: list[tuple[Message, int | None, Targets]] = []
    for item in items:
        takers: Targets | None = ([], [])  # if the queue is not known until it is created
        if isinstance(destination, Destination):
            takers = move.keepers(destination.targets, item.message, state.steps)
        if takers is None:
            done.refused[transfer.NO_QUEUE] = done.refused.get(transfer.NO_QUEUE, 0) + 1
        else:
            fitting.append((item.message, item.count, takers))
    done.inserted = len(fitting)
    if not dry_run:
        assert isinstance(destination, Destination), "it is created if missing"
        _insert(state, id, destination.address, fitting)
    return done


def _insert(state: State, id: bytes, address: Address, run: list[tuple[Message, int | None, Targets]]) -> None:
    """Put messages, each with its failed deliveries, on the queues that keep it, and remember the run."""
    state.room.check_brought_back(address)
    for name in {message.header.address for message, _, _ in run} - {address.name}:
        state.registry.ensure_address(name)  # a message's own address, if the queue is on a wildcard address
    durable = [message for message, _, _ in run if message.header.durable]
    if durable:
        need = size_of(durable) + move.COPY_OVERHEAD_BYTES * len(durable) + move.bytes_noted(durable)
        arrival.reserve_bytes(state, need, essential=False)
    last: Message | None = None  # to remember the run's id with: its last durable message, if it has any
    state.atomic = True
    try:
        for message, count, takers in run:
            own = state.addresses[message.header.address]
            arrival.enter_moved(state, own, message, takers, state.room.admit_moved(own, takers))
            queues = takers[0] + takers[1]
            if count is not None and len(queues) == 1:  # else nothing says on which of them it failed
                arrival.note_attempts(state, queues[0], [message], count)
            if last is None or message.header.durable or not last.header.durable:
                last = message
        if last is not None and address.settings.id_cache_size > 0:
            state.duplicates.remember(address, [(last, id)])
    finally:
        state.atomic = False
