"""Parses the query behind a destination's name: `prices?last-value-key=ticker&ring-size=5`.

The names are those of ActiveMQ Artemis.  A queue that does not exist yet is created with these attributes; one that
exists must have them already.  A `?` is part of the name unless `key=value` follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from broker.engine.model import attributes
from broker.engine.model.errors import InvalidAttribute
from broker.engine.model.message import RoutingType

#: The most parameters of one query: more than there are names.
PARAMETERS_MAX: Final = 32

#: A consumer's priority is a signed number of 32 bits.
_PRIORITY_MAX: Final = (1 << 31) - 1

#: Parameters of Artemis that are not accepted here, each with the reason.
_REFUSED: Final = {
    "filter-string": "give the filter as the subscription's selector, or to the queue in the configuration",
    "durable": "make a durable subscription in the protocol's own way; other queues are durable",
    "user": "queues have no owner",
    "auto-delete": "it is a setting of the address, auto-delete-queues",
    "auto-delete-delay": "it is a setting of the address, auto-delete-queues-delay",
    "auto-delete-message-count": "it is a setting of the address, auto-delete-queues-message-count",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: attributes by field name, a routing type, and the priority of the consumer."""

    asked: attributes.RequestedAttributes = field(default_factory=dict)
    routing_type: RoutingType | None = None
    priority: int | None = None


NO_QUERY: Final = Query()


def split_query(destination: str) -> tuple[str, Query]:
    """A destination's name, and the query behind it.  Raises InvalidAttribute."""
    name, separator, query = destination.partition("?")
    if not separator or "=" not in query:
        return destination, NO_QUERY
    asked: dict[str, object] = {}
    routing_type: RoutingType | None = None
    priority: int | None = None
    parts = query.split("&", PARAMETERS_MAX)
    if len(parts) > PARAMETERS_MAX:
        raise InvalidAttribute(f"a destination has at most {PARAMETERS_MAX} parameters")
    for part in parts:
        key, _, text = part.partition("=")
        text = unquote(text)
        if key == "routing-type":
            routing_type = _routing_type(text)
        elif key == "consumer-priority":
            priority = _priority(text)
        elif key in _REFUSED:
            raise InvalidAttribute(f"the parameter {key} is not accepted: {_REFUSED[key]}")
        else:
            asked |= attributes.parse(key, text)
    return name, Query(asked, routing_type, priority)


def _routing_type(text: str) -> RoutingType:
    try:
        return RoutingType[text.upper()]
    except KeyError:
        raise InvalidAttribute(f"routing-type must be ANYCAST or MULTICAST, not {text[:100]!r}") from None


def _priority(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and abs(int(text)) <= _PRIORITY_MAX):
        raise InvalidAttribute(f"consumer-priority must be a number of 32 bits, not {text[:100]!r}")
    return int(text)
