"""The longest tick of verbs on many messages, in CPU of its thread: an engine without sockets, its disk in memory.

The disk's own work is not counted, which a broker does in another thread.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from broker.clock import ThreadCpu
from broker.config.addresses import AddressSection
from broker.config.diverts import DivertSection
from broker.daemon.memory import COLLECTED_AFTER
from broker.daemon.wiring import Declarations, declaring, settings_table
from broker.engine import NewQueue
from broker.engine.delivery import redelivery
from broker.engine.delivery.consumers import Consumers
from broker.engine.model.access import Identity
from broker.engine.model.errors import EngineError
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.model.task import TaskKind, TaskRequest
from broker.engine.queues.consumer import AckMode
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import small
from tests.support.sim_broker import SimBroker

#: Messages that are sent together while a queue is filled, and their bodies.
RUN: Final = 2_000
BODY: Final = b"x" * 100

#: Bytes of a segment for each message, so that none is begun meanwhile, and at least.
SEGMENT_BYTES: Final = 2_560
SEGMENT_BYTES_MIN: Final = 4 << 20

#: How long messages wait that are scheduled or expire, in ms.
DELAY_MS: Final = 1_000_000

#: One consumer for so many messages in `revoked`.
MESSAGES_OF_A_CONSUMER: Final = 20

#: One subscription for so many messages in `topic`.
MESSAGES_OF_A_SUBSCRIPTION: Final = 4

#: The verbs of `random_verbs`, the queues that they meet, and the seed.
VERBS: Final = 150
QUEUES: Final = 10
SEED: Final = 34


@dataclass(frozen=True)
class Longest:
    """The CPU of the longest tick in ms, how many ticks there were, and what was asked for in that tick.

    `wait`: the most CPU that was used while a message of another client was on its way, in ms, if there is one.
    """

    ms: float
    ticks: int
    verb: str
    wait: float = 0.0

    def __str__(self) -> str:
        wait = f", another client's message {self.wait:.1f}" if self.wait else ""
        return f"{self.ms:8.1f} ms in the longest of {self.ticks} ticks ({self.verb}){wait}"


def segment_bytes(messages: int) -> int:
    """A segment for so many messages."""
    return max(SEGMENT_BYTES * messages, SEGMENT_BYTES_MIN)


class TickMeter:
    """A simulated broker, and the CPU of its ticks."""

    def __init__(self, broker: SimBroker) -> None:
        self.broker = broker
        self._collected_after = gc.get_threshold()
        self._ticks: list[tuple[float, str]] = []
        self._used = 0.0
        self._verb = ""
        self.used = 0.0  # by all ticks, in s
        self.wait = 0.0  # the most CPU, in s, for a message of another client
        broker.engine._state.steps._cpu = ThreadCpu()  # as in a broker
        self._tick = broker.parts.tick
        self._writer = broker._writer

    def begin(self) -> None:
        """Measure from now on."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECTED_AFTER)
        self._ticks.clear()

    def ask(self, verb: str, call: Callable[[], object]) -> None:
        """Call a verb, and end all ticks that follow from it."""
        self._verb = verb
        broker = self.broker
        self._count(broker.enter)
        self._count(call)
        durable = -1
        while self._is_woken() or broker.parts.journal.durable != durable:
            durable = broker.parts.journal.durable
            while self._is_woken():
                broker._woken = False
                self._count(self._meanwhile)
                self._count(self._tick.end)
                self._ticks.append((self._used, self._verb))
                self._used = 0.0
                self._tick_ended()
                self._writer._work()
                self._count(self._writer.step)
            self._writer._work()
            self._count(self._writer.step)

    def _meanwhile(self) -> None:
        """Do what others do in each tick."""

    def _tick_ended(self) -> None:
        """See what a tick has brought them."""

    def _is_woken(self) -> bool:
        return self.broker._woken

    def _count(self, call: Callable[[], object]) -> None:
        begun = time.thread_time()
        call()
        used = time.thread_time() - begun
        self._used += used
        self.used += used

    def longest(self) -> Longest:
        """The longest tick since `begin`."""
        gc.unfreeze()
        gc.set_threshold(*self._collected_after)
        seconds, verb = max(self._ticks)
        return Longest(1000 * seconds, len(self._ticks), verb, 1000 * self.wait)


class Meter(TickMeter):
    """An engine without sessions."""

    def __init__(self, messages: int) -> None:
        self.bench = Bench(segment_bytes=segment_bytes(messages))
        super().__init__(self.bench.broker)

    def filled(self, queue: str, count: int, **more: int) -> None:
        """Send so many messages to a queue."""
        for first in range(0, count, RUN):
            self.bench.sent(queue, *[BODY] * min(RUN, count - first), **more)

    def with_queues(self, count: int) -> None:
        """Make so many queues, each on an address of its name."""
        for number in range(count):
            self.bench.engine.operators.make_queue(NewQueue(f"q{number}", make_address=True))
            if not number % RUN:
                self.bench.run()
                self.bench.enter()
        self.bench.run()

    def taken(self, queue: str, mode: AckMode = AckMode.INDIVIDUAL) -> Taker:
        """A consumer that holds all of a queue."""
        return self.bench.take(queue, window=-1, ack_mode=mode)

    @property
    def consumers(self) -> Consumers:
        """The verbs on consumers."""
        return self.bench.engine.consumers


