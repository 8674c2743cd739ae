"""Receives the messages that a client sends on one connection, and publishes them.

SENDs are gathered and published together (`send`); frames that depend on them (a COMMIT, say) cause the gathered ones
to be published first.  A body that is too large for memory is written to a file part by part, and its message is
gathered when the file is complete; until then nothing else of the connection is read.
"""

from __future__ import annotations

from typing import Final

from broker.engine import LargeBody
from broker.engine.model.errors import EngineError
from broker.sessions.stomp.format import STOMP_FORMAT
from broker.sessions.stomp.headers import refused
from broker.sessions.stomp.port import Port
from broker.sessions.stomp.receipts import Receipts
from broker.sessions.stomp.send import Sends
from broker.sessions.stomp.subscribe import Subscriptions
from broker.sessions.stomp.temporary import Destinations
from broker.sessions.stomp.transactions import Transactions
from broker.sessions.upload import Uploading
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Begun, Frame, Part

#: The reason to stop reading while an address is full.
_FULL: Final = "full"


class Receiver:
    """The receiving side of a connection.  As the engine's Producer it also waits for full addresses."""

    def __init__(
        self,
        port: Port,
        destinations: Destinations,
        subscriptions: Subscriptions,
        transactions: Transactions,
        receipts: Receipts,
    ) -> None:
        engine = port.engine
        self._engine = engine
        self._port = port
        self._destinations = destinations
        self._subscriptions = subscriptions
        self._transactions = transactions
        self._receipts = receipts
        self.sends = Sends(
            engine,
            destinations,
            engine.formats[STOMP_FORMAT],
            transactions,
            self._expect_reply,
            port.codec.leads.expect,
        )
        self._large: Begun | None = None  # the SEND whose body arrives in parts
        self._uploading = Uploading(engine, port.reading, self._uploaded, port.proceed)

    @property
    def transport(self) -> object:
        return self._port.transport

    def publish(self) -> StompError | None:
        """Publish what was gathered.  Returns the first refusal, if any."""
        failure, blocked = self.sends.publish(self)
        if failure is not None:
            self._receipts.refuse(self.sends.published)
        if blocked:
            self._block()
        return failure

    def publish_first(self) -> None:
        """Publish what was gathered, before a frame that depends on it.  Raises StompError."""
        failure = self.publish()
        if failure is not None:
            raise failure

    def commit(self, frame: Frame) -> None:
        """Process a COMMIT.  Then a full address blocks the peer as if it had sent outside of a transaction.

        Raises StompError, EngineError.
        """
        tx = self._transactions.commit(frame)
        if any([self._engine.block_if_full(send.address, self) for send in tx.sends]):
            self._block()

    def _block(self) -> None:
        """Stop reading from the peer until a full address has room."""
        self._port.reading.stop(_FULL)

    def unblock(self) -> None:
        """Read again: a full address has room (see Producer)."""
        if not self._port.lost:
            self._port.reading.go(_FULL)

    def _expect_reply(self, destination: bytes) -> None:
        """Subscribe to a temporary destination if it has no consumer.  Raises StompError, EngineError."""
        if not self._destinations.answered(destination.decode()):
            self.publish_first()
            self._subscriptions.expect_reply(destination)

    @property
    def waiting(self) -> bool:
        """Whether a message is arriving in parts and has not been gathered yet."""
        return self._large is not None

    def begin(self, begun: Begun) -> None:
        """Begin a message whose body arrives in parts.  Raises StompError."""
        try:
            # Refuse a client without permission before it sends the body.
            self._uploading.begin(durable=self.sends.check(begun))
        except EngineError as refusal:
            raise refused("SEND", refusal, begun.headers) from None
        self._large = begun

    def part(self, part: Part) -> None:
        """Process the next part of the body."""
        if self._uploading.coming:  # else it was refused, and the connection is about to end
            self._uploading.write(part.body, last=part.last)

    def _uploaded(self, body: LargeBody | EngineError) -> None:
        """Gather a message whose body is complete, or fail if it was refused."""
        frame, self._large = self._large, None
        assert frame is not None, "it began it"
        try:
            if isinstance(body, EngineError):
                raise body
            self.sends.add_large(frame, body)
        except StompError as wrong:
            self._port.fail_with(wrong)
        except EngineError as refusal:
            self._port.fail_with(refused("SEND", refusal, frame.headers))
        else:
            if b"receipt" in frame.headers:
                self._receipts.want(frame.headers[b"receipt"], sends=self.sends.gathered)

    def abandon(self) -> None:
        """Drop everything that is not published: the connection ends."""
        self._engine.stop_waiting(self)
        self._large = None
        self._uploading.abandon()
        self.sends.forget()
