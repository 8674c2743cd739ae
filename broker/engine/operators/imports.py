"""Loads an export into a broker that serves no clients yet: definitions, and messages on their queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.engine.model.errors import AddressFull
from broker.engine.model.message import Message, RoutingType
from broker.engine.queues import arrival
from broker.engine.queues.definitions import address_record, queue_record
from broker.engine.queues.diverts import read_divert
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State


class Imports:
    """The verbs for imports.  Definitions have the journal's form; the names they define must not exist yet."""

    def __init__(self, state: State) -> None:
        self._state = state

    def address(self, definition: dict[str, object]) -> None:
        """Create an address.  Raises ValueError."""
        journal = self._state.journal
        address = self._state.registry.restore_address(journal.allocate_ids(1), definition)
        journal.define(address.id, address_record(address))

    def queue(self, definition: dict[str, object]) -> None:
        """Create a queue.  Raises ValueError, InvalidFilter."""
        state, journal = self._state, self._state.journal
        name, address = definition["name"], definition["address"]
        if address not in state.addresses:
            raise ValueError(f"queue {name} is on address {address}, which no line before defines")
        queue = state.registry.restore_queue(journal.allocate_ids(1), definition)
        journal.define(queue.id, queue_record(queue))

    def divert(self, definition: dict[str, object]) -> None:
        """Create a divert.  Raises ValueError, EngineError."""
        self._state.registry.add_divert(read_divert(0, definition))

    def message(self, message: Message, queues: Mapping[Queue, int | None]) -> None:
        """Put a message on queues, each with its number of failed deliveries there, None: never delivered.

        A queue that takes nothing new now, as it is disabled, had the message all the same.  Raises ValueError for one
        whose filter refuses it, AddressFull, DiskFull.
        """
        closed = [queue for queue in queues if not queue.open]
        for queue in closed:
            queue.open = True
        try:
            self._place(message, queues)
        finally:
            for queue in closed:
                queue.open = False
        for queue, count in queues.items():
            if count is not None:
                arrival.note_attempts(self._state, queue, [message], count)

    def _place(self, message: Message, queues: Iterable[Queue]) -> None:
        state = self._state
        refusing = next((queue for queue in queues if not queue.accepts(message)), None)
        if refusing is not None:
            raise ValueError(f"the filter of {refusing.name} refuses the message")
        address = state.room.charged(message.header.address)
        anycast = [queue for queue in queues if queue.routing_type is RoutingType.ANYCAST]
        multicast = [queue for queue in queues if queue.routing_type is RoutingType.MULTICAST]
        admission = state.room.admit(address, 0, 0)
        if admission is Admission.DROP:
            raise AddressFull(f"address {address.name} is full: its settings say to drop messages")
        if admission is Admission.FAIL:
            raise state.room.refusal(address)
        arrival.reserve(state, [message], essential=False)
        arrival.enter_moved(state, address, message, (anycast, multicast), admission)
