"""The cases of `bench.stalls` in which one verb meets many queues, consumers or selectors (`stalls_engine`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from bench.stalls_engine import BODY, RUN, Longest, Meter
from broker.daemon.wiring import settings_table
from broker.engine import LongWork, NewQueue
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.message import RoutingType
from tests.broker.engine.engine_harness import Taker
from tests.simulation.world import small

#: One subscription for so many messages: 50,000 at 200,000.
MESSAGES_OF_A_SUBSCRIPTION: Final = 4

#: One consumer for so many messages: 60,000 at 240,000, and how many queues share them.
MESSAGES_OF_A_CONSUMER: Final = 4
BUSY_QUEUES: Final = 4

#: One queue for so many messages: 18,000 at 180,000.
MESSAGES_OF_A_QUEUE: Final = 10

#: Messages of a paged queue that stay in memory.
IN_MEMORY: Final = 100

#: Subscriptions of the topic to which a transaction sends; one in so many messages is in it, and how many of a header.
SUBSCRIPTIONS: Final = 3_000
MESSAGES_OF_A_SEND: Final = 40
SENT_TOGETHER: Final = 1

#: Characters that a selector may have as shipped.
SELECTOR_CHARACTERS: Final = 4_000

MULTICAST: Final = RoutingType.MULTICAST


def _subscribed(meter: Meter, count: int) -> None:
    """Make a topic with many subscriptions, to which a message was sent."""
    for number in range(max(count // MESSAGES_OF_A_SUBSCRIPTION, 1)):
        meter.bench.engine.operators.make_queue(NewQueue(f"s{number}", "t", MULTICAST, make_address=True))
        if not number % RUN:
            meter.bench.run()
            meter.bench.enter()
    meter.bench.sent("t", BODY, routing_type=MULTICAST)


def _send(meter: Meter) -> None:
    meter.bench.send("t", BODY, routing_type=MULTICAST)


def topic_changed(meter: Meter, count: int) -> None:
    """A message to a topic, of whose many subscriptions one has come since the last, and another after one has gone."""
    _subscribed(meter, count)
    operators = meter.bench.engine.operators
    meter.begin()
    meter.ask("make", lambda: operators.make_queue(NewQueue("new", "t", MULTICAST)))
    meter.ask("send", partial(_send, meter))
    meter.ask("delete", lambda: meter.bench.engine.delete_queue(meter.bench.queue("new")))
    meter.ask("send", partial(_send, meter))


def topic_segment(meter: Meter, count: int) -> None:
    """The first message in a segment, to a topic with many subscriptions, whose definitions it repeats."""
    _subscribed(meter, count)
    meter.bench.engine.journal._roll()
    meter.begin()
    meter.ask("send", partial(_send, meter))


def segment_leaves(meter: Meter, count: int) -> None:
    """A segment leaves the journal that has the definitions of many queues, which are repeated."""
    meter.with_queues(max(count // MESSAGES_OF_A_QUEUE, 1))
    meter.bench.engine.journal._roll()
    meter.begin()
    for _ in range(3):
        meter.ask("send", lambda: meter.bench.send("q0", BODY, routing_type=MULTICAST))


def address_paused(meter: Meter, count: int) -> None:
    """An address with many queues is paused, and resumed."""
    _subscribed(meter, count)
    operators, address = meter.bench.engine.operators, meter.bench.engine.addresses["t"]
    meter.begin()
    meter.ask("pause", lambda: operators.pause_address(address, paused=True))
    meter.ask("resume", lambda: operators.pause_address(address, paused=False))


def address_deleted(meter: Meter, count: int) -> None:
    """An address with many queues is deleted."""
    _subscribed(meter, count)
    engine = meter.bench.engine
    meter.begin()
    meter.ask("delete", lambda: engine.operators.delete_address(engine.addresses["t"], with_queues=True))
    assert "t" not in engine.addresses


def _committed(meter: Meter, count: int, *, durable: bool) -> None:
    for number in range(SUBSCRIPTIONS):
        meter.bench.enter().operators.make_queue(NewQueue(f"s{number}", "t", MULTICAST, make_address=True))
    meter.bench.run()
    tx, messages = meter.bench.begin(), max(count // MESSAGES_OF_A_SEND, 1)
    for first in range(0, messages, SENT_TOGETHER):
        sent = [BODY] * min(SENT_TOGETHER, messages - first)
        meter.bench.send("t", *sent, routing_type=MULTICAST, tx=tx, durable=durable)
        meter.bench.run()
    meter.bench.enter()
    meter.begin()
    meter.ask("commit", lambda: meter.bench.engine.transactions.commit(tx))


def commit_durable(meter: Meter, count: int) -> None:
    """COMMIT of messages, one for forty, to a topic with 3,000 subscriptions: 5,000 at 200,000."""
    _committed(meter, count, durable=True)


def commit_volatile(meter: Meter, count: int) -> None:
    """The same with messages that are not durable."""
    _committed(meter, count, durable=False)


def consumers(meter: Meter, count: int) -> None:
    """A message to each of some queues with many consumers, in one tick, again and again."""
    for number in range(max(count // MESSAGES_OF_A_CONSUMER, 1)):
        meter.bench.attach(Taker(), f"q{number % BUSY_QUEUES}")
        if not number % RUN:
            meter.bench.run()
    meter.bench.run()

    def send() -> None:
        for number in range(BUSY_QUEUES):
            meter.bench.send(f"q{number}", BODY)

    meter.begin()
    for _ in range(10):
        meter.ask("send", send)


def browsed(meter: Meter, count: int) -> None:
    """A browser of a queue of which one consumer holds all messages."""
    meter.filled("a", count)
    meter.taken("a")
    messages = meter.bench.engine.messages.look(meter.bench.queue("a"), "", UNRESTRICTED)

    def look() -> LongWork:
        for message in messages:
            if message is None:
                yield 0  # it spends what it costs

    meter.begin()
    meter.ask("look", lambda: meter.bench.engine.ticks.add_work("browser", look(), None))


def ring(meter: Meter, count: int) -> None:
    """The change of a queue of messages, most of them on disk, to a ring of one."""
    config = small({"match": "a", "max-size-messages": IN_MEMORY, "address-full-policy": "PAGE"})
    meter.bench.enter().configuration.change_settings(settings_table(config))
    meter.bench.run()
    meter.filled("a", count)
    assert meter.bench.queue("a").paged > count // 2
    meter.begin()
    meter.ask("change", lambda: meter.bench.engine.operators.change(meter.bench.queue("a"), {"ring_size": 1}))


def long_selector(meter: Meter, count: int) -> None:
    """A consumer with a selector as long as it may be, which fits none of half as many messages."""
    meter.filled("a", count // 2)
    terms = " OR ".join([f"c{number:03} = {number}" for number in range(SELECTOR_CHARACTERS // len("c000 = 000 OR "))])
    meter.begin()
    meter.ask("subscribe", lambda: meter.bench.attach(Taker(), "a", window=-1, selector=terms))


def _measured(case: Callable[[Meter, int], None], messages: int) -> Longest:
    meter = Meter(messages)
    case(meter, messages)
    return meter.longest()


MANY_CASES: Final[dict[str, Callable[[int], Longest]]] = {
    case.__name__: partial(_measured, case)
    for case in (
        topic_changed,
        topic_segment,
        segment_leaves,
        address_paused,
        address_deleted,
        commit_durable,
        commit_volatile,
        consumers,
        browsed,
        ring,
        long_selector,
    )
}
