"""ACK and NACK: find the delivery, and settle it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.engine import Consumer, Engine, LongWork, redelivery
from broker.engine.model.errors import EngineError
from broker.sessions.read_steps import ReadSteps
from broker.sessions.stomp.browse import Browser
from broker.sessions.stomp.delivery import Subscription
from broker.sessions.stomp.headers import Headers, boolean, error, refused
from broker.sessions.stomp.port import Port
from broker.sessions.stomp.subscribe import Subscriptions
from broker.sessions.stomp.transactions import Transactions
from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import format_value
from protocols.stomp.frames import Acks, Frame

#: Digits of a 64-bit number, and bytes of a message-id: two of them and a comma.
ID_DIGITS_MAX: Final = 20
MESSAGE_ID_BYTES_MAX: Final = 2 * ID_DIGITS_MAX + 1


class Acknowledging:
    """The acknowledgements of one connection."""

    def __init__(
        self,
        engine: Engine,
        codec: StompConnection,
        steps: ReadSteps[Frame],
        subscriptions: Subscriptions,
        transactions: Transactions,
    ) -> None:
        self._steps = steps
        self._engine = engine
        self._codec = codec
        self._subscriptions = subscriptions
        self._transactions = transactions

    def acks(self, port: Port, acks: Acks) -> None:
        """Process a run of plain ACKs; consecutive ones for one subscription are settled together."""
        numbers, ids = acks.subscriptions, acks.ids
        at, end = 0, len(ids)
        long: list[LongWork] = []
        while at < end:
            number = numbers[at]
            first = at
            while at < end and numbers[at] == number:
                at += 1
            subscription = self._subscriptions.numbered(number)
            run = ids[first:at]
            if not isinstance(subscription, Subscription) or not subscription.acknowledged:
                self._find({b"id": b"%b,%d" % (number, run[0])}, "ACK")  # raises the error
                raise AssertionError("an acknowledgement is for a subscription that wants it, or refused")
            consumer, consumers = subscription.consumer, self._engine.consumers
            if consumers.covers_many(consumer, run):
                acknowledge = partial(consumers.acknowledge, consumer)
                long += [self._in_portions(port, "ACK", {}, consumer, id, acknowledge, returns=False) for id in run]
                continue
            try:
                consumers.acknowledge_run(consumer, run)
            except EngineError as refusal:
                raise refused("ACK", refusal, {}) from None
        if long:
            self._steps.work(port, _chained(long))

    def _apply(
        self,
        port: Port,
        command: str,
        headers: Headers,
        consumer: Consumer,
        id: int,
        apply: Callable[[int], None],
        *,
        returns: bool = False,
    ) -> None:
        """Apply a call to a delivery and, if its subscription is cumulative, to those before it, many in portions.

        `returns`: they return to their queue.  Raises EngineError.
        """
        if self._engine.consumers.covers_many(consumer, (id,)):
            self._steps.work(port, self._in_portions(port, command, headers, consumer, id, apply, returns=returns))
        else:
            apply(id)

    def _in_portions(
        self,
        port: Port,
        command: str,
        headers: Headers,
        consumer: Consumer,
        id: int,
        apply: Callable[[int], None],
        *,
        returns: bool,
    ) -> LongWork:
        try:
            yield from self._engine.consumers.settle_in_portions(consumer, id, apply, returns=returns)
        except EngineError as refusal:
            port.fail_with(refused(command, refusal, headers))

    def _find(self, headers: Headers, command: str) -> tuple[Subscription | Browser, int]:
        """Return the subscription and message of an ACK or NACK: `id` in 1.2, else `message-id`.  Raises StompError."""
        value = headers.get(b"id") if self._codec.version == "1.2" else None
        if value is None:
            value = headers.get(b"message-id", b"")
        number, _, id = value.partition(b",")
        subscription = None
        if id.isdigit() and len(value) <= MESSAGE_ID_BYTES_MAX:
            subscription = self._subscriptions.numbered(number)
        if subscription is None:
            raise error(
                command, "unknown message", f"there is no delivery {format_value(value)} to this connection", headers
            )
        named = headers.get(b"subscription")
        if named is not None and named != subscription.id:
            theirs = format_value(subscription.id)
            detail = (
                f"message {format_value(value)} was delivered to subscription {theirs}, not to {format_value(named)}"
            )
            raise error(command, "unknown message", detail, headers)
        if not subscription.acknowledged:
            detail = f"subscription {format_value(subscription.id)} acknowledges automatically (ack:auto)"
            raise error(command, "unexpected acknowledgement", detail, headers)
        return subscription, int(id)

    def ack(self, port: Port, frame: Frame) -> None:
        """Process an ACK.  Raises StompError, EngineError."""
        headers = frame.headers
        subscription, id = self._find(headers, "ACK")
        tx = self._transactions.of(headers, "ACK")
        if isinstance(subscription, Subscription):
            consumer, acknowledge = subscription.consumer, self._engine.consumers.acknowledge
            self._apply(port, "ACK", headers, consumer, id, lambda each: acknowledge(consumer, each, tx))

    def nack(self, port: Port, frame: Frame) -> None:
        """Process a NACK.  Raises StompError, EngineError."""
        headers = frame.headers
        subscription, id = self._find(headers, "NACK")
        tx = self._transactions.of(headers, "NACK")
        requeue = boolean(headers, b"requeue", "NACK", default=True)
        text = headers.get(b"reason", b"").decode()
        if isinstance(subscription, Browser):
            return
        consumer, consumers, how = subscription.consumer, self._engine.consumers, redelivery.rejected(text)
        if requeue:
            back, returns = partial(consumers.give_back, consumer, how=how, tx=tx), tx is None
            self._apply(port, "NACK", headers, consumer, id, back, returns=returns)
        else:
            self._apply(
                port, "NACK", headers, consumer, id, lambda each: consumers.reject(consumer, each, text=text, tx=tx)
            )


def _chained(works: list[LongWork]) -> LongWork:
    """Do some works one after the other."""
    for work in works:
        yield from work
