"""A STOMP connection: frames become calls of the engine, deliveries become MESSAGE frames.

`sends` gathers the messages that the client sends, and `large` one that arrives in parts; `subscriptions` send those
that it gets.  A receipt means that the frame and everything before it on this connection is processed, and on disk
where it concerns durable messages.  An ERROR is the last frame of a connection: it waits for the receipts before it, or
else the client would repeat frames that were processed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from broker.engine import Transaction, Unreadable, redelivery
from broker.engine.model.access import NOT_LOGGED_IN, Identity
from broker.engine.model.errors import EngineError
from broker.sessions.base import without_calls
from broker.sessions.confirmations import Confirmations
from broker.sessions.login import Gate, Peer
from broker.sessions.read_steps import ASKED_AFTER, ReadSteps
from broker.sessions.reading import LOGIN
from broker.sessions.session import MOVED, PARTIAL_FULL
from broker.sessions.stomp import connect as stomp_connect
from broker.sessions.stomp.acknowledge import Acknowledging
from broker.sessions.stomp.connect import login_refused, report_error
from broker.sessions.stomp.format import STOMP_FORMAT
from broker.sessions.stomp.headers import Headers, Options, refused
from broker.sessions.stomp.port import Port
from broker.sessions.stomp.send import Sends
from broker.sessions.stomp.subscribe import Subscriptions
from broker.sessions.stomp.temporary import Destinations
from broker.sessions.stomp.transactions import Transactions
from broker.sessions.stomp.upload import LargeSend
from broker.sessions.tick import Tick, Transport
from protocols.stomp.connection import StompConnection, negotiate
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Frame
from protocols.stomp.heads import first_too_large
from protocols.stomp.limits import Limits

Read = TypeVar("Read")

#: Frames that may take milliseconds, as of a selector: the budget is asked for after each.
_LONG: Final = frozenset({"SUBSCRIBE", "UNSUBSCRIBE", "COMMIT", "ABORT"})

#: Handles a frame other than SEND.
Handler = Callable[[Any, Any], None]
Handlers = Mapping[str, Handler]

#: Frames that a receipt cannot be asked for (STOMP 1.2, standard headers).
_WITHOUT_RECEIPT: Final = ("CONNECT", "STOMP", "BEGUN")


class StompSession(Port):
    """The broker's side of one STOMP connection."""

    def __init__(
        self,
        tick: Tick,
        transport: Transport,
        options: Options,
        limits: Limits,
        *,
        connection_id: str,
        peer: Peer,
        gate: Gate,
    ) -> None:
        super().__init__(tick, transport, options, StompConnection(limits), connection_id, peer)
        self.receive_timeout = 0
        self.send_interval = 0
        engine = tick.engine
        no_access = engine.security.access(NOT_LOGGED_IN, "")
        self._gate = gate
        self._peer = peer
        self._logging_in = False  # CONNECT is not answered yet
        self._login_takes_time = False  # it was not answered at once
        self._destinations = Destinations(engine, options.prefixes, no_access, connection_id)
        #: Each with the number of SENDs before it; the last one may be an ERROR.
        self._receipts: Confirmations[tuple[int, bytes | StompError]] = Confirmations(engine)
        self._ended = False  # the peer has closed its side
        self._partial_bytes = 0  # held of frames that have not come whole, as charged
        self._gone = False  # the connection is lost, and what came before is still to be handled
        self._leaving = False  # after DISCONNECT: close once its receipt is sent
        self._committing = False  # COMMIT is not done yet
        self._steps: ReadSteps[Frame] = ReadSteps()
        self.transactions = Transactions(engine, options.transactions_max)
        self.subscriptions = Subscriptions(engine, self._destinations)
        self.acknowledging = Acknowledging(engine, self.codec, self._steps, self.subscriptions, self.transactions)
        self.sends = Sends(
            engine,
            self.reading,
            self._destinations,
            engine.formats[STOMP_FORMAT],
            self.transactions,
            partial(self.subscriptions.expect_reply, self),
            self.codec.leads.expect,
        )
        self.large = LargeSend(engine, self.reading, self.sends)

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def close_expected(self) -> bool:
        """True after an ERROR, or once the receipt of DISCONNECT is sent."""
        if self._leaving:
            return not self._receipts.waiting and not self.codec.output.streaming
        return self.codec.close_expected

    def receive_data(self, data: bytes) -> None:
        if self.lost or self._leaving:
            return
        self.codec.receive_data(data)
        self.process()
        nbytes = self.codec.partial_bytes
        if nbytes != self._partial_bytes and not self.lost:
            self._partial_bytes = nbytes
            if not self.engine.partial.hold(self, nbytes):
                self.fail_with(StompError("memory full", PARTIAL_FULL.format(nbytes)))

    def receive_eof(self) -> None:
        """The peer has closed its side: process the complete frames.

        It can no longer acknowledge, so its deliveries are returned; it may still read its receipts.
        """
        if self.lost or self._leaving:
            return
        self.codec.receive_eof()
        self._ended = True
        self.process()

    def process(self) -> None:
        """Process the frames that have arrived, then publish the gathered sends; in this tick, and in later ones."""
        if self._steps.pending:
            return
        failure = self._handle()
        failure = self.sends.publish() or failure
        if failure is not None:
            published = self.sends.published
            self._receipts.retain(lambda each: each[0] <= published)  # the next send was refused
        self._receipts.confirm(self)
        if failure is not None:
            self.fail_with(failure)
        self._end_if_ended()

    def _end_if_ended(self) -> None:
        """End, or depart, if the peer has and all that it sent is handled."""
        if self._steps.pending or self.lost:
            return
        if self._gone:
            self.connection_lost()
        elif self._ended and not (self._leaving or self._logging_in or self.large.waiting):
            self._depart()

    def _handle(self) -> StompError | None:
        """Handle the frames that have arrived, until the tick's budget is used up; returns an error that ends them."""
        codec, steps, sends = self.codec, self._steps, self.sends
        add = sends.add
        frame: Frame | None = None
        try:
            while frames := steps.take_later() or codec.events():
                for start in range(0, len(frames), ASKED_AFTER):
                    for at, frame in enumerate(frames[start : start + ASKED_AFTER], start + 1):
                        if frame.command == "SEND":
                            add(frame)
                            if b"receipt" in frame.headers:
                                self._queue_receipt_of(frame)
                            if sends.matching and sends.costly:
                                sends.publish_first()
                                if steps.pauses(self, frames, at):
                                    return None
                        elif self._handle_other(frame, frames, at):
                            return None
                    if sends.many:
                        sends.publish_first()
                    if steps.pauses(self, frames, at):
                        return None
        except StompError as wrong:
            return without_calls(wrong)
        except EngineError as refusal:
            assert frame is not None
            return refused(frame.command, refusal, frame.headers)
        return codec.error

    def _handle_other(self, frame: Frame, frames: list[Frame], at: int) -> bool:
        """Handle a frame other than SEND, the one before `frames[at]`; whether those from there on have to wait."""
        steps = self._steps
        _HANDLERS[frame.command](self, frame)
        if steps.pending:
            steps.wait(frames[at:], partial(self._queue_receipt_of, frame))
            return True
        self._queue_receipt_of(frame)
        return frame.command in _LONG and steps.pauses(self, frames, at)

    def _queue_receipt_of(self, frame: Frame) -> None:
        """Queue the receipt that a handled frame asks for, if it does."""
        receipt = frame.headers.get(b"receipt")
        if receipt is not None and frame.command not in _WITHOUT_RECEIPT:
            self.queue_receipt(receipt)

    def queue_receipt(self, receipt: bytes) -> None:
        self._receipts.pending.append((self.sends.gathered, receipt))

    def send_confirmations(self, receipts: list[tuple[int, bytes | StompError]]) -> None:
        for _, receipt in receipts:
            if isinstance(receipt, bytes):
                self.codec.send_receipt(receipt)
            else:
                self.codec.send_error(receipt)

    def proceed(self) -> None:
        if not self.lost:
            self.codec.resume()
            self.process()
            self.touch()

    def data_to_send(self) -> bytes:
        return self._read(self.codec.data_to_send, b"")

    def frames_to_send(self) -> tuple[list[bytes], bool]:
        """Return the output frame by frame, and whether the last frame is incomplete."""
        return self._read(self.codec.output.read_frames, []), self.codec.output.streaming

    def _read(self, read: Callable[[], Read], nothing: Read) -> Read:
        self.unsendable.dead_letter()
        if self.window.socket_full and self.codec.output.streaming:
            return nothing
        try:
            return read()
        except Unreadable as error:
            self._cut(error)
            return nothing

    def _cut(self, error: Unreadable) -> None:
        """End without an ERROR: a body cannot be read in the middle of its frame."""
        self.tick.enter()
        self.report("body.unreadable", error=str(error))
        self.codec.abandon()
        self._receipts.drop()
        self._leaving = True
        self.end(redelivery.INTERRUPTED if error.passing else redelivery.DISCONNECTED)

    def flushed(self) -> None:
        """Resume deliveries: the operating system has accepted the output."""
        self.window.socket_full = False
        if self.codec.output.streaming:  # there is more of a body, and the rest waits
            self.touch()
            return
        self.open_window()
        self.subscriptions.flushed(self)

    def pause(self, paused: bool) -> None:
        self.subscriptions.pause(paused)

    def send_heartbeat(self) -> None:
        self.codec.send_heartbeat()
        self.touch()

    def timed_out(self) -> None:
        """End: heart-beats have ceased."""
        self.report("connection.silent")
        self._receipts.drop()
        self.end(redelivery.SILENT)

    def connection_lost(self) -> None:
        if self._steps.pending:  # the peer has sent these before
            self._gone = True
            return
        self._receipts.drop()
        self.end(redelivery.DISCONNECTED)

    def fail(self, why: str, *, moved: bool = False) -> None:
        self.codec.discard()
        self._receipts.drop()
        self.unsendable.forget()
        self.fail_with(stomp_connect.moved(why, self.options.failover) if moved else StompError("internal error", why))

    def fail_with(self, failure: StompError) -> None:
        """Send an ERROR, the last frame of a connection (STOMP 1.2, ERROR), and end."""
        if self.lost:
            return
        report_error(self.report, failure)
        self._receipts.follow(self, (0, failure))
        self.touch()
        self.end(redelivery.DISCONNECTED)

    def refuse_before_login(self, nbytes: int, most: int) -> None:
        """End with the ERROR for a first frame that is too large."""
        self.fail_with(first_too_large(most))

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def shut_down(self, why: str = "", *, moved: bool = False) -> None:
        """Send an ERROR, the only way to end in STOMP.  Unacknowledged deliveries do not count as attempts."""
        short, default = ("connection closed" if why else "broker shutting down"), "The broker is shutting down."
        gone = stomp_connect.moved(MOVED, self.options.failover) if moved else StompError(short, why or default)
        self._receipts.follow(self, (0, gone))
        self.touch()
        self.end(redelivery.INTERRUPTED)

    def end(self, how: redelivery.DeliveryOutcome) -> None:
        """End the connection's work; pending output may still be sent."""
        if self.lost:
            return
        self.lost = True
        if self._partial_bytes:
            self.engine.partial.hold(self, 0)
        self.engine.connections.closed(self.id)
        self.sends.abandon()
        self.large.abandon()
        self._give_up(how, self._destinations.close)

    def _give_up(self, how: redelivery.DeliveryOutcome, then: Callable[[], None]) -> None:
        """Roll back transactions, and return deliveries; then delete temporary destinations."""
        self.transactions.abandon()
        self.subscriptions.close(how, self.transport, then)

    def durable(self, ticket: int) -> None:
        """Send receipts: everything up to a tick is on disk."""
        self._receipts.durable(self, ticket)
        self.touch()

    # -- login and departure ---------------------------------------------------------------------------------------

    def _on_connect(self, frame: Frame) -> None:
        """Start the login.  The codec parses nothing until the answer, which may take a while (see `login`)."""
        headers = frame.headers
        negotiate(headers.get(b"accept-version"))
        login, passcode = headers.get(b"login", b"").decode(), headers.get(b"passcode", b"")
        self._logging_in = True
        then = self.reading.until(LOGIN, partial(self._introduced, headers))
        self._gate.login(self._peer, login, passcode, then)
        self._login_takes_time = self._logging_in

    def _introduced(self, headers: Headers, identity: Identity | None) -> None:
        """Complete the login, perhaps some time after CONNECT."""
        self._logging_in = False
        if self.lost:
            return
        if identity is None:
            self.fail_with(login_refused())
            return
        client, destinations = headers.get(b"client-id", b"").decode(), self._destinations
        destinations.access = self.engine.security.access(identity, client)
        destinations.origin = client or self.id
        try:
            self.send_interval, self.receive_timeout = stomp_connect.welcome(self, headers, identity.user)
        except StompError as wrong:
            self.fail_with(without_calls(wrong))
            return
        self.opened("STOMP", destinations.access)
        self.touch()
        if self._login_takes_time:  # else CONNECT is being handled, and what comes after it follows
            self.process()

    # -- transactions ----------------------------------------------------------------------------------------------

    def _on_commit(self, frame: Frame) -> None:
        """Process a COMMIT; what comes after it waits until it is done.  Raises StompError, EngineError."""
        self._committing = True
        self.transactions.commit(frame, partial(self._committed, frame))
        if self._committing:
            self._steps.suspend(self)

    def _committed(self, frame: Frame, tx: Transaction, refusal: EngineError | None) -> None:
        """Go on after a COMMIT.  Full addresses block the peer as if it had sent outside of the transaction."""
        self._committing = False
        if refusal is None and not self.lost:
            asking = self.sends.wait_for_room(tx.sends)
            if self._steps.pending:
                self._steps.work(self, asking)
                return
            for _ in asking:
                pass
        if self._steps.pending:
            if refusal is not None:
                self.fail_with(refused(frame.command, refusal, frame.headers))
            self._steps.resume(self)
        elif refusal is not None:
            raise refusal

    def _depart(self) -> None:
        """Stop deliveries, in steps, and close the connection once its receipts are sent."""
        self._steps.until(self, lambda: self._give_up(redelivery.DISCONNECTED, self._departed))

    def _departed(self) -> None:
        self._destinations.close()
        self._leaving = True
        self._steps.resume(self)
        self.touch()


