"""SUBSCRIBE: from its headers to what is asked of the engine."""

from __future__ import annotations

from typing import Final

from broker.engine.access import Access
from broker.engine.query import split_query
from broker.engine.subscribe import Wishes
from broker.sessions.stomp_headers import (
    Headers,
    Options,
    ack_mode,
    boolean,
    consumer_window,
    error,
    routing_type,
)

_DURABLE_NAMES: Final = (b"durable-subscription-name", b"durable-subscriber-name", b"activemq.subscriptionName")
_NO_LOCALS: Final = (b"no-local", b"activemq.noLocal")


def read_subscribe(headers: Headers, options: Options, access: Access, origin: str, remote: str) -> tuple[Wishes, str]:
    """What a SUBSCRIBE wants, and the prefix of its destination.

    `origin` is whose messages no-local means.  Raises StompError.
    """
    mode = ack_mode(headers)
    prefix, name, stated = options.prefixes.split(headers[b"destination"].decode())
    asked = routing_type(headers.get(b"subscription-type"), "subscription-type", "SUBSCRIBE", headers)
    name, query = split_query(name)
    durable = durable_name(headers, "SUBSCRIBE", access)
    no_local = any(boolean(headers, n, "SUBSCRIBE", default=False) for n in _NO_LOCALS)
    wishes = Wishes(
        name,
        next((t for t in (asked, stated, query.routing_type) if t is not None), None),
        name=durable,
        durable=bool(durable),
        selector=headers.get(b"selector", b"").decode(),
        no_local=origin if no_local else "",
        ack_mode=mode,
        window=consumer_window(headers, mode, options.window),
        client_id=access.client_id,
        remote=remote,
        user=access.user,
        access=access,
        priority=query.priority or 0,
        asked=query.asked,
    )
    return wishes, prefix


def durable_name(headers: Headers, command: str, access: Access) -> str:
    """The durable subscription that a frame names, empty for none.  Raises StompError."""
    name = next((headers[n] for n in _DURABLE_NAMES if n in headers), b"").decode()
    client = access.client_id
    if name and not client:
        detail = "a durable subscription needs the client-id header on CONNECT"
        raise error(command, "client-id missing", detail, headers)
    return f"{client}.{name}" if name else ""
