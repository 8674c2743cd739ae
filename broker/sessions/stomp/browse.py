"""Browsers: subscriptions that look at a queue and take nothing, as ActiveMQ Classic has them (`browser:true`).

A browser gets what is on the queue when it comes, in the order of delivery, each message once, and then a MESSAGE with
`browser:end`.  It is shown as much at a time as may wait for the operating system.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine import AckMode, DeliveryOutcome, Engine, Queue, SubscribeRequest
from broker.engine.model.errors import NotBrowsable
from broker.engine.model.message import Message
from broker.sessions.convert import ReplyPrefixes
from broker.sessions.stomp.delivery import Rendering
from broker.sessions.stomp.headers import Headers, error
from broker.sessions.unsendable import report_render_fault
from protocols.stomp.connection import StompConnection
from protocols.stomp.frames import encode
from protocols.stomp.headers import escape


class Browser(Rendering):
    """A SUBSCRIBE that only looks.  With `acknowledged` the peer may say that it has a message, which means nothing."""

    __slots__ = ("_engine", "_messages", "_next")

    def __init__(
        self,
        engine: Engine,
        id: bytes,
        number: bytes,
        queue: Queue,
        messages: Iterable[Message],
        prefix: str,
        version: str,
        *,
        replies: ReplyPrefixes,
        acknowledged: bool,
    ) -> None:
        super().__init__(id, number, queue, prefix, version, replies=replies, acknowledged=acknowledged)
        self._engine = engine
        self._messages = iter(messages)
        self._next = next(self._messages, None)

    def more(self, codec: StompConnection, bytes_max: int) -> tuple[int, bool]:
        """Send frames until they have so many bytes, the last may exceed them; how many, and if all came.

        What STOMP has no words for is left out.
        """
        taken = 0
        while self._next is not None and taken < bytes_max:
            taken += self._next.size
            for message, why in self.encode(codec, [self._next]):
                report_render_fault(self._engine, message, why)
            self._next = next(self._messages, None)
        if self._next is not None:
            return taken, False
        destination = escape((self._prefix + self._queue.address.name).encode(), self._version)
        id = self.number + b",0"
        headers = [(b"subscription", escape(self.id, self._version)), (b"message-id", id)]
        if self._ack_lead:
            headers.append((b"ack", id))
        codec.out.append(encode(b"MESSAGE", [*headers, (b"destination", destination), (b"browser", b"end")]))
        return taken, True

    def close(self, engine: Engine, how: DeliveryOutcome) -> None:
        """The end: nothing has been taken."""
        self._messages, self._next = iter(()), None


class Browsers:
    """The browsers of a connection; `showing` are those that have not shown everything yet."""

    def __init__(self, engine: Engine, codec: StompConnection, replies: ReplyPrefixes) -> None:
        self.showing: list[Browser] = []
        self._engine = engine
        self._codec = codec
        self._replies = replies
        self._made = 0

    def make(self, request: SubscribeRequest, headers: Headers, *, id: bytes, prefix: str) -> Browser:
        """A browser of the queue that is wished for.  Raises StompError, EngineError."""
        try:
            queue, found = self._engine.browse(
                request.destination, request.routing_type, request.selector, access=request.access, asked=request.asked
            )
        except NotBrowsable as topic:
            raise error("SUBSCRIBE", "invalid browser", str(topic), headers) from topic
        messages = (message for message, place in found if place != "scheduled")
        self._made += 1
        number = b"b%d" % self._made  # no consumer's
        acknowledged = request.ack_mode is not AckMode.AUTO
        browser = Browser(
            self._engine,
            id,
            number,
            queue,
            messages,
            prefix,
            self._codec.version,
            replies=self._replies,
            acknowledged=acknowledged,
        )
        self.showing.append(browser)
        return browser

    def show(self, bytes_max: int) -> int:
        """Show so many bytes of messages, the last may exceed them; how many it were."""
        taken = 0
        while self.showing and taken < bytes_max:
            size, done = self.showing[0].more(self._codec, bytes_max - taken)
            taken += size
            if done:
                del self.showing[0]
        return taken

    def forget(self, browser: Browser) -> None:
        """A browser has seen enough."""
        if browser in self.showing:
            self.showing.remove(browser)