def _after_sends(handle: Callable[[StompSession, Any], None]) -> Handler:
    """Wrap a handler so that earlier sends are published first: if one is refused, nothing behind it happens."""

    def publish_and_handle(session: StompSession, frame: Frame) -> None:
        session.sends.publish_first()
        handle(session, frame)

    return publish_and_handle


def _after_doubtful_sends(handle: Callable[[StompSession, Any], None]) -> Handler:
    """Wrap a handler as `_after_sends`, but let sends that cannot be refused gather: acknowledgements are frequent."""

    def publish_and_handle(session: StompSession, frame: Frame) -> None:
        if session.sends.may_be_refused():
            session.sends.publish_first()
        handle(session, frame)

    return publish_and_handle


#: One table for all connections: one that has not logged in must cost little.
_HANDLERS: Final[Handlers] = {
    "CONNECT": StompSession._on_connect,
    "STOMP": StompSession._on_connect,
    "BEGUN": _after_sends(lambda session, begun: session.large.begin(session, begun)),
    "PART": lambda session, part: session.large.part(part),
    "SUBSCRIBE": _after_sends(lambda session, frame: session.subscriptions.subscribe(session, frame)),
    "UNSUBSCRIBE": _after_sends(lambda session, frame: session.subscriptions.unsubscribe(frame)),  # its queue may go
    "ACK": _after_doubtful_sends(lambda session, frame: session.acknowledging.ack(session, frame)),
    "ACKS": _after_doubtful_sends(lambda session, acks: session.acknowledging.acks(session, acks)),
    "NACK": _after_doubtful_sends(lambda session, frame: session.acknowledging.nack(session, frame)),
    "BEGIN": lambda session, frame: session.transactions.begin(frame),
    "COMMIT": _after_sends(lambda session, frame: session._on_commit(frame)),
    "ABORT": _after_sends(lambda session, frame: session.transactions.abort(frame)),
    "DISCONNECT": _after_sends(lambda session, frame: session._depart()),
}
