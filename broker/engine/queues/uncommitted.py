"""What open transactions hold in memory: the messages that they send, and the deliveries that they settle.

`Room` charges what they send to its address at once, so that everybody else sees it fill up, and has the limits:

    of a connection     `open-transactions-bytes-max`, for all of its open transactions together
    of the broker       a quarter of its memory, but no less than a connection may hold.  Beyond that, up to twice as
                        much, only connections that hold less than their share get more, so that a few cannot shut out
                        the others

Beyond either more is refused, not delayed: the transactions that could make room may be waiting themselves.  A
transaction that sends to a full address waits for older ones of other connections only, so that no two wait for each
other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.engine.model.errors import TransactionsFull

#: The part of the broker's memory for messages that open transactions may hold before connections get shares of it.
MEMORY_PART: Final = 4


def has_share(pool: int, total: int, own: int, holders: int) -> bool:
    """Whether one of some holders may hold `own` bytes of a pool, so that all hold `total`.

    What is in the pool is there for anybody.  Beyond it, up to twice as much, only those who hold less than their share
    get more, so that a few cannot shut out the others.
    """
    return total <= pool or (own <= pool // holders and total <= 2 * pool)


class Uncommitted:
    """What one open transaction of a connection holds.

    `sends`: messages and bytes for each address; `sent_messages`, `sent_bytes`: those for all of them.
    """

    __slots__ = ("bytes", "connection", "number", "sends", "sent_bytes", "sent_messages")

    def __init__(self, number: int, connection: object) -> None:
        self.number = number  # of older ones it is less
        self.connection = connection
        self.bytes = 0
        self.sent_bytes = 0
        self.sent_messages = 0
        self.sends: dict[str, tuple[int, int]] = {}


class OpenTransactions:
    """What all open transactions hold: `bytes`, of these `sent_bytes` for the messages that they send."""

    def __init__(self, connection_bytes_max: int) -> None:
        self.bytes = 0
        self.sent_bytes = 0
        self._connection_bytes_max = connection_bytes_max
        self._number = 0
        self._connections: dict[object, int] = {}  # bytes of those that hold something
        self._senders: dict[str, dict[Uncommitted, None]] = {}  # by address
        self._sent_to: dict[str, tuple[int, int]] = {}  # messages and bytes of all of them

    def begin(self, connection: object) -> Uncommitted:
        """A new transaction, which holds nothing."""
        self._number += 1
        return Uncommitted(self._number, connection)

    def check(self, held: Uncommitted, count: int, nbytes: int, memory_max: int) -> None:
        """Raises TransactionsFull if a transaction may not hold so many messages more.

        A connection that holds nothing may hold one message, however large.
        """
        own = self._connections.get(held.connection, 0)
        most = self._connection_bytes_max
        if own + nbytes > most and (own or count > 1):
            raise TransactionsFull(
                f"the open transactions of this connection would hold more than {most} bytes: commit in smaller parts"
            )
        pool = max(memory_max // MEMORY_PART, most)
        connections = len(self._connections) + (not own)
        if memory_max >= 0 and self.bytes and not has_share(pool, self.bytes + nbytes, own + nbytes, connections):
            raise TransactionsFull(
                f"the open transactions of {connections} connections would hold more than {pool} bytes: "
                "commit in smaller parts"
            )

    def add(self, held: Uncommitted, nbytes: int) -> None:
        """Count what a transaction holds from now on."""
        held.bytes += nbytes
        self.bytes += nbytes
        self._connections[held.connection] = self._connections.get(held.connection, 0) + nbytes

    def add_sends(self, held: Uncommitted, name: str, count: int, nbytes: int) -> None:
        """The same for messages that it sends to an address."""
        self.add(held, nbytes)
        self.sent_bytes += nbytes
        held.sent_bytes += nbytes
        held.sent_messages += count
        messages, sent = held.sends.get(name, (0, 0))
        held.sends[name] = messages + count, sent + nbytes
        self._senders.setdefault(name, {})[held] = None
        messages, sent = self.sent_to(name)
        self._sent_to[name] = messages + count, sent + nbytes

    def remove(self, held: Uncommitted) -> None:
        """Forget a transaction that has ended."""
        for name, (count, nbytes) in list(held.sends.items()):
            self.remove_sends(held, name, count, nbytes)
        self._forget(held, held.bytes)

    def remove_sends(self, held: Uncommitted, name: str, count: int, nbytes: int) -> None:
        """Forget messages that a transaction sends to an address."""
        messages, sent = held.sends[name]
        assert count <= messages, "it sent them"
        assert nbytes <= sent, "with their bytes"
        held.sends[name] = messages - count, sent - nbytes
        held.sent_messages -= count
        held.sent_bytes -= nbytes
        self.sent_bytes -= nbytes
        self._forget(held, nbytes)
        all_messages, all_sent = self._sent_to[name]
        self._sent_to[name] = all_messages - count, all_sent - nbytes
        if messages == count:
            del held.sends[name]
            senders = self._senders[name]
            del senders[held]
            if not senders:
                del self._senders[name], self._sent_to[name]

    def _forget(self, held: Uncommitted, nbytes: int) -> None:
        held.bytes -= nbytes
        self.bytes -= nbytes
        left = self._connections.get(held.connection, 0) - nbytes
        assert left >= 0, "what a transaction holds counts for its connection"
        if left:
            self._connections[held.connection] = left
        else:
            self._connections.pop(held.connection, None)

    def behind(self, held: Uncommitted, name: str) -> tuple[int, int]:
        """Messages and bytes sent to an address by those transactions for which this one does not wait.

        They are itself, those of its connection, and younger ones.
        """
        messages = nbytes = 0
        for other in self._senders.get(name, ()):
            if other.number > held.number or other.connection is held.connection:
                count, sent = other.sends[name]
                messages += count
                nbytes += sent
        return messages, nbytes

    def sent_to(self, name: str) -> tuple[int, int]:
        """Messages and bytes sent to an address by all of them."""
        return self._sent_to.get(name, (0, 0))

    def behind_each(self, waiting: Iterable[Uncommitted], name: str) -> dict[Uncommitted, tuple[int, int]]:
        """The same as `behind` for many, which looks at each sender once."""
        all_messages, all_sent = self.sent_to(name)
        senders = sorted(self._senders.get(name, ()), key=_number)
        own: dict[object, tuple[int, int]] = {}  # of the older ones of each connection
        messages = nbytes = at = 0  # of all older ones
        found: dict[Uncommitted, tuple[int, int]] = {}
        for held in sorted(waiting, key=_number):
            while at < len(senders) and senders[at].number <= held.number:
                count, sent = senders[at].sends[name]
                own_count, own_sent = own.get(senders[at].connection, (0, 0))
                own[senders[at].connection] = own_count + count, own_sent + sent
                messages, nbytes, at = messages + count, nbytes + sent, at + 1
            own_count, own_sent = own.get(held.connection, (0, 0))
            found[held] = all_messages - messages + own_count, all_sent - nbytes + own_sent
        return found


def _number(held: Uncommitted) -> int:
    return held.number
