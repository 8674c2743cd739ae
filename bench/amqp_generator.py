"""One AMQP run against one broker; as `generator` does it with STOMP."""

from __future__ import annotations

import time
from typing import Final

from bench.amqp_consumer import AmqpConsumer
from bench.amqp_link import AmqpLink
from bench.amqp_messages import AmqpPool
from bench.amqp_producer import AmqpProducer
from bench.generator import QUIET_S, Load, Outcome, Patience, Target

#: Kinds of addresses by their STOMP prefix; others stand for themselves.
_KINDS: Final = {"/queue/": "queue", "/topic/": "topic"}


def run(target: Target, pool: AmqpPool, load: Load, *, receiver: Target | None = None) -> Outcome:
    """Send and receive at once.  Raises BrokerFailed when a message is lost, repeated, reordered or changed.

    With a `receiver` messages are received there, where a link of the target's brings them.
    """
    receiving = connect(receiver or target, "bench receives")
    try:
        sending = connect(target, "bench sends")
        try:
            addresses, capabilities = addresses_of(target, pool)
            consumer = AmqpConsumer(receiving, pool, load.ack_every)
            consumer.attach(addresses, capabilities)
            producer = AmqpProducer(sending, pool, load.messages)
            producer.attach(addresses, capabilities)
            return _exchange(target, producer, consumer, load, (sending, receiving))
        finally:
            sending.close()
    finally:
        receiving.close()


def connect(target: Target, name: str) -> AmqpLink:
    """A connection to the target.  Raises OSError, BrokerFailed."""
    return AmqpLink.connect(target.host, target.port, target.login, target.passcode, name)


def addresses_of(target: Target, pool: AmqpPool) -> tuple[list[str], tuple[str, ...]]:
    """The addresses of all destinations as the broker has them, and what the links ask for."""
    names = [pool.shape.destination(number) for number in range(pool.shape.destinations)]
    for prefix, kind in _KINDS.items():
        if pool.shape.prefix.startswith(prefix) and not target.prefixed:
            return [name.removeprefix(prefix) for name in names], (kind,)
    return names, ()


def _exchange(
    target: Target, producer: AmqpProducer, consumer: AmqpConsumer, load: Load, links: tuple[AmqpLink, AmqpLink]
) -> Outcome:
    patience = Patience()
    broker_start = target.cpu() if target.cpu else 0.0
    own_start = time.process_time()
    start = time.perf_counter()
    deadline = start + load.seconds if load.seconds is not None else float("inf")
    leaving = False

    def state() -> str:
        said = f"{producer.sent:,} sent, {producer.settled:,} accepted, {consumer.received:,} received"
        return f"{said}, {consumer.acked:,} dispositions{', no answer to DETACH' if leaving else ''}"

    while not consumer.closed:
        moved = producer.pump(consumer.received + load.in_flight)
        producer.listen()
        moved += consumer.pump()
        if patience.tick(moved, state) > QUIET_S:
            consumer.settle_early()
        if time.perf_counter() >= deadline:
            producer.finish()
        if not leaving and producer.confirmed and consumer.received == producer.total:
            leaving = True
            consumer.detach()
    seconds = time.perf_counter() - start
    return Outcome(
        messages=consumer.received,
        seconds=seconds,
        broker_cpu_s=target.cpu() - broker_start if target.cpu else None,
        generator_cpu_s=time.process_time() - own_start,
        receipts=producer.outcomes,
        acks=consumer.acked,
        resent=sum(link.link.resent for link in links),
    )
