"""What routing costs: a send to one of many addresses, and among many wildcard subscriptions, against a send to one.

    python -m bench.routing [--messages 50000] [--rounds 5]

Each case sends messages that are not durable, as the STOMP frames of as many clients: parsed, routed, put onto a queue;
the tick ends every hundred.  There are no sockets and no disk.  A message goes to exactly one queue in every case, so
that the difference to the first, which has one address with one queue, is the finding of it.

The CPU time of this process in user mode counts.  Each case takes turns with one address, round by round, so that both
have the same machine, whatever else runs on it; the best round of each is shown, and the ratio of the two.

Exit status: 1 if a case costs more than twice the first.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from resource import RUSAGE_SELF, getrusage
from typing import Final

from broker.config import load
from broker.daemon.wiring import Broker, Environment, assemble, recover
from broker.engine.engine import Engine
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.message import RoutingType
from broker.sessions.reading import Reading
from broker.sessions.stomp.headers import Prefixes
from broker.sessions.stomp.send import Sends
from broker.sessions.stomp.temporary import Destinations
from broker.sessions.stomp.transactions import Transactions
from protocols.stomp.connection import StompConnection as StompCodec
from store.files import OsFiles
from store.writer import InlineWriter

#: How much dearer than the first case another one may be.
RATIO_MAX: Final = 2.0

ADDRESSES: Final = 100_000
SUBSCRIPTIONS: Final = 10_000
TICK_MESSAGES: Final = 100
_FORMAT: Final = 1
_BODY: Final = b"x" * 100

#: Prepares a broker; the names to send to, in turn, and the routing type that is asked for.
Prepare = Callable[[Engine, int], list[str]]


def _one(engine: Engine, count: int) -> list[str]:
    _queue(engine, "orders")
    return ["orders"]


def _many(engine: Engine, count: int) -> list[str]:
    names = [f"orders.{number}" for number in range(count)]
    for name in names:
        _queue(engine, name)
    return names


def _beside_wildcards(engine: Engine, count: int) -> list[str]:
    """None of the subscriptions fits."""
    for number in range(count):
        _queue(engine, f"news.{number}.#", f"s{number}")
    return _one(engine, count)


def _one_wildcard_each(engine: Engine, count: int) -> list[str]:
    """Each address is fitted by one subscription."""
    names = []
    for number in range(count):
        _queue(engine, f"area.{number}.*", f"s{number}")
        names.append(f"area.{number}.temperature")
    return names


def _leading_wildcards(engine: Engine, count: int) -> list[str]:
    """The same, with patterns that begin with a wildcard."""
    names = []
    for number in range(count):
        _queue(engine, f"*.{number}.#", f"s{number}")
        names.append(f"area.{number}.temperature")
    return names


def _queue(engine: Engine, address: str, name: str = "") -> None:
    made = engine._state.registry.create_address(address, {RoutingType.MULTICAST})
    engine._state.registry.create_queue(made, name or address, RoutingType.MULTICAST, durable=False)


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured: `binding` adds and deletes a wildcard queue once a tick meanwhile."""

    name: str
    prepare: Prepare
    count: int
    binding: bool = False


CASES: Final = (
    Case("one address", _one, 1),
    Case("one of 100,000 addresses", _many, ADDRESSES),
    Case("beside 10,000 wildcard subscriptions", _beside_wildcards, SUBSCRIPTIONS),
    Case("10,000 wildcard subscriptions, one fits", _one_wildcard_each, SUBSCRIPTIONS),
    Case("the same, the wildcard comes first", _leading_wildcards, SUBSCRIPTIONS),
    Case("the same, one is made and deleted every 100 messages", _leading_wildcards, SUBSCRIPTIONS, binding=True),
)


class Rig:
    """A broker without sockets."""

    def __init__(self, directory: Path) -> None:
        config = load(None)
        config = config.model_copy(update={"broker": config.broker.model_copy(update={"data_directory": directory})})
        outside = Environment(
            files=OsFiles(),
            wall_ms=lambda: 1_780_000_000_000,
            monotonic=lambda: 0.0,
            random=Random(1),
            report=_ignore,
            memory_bytes=64 << 30,
        )
        self.parts: Broker = assemble(
            config, outside, lambda log: InlineWriter(log, self._durable, _fail), lambda: None
        )
        self.parts.log.open()
        recover(self.parts, config)

    def _durable(self, ticket: int) -> None:
        self.parts.journal.on_durable(ticket)
        self.parts.engine.ticks.durable(ticket)

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.parts.engine