def returns(meter: Meter, count: int) -> None:
    """The end of a connection that holds all messages."""
    meter.filled("a", count)
    taker = meter.taken("a")
    meter.begin()
    meter.ask("close", lambda: meter.consumers.close(taker.consumer, redelivery.DISCONNECTED))


def acknowledged(meter: Meter, count: int) -> None:
    """One cumulative acknowledgement of all of them."""
    meter.filled("a", count)
    taker = meter.taken("a", AckMode.CUMULATIVE)
    last = taker.taken[-1].id
    meter.begin()
    meter.ask("acknowledge", lambda: meter.consumers.acknowledge(taker.consumer, last))


def rejected(meter: Meter, count: int) -> None:
    """One cumulative rejection: all become dead letters."""
    meter.filled("a", count)
    taker = meter.taken("a", AckMode.CUMULATIVE)
    last = taker.taken[-1].id
    meter.begin()
    meter.ask("reject", lambda: meter.consumers.reject(taker.consumer, last))


def delivered(meter: Meter, count: int) -> None:
    """A consumer that is sent all of a queue."""
    meter.filled("a", count)
    meter.begin()
    meter.ask("subscribe", lambda: meter.bench.attach(Taker(), "a", window=-1))


def deletion(meter: Meter, count: int) -> None:
    """The deletion of a queue."""
    meter.filled("a", count)
    meter.begin()
    meter.ask("delete", lambda: meter.bench.engine.delete_queue(meter.bench.queue("a")))


def due(meter: Meter, count: int) -> None:
    """Scheduled messages that are due together."""
    meter.filled("a", count, scheduled=meter.bench.broker.now + DELAY_MS)
    meter.begin()
    meter.bench.broker.now += 2 * DELAY_MS
    meter.ask("time", lambda: None)


def expired(meter: Meter, count: int) -> None:
    """Messages that expire together, to the expiry queue."""
    meter.filled("a", count, expiration=meter.bench.broker.now + DELAY_MS)
    meter.begin()
    meter.bench.broker.now += 2 * DELAY_MS
    meter.ask("time", lambda: None)


def met(meter: Meter, count: int) -> None:
    """Messages that have expired, which nobody looked for before a consumer came."""
    meter.bench.engine._state.limits = replace(meter.bench.engine._state.limits, expiry_scan_period=0)
    meter.filled("a", count, expiration=meter.bench.broker.now + DELAY_MS)
    meter.begin()
    meter.bench.broker.now += 2 * DELAY_MS
    meter.ask("subscribe", lambda: meter.bench.attach(Taker(), "a", window=-1))


