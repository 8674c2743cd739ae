"""What the tests of the kinds share: queues with attributes, keyed and grouped messages, the books of both."""

from __future__ import annotations

from broker.engine.model.message import Message, RoutingType
from tests.broker.engine.engine_harness import Bench

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def put(bench: Bench, name: str, *bodies: bytes, key: str | None = None, **more: object) -> list[Message]:
    """Send messages, with the key of a last-value queue."""
    head = b"" if key is None else b"_AMQ_LVQ_NAME:%b\n" % key.encode()
    return bench.sent(name, *bodies, head=head, **more)


def grouped(bench: Bench, name: str, group: str, *bodies: bytes, closes: bool = False, **more: object) -> list[Message]:
    """Send messages of a group."""
    head = b"JMSXGroupID:%b\n" % group.encode() + (b"JMSXGroupSeq:-1\n" if closes else b"")
    return bench.sent(name, *bodies, head=head, group=group, closes_group=closes, **more)


def without_scans() -> Bench:
    """A broker that does not look for expired messages: they expire as they are handed out."""
    section = Bench().broker.config.broker
    return Bench(broker=section.model_copy(update={"message_expiry_scan_period": -1}))