def _ignore(code: str, /, **fields: str | int) -> None:
    """A report that nobody reads."""


def _fail(error: Exception) -> None:
    raise error


class _Connection:
    """A connection that is never stopped."""

    def pause_reading(self) -> None:
        """See Readable."""

    def resume_reading(self) -> None:
        """See Readable."""

    def guarded(self, transport: object, call: Callable[..., None]) -> Callable[..., None]:
        """See ErrorBoundary."""
        return call


def seconds(engine: Engine, names: Iterator[str], messages: int, *, binding: bool) -> float:
    """CPU seconds of so many sends, each read by itself."""
    codec = StompCodec()
    codec.receive_data(b"CONNECT\naccept-version:1.2\nhost:bench\n\n\0")
    codec.events()
    codec.send_connected("1.2", ())
    destinations = Destinations(engine, Prefixes(), UNRESTRICTED, "")
    transactions, expect = Transactions(engine, 0), codec.leads.expect
    reading = Reading(_Connection(), _Connection())
    format = engine.formats[_FORMAT]
    sends = Sends(engine, reading, destinations, format, transactions, lambda destination: None, expect)
    wildcards = engine._state.registry.create_address("made.#", {RoutingType.MULTICAST}) if binding else None
    frames = [
        b"SEND\ndestination:%b\ncontent-length:100\n\n%b\0" % (next(names).encode(), _BODY) for _ in range(messages)
    ]
    start = getrusage(RUSAGE_SELF).ru_utime
    for number, frame in enumerate(frames):
        if number % TICK_MESSAGES == 0:
            engine.ticks.begin()
            if wildcards is not None:
                engine.delete_queue(
                    engine._state.registry.create_queue(wildcards, "made", RoutingType.MULTICAST, durable=False)
                )
        codec.receive_data(frame)
        for event in codec.events():
            sends.add(event)
        sends.publish()
        if number % TICK_MESSAGES == TICK_MESSAGES - 1:
            engine.ticks.end()
    spent = getrusage(RUSAGE_SELF).ru_utime - start
    if wildcards is not None:
        engine._state.registry.delete_address(wildcards)
    return spent


class Track:
    """A broker prepared for a case, and the names to send to, again and again."""

    def __init__(self, case: Case, directory: Path) -> None:
        self.case = case
        rig = Rig(directory)
        self.engine = rig.engine
        self.engine.ticks.begin()
        found = case.prepare(self.engine, case.count)
        self.engine.ticks.end()
        rig.parts.tick.end()
        Random(2).shuffle(found)
        self._names = (name for _ in iter(int, 1) for name in found)
        seconds(self.engine, self._names, len(found), binding=False)  # whatever is made for the first message is made

    def run(self, messages: int) -> float:
        """CPU microseconds of one send, in one round; the queues are empty before it."""
        for queue in list(self.engine.queues.values()):
            self.engine.messages.purge(queue)
        gc.collect()
        gc.freeze()
        spent = seconds(self.engine, self._names, messages, binding=self.case.binding)
        gc.unfreeze()
        return 1e6 * spent / messages


def measure(case: Case, *, messages: int, rounds: int) -> tuple[float, float]:
    """CPU microseconds of one send: in the best round with one address, and in the best round of the case."""
    with tempfile.TemporaryDirectory() as directory:
        first, other = Track(CASES[0], Path(directory, "first")), Track(case, Path(directory, "other"))
        turns = [(first.run(messages), other.run(messages)) for _ in range(rounds)]
    return min(one for one, _ in turns), min(many for _, many in turns)


def main(arguments: list[str]) -> int:
    """Measure all cases, and say which is too dear."""
    parser = argparse.ArgumentParser(prog="python -m bench.routing", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=50_000, help="sends in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    dear = False
    sys.stdout.write(f"{'case':54} {'us a send':>9} {'one address':>11} {'ratio':>6}\n")
    for case in CASES[1:]:
        first, cost = measure(case, messages=options.messages, rounds=options.rounds)
        ratio = cost / first
        dear |= ratio > RATIO_MAX
        late = "  too dear" if ratio > RATIO_MAX else ""
        sys.stdout.write(f"{case.name:54} {cost:9.2f} {first:11.2f} {ratio:6.2f}{late}\n")
        sys.stdout.flush()
    return 1 if dear else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
