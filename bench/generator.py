"""One run against one broker: a producer and a consumer in one thread, which takes turns pushing and reading.

The loop never waits in the kernel for one message: after a turn that moved little it naps, so that a slow broker finds
the generator asleep rather than in its way, and what gathers meanwhile is taken in one read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.consumer import AckMode, Consumer
from bench.link import BrokerFailed, Link
from bench.messages import Pool
from bench.producer import Producer

BUSY_BYTES: Final = 32 << 10  # bytes a turn; a turn that moved less is followed by a nap
NAP_S: Final = 0.001  # seconds; some 350 messages of a fast broker, 30 of a slow one
QUIET_S: Final = 0.2  # seconds without progress after which everything is acknowledged
STALL_S: Final = 30.0  # seconds without progress after which the run has failed


@dataclass(frozen=True, slots=True)
class Target:
    """Where the broker listens and how to talk to it.

    `cpu` returns its CPU seconds so far (user + system), `memory` its resident bytes, `pids` its processes.
    """

    host: str
    port: int
    login: str | None = None
    passcode: str | None = None
    subscription_headers: tuple[str, ...] = ()
    cpu: Callable[[], float] | None = None
    memory: Callable[[], int] | None = None
    pids: Callable[[], Sequence[int]] | None = None
    virtual_host: str = ""  # as STOMP names it; empty: the host
    ordered: bool = True  # it delivers the messages of a producer in their order
    prefixed: bool = False  # an AMQP broker whose addresses begin with /queue/ or /topic/, as STOMP's do

    def connect(self) -> Link:
        return Link.connect(self.host, self.port, self.login, self.passcode, self.virtual_host)


@dataclass(frozen=True, slots=True)
class Load:
    """How long and how hard. The run ends at `messages` or after `seconds`, whichever comes first.

    in_flight: messages sent and not yet received; enough to keep a broker busy for 100 ms at 400,000/s, and it keeps
    all brokers from turning the run into "store everything, then read everything".
    """

    messages: int | None = None
    seconds: float | None = 5.0
    in_flight: int = 40_000
    ack: AckMode = "auto"
    ack_every: int = 1

    def __post_init__(self) -> None:
        if self.messages is None and self.seconds is None:
            raise ValueError("a run needs an end: messages or seconds")
        if (self.messages is not None and self.messages < 1) or self.in_flight < 1:
            raise ValueError("messages and in-flight must be at least 1")
        if self.ack_every < 1 or (self.ack == "client-individual" and self.ack_every != 1):
            raise ValueError(f"ack-every {self.ack_every} does not go with ack {self.ack}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, from the first SEND to the last of: last message, its receipt, the receipt of the last ACK."""

    messages: int
    seconds: float
    broker_cpu_s: float | None
    generator_cpu_s: float
    receipts: int
    acks: int
    resent: int  # TCP segments that the generator's side sent again; many of them mean that the network was measured
    instructions: int | None = None  # of the broker in user space; None: not counted

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def broker_us(self) -> float | None:
        """CPU microseconds a message of the broker."""
        return None if self.broker_cpu_s is None else 1e6 * self.broker_cpu_s / self.messages

    @property
    def instructions_each(self) -> float | None:
        """User-space instructions a message of the broker."""
        return None if self.instructions is None else self.instructions / self.messages

    @property
    def generator_us(self) -> float:
        return 1e6 * self.generator_cpu_s / self.messages


class Patience:
    """Naps after idle turns and fails a run that has stopped moving."""

    __slots__ = ("quiet_since",)

    def __init__(self) -> None:
        self.quiet_since = time.monotonic()

    def tick(self, moved: int, what: Callable[[], str]) -> float:
        """Call after each turn with the bytes it moved; returns the seconds since anything moved."""
        if moved:
            self.quiet_since = time.monotonic()
        if moved < BUSY_BYTES:
            time.sleep(NAP_S)
        quiet = time.monotonic() - self.quiet_since
        if quiet > STALL_S:
            raise BrokerFailed(f"nothing moved for {STALL_S:.0f} s: {what()}")
        return quiet


