"""ACK and NACK: find the delivery, and settle it."""

from __future__ import annotations

from typing import Final

from broker.engine import redelivery
from broker.engine.model.errors import EngineError
from broker.sessions.stomp.browse import Browser
from broker.sessions.stomp.delivery import Subscription
from broker.sessions.stomp.headers import Headers, boolean, error, refused
from broker.sessions.stomp.port import Port
from broker.sessions.stomp.subscribe import Subscriptions
from broker.sessions.stomp.transactions import Transactions
from protocols.stomp.errors import shown
from protocols.stomp.frames import Acks, Frame

#: Digits of a 64-bit number, and bytes of a message-id: two of them and a comma.
ID_DIGITS_MAX: Final = 20
MESSAGE_ID_BYTES_MAX: Final = 2 * ID_DIGITS_MAX + 1


class Acknowledging:
    """The acknowledgements of one connection."""

    def __init__(self, port: Port, subscriptions: Subscriptions, transactions: Transactions) -> None:
        self._engine = port.engine
        self._codec = port.codec
        self._subscriptions = subscriptions
        self._transactions = transactions

    def acks(self, acks: Acks) -> None:
        """Process a run of plain ACKs; consecutive ones for one subscription are settled together."""
        numbers, ids = acks.subscriptions, acks.ids
        at, end = 0, len(ids)
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
            try:
                self._engine.consumers.acknowledge_run(subscription.consumer, run)
            except EngineError as refusal:
                raise refused("ACK", refusal, {}) from None

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
            raise error(command, "unknown message", f"there is no delivery {shown(value)} to this connection", headers)
        named = headers.get(b"subscription")
        if named is not None and named != subscription.id:
            theirs = shown(subscription.id)
            detail = f"message {shown(value)} was delivered to subscription {theirs}, not to {shown(named)}"
            raise error(command, "unknown message", detail, headers)
        if not subscription.acknowledged:
            detail = f"subscription {shown(subscription.id)} acknowledges automatically (ack:auto)"
            raise error(command, "unexpected acknowledgement", detail, headers)
        return subscription, int(id)

    def ack(self, frame: Frame) -> None:
        """Process an ACK.  Raises StompError, EngineError."""
        headers = frame.headers
        subscription, id = self._find(headers, "ACK")
        tx = self._transactions.of(headers, "ACK")
        if isinstance(subscription, Subscription):
            self._engine.consumers.acknowledge(subscription.consumer, id, tx)

    def nack(self, frame: Frame) -> None:
        """Process a NACK.  Raises StompError, EngineError."""
        headers = frame.headers
        subscription, id = self._find(headers, "NACK")
        tx = self._transactions.of(headers, "NACK")
        requeue = boolean(headers, b"requeue", "NACK", default=True)
        text = headers.get(b"reason", b"").decode()
        if isinstance(subscription, Browser):
            return
        if requeue:
            self._engine.consumers.give_back(subscription.consumer, id, redelivery.rejected(text), tx)
        else:
            self._engine.consumers.reject(subscription.consumer, id, text=text, tx=tx)
