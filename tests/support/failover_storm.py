"""The failover storm: a pair of brokers over a pair of PostgreSQL servers, faults in each of them, and the ledger.

a round     clients of three protocols at the owner; a fault; the new owner of the journal confirms a message, and has
            clients too; meanwhile the failed part recovers and becomes the standby
checked     as in the storm: each confirmed message is there once, acknowledged ones do not return, transactions are
            whole or absent, dead letters are the messages that were sent, with their reason
            the records of the journal, added up, match the broker's messages on each queue
            the copies of the journal have the same bytes
figures     from the fault to the first confirmed message, in seconds
"""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from socket import SHUT_RDWR
from typing import Final

from proton import ProtonException
from stomp.exception import StompException

from tests.support import books
from tests.support.daemon import DaemonProcess
from tests.support.ledger import QUEUES, Ledger
from tests.support.peers import free_port
from tests.support.postgresql import Pair, PostgreSQL, dsn
from tests.support.process import PATIENCE_S, started
from tests.support.proxy import Proxy
from tests.support.stomp_client import StompSocket
from tests.support.storm import BACKLOG_MAX, ROUND_S, SETTINGS, Consumer, Figures, Producer, Storm
from tests.support.storm_others import AmqpConsumer, AmqpProducer, MqttProducer

#: The lease of the brokers as shipped, in ms.
LEASE_MS: Final = 5_000

#: The most receipts of a part of a round; the seed chooses.
RECEIPTS_MAX: Final = 200

#: How long a refused client waits before its next attempt, in seconds.
RETRY_S: Final = 0.02

_ACCEPTORS: Final = ("stomp", "amqp", "mqtt", "http")


def settings(name: str, lease_ms: int) -> str:
    """Return the configuration of both brokers; `name` is the DSN of their database."""
    journal = f"""
[journal.postgresql]
dsn = "{name}"
lease = {lease_ms}
renewal = {lease_ms // 5}
"""
    return SETTINGS.replace("[journal]", '[journal]\nlog = "postgresql"', 1) + journal


class Node:
    """A broker of the pair, and its proxies to the servers, in the order of their names."""

    def __init__(self, broker: DaemonProcess, network: tuple[Proxy, ...]) -> None:
        self.broker = broker
        self._network = network

    def fail(self, *, silently: bool) -> None:
        """Let the network fail: connections break, or (`silently`) no byte arrives any more."""
        for proxy in self._network:
            if silently:
                proxy.blackhole()
            else:
                proxy.cut()

    def heal(self) -> None:
        """Restore the network."""
        for proxy in self._network:
            proxy.heal()


class Seeker:
    """A client that tries to have a message confirmed at one broker, for as long as it takes."""

    def __init__(self, node: Node, ledger: Ledger, found: queue.SimpleQueue[tuple[Node, float]]) -> None:
        self._node = node
        self._ledger = ledger
        self._found = found
        self._over = threading.Event()
        self._link: StompSocket | None = None
        self._thread = threading.Thread(target=self._run, name="storm seeker")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with StompSocket(self._node.broker.port) as link:
                    self._link = link
                    if not self._over.is_set():
                        self._try(link.connect())
            except OSError:  # refused, hung up on, or told to end
                self._over.wait(RETRY_S)

    def _try(self, link: StompSocket) -> None:
        entry = self._ledger.new_single()
        headers = {"persistent": "true", "number": str(entry.number), "receipt": f"send:{entry.number}"}
        link.do("SEND", {"destination": f"/queue/{entry.queue}", **headers}, entry.body)
        link.wait(lambda: link.frames)
        if link.take("RECEIPT"):
            self._found.put((self._node, time.monotonic()))
            self._ledger.confirm(headers["receipt"])
            self._over.set()

    def end(self) -> None:
        """Stop trying, whether a message was confirmed or not."""
        self._over.set()
        while self._thread.is_alive():
            try:
                if self._link is not None:
                    self._link.socket.shutdown(SHUT_RDWR)
            except OSError:
                pass  # the connection has ended meanwhile
            self._thread.join(RETRY_S)


