"""A STOMP connection: frames become engine verbs, deliveries become MESSAGE frames.

SENDs are gathered and published together (`send`); whatever needs them done (a receipt, a COMMIT, an error)
publishes what has been gathered first.

A receipt means that the frame and everything before it on this connection is done and, where it concerns durable
messages, on disk (`receipts`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.engine import AckMode, Consumer, LargeBody, Transaction, Unreadable, redelivery
from broker.engine.model.access import NOBODY, Identity
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message, size_of
from broker.sessions.base import BaseSession
from broker.sessions.login import Gate, Peer
from broker.sessions.reading import LOGIN
from broker.sessions.session import MOVED
from broker.sessions.stomp import connect as stomp_connect
from broker.sessions.stomp.acknowledge import Acknowledging
from broker.sessions.stomp.browse import Browser, Browsers
from broker.sessions.stomp.connect import Login, login_refused, report_error
from broker.sessions.stomp.delivery import Subscription
from broker.sessions.stomp.format import STOMP_FORMAT
from broker.sessions.stomp.headers import Options, boolean, error, refused
from broker.sessions.stomp.receipts import Receipts
from broker.sessions.stomp.send import Sends, find_transaction
from broker.sessions.stomp.subscribe import deletes, durable_name, read_subscribe
from broker.sessions.stomp.temporary import Destinations, is_temporary
from broker.sessions.tick import Tick, Transport
from broker.sessions.upload import Uploading
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError, shown
from protocols.stomp.frames import Begun, Frame, Part
from protocols.stomp.limits import Limits

#: Frames that a receipt cannot be asked for (STOMP 1.2, standard headers).
_WITHOUT_RECEIPT: Final = ("CONNECT", "STOMP", "BEGUN")

#: Why a connection is not read: nobody knows yet who it is; an address is full.
_FULL: Final = "full"


class StompSession(BaseSession):
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
        super().__init__(tick, transport, connection_id, peer)
        self.receive_timeout = 0
        self.send_interval = 0
        self._options = options
        self._codec = StompConnection(limits)
        self._login = Login(self._codec, gate, peer, options, connection_id)
        self._origin = connection_id  # whose messages no-local means: the client's, whatever its connection
        nobody = tick.engine.security.access(NOBODY, "")
        self._destinations = Destinations(tick.engine, options.prefixes, nobody)
        self._subscriptions: dict[bytes, Subscription | Browser] = {}
        self._by_number: dict[bytes, Subscription | Browser] = {}
        self._browsers = Browsers(tick.engine, self._codec, options.prefixes.of_replies)
        self._transactions: dict[bytes, Transaction] = {}
        self._sends = Sends(
            tick.engine,
            self._destinations,
            tick.engine.formats[STOMP_FORMAT],
            self._transactions,
            self._expect_reply,
            self._codec.expect,
        )
        self._receipts = Receipts(tick.engine, self._codec)
        self._automatic: dict[Consumer, None] = {}  # deliveries that count as consumed once they are flushed
        self._ended = False  # the peer has closed its side
        self._leaving = False  # DISCONNECT seen: close once its receipt is out
        self._uploading = Uploading(tick.engine, self.reading, self._uploaded, self._go_on)
        self._large: Begun | None = None  # whose body is coming in parts
        acknowledging = Acknowledging(tick.engine, self._codec, self._by_number, self._transactions)
        self._handlers: Final[dict[str, Callable[[Any], None]]] = {
            "CONNECT": self._on_connect,
            "STOMP": self._on_connect,
            "SEND": self._sends.add,
            "SUBSCRIBE": self._on_subscribe,
            "UNSUBSCRIBE": self._on_unsubscribe,
            "BEGUN": self._on_begun,
            "PART": self._on_part,
            "ACK": acknowledging.ack,
            "ACKS": acknowledging.acks,
            "NACK": acknowledging.nack,
            "BEGIN": self._on_begin,
            "COMMIT": self._on_commit,
            "ABORT": self._on_abort,
            "DISCONNECT": self._on_disconnect,
        }

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def close_expected(self) -> bool:
        """After an ERROR, or once the receipt of DISCONNECT is out."""
        if self._leaving:
            return not self._receipts.waiting and not self._codec.streaming
        return self._codec.close_expected

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer: frames, in order, then the sends they gathered."""
        if self.lost or self._leaving:
            return
        codec = self._codec
        codec.receive_data(data)
        self._process()

    def receive_eof(self) -> None:
        """The peer has closed its side: whole frames count, half a frame does not.

        It can acknowledge nothing any more, so its deliveries go back; it may still read its receipts.
        """
        if self.lost or self._leaving:
            return
        self._codec.receive_eof()
        self._ended = True
        self._process()

    def _process(self) -> None:
        handlers = self._handlers
        failure: StompError | None = None
        frame: Frame | None = None
        try:
            while frames := self._codec.events():
                for frame in frames:
                    handlers[frame.command](frame)
                    if b"receipt" in frame.headers and frame.command not in _WITHOUT_RECEIPT:
                        self._receipts.want(frame.headers[b"receipt"], sends=self._sends.gathered)
            failure = self._codec.error
        except StompError as wrong:
            failure = wrong
        except EngineError as refusal:
            assert frame is not None
            failure = refused(frame.command, refusal, frame.headers)
        failure = self._publish() or failure
        self._receipts.confirm(self)
        if failure is not None:
            self._fail(failure)
        if self._ended and not (self.lost or self._leaving or self._login.waiting or self._large is not None):
            self._depart()

    def data_to_send(self) -> bytes:
        """Everything for the peer since the last call."""
        self.unsendable.dead_letter()
        if self.window.socket_full and self._codec.streaming:
            return b""
        try:
            return self._codec.data_to_send()
        except Unreadable as error:
            self._cut(error)
            return b""

    def frames_to_send(self) -> tuple[list[bytes], bool]:
        """The same, frame by frame, and whether the last one goes on."""
        self.unsendable.dead_letter()
        if self.window.socket_full and self._codec.streaming:
            return [], True
        try:
            return self._codec.frames_to_send(), self._codec.streaming
        except Unreadable as error:
            self._cut(error)
            return [], False

    def _cut(self, error: Unreadable) -> None:
        """A body cannot be read, in the middle of its frame: there is no way to say so."""
        self.tick.enter()
        self.report("body.unreadable", error=str(error))
        self._codec.abandon()
        self._receipts.forget()
        self._leaving = True
        self._end(redelivery.INTERRUPTED if error.passing else redelivery.DISCONNECTED)

    def flushed(self) -> None:
        """The bytes are with the operating system: messages of automatic subscriptions count as consumed."""
        self.window.socket_full = False
        if self._codec.streaming:  # there is more, and what follows it waits
            self.touch()
            return
        self.window.flushed()
        for consumer in self._automatic:
            if not consumer.closed:
                self.engine.consumers.acknowledge_all(consumer)
        self._automatic.clear()
        if self._browsers.showing:
            try:
                self._show()
            except EngineError as refusal:  # the disk: half of what is there must not be taken for all of it
                self._fail(refused("SUBSCRIBE", refusal, {}))

    def pause(self, paused: bool) -> None:
        """No deliveries for now, or again."""
        for subscription in self._subscriptions.values():
            if isinstance(subscription, Browser):
                continue  # nothing comes to it by itself
            if paused:
                self.engine.consumers.pause(subscription.consumer)
            else:
                self.engine.consumers.resume(subscription.consumer)

    def send_heartbeat(self) -> None:
        """An empty line."""
        self._codec.send_heartbeat()
        self.touch()

    def timed_out(self) -> None:
        """Heart-beats ceased: every unacknowledged delivery counts as failed."""
        self.report("connection.silent")
        self._receipts.forget()
        self._end(redelivery.SILENT)

    def connection_lost(self) -> None:
        """The socket is gone."""
        self._receipts.forget()
        self._end(redelivery.DISCONNECTED)

    def fail(self, why: str, *, moved: bool = False) -> None:
        self._codec.discard()
        self._receipts.forget()
        self.unsendable.forget()
        self._fail(stomp_connect.moved(why, self._options.failover) if moved else StompError("internal error", why))

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def shut_down(self, why: str = "", *, moved: bool = False) -> None:
        """STOMP's only goodbye is an ERROR frame.  Unacknowledged deliveries are not held against anybody."""
        short, default = ("connection closed" if why else "broker shutting down"), "The broker is shutting down."
        gone = stomp_connect.moved(MOVED, self._options.failover) if moved else StompError(short, why or default)
        self._receipts.end(gone)
        self.touch()
        self._end(redelivery.INTERRUPTED)

    def _end(self, how: redelivery.DeliveryOutcome) -> None:
        if self.lost:
            return
        self.lost = True
        self.engine.connections.closed(self.id)
        self.engine.stop_waiting(self)
        self._large = None
        self._uploading.abandon()
        self._sends.forget()
        self._give_up(how)

    def _give_up(self, how: redelivery.DeliveryOutcome) -> None:
        """Everything that the peer holds is given back, and what was its own is deleted."""
        for tx in self._transactions.values():
            self.engine.transactions.rollback(tx)
        self._transactions.clear()
        for subscription in self._subscriptions.values():
            subscription.close(self.engine, how)
        self._browsers.showing.clear()
        self._subscriptions.clear()
        self._by_number.clear()
        self._destinations.close()

    # -- errors and receipts ---------------------------------------------------------------------------------------

    def _fail(self, failure: StompError) -> None:
        """Say what was wrong and close: an ERROR frame is the last of a connection (STOMP 1.2, ERROR)."""
        if self.lost:
            return
        report_error(self.report, failure)
        self._receipts.end(failure)
        self.touch()
        self._end(redelivery.DISCONNECTED)

    def durable(self, ticket: int) -> None:
        """Everything up to a tick is on disk."""
        self._receipts.durable(ticket)
        self.touch()

    # -- connecting ------------------------------------------------------------------------------------------------

    def _on_connect(self, frame: Frame) -> None:
        def known(identity: Identity | None) -> None:
            self._introduced(frame, identity)

        self._login.begin(frame, self.reading.until(LOGIN, known))

    def _introduced(self, frame: Frame, identity: Identity | None) -> None:
        """Who the peer is has been found out, maybe some time after it asked."""
        if self.lost:
            return
        if identity is None:
            self._fail(login_refused())
            return
        client = self._login.client_id
        self._destinations.access = self.engine.security.access(identity, client)
        self._sends.origin = self._origin = client or self.id
        try:
            self.send_interval, self.receive_timeout = self._login.welcome(frame, identity)
        except StompError as wrong:
            self._fail(wrong)
            return
        self.opened("STOMP", self._destinations.access)
        self.touch()
        self._process()

    def _on_disconnect(self, frame: Frame) -> None:
        self._publish_first()
        self._depart()

    def _depart(self) -> None:
        """The peer leaves: nothing more is delivered, and the connection closes once its receipts are out."""
        self._give_up(redelivery.DISCONNECTED)
        self._leaving = True
        self.touch()

    # -- sending ---------------------------------------------------------------------------------------------------

    def _publish(self) -> StompError | None:
        """Publish what was gathered; the first refusal, if any."""
        failure, blocked = self._sends.publish(self)
        if failure is not None:
            self._receipts.refuse(self._sends.taken)
        if blocked:
            self._block()
        return failure

    def _block(self) -> None:
        """An address is full: the peer is not read until it has room."""
        self.reading.stop(_FULL)

    def _publish_first(self) -> None:
        """What comes next needs the sends before it to be done.  Raises StompError."""
        failure = self._publish()
        if failure is not None:
            raise failure

    def unblock(self) -> None:
        """A full address has room again."""
        if not self.lost:
            self.reading.go(_FULL)

    def _on_begun(self, frame: Begun) -> None:
        self._publish_first()
        try:  # a client that may not send learns it before the body
            self._uploading.begin(durable=self._sends.check(frame))
        except EngineError as refusal:
            raise refused("SEND", refusal, frame.headers) from None
        self._large = frame

    def _on_part(self, part: Part) -> None:
        if self._uploading.coming:  # else it was refused, and the connection is about to end
            self._uploading.write(part.body, last=part.last)

    def _uploaded(self, body: LargeBody | EngineError) -> None:
        """A body that came in parts is whole: its message is gathered; or it was refused."""
        frame, self._large = self._large, None
        assert frame is not None, "it began it"
        try:
            if isinstance(body, EngineError):
                raise body
            self._sends.add_large(frame, body)
        except StompError as wrong:
            self._fail(wrong)
        except EngineError as refusal:
            self._fail(refused("SEND", refusal, frame.headers))
        else:
            if b"receipt" in frame.headers:
                self._receipts.want(frame.headers[b"receipt"], sends=self._sends.gathered)

    def _go_on(self) -> None:
        if not self.lost:
            self._codec.resume()
            self._process()
            self.touch()

    # -- consuming -------------------------------------------------------------------------------------------------

    def _on_subscribe(self, frame: Frame) -> None:
        headers = frame.headers
        destination = headers[b"destination"]
        if is_temporary(destination) and destination in self._subscriptions:
            self._on_unsubscribe(Frame("UNSUBSCRIBE", {b"id": destination}))  # its own takes over
        id = headers.get(b"id", b"subscription/" + destination)
        if id in self._subscriptions:
            raise error("SUBSCRIBE", "duplicate subscription", f"id {shown(id)} is already in use", headers)
        if len(self._subscriptions) >= self._options.subscriptions_max:
            most = self._options.subscriptions_max
            raise error("SUBSCRIBE", "too many subscriptions", f"a connection may have {most}", headers)
        request, prefix = read_subscribe(headers, self._options, self._destinations, self._origin, self.remote)
        self._publish_first()
        if boolean(headers, b"browser", "SUBSCRIBE", default=False):
            self._subscribed(self._browsers.make(request, headers, id=id, prefix=prefix))
            self._show()
            return
        consumer = self.engine.consumers.subscribe(self, request)
        if self.window.paused:
            self.engine.consumers.pause(consumer)
        durable = request.name if consumer.queue.name == request.name else ""
        replies = self._options.prefixes.of_replies
        self._subscribed(Subscription(id, consumer, prefix, self._codec.version, replies=replies, durable=durable))

    def _expect_reply(self, destination: bytes) -> None:
        """An answer will come to a temporary destination."""
        if not self._destinations.answered(destination.decode()):
            self._on_subscribe(Frame("SUBSCRIBE", {b"destination": destination, b"id": destination}))

    def _subscribed(self, subscription: Subscription | Browser) -> None:
        self._subscriptions[subscription.id] = subscription
        self._by_number[subscription.number] = subscription

    def _show(self) -> None:
        """Show more to those who browse, as much as may wait for the operating system.  Raises EngineError."""
        if not self.window.paused:
            self.sent(self._browsers.show(self.window.room))

    def _on_unsubscribe(self, frame: Frame) -> None:
        headers = frame.headers
        durable = durable_name(headers, "UNSUBSCRIBE", self._destinations.access)
        self._publish_first()  # the queue may go
        id = headers.get(b"id")
        if id is None and b"destination" in headers:
            id = b"subscription/" + headers[b"destination"]
        subscription = self._subscriptions.pop(id, None) if id is not None else None
        if subscription is None and not durable:
            raise error("UNSUBSCRIBE", "unknown subscription", f"there is no subscription {shown(id or b'')}", headers)
        if subscription is not None:
            del self._by_number[subscription.number]
            subscription.close(self.engine, redelivery.CLOSED)
            if isinstance(subscription, Browser):
                self._browsers.forget(subscription)
            elif not durable and deletes(headers):
                durable = subscription.durable
        if durable:
            self.engine.delete_subscription(durable, access=self._destinations.access)

    def records(self, consumer: Consumer) -> bool:
        """Deliveries leave without a record of their own."""
        return False

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        """Messages for a subscription become MESSAGE frames."""
        refused = self._by_number[b"%d" % consumer.id].encode(self._codec, messages)
        for message, why in refused:
            self.unsendable.add(consumer, message, why)
        if consumer.ack_mode is AckMode.AUTO:
            self._automatic[consumer] = None
        self.sent(size_of(messages))
        if self._codec.streaming:
            self.window.close()

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """The engine closed a subscription: STOMP can only say so with an ERROR."""
        self._fail(StompError("subscription closed", reason, None))

    # -- transactions ----------------------------------------------------------------------------------------------

    def _on_begin(self, frame: Frame) -> None:
        headers = frame.headers
        name = headers[b"transaction"]
        if name in self._transactions:
            raise error("BEGIN", "duplicate transaction", f"transaction {shown(name)} has begun already", headers)
        if len(self._transactions) >= self._options.transactions_max:
            most = self._options.transactions_max
            raise error("BEGIN", "too many transactions", f"a connection may have {most} open", headers)
        self._transactions[name] = self.engine.transactions.begin()

    def _on_commit(self, frame: Frame) -> None:
        tx = find_transaction(self._transactions, frame.headers, "COMMIT")
        self._publish_first()
        self.engine.transactions.commit(tx)
        del self._transactions[frame.headers[b"transaction"]]
        if any([self.engine.block_if_full(send.address, self) for send in tx.sends]):
            self._block()

    def _on_abort(self, frame: Frame) -> None:
        tx = find_transaction(self._transactions, frame.headers, "ABORT")
        self._publish_first()
        del self._transactions[frame.headers[b"transaction"]]
        self.engine.transactions.rollback(tx)
