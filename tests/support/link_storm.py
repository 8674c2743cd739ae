"""The storm of links: three brokers that forward messages to each other, random ones killed by SIGKILL, all counted.

each broker    a link to each of the others, with a route of each kind that serves a queue:
               send        to.NAME        here  ->  sent     there
               receive     fetched        here  <-  for.NAME there
               remote      NAME.orders    here  ->  orders   there, by the transmission queue link.NAME
a round        clients fill queues of random brokers, and read those of `send` and `receive` beside the links; meanwhile
               one broker is killed and started again; clients read there before the links are connected again
checked        every message whose outcome arrived is at the other end of its route exactly once, any other at most
               once; in the end all queues are empty, and each message that one journal calls forwarded is in another
               one by its id
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from store import decode
from store.record import RemovalReason
from tests.support import books
from tests.support.daemon import DaemonProcess, running
from tests.support.link_books import QUIET_S, LinkBooks, Rival, send_until_killed, take_all
from tests.support.link_peers import bartleby
from tests.support.peers import free_port

NAMES: Final = ("amsterdam", "berlin", "paris")

#: Messages of one feed, and the most feeds of a round.
MESSAGES: Final = 150
FEEDS_MAX: Final = 3

#: The probability that a shared queue has another reader while it is filled.
RIVALS: Final = 0.8

#: The longest that a broker lives in a round, in seconds.
LIFE_S: Final = 0.3

#: Rounds after which all messages in flight must arrive, and are consumed.
DRAIN_EVERY: Final = 10

_SETTINGS: Final = """
[broker]
name = "{name}"

[log]
level = "warning"

[journal]
segment-size = "4MiB"
reserve = "1MiB"

[journal.retention]
enabled = true
max-bytes = -1

[limits]
body-bytes-max = "64KiB"
transaction-bytes-max = "256KiB"

