"""SUBSCRIBE and UNSUBSCRIBE: from their headers to what is asked of the engine.

A durable subscription is asked for in two ways.  Artemis and ActiveMQ Classic name it by a header and put `client-id`
of CONNECT before it.  RabbitMQ has `durable:true`: it is then the id of the subscription that names it, whichever
connection comes with it, on one address.
"""

from __future__ import annotations

from typing import Final

from broker.engine import SubscribeRequest
from broker.engine.model.access import Access
from broker.engine.model.query import split_query
from broker.sessions.stomp.headers import Headers, Options, ack_mode, boolean, consumer_window, error, routing_type
from broker.sessions.stomp.temporary import Destinations

_DURABLE_NAMES: Final = (b"durable-subscription-name", b"durable-subscriber-name", b"activemq.subscriptionName")
_DURABLE_FLAGS: Final = (b"durable", b"persistent")
_NO_LOCALS: Final = (b"no-local", b"activemq.noLocal")


def read_subscribe(
    headers: Headers, options: Options, destinations: Destinations, origin: str, remote: str
) -> tuple[SubscribeRequest, str]:
    """What a SUBSCRIBE wants, and the prefix of its destination.

    `origin` is whose messages no-local means.  Raises StompError, Denied.
    """
    access = destinations.access
    mode = ack_mode(headers)
    prefix, name, stated = destinations.split(headers[b"destination"].decode())
    asked = routing_type(headers.get(b"subscription-type"), "subscription-type", "SUBSCRIBE", headers)
    name, query = split_query(name)
    durable = durable_name(headers, "SUBSCRIBE", access)
    if not durable and any(boolean(headers, n, "SUBSCRIBE", default=False) for n in _DURABLE_FLAGS):
        if b"id" not in headers:
            raise error("SUBSCRIBE", "missing header", "a durable subscription needs the header id", headers)
        durable = f"{access.client_id or name}.{headers[b'id'].decode()}"
    window = consumer_window(headers, mode, options.window)
    no_local = any(boolean(headers, n, "SUBSCRIBE", default=False) for n in _NO_LOCALS)
    request = SubscribeRequest(
        name,
        next((t for t in (asked, stated, query.routing_type) if t is not None), None),
        name=durable,
        durable=bool(durable),
        selector=headers.get(b"selector", b"").decode(),
        no_local=origin if no_local else "",
        ack_mode=mode,
        window=window.size,
        counted=window.counted,
        client_id=access.client_id,
        remote=remote,
        user=access.user,
        access=access,
        priority=query.priority or 0,
        asked=query.asked,
    )
    return request, prefix


def durable_name(headers: Headers, command: str, access: Access) -> str:
    """The durable subscription that a frame names, empty for none.  Raises StompError."""
    name = next((headers[n] for n in _DURABLE_NAMES if n in headers), b"").decode()
    client = access.client_id
    if name and not client:
        detail = "a durable subscription needs the client-id header on CONNECT"
        raise error(command, "client-id missing", detail, headers)
    return f"{client}.{name}" if name else ""


def deletes(headers: Headers) -> bool:
    """Whether an UNSUBSCRIBE means the durable subscription too, in RabbitMQ's way.  Raises StompError."""
    return any(boolean(headers, n, "UNSUBSCRIBE", default=False) for n in _DURABLE_FLAGS)