def run(target: Target, pool: Pool, load: Load) -> Outcome:
    """Sends and receives at once. Raises BrokerFailed when a message is lost, repeated, reordered or changed."""
    receiving = target.connect()
    try:
        sending = target.connect()
        try:
            consumer = Consumer(receiving, pool, load.ack, load.ack_every)
            subscribe(consumer, target)
            producer = Producer(sending, pool, load.messages)
            outcome = _exchange(target, producer, consumer, load, lambda: sending.resent + receiving.resent)
            unsubscribe(consumer)
            return outcome
        finally:
            sending.close()
    finally:
        receiving.close()


def fill(target: Target, pool: Pool, messages: int) -> float:
    """Sends without a consumer; returns the seconds until the receipt of the last message."""
    link = target.connect()
    try:
        producer = Producer(link, pool, messages)
        patience = Patience()
        start = time.perf_counter()
        while not producer.confirmed:
            moved = producer.pump(messages)
            producer.listen()
            patience.tick(moved, lambda: f"{producer.sent:,} of {messages:,} messages sent, no receipt")
        return time.perf_counter() - start
    finally:
        link.close()


def drain(target: Target, pool: Pool, messages: int, load: Load) -> float:
    """Receives what `fill` sent and proves that it is all there, once and in order; returns the seconds."""
    link = target.connect()
    try:
        consumer = Consumer(link, pool, load.ack, load.ack_every)
        consumer.subscribe(target.subscription_headers)
        patience = Patience()
        start = time.perf_counter()
        while consumer.received < messages or not consumer.settled:
            moved = consumer.pump(messages)
            if patience.tick(moved, lambda: f"{consumer.received:,} of {messages:,} received") > QUIET_S:
                consumer.settle_early()
        seconds = time.perf_counter() - start
        unsubscribe(consumer)
        return seconds
    finally:
        link.close()


def _exchange(target: Target, producer: Producer, consumer: Consumer, load: Load, resent: Callable[[], int]) -> Outcome:
    patience = Patience()
    broker_start = target.cpu() if target.cpu else 0.0
    own_start = time.process_time()
    start = time.perf_counter()
    deadline = start + load.seconds if load.seconds is not None else float("inf")
    while not (producer.confirmed and consumer.received == producer.total and consumer.settled):
        moved = producer.pump(consumer.received + load.in_flight)
        producer.listen()
        moved += consumer.pump(producer.total)
        if patience.tick(moved, lambda: f"{_state(producer, consumer)}, {resent()} TCP segments resent") > QUIET_S:
            consumer.settle_early()
        if time.perf_counter() >= deadline:
            producer.finish()
    seconds = time.perf_counter() - start
    return Outcome(
        messages=consumer.received,
        seconds=seconds,
        broker_cpu_s=target.cpu() - broker_start if target.cpu else None,
        generator_cpu_s=time.process_time() - own_start,
        receipts=producer.receipts,
        acks=consumer.acked,
        resent=resent(),
    )


def subscribe(consumer: Consumer, target: Target) -> None:
    """Returns when all subscriptions are there.  Raises BrokerFailed, also when one has messages already."""
    consumer.subscribe(target.subscription_headers)
    patience = Patience()
    while consumer.subscribed < consumer.destinations:
        patience.tick(consumer.pump(None), lambda: f"{consumer.subscribed} subscriptions confirmed")
    if consumer.received:
        raise BrokerFailed("messages of an earlier run are on these queues")


def unsubscribe(consumer: Consumer) -> None:
    """Returns when all subscriptions have ended.  Raises BrokerFailed, also when more came than was sent."""
    received = consumer.received
    consumer.unsubscribe()
    patience = Patience()
    while not consumer.closed:
        patience.tick(consumer.pump(None), lambda: "no receipt for UNSUBSCRIBE")
    if consumer.received != received:
        raise BrokerFailed(f"{consumer.received - received} messages more than were sent")


def _state(producer: Producer, consumer: Consumer) -> str:
    return (
        f"{producer.sent:,} sent, {consumer.received:,} received, last receipt "
        f"{'came' if producer.confirmed else 'did not come'}, {consumer.acked:,} acknowledgements"
        f"{'' if consumer.settled else ', the last not confirmed'}"
    )