[acceptors.amqp]
protocol = "amqp"
[acceptors.http]
protocol = "http"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"
"""

_LINK: Final = """
[links.{other}]
url = "amqp://127.0.0.1:{port}"
retry-interval = "100ms"
retry-interval-max = "200ms"
window = 100
[links.{other}.send.to]
queue = "to.{other}"
address = "sent"
reserve = "10min"
[links.{other}.receive.for]
queue = "for.{name}"
address = "fetched"
[links.{other}.remote-queues."{other}.orders"]
queue = "orders"
[addresses."to.{other}".queues."to.{other}"]
routing-type = "ANYCAST"
[addresses."for.{other}".queues."for.{other}"]
routing-type = "ANYCAST"
"""

#: The queues in which messages arrive.
ENDS: Final = ("sent", "fetched", "orders")


#: The prefix of the duplicate ids that a broker remembers for a link's messages.
PREFIX: Final = b"link:"


class Way(NamedTuple):
    """A way from a queue of one broker to a queue of another."""

    source: str
    queue: str
    to: str

    @property
    def shared(self) -> bool:
        """Whether clients read the queue beside the link."""
        return self.queue.startswith(("to.", "for."))


def ways() -> list[Way]:
    """Return all ways."""
    found = []
    for here in NAMES:
        for there in NAMES:
            if here != there:
                queues = (f"to.{there}", f"for.{there}", f"{there}.orders")
                found += [Way(here, queue, f"{end} of {there}") for queue, end in zip(queues, ENDS, strict=True)]
    return found


@dataclass(slots=True)
class Figures:
    """The figures of a storm."""

    kills: int = 0
    sent: int = 0
    confirmed: int = 0
    arrived: int = 0
    rivals: int = 0
    unsure: int = 0
    forwarded: int = 0


class Storm:
    """Three brokers, and the books of the messages that they forward."""

    def __init__(self, brokers: Mapping[str, DaemonProcess], seed: int) -> None:
        self.figures = Figures()
        self._brokers = brokers
        self._random = Random(seed)
        self._ways = ways()
        self._books = LinkBooks(self._random, non_durable=0)

    def round(self) -> None:
        """Feed queues, kill a broker, and start it again."""
        chance = self._random
        victim = self._brokers[chance.choice(NAMES)]
        killer = threading.Timer(chance.uniform(0, LIFE_S), victim.signal, (signal.SIGKILL,))
        killer.start()
        for way in chance.sample(self._ways, chance.randint(1, FEEDS_MAX)):
            source, rival = bartleby(self._brokers[way.source]), way.shared and chance.random() < RIVALS
            send_until_killed(source, way.queue, self._books, MESSAGES, way.to, rival=rival)
        killer.join()
        victim.wait()
        victim.start()
        self._read_first(victim)
        self.figures.kills += 1
        if self.figures.kills % DRAIN_EVERY == 0:
            self.drain()

    def _read_first(self, victim: DaemonProcess) -> None:
        """Consume some messages of the shared queues, before the links are connected again."""
        with bartleby(victim).client() as client:
            for way in self._ways:
                if way.shared and self._brokers[way.source] is victim:
                    Rival(client, bartleby(victim).address(way.queue), self._books, way.to).take(drain=True)

    def drain(self) -> None:
        """Consume everything that arrives, until all queues are empty."""
        account = self._books
        until = time.monotonic() + QUIET_S
        while True:
            waiting = self._waiting()
            found = sum(
                take_all(bartleby(broker), end, account, f"{end} of {name}")
                for name, broker in self._brokers.items()
                for end in ENDS
            )
            until = time.monotonic() + QUIET_S if found else until
            if not found and not waiting:
                break
            assert time.monotonic() < until, f"these do not move: {waiting}: {self._links()}"
        lost = Counter(account.entries[number].to for number in account.missing)
        assert not lost, f"lost are {lost}: {sorted(account.missing)[:20]}"
        doubled = Counter(account.entries[number].to for number in account.doubled)
        assert not doubled, f"more than once came {doubled}: {sorted(account.doubled)[:20]}"

    def _waiting(self) -> dict[str, int]:
        """Return the number of messages on each queue of all brokers that is not empty."""
        return {
            f"{queue['name']} of {name}": queue["messages"]
            for name, broker in self._brokers.items()
            for queue in broker.get("queues", limit=1000)["queues"]
            if queue["messages"]
        }

    def _links(self) -> object:
        return {name: broker.get("links") for name, broker in self._brokers.items()}

    def finish(self) -> Figures:
        """Stop the brokers cleanly, and compare their journals."""
        self.drain()
        for broker in self._brokers.values():
            assert broker.stop() == 0
        figures, account = self.figures, self._books
        figures.sent, figures.confirmed = len(account.entries), len(account.wanted)
        figures.arrived, figures.forwarded = len(account.arrived), self._compare()
        figures.rivals, figures.unsure = account.rivals, len(account.unsure - account.arrived.keys())
        return figures

    def _compare(self) -> int:
        """Check that each forwarded message of a journal is in another one, by its link id; returns how many."""
        left: Counter[int] = Counter()
        taken: set[bytes] = set()  # a set: remembered ids are written again before their segment is dropped
        for broker in self._brokers.values():
            for line in books.read(broker.data / "journal"):
                record = line.record
                if isinstance(record, decode.Removed) and record.reason == RemovalReason.FORWARDED:
                    left.update(record.ids)
                elif isinstance(record, decode.DuplicateId) and record.id.startswith(PREFIX):
                    taken.add(bytes(record.id))
        ids = Counter(int.from_bytes(each[len(PREFIX) + 16 :][:8], "big") for each in taken)
        assert left == ids, f"forwarded, and not stored: {left - ids}; stored, and not forwarded: {ids - left}"
        return left.total()


@contextmanager
def cluster(directory: Path) -> Iterator[dict[str, DaemonProcess]]:
    """Run the three brokers."""
    ports = {name: free_port() for name in NAMES}
    with ExitStack() as stack:
        brokers = {}
        for name in NAMES:
            links = [_LINK.format(name=name, other=other, port=ports[other]) for other in NAMES if other != name]
            (directory / name).mkdir()
            settings = _SETTINGS.format(name=name) + "".join(links)
            brokers[name] = stack.enter_context(running(directory / name, settings, fixed={"amqp": ports[name]}))
        yield brokers


def rage(directory: Path, *, kills: int, seed: int, tell: Callable[[Figures], None] = lambda _: None) -> Figures:
    """Run a whole storm.  Raises AssertionError with what is wrong."""
    with cluster(directory) as brokers:
        storm = Storm(brokers, seed)
        for _ in range(kills):
            storm.round()
            tell(storm.figures)
        return storm.finish()
