"""The address that a message names for answers, and what says whether it is a queue or a topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.engine.model.message import ReplyTo, RoutingType

#: The annotation with which a JMS client states the kind of a reply-to, an index of JMS_KINDS.
JMS_REPLY_TO: Final = "x-opt-jms-reply-to"

#: The kinds of a JMS destination: a queue, a topic, a temporary queue, a temporary topic.
JMS_KINDS: Final = (
    (RoutingType.ANYCAST, False),
    (RoutingType.MULTICAST, False),
    (RoutingType.ANYCAST, True),
    (RoutingType.MULTICAST, True),
)


def split_reply_to(text: str, prefixes: Iterable[tuple[str, RoutingType]]) -> ReplyTo:
    """The address in a reply-to of STOMP or AMQP, and the routing type that its prefix states."""
    for prefix, routing_type in prefixes:
        if text.startswith(prefix):
            return text[len(prefix) :], routing_type
    return text, None
