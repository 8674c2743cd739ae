"""Retained messages: the last message of each address that was sent with `retain`, for later subscribers (MQTT).

They are messages like all others, on one durable queue of the broker's own: counted, journalled, audited.  Clients
cannot send to that queue or consume it.  A message leaves it when a newer one of the same address replaces it
(REPLACED, in the journal entry that stores the newer one), when it is cleared (PURGED), or when its time is over
(EXPIRED, without an expiry address, as every subscriber had its own copy).  All are stored durably, whatever the sender
asked for.

Their bytes are charged to the queue's own address: a retained message must not fill the address that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from operator import attrgetter
from typing import Final

from broker.engine.model.errors import RetainedFull
from broker.engine.model.message import Message, RoutingType, size_of
from broker.engine.model.names import RETAINED
from broker.engine.publish.retained_index import RetainedIndex
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import removal_bytes_of, remove
from broker.engine.queues.state import State
from store.record import RemovalReason

_MULTICAST: Final = RoutingType.MULTICAST
_ID: Final[Callable[[Message], int]] = attrgetter("id")


class Retained:
    """The retained messages, by their address.

    `messages_max` and `bytes_max` bound them (bytes as they cost memory), -1: no limit.
    """

    def __init__(self, state: State) -> None:
        self.messages_max = -1
        self.bytes_max = -1
        self.messages = 0
        self.bytes = 0
        self.queue: Queue | None = None  # created when first needed
        self._state = state
        self._index = RetainedIndex(state.syntax)
        self._reported = False
        self._superseded: list[Message] = []

    # -- lookup ----------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Message | None:
        """The retained message of an address."""
        message = self._index.get(name)
        return None if message is None or self._is_over(message) else message

    def search(self, pattern: str, below: int) -> Generator[Message | None, None, None]:
        """See `RetainedIndex.search`."""
        with closing(self._index.search(pattern, below)) as found:
            for message in found:
                yield None if message is None or self._is_over(message) else message

    def _is_over(self, message: Message) -> bool:
        return 0 < message.header.expiration <= self._state.now

    # -- changes ---------------------------------------------------------------------------------------------------

    @staticmethod
    def needed(message: Message) -> int:
        """The most bytes of journal to retain a message in place of another, or to clear that."""
        return size_of([message]) + removal_bytes_of([message])

    def set(self, address: Address, message: Message) -> None:
        """Retain a message, replacing an older one of the same address.  It must be durable.

        Call it before the publication itself is routed to the address's queues, as another message: a refusal here
        holds for both.  Raises RetainedFull, AddressFull, DiskFull, before anything changed.
        """
        header = message.header
        assert header.durable, "retained messages survive a restart"
        assert header.address == address.name, "the address is that of the message"
        self._state.room.check(address)
        self._check_room(message, self._index.get(address.name))
        queue = self.queue
        if queue is None:
            home = self._state.registry.create_address(RETAINED, {_MULTICAST}, internal=True)
            queue = self._state.registry.create_queue(home, RETAINED, _MULTICAST, durable=True, internal=True)
            self._own(queue)
        arrival.reserve(self._state, [message], essential=False)
        arrival.keep(self._state, queue, message)
        old = self._index.put(message)
        self.messages += 1
        self.bytes += message.size
        if old is not None:
            self._discard(queue, old, RemovalReason.REPLACED)

    def _check_room(self, message: Message, old: Message | None) -> None:
        messages = self.messages + (old is None)
        size = self.bytes + message.size - (0 if old is None else old.size)
        if not (0 <= self.messages_max < messages or 0 <= self.bytes_max < size):
            self._reported = False
            return
        if not self._reported:
            self._reported = True
            self._state.report("retained.full", messages=self.messages, bytes=self.bytes)
        raise RetainedFull(f"{self.messages} messages of {self.bytes} bytes are retained: the limit is reached")

    def clear(self, name: str) -> bool:
        """Remove the retained message of an address; returns whether there was one.

        Raises DiskFull, before anything changed: what clients clear must not use up the room that is for consumers.
        """
        message = self._index.get(name)
        if message is None:
            return False
        assert self.queue is not None, "the message is on it"
        arrival.reserve_bytes(self._state, removal_bytes_of([message]), essential=True)
        self._index.remove(message)
        self._discard(self.queue, message, RemovalReason.PURGED)
        return True

    def _discard(self, queue: Queue, message: Message, reason: RemovalReason) -> None:
        """Remove a message that is no longer in the index from the queue."""
        self._state.schedule.unwatch(queue, [message])
        queue.backlog.discard(message)
        self._settle(message)
        remove(self._state, queue, [message], reason)

    def _settle(self, message: Message) -> None:
        """Move a message's charge back to its own address, where `remove` subtracts it."""
        assert self.queue is not None
        self.messages -= 1
        self.bytes -= message.size
        self._state.room.recharge(message, self.queue.address.name, message.header.address)

    def expired(self, message: Message) -> None:
        """Called when a message of the queue expires, just before it is removed."""
        self._index.remove(message)
        self._settle(message)

    # -- the queue -------------------------------------------------------------------------------------------------

    def _own(self, queue: Queue) -> None:
        queue.internal_owner = self
        queue.refresh()
        queue.configured = queue.address.configured = True
        self.queue = queue

    def restore(self) -> None:
        """Index the restored messages, after everything else was restored.

        There is one for each address, except in a repaired journal, where the removal of an older one may be lost.
        """
        queue = self._state.queues.get(RETAINED)
        if queue is None:
            return
        self._own(queue)
        for message in sorted(queue.backlog, key=_ID):
            self._state.room.recharge(message, message.header.address, queue.address.name)
            self.messages += 1
            self.bytes += message.size
            old = self._index.put(message)
            if old is not None:
                self._superseded.append(old)

    def finish_restore(self) -> None:
        """Remove messages that are not the last of their address.  The journal must be running."""
        superseded, self._superseded = self._superseded, []
        for message in superseded:
            assert self.queue is not None, "the message is on it"
            self._discard(self.queue, message, RemovalReason.REPLACED)
