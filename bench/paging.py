"""A backlog in one queue, paged and in memory: what it takes, and how fast it drains.

The same broker, first with a queue that stays in memory, then with one whose address pages beyond its limit.  Then the
broker is killed with the paged messages in it.  Rates are those of user CPU time too, because other work on the machine
hardly changes that.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.brokers import Bartleby
from bench.generator import Load, Target, drain, fill
from bench.messages import Pool, Shape

SETTINGS: Final = """
[[address-settings]]
match = "paged.#"
address-full-policy = "PAGE"
max-size-bytes = "{limit}MiB"
"""

#: Messages that are also measured in memory, at most: each takes some 700 bytes there.
IN_MEMORY_MAX: Final = 1_000_000

LOAD: Final = Load(messages=1, ack="client", ack_every=100)


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
    options = parser.parse_args(arguments)
    shape = Shape(size_min=100, size_max=100, destinations=1, durable=True)
    broker = Bartleby(None, Path("etc/broker.toml"), settings=SETTINGS.format(limit=options.limit))
    try:
        broker.start()
        kept = Pool(replace(shape, prefix="/queue/kept."))
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


def say(what: str, figure: str) -> None:
    """One line."""
    sys.stdout.write(f"{what:34} {figure}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