class Crew:
    """Clients of all protocols at one broker.  `reaching`: see Consumer."""

    def __init__(self, ledger: Ledger, broker: DaemonProcess, random: Random, *, reaching: bool) -> None:
        self._ledger = ledger
        self._ports = broker.ports
        self._queue = random.choice(QUEUES)
        self._reaching = reaching
        self._clients: list[Producer | Consumer | AmqpProducer | AmqpConsumer | MqttProducer] = []

    def start(self) -> bool:
        """Start the consumers, then the producers; False if the broker has dropped one of them."""
        ledger, ports, clients = self._ledger, self._ports, self._clients
        try:
            consumer = Consumer(ledger, ports["stomp"], reaching=self._reaching)
            clients.append(consumer)
            consumer.subscribe_to(*QUEUES)  # MQTT messages need a queue to go to
            clients.append(AmqpConsumer(ledger, ports["amqp"], self._queue, reaching=self._reaching))
            clients.append(MqttProducer(ledger, ports["mqtt"]))
            clients.append(AmqpProducer(ledger, ports["amqp"], QUEUES))
            clients.append(Producer(ledger, ports["stomp"]))
        except (OSError, StompException, ProtonException, queue.Empty):
            return False
        return True

    def replace(self) -> None:
        """Note that clients of another broker now get the same messages."""
        for client in self._clients:
            if isinstance(client, Consumer | AmqpConsumer):
                client.replaced = True

    def join(self) -> None:
        """Wait for the end of all clients, after the broker has dropped them."""
        for client in self._clients:
            client.join()

    def leave(self) -> None:
        """Disconnect: the producers first, and when their messages are confirmed, the consumers."""
        for client in reversed(self._clients):
            client.leave()


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    `crash`: the owner cannot close its connections.  `moves`: the other broker must take over.  `stays`: it need not.
    """

    does: Callable[[FailoverStorm], Iterator[None]]
    crash: bool = True
    moves: bool = True
    stays: bool = False


class FailoverStorm(Storm):
    """A pair of brokers, one ledger."""

    def __init__(self, nodes: tuple[Node, Node], pair: Pair, seed: int) -> None:
        self.owner, self.other = nodes
        super().__init__(self.owner.broker, seed)
        self.seconds: dict[str, list[float]] = {name: [] for name in FAULTS}
        self._pair = pair
        self._struck = 0.0

    def round_of(self, name: str) -> None:
        """Run one round: load, a fault, load at the new owner, recovery of the failed part, checks."""
        fault, ledger = FAULTS[name], self._ledger
        before = self._crew(reaching=fault.crash)
        ledger.await_receipts(self._random.randint(1, RECEIPTS_MAX), ROUND_S)
        with contextmanager(fault.does)(self):
            candidates = [self.other] if fault.moves else [self.owner, self.other]
            self.seconds[name].append(self._seek(candidates) - self._struck)
            before.replace()
            after = self._crew(reaching=False)
            ledger.await_receipts(self._random.randint(1, RECEIPTS_MAX), ROUND_S)
        ledger.await_receipts(self._random.randint(1, RECEIPTS_MAX), ROUND_S)
        if fault.stays:
            before.leave()
        else:
            before.join()
        after.leave()
        self._seek([self.owner, self.other])  # it may have moved again: a lease had expired before it was renewed
        self.other.broker.await_standby()
        self.figures.kills += 1
        if self._check() > BACKLOG_MAX:
            self._drain()
        else:
            self._send_to_dla()
        ledger.restarted()
        self._balance()
        self._compare()

    def _crew(self, *, reaching: bool) -> Crew:
        while True:
            crew = Crew(self._ledger, self._broker, self._random, reaching=reaching)
            if crew.start():
                return crew
            crew.leave()
            self._seek([self.owner, self.other])

    def _seek(self, candidates: list[Node]) -> float:
        """Try until one of them confirms a message: it is the owner; returns when that was."""
        found: queue.SimpleQueue[tuple[Node, float]] = queue.SimpleQueue()
        seekers = [Seeker(node, self._ledger, found) for node in candidates]
        try:
            winner, at = found.get(timeout=PATIENCE_S)
        except queue.Empty:
            logs = "\n".join(node.broker.log[-4000:] for node in (self.owner, self.other))
            raise AssertionError(f"no broker confirms anything:\n{logs}") from None
        finally:
            for seeker in seekers:
                seeker.end()
        if winner is self.other:
            self.owner, self.other = self.other, self.owner
        self._broker = self.owner.broker
        return at

    # -- faults ----------------------------------------------------------------------------------------------------

    def kill_owner(self) -> Iterator[None]:
        """Send SIGKILL to the owner."""
        killed = self.owner
        self._struck = time.monotonic()
        killed.broker.kill()
        yield
        killed.broker.begin()

    def kill_primary(self) -> Iterator[None]:
        """Send SIGKILL to the primary server; its standby is promoted, and gets a new standby."""
        self._struck = time.monotonic()
        with ThreadPoolExecutor(1) as executor:
            failing_over = executor.submit(self._pair.fail_over)
            yield
            failing_over.result()

    def pause_owner(self) -> Iterator[None]:
        """Send SIGSTOP to the owner, until the other broker has taken over and works."""
        paused = self.owner
        self._struck = time.monotonic()
        paused.broker.signal(signal.SIGSTOP)
        yield
        paused.broker.signal(signal.SIGCONT)

    def cut_off_owner(self) -> Iterator[None]:
        """Cut the owner off from its database: connections break, or no byte arrives."""
        cut = self.owner
        self._struck = time.monotonic()
        cut.fail(silently=self._random.random() < 0.5)
        yield
        cut.heal()

    def start_both(self) -> Iterator[None]:
        """Send SIGKILL to both, and start them again at once."""
        for node in (self.owner, self.other):
            node.broker.kill()
        self._struck = time.monotonic()
        for node in self._random.sample((self.owner, self.other), 2):
            node.broker.begin()
        yield

    def hand_over(self) -> Iterator[None]:
        """Request a failover, as `bartleby failover` does."""
        self._struck = time.monotonic()
        self.owner.broker.post("failover")
        yield

    # -- checks ----------------------------------------------------------------------------------------------------

    def _balance(self) -> None:
        """Check that the records of the owner's copy of the journal add up to the messages on its queues."""
        counted = self._settled_counts()
        accounts = books.ledger(_records(self._broker)).values()
        found = {account.name: len(account.present) for account in accounts if account.name and not account.deleted}
        assert found == counted, f"the records add up to {found}, the broker has {counted}"

    def _compare(self) -> None:
        """Check that both copies have the same bytes where they overlap, and that the standby is up to date."""
        ours, theirs = self._await_copy()
        common = ours.keys() & theirs.keys()
        assert common, f"no segment is on both sides: {sorted(ours)}, {sorted(theirs)}"
        for number in common:
            nbytes = min(len(ours[number]), len(theirs[number]))
            assert ours[number][:nbytes] == theirs[number][:nbytes], f"the copies of segment {number} differ"

    def _await_copy(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Return the segments of owner and standby, once the standby has the owner's newest.

        The owner may begin a segment at any time, even without clients: it cleans.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            lag = self.other.broker.get("status")["replication"]["lag_entries"]
            ours, theirs = (_segments(node.broker) for node in (self.owner, self.other))
            if not lag and max(ours) == max(theirs):
                return ours, theirs
            found = f"lags {lag} entries behind, in segment {max(theirs)} of {max(ours)}"
            assert time.monotonic() < until, f"the standby {found}, for ever"

    def totals(self) -> Figures:
        """See `finish`: the standby is stopped first, so that it does not take over."""
        assert self.other.broker.stop() == 0
        return self.finish()


def _records(broker: DaemonProcess) -> list[books.Line]:
    """Read the records of a copy."""
    while True:
        with suppress(FileNotFoundError):  # a segment was removed meanwhile
            return books.read(broker.data / "journal", kept=False)


def _segments(broker: DaemonProcess) -> dict[int, bytes]:
    """Read the segments of a copy, except those without any bytes yet."""
    while True:
        try:
            paths = books.segment_paths(broker.data / "journal", kept=False)
            held = {number: path.read_bytes().rstrip(b"\0") for number, path in paths.items()}
        except FileNotFoundError:  # one was removed meanwhile
            continue
        return {number: data for number, data in held.items() if data}


FAULTS: Final[Mapping[str, Fault]] = {
    "kill-owner": Fault(FailoverStorm.kill_owner),
    "kill-primary": Fault(FailoverStorm.kill_primary, crash=False, moves=False, stays=True),
    "pause-owner": Fault(FailoverStorm.pause_owner),
    "cut-off-owner": Fault(FailoverStorm.cut_off_owner),
    "start-both": Fault(FailoverStorm.start_both, moves=False),
    "failover": Fault(FailoverStorm.hand_over, crash=False),
}


@contextmanager
def brokers(directory: Path, pair: Pair, lease_ms: int) -> Iterator[tuple[Node, Node]]:
    """Run both brokers; the first one owns the journal."""
    with ExitStack() as stack:
        nodes = []
        for name in ("one", "two"):
            network = tuple(stack.enter_context(Proxy(server.port)) for server in pair.servers)
            where = directory / name
            where.mkdir()
            told = settings(dsn(*(proxy.port for proxy in network)), lease_ms)
            fixed = {acceptor: free_port() for acceptor in _ACCEPTORS}
            nodes.append(Node(DaemonProcess(where, told, fixed=fixed), network))
        stack.enter_context(started(nodes[0].broker))
        stack.enter_context(standing_by(nodes[1].broker))
        yield nodes[0], nodes[1]


@contextmanager
def standing_by(broker: DaemonProcess) -> Iterator[DaemonProcess]:
    """Run a broker that is a standby at first, and end it afterwards in any case."""
    try:
        broker.begin()
        broker.await_standby()
        yield broker
    except BaseException:
        sys.stderr.write(f"--- log of the broker in {broker.directory}\n{broker.log}")
        raise
    finally:
        broker.close()


def rage(
    directory: Path,
    place: PostgreSQL,
    faults: Mapping[str, int],
    *,
    seed: int,
    lease_ms: int = LEASE_MS,
    audit: bool = True,
    tell: Callable[[str, float], None] = lambda fault, seconds: None,
) -> FailoverStorm:
    """Run a whole storm: each fault as often as given, in random order.  Raises AssertionError with what is wrong."""
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # it reports each lost connection with a traceback
    with place.pair() as pair, brokers(directory, pair, lease_ms) as nodes:
        storm = FailoverStorm(nodes, pair, seed)
        order = [name for name, times in faults.items() for _ in range(times)]
        Random(seed).shuffle(order)
        for name in order:
            storm.round_of(name)
            tell(name, storm.seconds[name][-1])
        if audit:
            storm.audit()
        storm.totals()
        return storm
