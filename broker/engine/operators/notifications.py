"""Notifications: messages about events in the broker, on the address `activemq.notifications`.

A subscriber of that address gets one message for each event, with properties only; a selector chooses events:

    _AMQ_NotifType = 'CONSUMER_CREATED'

Each has `_AMQ_NotifType` and `_AMQ_NotifTimestamp` (ms since the epoch); names and types are ActiveMQ Artemis's, except
MESSAGE_DEAD_LETTERED, which Artemis lacks.  docs/addresses.md has the table.  Notifications are not durable and are
sent only while the address has a queue, at the end of the event's tick; a full address drops them.  Events of
notifications themselves (one expires, say) are not reported.
"""

from __future__ import annotations

from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.model.notes import NOTIFICATIONS, Note
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Admission
from broker.engine.queues.state import State
from broker.engine.queues.watcher import Watcher


class Notifications(Watcher):
    """Sends notifications for the notes of each tick."""

    def __init__(self, state: State) -> None:
        self.sent = 0
        self._state = state
        self._format = next((each for each in state.formats.values() if each.typed), None)

    def flush(self) -> None:
        """Send the notes of the tick, at its end; sending them adds no further notes."""
        notes = self._state.notes
        if not notes.pending:
            return
        pending, notes.pending = notes.pending, []
        address = self._state.addresses.get(NOTIFICATIONS)
        format = self._format
        if address is None or format is None:
            return
        now = self._state.now
        header = MessageHeader(NOTIFICATIONS, format, timestamp=now, routing_type=RoutingType.MULTICAST)
        messages = []
        for type, note in pending:
            properties: Note = {"_AMQ_NotifType": type, "_AMQ_NotifTimestamp": now}
            properties |= {name: value for name, value in note.items() if value != ""}
            messages.append(Message(header, *format.composed(properties)))
        admission = self._state.room.admit(address, 0, 0)
        if admission is not Admission.OK:
            address.dropped += len(messages)
            self._state.totals.dropped += len(messages)
            return
        targets = arrival.takers(header, self._state.bindings.candidates(address, None, None))
        groups = arrival.route(self._state.steps, messages, *targets, address)
        if arrival.enter(self._state, address, messages, groups) < len(messages):
            arrival.unroutable(self._state, address, arrival.left(messages, groups))
        self.sent += len(messages)

    def apply_settings(self) -> None:
        """Find out whether notifications have a subscription, also after a restart."""
        address = self._state.addresses.get(NOTIFICATIONS)
        self._state.notes.listening = address is not None and any(self._state.bindings.targets(address))

    def address_made(self, address: Address) -> None:
        types = ",".join(sorted(t.name for t in address.routing_types))
        self._state.notes.add("ADDRESS_ADDED", {"_AMQ_Address": address.name, "_AMQ_Routing_Type": types})
        if address.name == NOTIFICATIONS:
            self.apply_settings()

    def address_gone(self, address: Address) -> None:
        self._state.notes.add("ADDRESS_REMOVED", {"_AMQ_Address": address.name})

    def queue_made(self, queue: Queue) -> None:
        self.apply_settings()
        self._state.notes.add("BINDING_ADDED", _binding(queue))

    def queue_gone(self, queue: Queue) -> None:
        self.apply_settings()
        self._state.notes.add("BINDING_REMOVED", _binding(queue))


def _binding(queue: Queue) -> dict[str, str | int]:
    return {
        "_AMQ_Address": queue.address.name,
        "_AMQ_RoutingName": queue.name,
        "_AMQ_Binding_ID": queue.id,
        "_AMQ_Binding_Type": 0,
        "_AMQ_FilterString": queue.filter.text if queue.filter else "",
    }
