"""The call that counts dead letters by group."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from broker.management.callers import managed, require_queue
from broker.management.calls import CallerAccess, Calls
from broker.management.dead_letters import BY_DEFAULT, GroupCounter
from broker.management.models.dead_letters import GroupList, group_list
from broker.management.ports import Broker

_BY_DEFAULT: Final = ",".join(BY_DEFAULT)

By = Annotated[
    str,
    Query(
        description="What to group by: one or more of queue, reason, origin, first-origin, words, link, remote-address,"
        " remote-broker, hour."
    ),
]
OneQueue = Annotated[str, Query(description="A queue, or ADDRESS::QUEUE; empty: all queues of dead letters.")]


class DeadLetterCalls:
    """The calls on one broker's dead letters."""

    def __init__(self, broker: Broker, counter: GroupCounter) -> None:
        self._engine = broker.engine
        self._counter = counter

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/dead-letters/groups", self.groups, authorize=self._authorize, problems=(404, 503))

    async def _authorize(self, access: CallerAccess, queue: OneQueue = "") -> None:
        if queue:
            require_queue(access, self._engine, queue)

    async def groups(self, access: CallerAccess, by: By = _BY_DEFAULT, queue: OneQueue = "") -> GroupList:
        """Dead letters of the queues that the caller manages, or of one, counted by group.

        Bodies are not read, but a million messages take some seconds.
        """
        queues = self._engine.queues
        if queue:
            names = [self._engine.queue(queue).name]
        else:
            every = [each.name for each in self._engine.messages.dead_letter_queues()]
            names = await managed(access, every, lambda name: (queues[name].address.name, name))
            names = [name for name in names if name in queues]
        counted = await self._counter.count(names, by.split(","))
        return group_list(counted, self._engine.now)
