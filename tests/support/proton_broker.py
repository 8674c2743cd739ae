"""A small broker on Qpid Proton, like the one of its examples, that also survives a SIGKILL: a peer for tests of links.

    python -m tests.support.proton_broker PORT FILE QUEUE ...

It has only the queues of its command line.  The queue `full` holds FULL_MAX messages, `forbidden` refuses all links.  A
message is accepted once it is in the file (SQLite), and removed from there once a consumer has accepted it.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import deque
from typing import Any, Final

from proton import Condition, Delivery, Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

#: Messages that the queue `full` holds.
FULL_MAX: Final = 5

#: Messages that a producer may send before the next credit.
CREDIT: Final = 100


class Queue:
    """Messages by their number in the file, and the links of consumers."""

    def __init__(self) -> None:
        self.messages: deque[tuple[int, bytes]] = deque()
        self.consumers: list[Any] = []


class Broker(MessagingHandler):
    """The broker: the callbacks of Proton's reactor."""

    def __init__(self, url: str, file: str, names: list[str]) -> None:
        super().__init__(auto_accept=False, auto_settle=False, prefetch=0)
        self._url = url
        self._file = sqlite3.connect(file, isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = OFF")  # a SIGKILL does not lose what the kernel has
        self._file.execute("CREATE TABLE IF NOT EXISTS message (number INTEGER PRIMARY KEY, queue TEXT, data BLOB)")
        self._queues = {name: Queue() for name in names}
        for number, name, data in self._file.execute("SELECT number, queue, data FROM message ORDER BY number"):
            self._queues[name].messages.append((number, data))
        self._under_way: dict[Any, tuple[Queue, int, bytes]] = {}  # by delivery

    def on_start(self, event: Any) -> None:
        """Listen."""
        event.container.listen(self._url)
        print("READY", flush=True)

    def on_link_opening(self, event: Any) -> None:
        """Answer an ATTACH: only for a queue that exists, and that the client may use."""
        link = event.link
        terminus = link.remote_source if link.is_sender else link.remote_target
        queue = self._queues.get(terminus.address)
        if queue is None or terminus.address == "forbidden":
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        if link.is_sender:
            queue.consumers.append(link)
        else:
            link.flow(CREDIT)

    def on_link_opened(self, event: Any) -> None:
        """Send DETACH with the reason if the answer was a refusal: one without a terminus."""
        link = event.link
        terminus = link.remote_source if link.is_sender else link.remote_target
        if terminus.address not in self._queues:
            link.condition = Condition("amqp:not-found", f"there is no queue {terminus.address}")
            link.close()
        elif terminus.address == "forbidden":
            link.condition = Condition("amqp:unauthorized-access", "nobody may use this queue")
            link.close()

    def on_message(self, event: Any) -> None:
        """Store a message, and settle it."""
        name = event.link.remote_target.address
        queue = self._queues[name]
        event.receiver.flow(1)
        if name == "full" and len(queue.messages) >= FULL_MAX:
            event.delivery.local.condition = Condition("amqp:resource-limit-exceeded", "the queue is full")
            event.delivery.update(Delivery.REJECTED)
            event.delivery.settle()
            return
        data = event.message.encode()
        inserted = self._file.execute("INSERT INTO message (queue, data) VALUES (?, ?)", (name, data))
        queue.messages.append((int(inserted.lastrowid or 0), data))
        self.accept(event.delivery)
        self._deliver(queue)

    def on_sendable(self, event: Any) -> None:
        """Send messages, as a consumer has credit."""
        queue = self._queues[event.link.remote_source.address]
        self._deliver(queue)

    def on_link_flow(self, event: Any) -> None:
        """Answer a consumer's FLOW with drain."""
        if event.link.is_sender and event.link.drain_mode and event.link.state & Endpoint.LOCAL_ACTIVE:
            self._deliver(self._queues[event.link.remote_source.address])
            event.link.drained()

    def _deliver(self, queue: Queue) -> None:
        for link in queue.consumers:
            while queue.messages and link.credit > 0:
                number, data = queue.messages.popleft()
                message = Message()
                message.decode(data)
                self._under_way[link.send(message)] = (queue, number, data)

    def on_accepted(self, event: Any) -> None:
        """Delete a message that a consumer has accepted."""
        _, number, _ = self._under_way.pop(event.delivery)
        self._file.execute("DELETE FROM message WHERE number = ?", (number,))
        event.delivery.settle()

    def on_rejected(self, event: Any) -> None:
        """Delete a message that a consumer has rejected, as there are no dead letters."""
        self.on_accepted(event)

    def on_released(self, event: Any) -> None:
        """Requeue a message that a consumer has released."""
        self._back([event.delivery])
        event.delivery.settle()

    def on_link_closing(self, event: Any) -> None:
        """Requeue the messages of a link that is detached."""
        self._forget(event.link)

    def on_disconnected(self, event: Any) -> None:
        """Requeue the messages of a connection that was lost."""
        link = event.connection.link_head(0)
        while link is not None:
            self._forget(link)
            link = link.next(0)

    def _forget(self, link: Any) -> None:
        for queue in self._queues.values():
            if link in queue.consumers:
                queue.consumers.remove(link)
                self._back([delivery for delivery in self._under_way if delivery.link == link])

    def _back(self, deliveries: list[Any]) -> None:
        """Put messages back in their places, and send them to the next consumer."""
        taken = [self._under_way.pop(delivery) for delivery in deliveries]
        for queue, number, data in sorted(taken, key=lambda each: each[1], reverse=True):
            queue.messages.appendleft((number, data))
        for queue in {id(queue): queue for queue, _, _ in taken}.values():
            self._deliver(queue)


def main() -> None:
    """Run until killed."""
    port, file, *names = sys.argv[1:]
    Container(Broker(f"127.0.0.1:{port}", file, names)).run()


if __name__ == "__main__":
    main()
