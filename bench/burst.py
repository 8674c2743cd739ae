"""What a burst leaves behind in memory: a backlog that comes, is consumed, and is over.

    python -m bench.burst [--messages 1000000] [--durable] [--python INTERPRETER]

A STOMP client fills a queue that does not page, another empties it.  A smaller burst goes before it, so that what a
broker makes once and for all is not counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from bench.brokers import Bartleby
from bench.generator import Load, Target, drain, fill
from bench.messages import FrameTemplate, Pool
from bench.report import say

SETTINGS: Final = """
[[address-settings]]
match = "burst.#"
max-size-bytes = -1
"""

LOAD: Final = Load(messages=1, ack="client", ack_every=100)

#: Messages of the smaller burst, and seconds after it.
WARM_UP: Final = 2_000
SETTLED_S: Final = 8.0

#: Seconds from the end of the burst until memory is looked at again.
AFTER_S: Final = 60.0


def measure(target: Target, pool: Pool, messages: int, after_s: float) -> None:
    """A burst; says how much memory there was before, in and after it."""
    assert target.memory is not None
    before = target.memory()
    fill(target, pool, messages)
    say("with all messages", _mib(target.memory()))
    drain(target, pool, messages, LOAD)
    say("consumed", _mib(target.memory()))
    time.sleep(after_s)
    after = target.memory()
    say(f"{after_s:.0f} s later", f"{_mib(after)}, {100 * (after / before - 1):+.0f} % beside {_mib(before)} before")


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.burst", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--durable", action="store_true", help="messages that are journalled")
    parser.add_argument("--after", type=float, default=AFTER_S, help="seconds from its end until memory is looked at")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Bartleby")
    options = parser.parse_args(arguments)
    pool = Pool(FrameTemplate(destinations=1, prefix="/queue/burst.", durable=options.durable))
    broker = Bartleby(None, Path("etc/broker.toml"), options.python, settings=SETTINGS)
    try:
        broker.start()
        target = broker.target("stomp")
        fill(target, pool, WARM_UP)
        drain(target, pool, WARM_UP, LOAD)
        time.sleep(min(SETTLED_S, options.after))
        measure(target, pool, options.messages, options.after)
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
