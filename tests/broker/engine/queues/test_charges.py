"""What messages are charged for, beside what they really take in memory."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from broker.build import COMPILED
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.message import HEADER_BYTES, TIME_BYTES, TIMER_BYTES, Message, RoutingType
from broker.engine.publish.send import Send
from broker.engine.routing import destinations
from tests.broker.engine.engine_harness import Bench

#: How many messages there are, by the length of their runs.
MESSAGES = {1: 500, 100: 2000}
HOUR = 3_600_000

#: Real bytes are at most so many percent of those charged: objects differ a little between versions of Python.
REAL_MAX_PERCENT = 110
REAL_MIN_PERCENT = 75


def _own(kind: str, at: int) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "expiration": {"expiration": at + HOUR},
        "schedule": {"scheduled": at + HOUR},
        "both": {"scheduled": at + HOUR, "expiration": at + 2 * HOUR},
        "group": {"group": f"g{at}"},
        "long group": {"group": "g" * 1000 + str(at)},
        "annotation": {"annotations": {f"x-{at}": "v" * 100 + str(at)}},
    }
    return kinds[kind]


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        ("plain", 100),
        ("expiration", 100),
        ("expiration", 1),
        ("schedule", 100),
        ("schedule", 1),
        ("both", 1),
        ("group", 1),
        ("long group", 1),
        ("annotation", 1),
    ],
)
def test_memory_of_messages_is_charged(kind: str, run: int) -> None:
    """Each run of messages has a header, and times, of its own."""
    bench = Bench()
    bench.sent("a", b"first", durable=False)
    gc.collect()
    charged = bench.engine.usage.bytes
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(0, MESSAGES[run], run):
            _send(bench, run, number, _own(kind, bench.broker.now + number))
        gc.collect()
        real = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    charged = bench.engine.usage.bytes - charged
    least = 0 if COMPILED else REAL_MIN_PERCENT  # compiled objects are smaller, by as much as the build likes
    assert least * charged <= 100 * real <= REAL_MAX_PERCENT * charged, (real, charged)


def _send(bench: Bench, run: int, number: int, own: dict[str, Any]) -> None:
    address, queue = destinations.destination(bench.enter()._state, "a", RoutingType.ANYCAST)
    header = bench.header("a", durable=False, routing_type=RoutingType.ANYCAST, **own)
    messages = [Message(header, b"head:%030d\n" % at, b"body%09d" % at) for at in range(number, number + run)]
    bench.engine.producers.publish([Send.at(address, queue, RoutingType.ANYCAST, messages)]).check()
    bench.run()


@pytest.mark.parametrize(
    ("settings", "first", "second"),
    [
        ({"expiry-delay": HOUR}, HEADER_BYTES + TIME_BYTES + TIMER_BYTES, TIMER_BYTES),
        ({"enable-ingress-timestamp": True}, HEADER_BYTES, 0),
    ],
)
@pytest.mark.parametrize("transacted", [False, True])
def test_bytes_that_the_address_adds_to_a_message_are_charged(
    settings: dict[str, object], first: int, second: int, transacted: bool
) -> None:
    bench = Bench({"match": "a", **settings})
    tx = bench.begin() if transacted else None
    bench.enter()
    send = Send("a", RoutingType.ANYCAST, bench.header("", routing_type=RoutingType.ANYCAST), access=UNRESTRICTED)
    messages = send.messages
    messages += [Message(send.header, b"", body) for body in (b"1", b"2")]
    if tx is None:
        bench.engine.producers.publish([send]).check()
    else:
        bench.engine.producers.find(send)
        tx.send([send], messages)
        bench.commit(tx)
    bench.run()
    assert messages[0].header_bytes >= first
    assert messages[1].header_bytes == second
    assert bench.engine.usage.bytes == bench.engine.addresses["a"].size_bytes == sum(m.size for m in messages)
    bench.purge("a")
    assert bench.engine.usage.bytes == bench.engine.addresses["a"].size_bytes == bench.engine.transactions.bytes == 0


def test_a_moved_message_that_is_scheduled_and_edited_is_charged_for_it() -> None:
    bench = Bench({"match": "a", "dead-letter-address": "DLQ"})
    bench.die("a", b"1")
    (dead,) = bench.messages("DLQ")
    assert dead.header_bytes > HEADER_BYTES, "its annotations"
    assert bench.engine.addresses["DLQ"].size_bytes == dead.size
