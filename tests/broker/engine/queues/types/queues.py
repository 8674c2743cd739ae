"""What the tests of the kinds share: queues with attributes, keyed and grouped messages, the books of both."""

from __future__ import annotations

from broker.engine.model.message import Message, RoutingType
from broker.engine.queues.queue import Queue
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, check_counters, reasons

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def declared(
    bench: Bench,
    name: str = "q",
    address: str = "",
    *,
    routing_type: RoutingType = ANYCAST,
    durable: bool = True,
    **attributes: object,
) -> Queue:
    """A queue with these attributes, on an address of its own name unless one is given."""
    engine = bench.enter()
    home = engine.configuration.declare(address or name, {routing_type})
    engine.configuration.declare_queue(home, name, routing_type, durable=durable, selector="", asked=attributes)
    bench.run()
    return bench.queue(name)


def put(bench: Bench, name: str, *bodies: bytes, key: str | None = None, **more: object) -> list[Message]:
    """Send messages, with the key of a last-value queue."""
    head = b"" if key is None else b"_AMQ_LVQ_NAME:%b\n" % key.encode()
    return bench.sent(name, *bodies, head=head, **more)


def grouped(bench: Bench, name: str, group: str, *bodies: bytes, closes: bool = False, **more: object) -> list[Message]:
    """Send messages of a group."""
    head = b"JMSXGroupID:%b\n" % group.encode() + (b"JMSXGroupSeq:-1\n" if closes else b"")
    return bench.sent(name, *bodies, head=head, group=group, closes_group=closes, **more)


def left(bench: Bench, name: str) -> dict[str, int]:
    """How many messages left a queue by which way, after the books were checked from the disk and in memory."""
    check_counters(bench.broker)
    account = check_accounts(bench.broker)[name]
    return {reason.word: count for reason, count in reasons(account).items()}


REPLACED, EVICTED, PURGED = RemovalReason.REPLACED, RemovalReason.EVICTED, RemovalReason.PURGED
