"""A SEND whose body is too large for memory: it is written to a file part by part.

The message is gathered with the others (`send`) when the file is complete; until then nothing else of the connection is
read.
"""

from __future__ import annotations

from functools import partial

from broker.engine import Engine, LargeBody
from broker.engine.model.errors import EngineError
from broker.sessions.reading import Reading
from broker.sessions.stomp.headers import refused
from broker.sessions.stomp.port import Port
from broker.sessions.stomp.send import Sends
from broker.sessions.upload import Uploading
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Begun, Part


class LargeSend:
    """The SEND of a connection whose body is arriving in parts, if any."""

    def __init__(self, engine: Engine, reading: Reading, sends: Sends) -> None:
        self._engine = engine
        self._sends = sends
        self._begun: Begun | None = None
        self._uploading = Uploading(engine, reading)

    @property
    def waiting(self) -> bool:
        """Whether a message is arriving in parts and has not been gathered yet."""
        return self._begun is not None

    def begin(self, port: Port, begun: Begun) -> None:
        """Begin a message whose body arrives in parts.  Raises StompError."""
        try:
            # Refuse a client without permission before it sends the body.
            send = self._sends.make(begun.headers)
            self._engine.producers.find(send)
            self._engine.producers.give_up([send])  # the body may never come
            self._uploading.begin(partial(self._uploaded, port), port.proceed, durable=send.header.durable)
        except EngineError as refusal:
            raise refused("SEND", refusal, begun.headers) from None
        self._begun = begun

    def part(self, part: Part) -> None:
        """Process the next part of the body."""
        if self._uploading.coming:  # else it was refused, and the connection is about to end
            self._uploading.write(part.body, last=part.last)

    def _uploaded(self, port: Port, body: LargeBody | EngineError) -> None:
        """Gather a message whose body is complete, or fail if it was refused."""
        begun, self._begun = self._begun, None
        assert begun is not None, "it began it"
        try:
            if isinstance(body, EngineError):
                raise body
            self._sends.add_large(begun, body)
        except StompError as wrong:
            port.fail_with(wrong)
        except EngineError as refusal:
            port.fail_with(refused("SEND", refusal, begun.headers))
        else:
            if b"receipt" in begun.headers:
                port.queue_receipt(begun.headers[b"receipt"])

    def abandon(self) -> None:
        """Delete what has arrived: the connection ends."""
        self._begun = None
        self._uploading.abandon()
