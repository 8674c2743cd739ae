"""Either side of an AMQP 1.0 connection: the codec's events become engine verbs, deliveries become transfers.

Links gather arriving messages (`incoming_links`).  They are published when all frames of a read are handled, or before
a frame that depends on them.  Answers (outcomes of messages, of discharges, of the broker's own deliveries) are sent
once everything done before them is durable (promise P1), in order; consecutive ones become one range.

`session` is the side that clients connect to, `broker.sessions.links` the one that connects to other brokers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.engine import DeliveryOutcome, redelivery
from broker.engine.model.errors import MemoryFull
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.amqp.terms import AmqpOptions
from broker.sessions.base import without_calls
from broker.sessions.login import Peer
from broker.sessions.read_steps import ASKED_AFTER, ReadSteps
from broker.sessions.session import MOVED, PARTIAL_FULL
from broker.sessions.tick import Tick, Transport
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    connection_error,
)
from protocols.amqp.events import (
    Aborted,
    Attached,
    Credit,
    Detached,
    Dispositions,
    Ended,
    Event,
    LinkFailed,
    Portion,
    Posting,
    SessionFailed,
    Skipped,
    Transfers,
    WindowOpened,
)
from protocols.amqp.performatives import Close
from protocols.amqp.transfer_batch import RUN_MAX

#: Deliveries that a DISPOSITION settles at once: some milliseconds if they fail.
_SETTLED_MAX: Final = 512

#: What the filters of their queues may cost for messages that are published together, in microseconds; and how many
#: are, if they cost nothing.
_MATCHING_MAX: Final = 2_000
_ANY_NUMBER: Final = 1 << 30

#: So many bytes of messages are taken apart and checked together: that may take milliseconds if they have many values.
_CHECKED_BYTES: Final = 16 << 10

#: What a byte of an ATTACH takes in memory as long as its link, at most.
ATTACH_FACTOR: Final = 2

#: Events that may take milliseconds, as of a selector: the budget is asked for after each.
_LONG: Final = (Attached, Dispositions, Skipped)

#: The function that handles each event, by type.
Handlers = Mapping[type, Callable[[Any, Any], None]]


class AmqpEndpoint(LinkOwner):
    """The broker's side of one AMQP connection, incoming or outgoing."""

    def __init__(
        self,
        tick: Tick,
        transport: Transport,
        options: AmqpOptions,
        codec: AmqpConnection,
        connection_id: str,
        peer: Peer,
    ) -> None:
        super().__init__(tick, transport, options, codec, connection_id, peer)
        self._steps: ReadSteps[Event] = ReadSteps()
        self._partial_bytes = 0  # held of messages that have not come whole, as charged
        self._attach_bytes = 0  # of links, as charged
        self._ended = False  # the peer has closed its side
        self._gone = False  # the connection is lost, and what came before is still to be handled
        self._closed = False  # the connection is lost, and all that came before is handled
        self._finished = False  # its links have ended

    @property
    @abstractmethod
    def handlers(self) -> Handlers:
        """The functions that handle events."""

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def receive_timeout(self) -> int:
        """Silence in ms after which the peer counts as dead."""
        return self.codec.receive_timeout

    @property
    def send_interval(self) -> int:
        """The longest silence of the broker in ms: half of the peer's idle-time-out, to be safe (part 2, 2.4.5)."""
        return self.codec.send_interval // 2

    @property
    def close_expected(self) -> bool:
        """Whether the broker's CLOSE is sent, with everything before it."""
        return self.codec.close_expected

    def receive_data(self, data: bytes) -> None:
        """Process bytes from the peer: handle the frames in order, then publish the gathered messages."""
        if not self.lost:
            self.codec.receive_data(data)
            self.process()

    def receive_eof(self) -> None:
        """End the connection as if it had failed: the peer has closed its side without CLOSE."""
        if not self.lost:
            self.codec.receive_eof()
            self._ended = True
            self.process()

    def process(self) -> None:
        """Handle the frames that have arrived; in this tick, and in later ones."""
        if self._steps.pending:
            return
        failure: AmqpError | None = None
        try:
            self._handle()
        except AmqpError as error:
            failure = without_calls(error)
        self.incoming.publish()
        if self._partial_bytes != self.codec.partial_bytes and not self.lost:
            failure = failure or self._charge_partial()
        if self._attach_bytes != self.codec.attach_bytes and not self.lost:
            failure = failure or self._charge_links()
        if failure is not None:
            self.fail_with(failure)
        if self.answers.confirm(self):
            self.touch()
        self._end_if_ended()

    def _handle(self) -> None:
        """Handle the frames that have arrived, until the tick's budget is used up.  Raises AmqpError."""
        codec, handlers, steps = self.codec, self.handlers, self._steps
        gathered = 0
        while not self.lost and (events := steps.take_later() or self._divided(codec.events())):
            for at, event in enumerate(events, 1):
                if (handler := handlers.get(type(event))) is not None:  # else there is nothing to do
                    handler(self, event)
                    if steps.pending:
                        steps.wait(events[at:])
                        return
                long = isinstance(event, _LONG) or at % ASKED_AFTER == 0
                if isinstance(event, Transfers):
                    gathered += len(event.ids)
                    long |= at < len(events)  # the usual read has only one
                    if self._together(event) < _ANY_NUMBER:
                        self.incoming.publish()
                        long = True
                if long and steps.pauses(self, events, at):
                    return
            if gathered >= RUN_MAX:
                self.incoming.publish()
                gathered = 0
                if steps.pauses(self, [], 0):
                    return

    def _charge_partial(self) -> AmqpError | None:
        """Charge what is held of incomplete messages.  Returns the error if it is too much."""
        self._partial_bytes = nbytes = self.codec.partial_bytes
        if self.engine.partial.hold(self, nbytes):
            return None
        return connection_error(RESOURCE_LIMIT_EXCEEDED, PARTIAL_FULL.format(nbytes))

    def _charge_links(self) -> AmqpError | None:
        """Charge what is held of the names and terms of links.  Returns the error if it is too much."""
        memory, user, before = self.engine.client_memory, self.access.user, self._attach_bytes
        memory.release(user, ATTACH_FACTOR * before)
        try:
            memory.hold(user, ATTACH_FACTOR * self.codec.attach_bytes)
        except MemoryFull as full:
            memory.hold_again(user, ATTACH_FACTOR * before)
            return connection_error(RESOURCE_LIMIT_EXCEEDED, str(full))
        self._attach_bytes = self.codec.attach_bytes
        return None

    def _divided(self, events: list[Event]) -> list[Event]:
        """Divide dispositions of many deliveries, and transfers of much, or of messages that filters make costly."""
        divided: list[Event] = []
        for event in events:
            if isinstance(event, Dispositions):
                divided += event.divided(_SETTLED_MAX)
            elif isinstance(event, Transfers):
                divided += event.divided(self._together(event), _CHECKED_BYTES)
            else:
                divided.append(event)
        return divided

    def _together(self, event: Transfers) -> int:
        """How many messages of a link are published together because of their filters."""
        if not self.engine.producers.filtering:
            return _ANY_NUMBER
        cost = self.incoming.match_cost(event.link)
        return max(_MATCHING_MAX // cost, 1) if cost else _ANY_NUMBER

    def _end_if_ended(self) -> None:
        """End if the codec has found an error, or the peer has gone, and all that it sent before is handled."""
        if self._steps.pending:
            return
        if self.codec.error is not None:
            self.fail_with(self.codec.error)
        if self._gone:
            self.connection_lost()
        elif self._ended and not self.lost:
            self.end(redelivery.LOST)
            self.codec.send_close()
            self.touch()

    def fail_with(self, error: AmqpError) -> None:
        """End the connection with an error: the peer has violated a rule of it."""
        self.report_error(error)
        self.codec.send_close(error)
        self.touch()
        self.end(redelivery.LOST)

    def data_to_send(self) -> bytes:
        """Return all bytes for the peer since the last call."""
        for consumer in self.unsendable.dead_letter():
            if isinstance(consumer.sink, OutgoingLink):  # else it is closed
                consumer.sink.more_room()
        self.outgoing.finish(self)
        return self.codec.data_to_send()

    def flushed(self) -> None:
        """Note that the operating system has all bytes."""
        self.open_window()
        self.outgoing.flushed(self)

    def pause(self, paused: bool) -> None:
        """Pause or resume deliveries."""
        self.outgoing.pause(paused)

    def send_heartbeat(self) -> None:
        """Send an empty frame."""
        self.codec.send_heartbeat()
        self.touch()

    def timed_out(self) -> None:
        """End the connection: the peer was silent for longer than the broker's idle-time-out allows."""
        self.report("connection.silent")
        self.codec.send_close(
            connection_error(RESOURCE_LIMIT_EXCEEDED, f"Nothing was heard for {self.receive_timeout} ms.")
        )
        self.touch()
        self.end(redelivery.LOST)

    def connection_lost(self) -> None:
        """Note that the socket has closed."""
        if self._steps.pending:  # the peer has sent these before
            self._gone = True
        else:
            self._closed = True
            self.end(redelivery.LOST)
            self._forget_sessions()

    def fail(self, why: str, *, moved: bool = False) -> None:
        self.codec.discard()
        self.unsendable.forget()
        self.outgoing.forget()
        self.fail_with(connection_error(CONNECTION_FORCED if moved else INTERNAL_ERROR, why))

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def shut_down(self, why: str = "The broker is shutting down.", *, moved: bool = False) -> None:
        """Close the connection for a reason of the broker's.

        Even with `moved` the condition is not `amqp:connection:redirect`: Proton and rhea give up on that, but try the
        next server on `amqp:connection:forced`.
        """
        self.incoming.publish()
        self.codec.send_close(connection_error(CONNECTION_FORCED, MOVED if moved else why))
        self.touch()
        self.end(redelivery.INTERRUPTED)

    def end(self, how: DeliveryOutcome) -> None:
        """End the connection and its links."""
        if self.lost:
            return
        self.lost = True
        if self._partial_bytes:
            self.engine.partial.hold(self, 0)
        self.engine.client_memory.release(self.access.user, ATTACH_FACTOR * self._attach_bytes)
        self.engine.connections.closed(self.id)
        self.ending()
        self.incoming.close()
        self.answers.drop()
        self.outgoing.close(how, self.transport, self._links_ended)

    def _links_ended(self) -> None:
        self.ended()
        self._finished = True
        self._forget_sessions()

    def _forget_sessions(self) -> None:
        """Forget sessions and links, which refer to each other, once nothing more is sent or told to them."""
        if self._closed and self._finished:
            self.codec.forget_sessions()

    @abstractmethod
    def ending(self) -> None:
        """Clean up before the links of the connection end."""

    @abstractmethod
    def ended(self) -> None:
        """Clean up after the links of the connection have ended."""

    def _on_close(self, event: Close) -> None:
        """Answer the peer's CLOSE; gathered messages are published first."""
        self.incoming.publish()
        self.codec.send_close()
        self.end(redelivery.CLOSED)

    def proceed(self) -> None:
        self.touch()
        self.process()

    def suspend(self) -> None:
        self._steps.suspend(self)

    def resume(self) -> None:
        self._steps.resume(self)

    def durable(self, number: int) -> None:
        """Note that everything up to a tick is on disk."""
        self.answers.durable(self, number)
        self.touch()


#: The functions that handle the events common to both sides.
SHARED: Final[Handlers] = {
    Close: AmqpEndpoint._on_close,
    Ended: lambda session, event: session.end_session(event.session, redelivery.CLOSED),
    SessionFailed: lambda session, event: session.end_session(event.session, redelivery.INTERRUPTED, event.error),
    Detached: AmqpEndpoint.on_detached,
    LinkFailed: lambda session, event: session.lose(event.link, event.error),
    Transfers: lambda session, event: session.incoming.transfers(session, event),
    Posting: lambda session, event: session.incoming.posting(session, event),
    Portion: lambda session, event: session.incoming.portion(session, event),
    Aborted: lambda session, event: session.incoming.aborted(event),
    Dispositions: lambda session, event: session.outgoing.dispositions(session, event),
    Credit: lambda session, event: session.outgoing.credit(event),
    WindowOpened: lambda session, event: session.outgoing.window_opened(event),
}
