"""System topics: values that the broker publishes about itself, such as MQTT's `$SYS`.

They are not stored as retained messages, which would be written to the journal all the time.  A new subscription gets
the present values as if they were retained, and then those that have changed, every `interval`.  Without subscriptions
nothing is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from broker.engine.model.message import Message, RoutingType
from broker.engine.publish import publish
from broker.engine.publish.send import Send
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State

_ALARM: Final = "system topics"

#: The value of each topic, by the name of its address.
Values = Mapping[str, bytes]


class SystemValues(Protocol):
    """The source of the values, and their encoding as messages."""

    def begin(self) -> None:
        """Start: there is a first subscriber."""

    def advance(self) -> None:
        """Note that another interval is over."""

    def values(self) -> Values:
        """The present value of each topic."""

    def message(self, address: str, value: bytes, *, retained: bool) -> Message:
        """A message with the value; `retained`: for a new subscription."""


class SystemTopics:
    """Publishes the values of a source to its subscribers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._source: SystemValues | None = None
        self._interval = 0
        self._watchers: dict[Queue, None] = {}
        self._published: Values = {}

    def start(self, source: SystemValues, interval: int) -> None:
        """Publish these values, every `interval` ms; 0: never."""
        self._source = source
        self._interval = interval

    def watch(self, queue: Queue) -> None:
        """Send all values to the queue of a new subscription to these topics, and changes from now on."""
        source, state = self._source, self._state
        if source is None or not self._interval:
            return
        if not self._watchers:
            source.begin()
        values = source.values()
        for name, value in values.items():
            address = self._address(name)
            if queue in state.bindings.candidates(address, None, None)[1]:
                self._publish(address, queue, source.message(name, value, retained=True))
        if not self._watchers:
            self._published = values
            state.alarms.at(_ALARM, state.now + self._interval, self._publish_changes)
        self._watchers[queue] = None

    def _publish_changes(self) -> None:
        """Publish the values that have changed, as long as there are subscriptions."""
        source, state = self._source, self._state
        assert source is not None, "there was a subscription"
        self._watchers = {queue: None for queue in self._watchers if not queue.deleted}
        if not self._watchers:
            return
        source.advance()
        values = source.values()
        for name, value in values.items():
            if self._published.get(name) != value:
                self._publish(self._address(name), None, source.message(name, value, retained=False))
        self._published = values
        state.alarms.at(_ALARM, state.now + self._interval, self._publish_changes)

    def _address(self, name: str) -> Address:
        """The topic's address, created if missing, whatever the settings."""
        address = self._state.addresses.get(name)
        if address is None:
            multicast = {RoutingType.MULTICAST}
            address = self._state.registry.create_address(name, multicast, auto_created=True, needed=True)
        return address

    def _publish(self, address: Address, queue: Queue | None, message: Message) -> None:
        publish.publish(self._state, [Send.at(address, queue, None, [message])], [message]).check()
