"""What connections hold in memory of messages that have not come whole, and that are too small for a file.

With STOMP and MQTT, whose messages come in one frame, these are frames whose end has not come.

It is charged to the broker's memory.  All together may hold a part of that; beyond it (`has_share`) a connection must
end, as no other way is left to it: what is missing would need more memory.
"""

from __future__ import annotations

from broker.engine.queues.room import Room
from broker.engine.queues.uncommitted import MEMORY_PART, has_share


class PartialMessages:
    """The bytes of each connection that holds any, and `bytes` of all."""

    def __init__(self, room: Room) -> None:
        self.bytes = 0
        self._room = room
        self._connections: dict[object, int] = {}

    def hold(self, connection: object, nbytes: int) -> bool:
        """Note how much a connection holds now; returns whether it may."""
        more = nbytes - self._connections.pop(connection, 0)
        if nbytes:
            self._connections[connection] = nbytes
        self.bytes += more
        self._room.charge_arriving(more)
        memory_max = self._room.usage.bytes_max
        return memory_max < 0 or has_share(
            memory_max // MEMORY_PART, self.bytes, nbytes, max(len(self._connections), 1)
        )
