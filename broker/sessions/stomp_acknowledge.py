"""Which delivery an ACK or NACK means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.sessions.stomp_browse import Browser
from broker.sessions.stomp_delivery import Subscription
from broker.sessions.stomp_headers import Headers, error
from protocols.stomp.errors import shown

#: Digits of a 64-bit number, and bytes of a message-id: two of them and a comma.
ID_DIGITS_MAX: Final = 20
MESSAGE_ID_BYTES_MAX: Final = 2 * ID_DIGITS_MAX + 1


def find_delivery(
    headers: Headers, command: str, by_number: Mapping[bytes, Subscription | Browser], version: str
) -> tuple[Subscription | Browser, int]:
    """The subscription and message of an ACK or NACK: `id` in 1.2, `message-id` before.  Raises StompError."""
    value = headers.get(b"id") if version == "1.2" else None
    if value is None:
        value = headers.get(b"message-id", b"")
    number, _, id = value.partition(b",")
    subscription = None
    if id.isdigit() and len(value) <= MESSAGE_ID_BYTES_MAX:
        subscription = by_number.get(number)
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
