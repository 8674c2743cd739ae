"""System topics: what the broker itself publishes about itself, such as MQTT's `$SYS`.

They are not kept as retained messages, which would be written to the journal all the time: a new subscription is told
the values of now, as if they were retained, and then what has changed, every `interval`.  While nobody has subscribed,
nothing happens.
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
from broker.engine.routing import registry

_ALARM: Final = "system topics"

#: What is said on each topic, by the name of its address.
Values = Mapping[str, bytes]


class SystemValues(Protocol):
    """Where the values come from, and how they are written."""

    def begin(self) -> None:
        """The first subscriber is here."""

    def advance(self) -> None:
        """Another interval is over."""

    def values(self) -> Values:
        """What each topic says now."""

    def message(self, address: str, value: bytes, *, retained: bool) -> Message:
        """A message that says so; `retained`: to a subscription that is new."""


class SystemTopics:
    """Tells subscribers what `source` has to say, every `interval` ms; 0: never."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._source: SystemValues | None = None
        self._interval = 0
        self._watchers: dict[Queue, None] = {}
        self._told: Values = {}

    def start(self, source: SystemValues, interval: int) -> None:
        """Publish these values, every `interval` ms; 0: never."""
        self._source = source
        self._interval = interval

    def watch(self, queue: Queue) -> None:
        """A subscription to these topics has this queue: tell it everything, and from now on what changes."""
        source, state = self._source, self._state
        if source is None or not self._interval:
            return
        if not self._watchers:
            source.begin()
        values = source.values()
        for name, value in values.items():
            address = self._address(name)
            if queue in state.candidates(address, None, None)[1]:
                self._publish(address, queue, source.message(name, value, retained=True))
        if not self._watchers:
            self._told = values
            state.alarms.at(_ALARM, state.now + self._interval, self._tell)
        self._watchers[queue] = None

    def _tell(self) -> None:
        """Publish what has changed, as long as somebody is there."""
        source, state = self._source, self._state
        assert source is not None, "somebody watches"
        self._watchers = {queue: None for queue in self._watchers if not queue.deleted}
        if not self._watchers:
            return
        source.advance()
        values = source.values()
        for name, value in values.items():
            if self._told.get(name) != value:
                self._publish(self._address(name), None, source.message(name, value, retained=False))
        self._told = values
        state.alarms.at(_ALARM, state.now + self._interval, self._tell)

    def _address(self, name: str) -> Address:
        """The topic's address, made if it is missing whatever the settings say."""
        address = self._state.addresses.get(name)
        if address is None:
            multicast = {RoutingType.MULTICAST}
            address = registry.create_address(self._state, name, multicast, auto_created=True, needed=True)
        return address

    def _publish(self, address: Address, queue: Queue | None, message: Message) -> None:
        publish.publish(self._state, [Send(address, queue, None, [message])], [message]).check()