def revoked(meter: Meter, count: int) -> None:
    """Consumers, one for twenty messages, that all lose the right to consume: 10,000 at 200,000."""
    security = meter.bench.engine.security
    security.roles_of = lambda user: frozenset({"r"})
    security.change(PermissionTable([("#", {permission: frozenset({"r"}) for permission in Permission})]))
    consumers = max(count // MESSAGES_OF_A_CONSUMER, 1)
    for number in range(consumers):
        access = security.access(Identity(f"u{number}", frozenset()), "")
        meter.bench.attach(Taker(), f"q{number % QUEUES}", access=access)
    meter.bench.run()
    security.roles_of = lambda user: frozenset()
    meter.begin()
    meter.ask("revoke", lambda: meter.bench.engine.secure(None))


def selected(meter: Meter, count: int) -> None:
    """A consumer whose selector fits none of them."""
    meter.filled("a", count)
    meter.begin()
    meter.ask("subscribe", lambda: meter.bench.attach(Taker(), "a", window=-1, selector="colour = 'red'"))


def moved(meter: Meter, count: int) -> None:
    """A task that moves all messages."""
    meter.filled("a", count)
    meter.begin()
    meter.ask("move", lambda: meter.bench.engine.tasks.start(TaskRequest(kind=TaskKind.MOVE, queue="a", target="b")))


def rollback(meter: Meter, count: int) -> None:
    """A rollback that gives deliveries back to their consumer and forgets sends, as many as a connection may hold."""
    count = min(count, 30_000)
    meter.filled("a", count)
    taker, tx = meter.taken("a"), meter.bench.begin()
    for message in taker.taken:
        meter.consumers.acknowledge(taker.consumer, message.id, tx, kept=True)
    for first in range(0, count // 4, RUN):
        meter.bench.send("b", *[BODY] * min(RUN, count // 4 - first), tx=tx)
    meter.bench.run()
    meter.bench.enter()
    meter.begin()
    meter.ask("rollback", lambda: meter.bench.engine.transactions.rollback(tx))


def last_value(meter: Meter, count: int) -> None:
    """The change of a queue to one that keeps the last value of each key."""
    for first in range(0, count, RUN):
        meter.bench.sent("a", *[BODY] * min(RUN, count - first), head=b"k:%d\n" % first)
    meter.begin()
    meter.ask("change", lambda: meter.bench.engine.operators.change(meter.bench.queue("a"), {"last_value_key": "k"}))


def reload(meter: Meter, count: int) -> None:
    """A reload that changes the settings and diverts of so many queues, and declares a tenth of them."""
    meter.with_queues(count)
    declared = dict.fromkeys([f"q{number}" for number in range(0, count, 10)], AddressSection())
    diverts = {"d": DivertSection.model_validate({"address": "#", "forwarding-address": "there"})}
    config = small({"match": "q#", "max-delivery-attempts": 3}, addresses=declared, diverts=diverts)
    settings, wanted = settings_table(config), Declarations(config)
    configuration = meter.bench.engine.configuration
    meter.begin()
    meter.ask("settings", lambda: configuration.change_settings(settings))
    meter.ask("declarations", lambda: configuration.begin(declaring(meter.bench.engine, wanted)))
    meter.ask("send", lambda: meter.bench.send("q0", BODY, routing_type=RoutingType.MULTICAST))


def topic(meter: Meter, count: int) -> None:
    """A message to a topic, which has a subscription for four messages: 50,000 at 200,000."""
    for number in range(count // MESSAGES_OF_A_SUBSCRIPTION):
        name, multicast = f"s{number}", RoutingType.MULTICAST
        meter.bench.engine.operators.make_queue(NewQueue(name, "t", multicast, make_address=True))
        if not number % RUN:
            meter.bench.run()
            meter.bench.enter()
    meter.bench.sent("t", BODY, routing_type=RoutingType.MULTICAST)
    meter.begin()
    meter.ask("send", lambda: meter.bench.send("t", BODY, routing_type=RoutingType.MULTICAST))


def random_verbs(meter: Meter, count: int) -> None:
    """Random verbs on five times as many messages, from one seed."""
    for number in range(QUEUES):
        more = {"expiration": meter.bench.broker.now + DELAY_MS} if number % 3 == 0 else {}
        meter.filled(f"q{number}", 5 * count // QUEUES, **more)
    takers: list[Taker] = []
    random = Random(SEED)
    meter.begin()
    for _ in range(VERBS):
        name, call = _some_verb(meter, random, takers)
        meter.ask(name, lambda call=call: _allowed(call))  # type: ignore[misc]  # the loop's own
        meter.bench.broker.now += random.choice((1, 10, DELAY_MS // 20))


def _allowed(call: Callable[[], object]) -> None:
    try:
        call()
    except EngineError:
        return


def _some_verb(meter: Meter, random: Random, takers: list[Taker]) -> tuple[str, Callable[[], object]]:
    """A verb, and its call."""
    bench, queue = meter.bench, f"q{random.randrange(QUEUES)}"
    taker = takers.pop(random.randrange(len(takers))) if takers and random.random() < 0.5 else None
    if taker is None:
        kind = random.choice(("subscribe", "subscribe", "select", "move", "purge", "delete"))
        if kind in ("subscribe", "select"):
            mode = random.choice((AckMode.CUMULATIVE, AckMode.INDIVIDUAL))
            taker = Taker()
            takers.append(taker)
            selector = "colour = 'red'" if kind == "select" else ""
            return kind, lambda: bench.attach(taker, queue, window=-1, ack_mode=mode, selector=selector)
        if kind == "delete":
            return kind, lambda: bench.engine.delete_queue(bench.queue(queue))
        request = TaskRequest(kind=TaskKind(kind), queue=queue, target="there" if kind == "move" else "")
        return kind, lambda: bench.engine.tasks.start(request)
    consumer = taker.consumer
    last = next(reversed(consumer.unacked), None)
    if last is None or consumer.closed:
        return "close", lambda: meter.consumers.close(consumer, redelivery.LOST)
    ways: dict[str, Callable[[], object]] = {
        "close": lambda: meter.consumers.close(consumer, redelivery.DISCONNECTED),
        "lose": lambda: meter.consumers.close(consumer, redelivery.LOST),
        "acknowledge": lambda: meter.consumers.acknowledge(consumer, last),
        "give back": lambda: meter.consumers.give_back(consumer, last, redelivery.rejected("")),
    }
    name = random.choice(list(ways))
    if name in ("acknowledge", "give back"):
        takers.append(taker)
    return name, ways[name]


ENGINE_CASES: Final[dict[str, Callable[[Meter, int], None]]] = {
    case.__name__: case
    for case in (
        returns,
        acknowledged,
        rejected,
        delivered,
        deletion,
        due,
        expired,
        met,
        revoked,
        selected,
        moved,
        last_value,
        rollback,
        reload,
        topic,
        random_verbs,
    )
}


def longest_tick(case: str, messages: int) -> Longest:
    """Measure a case."""
    meter = Meter(messages)
    ENGINE_CASES[case](meter, messages)
    return meter.longest()
