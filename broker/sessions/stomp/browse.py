"""Browsers: subscriptions that show a queue's messages without consuming them, as in ActiveMQ Classic (`browser:true`).

A browser gets the messages that are on the queue when it subscribes, once each, in the order of delivery, and then a
MESSAGE with `browser:end`.  Each time it gets as many as the output window and the tick's budget permit.  The browsers
of a connection take their turns: each begins when those before it have ended.
"""

from __future__ import annotations

from broker.engine import AckMode, DeliveryOutcome, Engine, SubscribeRequest
from broker.sessions.convert import ReplyPrefixes
from broker.sessions.stomp.delivery import Rendering
from broker.sessions.unsendable import report_render_fault
from protocols.stomp.frames import encode
from protocols.stomp.headers import escape
from protocols.stomp.output import Output


class Browser(Rendering):
    """A SUBSCRIBE that browses.  Acknowledgements have no effect.

    Raises NotBrowsable, and errors of reading a queue.
    """

    __slots__ = ("_engine", "_messages")

    def __init__(
        self,
        engine: Engine,
        request: SubscribeRequest,
        id: bytes,
        number: bytes,
        prefix: str,
        version: str,
        *,
        replies: ReplyPrefixes,
    ) -> None:
        queue, found = engine.browse(
            request.destination, request.routing_type, request.selector, access=request.access, asked=request.asked
        )
        acknowledged = request.ack_mode is not AckMode.AUTO
        super().__init__(id, number, queue, prefix, version, replies=replies, acknowledged=acknowledged)
        self._engine = engine
        self._messages = found

    def show(self, output: Output, bytes_max: int) -> tuple[int, bool]:
        """Send up to `bytes_max` bytes (the last frame may exceed it), as far as the budget goes.

        Returns how many, and whether it is done.  Messages that STOMP cannot express are left out.  Raises EngineError.
        """
        nbytes = 0
        for message in self._messages:
            if message is None:
                return nbytes, False
            nbytes += message.size
            for unsent, why in self.encode(output, [message])[0]:
                report_render_fault(self._engine, unsent, why)
            if nbytes >= bytes_max:
                return nbytes, False
        destination = escape((self._prefix + self._queue.address.name).encode(), self._version)
        id = self.number + b",0"
        headers = [(b"subscription", escape(self.id, self._version)), (b"message-id", id)]
        if self._ack_lead:
            headers.append((b"ack", id))
        output.parts.append(encode(b"MESSAGE", [*headers, (b"destination", destination), (b"browser", b"end")]))
        return nbytes, True

    def close(self, engine: Engine, how: DeliveryOutcome) -> None:
        """End; no message was consumed."""
