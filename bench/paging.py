"""A backlog in one queue, paged and in memory: what it takes, and how fast it drains.

The same broker, first with a queue that stays in memory, then with one whose address pages beyond its limit.  Then the
broker is killed with the paged messages in it.  Rates are those of user CPU time too, because other work on the machine
hardly changes that.

With --in-turn one broker has both backlogs, and they are drained in turn, a second each: what else the machine does
meets both alike.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.brokers import Bartleby
from bench.consumer import Consumer
from bench.generator import NAP_S, Load, Target, drain, fill
from bench.messages import FrameTemplate, Pool
from bench.report import say

SETTINGS: Final = """
[[address-settings]]
match = "paged.#"
address-full-policy = "PAGE"
max-size-bytes = "{limit}MiB"
"""

#: Messages that are also measured in memory, at most: each takes some 700 bytes there.
IN_MEMORY_MAX: Final = 1_000_000

LOAD: Final = Load(messages=1, ack="client", ack_every=100)

#: What a message of the backlog takes in memory, at least.
MESSAGE_BYTES: Final = 400

#: Seconds of one backlog before the other one's turn, and of those that do not count: what had gathered comes first.
TURN_S: Final = 1.0
SKIPPED_S: Final = 0.05


class Drain:
    """A consumer of one backlog, who takes nothing while it is the other's turn; the first `skipped` do not count."""

    def __init__(self, target: Target, pool: Pool, messages: int, *, skipped: int = 0) -> None:
        self._target = target
        self._messages = messages
        self._skipped = skipped
        self._consumer = Consumer(target.connect(), pool, LOAD.ack, LOAD.ack_every)
        self._consumer.subscribe(target.subscription_headers)

    @property
    def done(self) -> bool:
        """Whether everything was received."""
        return self._consumer.received == self._messages

    def tick(self) -> tuple[float, float] | None:
        """Receive for a while; messages a second and CPU microseconds of the broker each, None if it does not count."""
        self._receive(SKIPPED_S)
        before, spent, start = self._consumer.received, cpu(self._target), time.perf_counter()
        self._receive(TURN_S)
        count, seconds = self._consumer.received - before, time.perf_counter() - start
        if before < self._skipped or self.done or not count:
            return None
        return count / seconds, 1e6 * (cpu(self._target) - spent) / count

    def _receive(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end and not self.done:
            if not self._consumer.pump(self._messages):
                time.sleep(NAP_S)


def in_turn(target: Target, kept: Pool, paged: Pool, messages: int, limit: int) -> None:
    """Fill both, drain them in turn until one is empty, and say how they compare; `limit` bytes are not paged."""
    in_memory = min(messages, IN_MEMORY_MAX)
    fill(target, paged, messages)
    fill(target, kept, in_memory)
    say("both filled: memory", f"{memory(target) >> 20:,} MiB in all")
    one, other = Drain(target, kept, in_memory), Drain(target, paged, messages, skipped=limit // MESSAGE_BYTES)
    turns = []
    while not (one.done or other.done):
        first, second = one.tick(), other.tick()
        if first is not None and second is not None:
            turns.append((first, second))
    if not turns:
        say("drained in turn", "too few messages to say anything: a second's worth is not measured")
        return
    for name, number in (("in memory", 0), ("paged", 1)):
        rate, cost = [statistics.median([tick[number][what] for tick in turns]) for what in (0, 1)]
        say(f"{name}: drained in turn", f"{rate:,.0f}/s, {cost:.1f} us of CPU each")
    rate = statistics.median([second[0] / first[0] for first, second in turns])
    cost = statistics.median([first[1] / second[1] for first, second in turns])
    say("paged: part of the rate in memory", f"{100 * rate:.0f} % (median of {len(turns)}), {100 * cost:.0f} % by CPU")


def measure(broker: Bartleby, name: str, pool: Pool, messages: int, *, kill: bool = False) -> None:
    """Fill a queue, perhaps kill the broker, drain the queue; and say what it took."""
    target = broker.target("stomp")
    empty = memory(target)
    before = cpu(target)
    seconds = fill(target, pool, messages)
    say(f"{name}: filled", f"{messages / seconds:,.0f}/s, {1e6 * (cpu(target) - before) / messages:.1f} us of CPU each")
    taken = memory(target) - empty
    say(f"{name}: memory", f"{memory(target) >> 20:,} MiB in all, {taken / messages:.0f} bytes a message")
    if kill:
        broker.kill()
        seconds = broker.start()
        target = broker.target("stomp")
        spent = f"{1e6 * cpu(target) / messages:.1f} us of CPU each"
        say(f"{name}: ready after a SIGKILL", f"{seconds:.1f} s, {spent}, {memory(target) >> 20:,} MiB in all")
    before = cpu(target)
    seconds = drain(target, pool, messages, LOAD)
    say(
        f"{name}: drained", f"{messages / seconds:,.0f}/s, {1e6 * (cpu(target) - before) / messages:.1f} us of CPU each"
    )
    say(f"{name}: memory after that", f"{memory(target) >> 20:,} MiB in all")


def memory(target: Target) -> int:
    """The broker's resident bytes."""
    assert target.memory is not None
    return target.memory()


def cpu(target: Target) -> float:
    """The broker's CPU seconds."""
    assert target.cpu is not None
    return target.cpu()


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.paging", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--limit", type=int, default=100, help="max-size-bytes of the paged address, MiB")
    parser.add_argument("--in-turn", action="store_true", help="both backlogs in one broker, drained in turn")
    options = parser.parse_args(arguments)
    shape = FrameTemplate(size_min=100, size_max=100, destinations=1, durable=True)
    broker = Bartleby(None, Path("etc/broker.toml"), settings=SETTINGS.format(limit=options.limit))
    try:
        broker.start()
        kept = Pool(replace(shape, prefix="/queue/kept."))
        if options.in_turn:
            paged = Pool(replace(shape, prefix="/queue/paged."))
            in_turn(broker.target("stomp"), kept, paged, options.messages, options.limit << 20)
            return 0
        measure(broker, "in memory", kept, min(options.messages, IN_MEMORY_MAX))
        broker.kill()
        broker.start()
        paged = Pool(replace(shape, prefix="/queue/paged."))
        if options.messages <= IN_MEMORY_MAX:
            measure(broker, "paged", paged, options.messages)
        measure(broker, "paged, killed", paged, options.messages, kill=True)
        volatile = Pool(replace(shape, prefix="/queue/paged.volatile.", durable=False))
        measure(broker, "paged, not durable", volatile, min(options.messages, IN_MEMORY_MAX))
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
