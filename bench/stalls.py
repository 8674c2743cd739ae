"""How long other clients wait while one client or operator asks for something large.

    python -m bench.stalls [--messages 200000] [--case retry ...]

Each case fills a queue, or opens many subscriptions, and then does one thing with all of it.  Meanwhile another client
sends messages to a queue of its own and waits for each delivery; its waits are compared with those of a quiet broker.

Columns: seconds that the case took; median, 99th percentile and longest of the other client's waits, in ms; the most
CPU, in ms, that the event loop used during one of these waits, which covers several ticks; that of the longest tick;
and of the longest without what the event loop alone uses to close the sockets of lost connections (`ticks`).

The cases of the engine (`stalls_engine`) and those of simulated clients (`stalls_sessions`) run in this process: each
tells the CPU of the longest tick, the latter also that of another client's messages, if they were any.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.brokers import Bartleby
from bench.link import READ_BYTES, BrokerFailed, Link
from bench.stalls_commits import COMMIT_CASES
from bench.stalls_engine import ENGINE_CASES, Longest, longest_tick
from bench.stalls_logins import LOGIN_CASES
from bench.stalls_logins import Case as Logins
from bench.stalls_many import MANY_CASES
from bench.stalls_mqtt import MQTT_CASES, Case, Work
from bench.stalls_reads import READ_CASES, Ports
from bench.stalls_sessions import SESSION_CASES
from bench.ticks import SCRIPT, VARIABLE, LongestTick
from broker.cli.remote import Remote, connect
from broker.management.models.base import WAIT_MS_MAX
from tests.support.daemon import DaemonProcess

#: Frames between two receipts while a queue is filled.
RUN: Final = 2_000

#: Subscriptions of a connection: as many as it may have.
SUBSCRIPTIONS: Final = 1_000

#: Bytes of a body.
BODY: Final = b"x" * 100

#: How long an answer may take, in seconds.
PATIENCE_S: Final = 60.0


class Probe:
    """A client that sends itself a message again and again, and notes how long each took.

    In milliseconds: of time, and of CPU of the broker's event loop (process `pid`), which other load does not lengthen.
    `ticks` knows the longest tick.
    """

    def __init__(self, host: str, port: int, pid: int, ticks: LongestTick) -> None:
        self._used = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._ticks = ticks
        self._cpu: list[float] = []
        self._link = Link.connect(host, port)
        self._link.request(b"SUBSCRIBE\nid:0\ndestination:/queue/probe\nreceipt:r\n\n\0")
        self._waits: list[float] = []
        self._over = threading.Event()

    def _work(self) -> None:
        while not self._over.is_set():
            begun, used = time.perf_counter(), self._cpu_ms()
            self._link.request(b"SEND\ndestination:/queue/probe\n\nhello\0")
            self._waits.append(1000 * (time.perf_counter() - begun))
            self._cpu.append(self._cpu_ms() - used)
            time.sleep(0.001)

    def _cpu_ms(self) -> float:
        return int(self._used.read_text().split()[0]) / 1e6

    def during(self, work: Callable[[], object]) -> Waits:
        """Does the work, and a moment of whatever follows from it."""
        self._waits, self._cpu = [], []
        self._over.clear()
        self._ticks.reset()
        thread = threading.Thread(target=self._work)
        thread.start()
        begun = time.perf_counter()
        try:
            work()
            seconds = time.perf_counter() - begun
            time.sleep(0.5)
        finally:
            self._over.set()
            thread.join()
        waits = sorted(self._waits)
        half, most = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
        ticks = self._ticks
        return Waits(seconds, half, most, waits[-1], max(self._cpu), ticks.milliseconds, ticks.own_milliseconds)

    def close(self) -> None:
        """It goes."""
        self._link.close()


@dataclass(frozen=True)
class Waits:
    """Seconds that the work took, and milliseconds that the probe's messages took meanwhile.

    `cpu`: the most CPU that the event loop used while one of them waited; `tick`: in its longest tick; `own`: in its
    longest without what it alone used to close sockets.
    """

    seconds: float
    median: float
    p99: float
    longest: float
    cpu: float
    tick: float
    own: float

    def __str__(self) -> str:
        waits = (self.seconds, self.median, self.p99, self.longest, self.cpu, self.tick, self.own)
        return " ".join(f"{each:8.1f}" for each in waits)


class World:
    """A broker, what fills it, and what is asked of it."""

    def __init__(self, broker: Bartleby, messages: int) -> None:
        target = broker.target("stomp")
        self.mqtt_port = broker.target("mqtt").port
        self.amqp_port = broker.target("amqp").port
        self.host, self.port = target.host, target.port
        self.messages = messages
        self.remote: Remote = connect(None, broker.data, None, None)
        self.process = broker.process

    def link(self) -> Link:
        """Another client, that waits long for its answers."""
        return Link.connect(self.host, self.port)

    def filled(self, queue: str, headers: str = "persistent:true\n", destination: str = "", *, last: str = "") -> None:
        """A queue with so many messages; `last`: headers of one in `RUN`."""
        link = self.link()
        frame = f"SEND\ndestination:{destination or '/queue/' + queue}\n{headers}%s\n".encode() + BODY + b"\0"
        done = 0
        while done < self.messages:
            run = min(RUN, self.messages - done)
            link.sock.setblocking(True)
            link.sock.sendall(b"".join([frame % b""] * (run - 1)))
            ask(link, frame % f"receipt:r\n{last}".encode())
            done += run
        link.close()


def ask(link: Link, frame: bytes) -> bytes:
    """Sends a frame and waits for its RECEIPT, whatever comes before it."""
    link.sock.settimeout(PATIENCE_S)
    link.sock.sendall(frame)
    rest = b""
    while b"RECEIPT\n" not in rest:
        data = link.sock.recv(READ_BYTES)
        if not data or b"ERROR\n" in data:
            raise BrokerFailed(f"the broker says {data[:300]!r}")
        rest = rest[-8:] + data
    return rest


def held(world: World, queue: str, ack: str) -> Link:
    """A client that was sent all messages of a queue, and has acknowledged none."""
    link = world.link()
    link.sock.settimeout(PATIENCE_S)
    link.sock.sendall(f"SUBSCRIBE\nid:0\ndestination:/queue/{queue}\nack:{ack}\nconsumer-window-size:-1\n\n\0".encode())
    seen, rest = 0, b""
    while seen < world.messages:
        data = rest + link.sock.recv(READ_BYTES)
        seen += data.count(b"\0")
        rest = b""
    return link


def retry(world: World) -> Callable[[], object]:
    """`queue retry` of dead letters."""
    world.filled("work", "persistent:true\nexpires:1\n")
    while world.remote.get("/api/v1/queues/ExpiryQueue")["messages"] < world.messages:
        time.sleep(0.1)
    return lambda: finish(world.remote, "retry", "ExpiryQueue")


def groups(world: World) -> Callable[[], object]:
    """`dead-letters groups`, of dead letters in memory."""
    world.filled("work", "persistent:true\nexpires:1\n")
    while world.remote.get("/api/v1/queues/ExpiryQueue")["messages"] < world.messages:
        time.sleep(0.1)
    return lambda: world.remote.get("/api/v1/dead-letters/groups", by="reason,origin,words,hour")


def trail(world: World) -> Callable[[], object]:
    """`message trail`, again and again for as long as other cases take."""
    world.filled("work", "persistent:true\nexpires:1\n")
    while world.remote.get("/api/v1/queues/ExpiryQueue")["messages"] < world.messages:
        time.sleep(0.1)
    [message] = world.remote.get("/api/v1/queues/ExpiryQueue/messages", limit=1)["messages"]
    return lambda: [world.remote.get(f"/api/v1/messages/{message['id']}/trail") for _ in range(10)]


#: Brings all expired messages back.
RULE: Final = '\n[[dead-letter-rules]]\nname = "back"\naction = "retry"\nevery = 100\n'


def rule(world: World) -> Callable[[], object]:
    """The same by a rule."""
    retry(world)
    process = world.process
    assert isinstance(process, DaemonProcess), "this broker can be reloaded"

    def work() -> None:
        process.reload(process.config.read_text() + RULE)
        while world.remote.get("/api/v1/queues/ExpiryQueue")["messages"]:
            time.sleep(0.1)

    return work


def finish(remote: Remote, kind: str, queue: str, **more: str | int) -> None:
    """A task, from its start to its end."""
    task = remote.post("/api/v1/tasks", {"kind": kind, "queue": queue} | more)
    while task["state"] == "running":
        task = remote.get(f"/api/v1/tasks/{task['id']}", wait=WAIT_MS_MAX)
    assert task["state"] == "completed", task


def move(world: World) -> Callable[[], object]:
    """`queue move`."""
    world.filled("from")
    return lambda: finish(world.remote, "move", "from", target="there")


def discard(world: World) -> Callable[[], object]:
    """`queue purge` with a filter."""
    world.filled("filtered", "persistent:true\ncolour:red\n")
    return lambda: finish(world.remote, "purge", "filtered", filter="colour = 'red'")


def rare(world: World) -> Callable[[], object]:
    """`queue purge --rate` with a filter that fits one message in `RUN`."""
    world.filled("rare", last="colour:red\n")
    return lambda: finish(world.remote, "purge", "rare", filter="colour = 'red'", rate=100)


def purge(world: World) -> Callable[[], object]:
    """`queue purge`."""
    world.filled("purged")
    return lambda: finish(world.remote, "purge", "purged")


def delete(world: World) -> Callable[[], object]:
    """`queue delete --force`."""
    world.filled("deleted")
    return lambda: finish(world.remote, "delete-queue", "deleted")


def subscriptions(world: World) -> Callable[[], object]:
    """The end of connections with many subscriptions, all at once."""
    links = []
    for first in range(0, min(world.messages // 20, 10_000), SUBSCRIPTIONS):
        link = world.link()
        frames = [f"SUBSCRIBE\nid:{n}\ndestination:/topic/t.{n}\n\n\0" for n in range(first, first + SUBSCRIPTIONS)]
        ask(link, ("".join(frames) + "SEND\ndestination:/topic/none\nreceipt:r\n\nx\0").encode())
        links.append(link)
    return lambda: all_ended(links)


def all_ended(links: list[Link]) -> None:
    """The connections break."""
    for link in links:
        ended(link)


def ended(link: Link) -> None:
    """The connection breaks."""
    link.sock.shutdown(socket.SHUT_RDWR)
    link.close()


def unacknowledged(world: World) -> Callable[[], object]:
    """The end of a connection that was sent all of a queue."""
    world.filled("held")
    link = held(world, "held", "client-individual")
    return lambda: ended(link)


def subscribed(world: World) -> Callable[[], object]:
    """The end of a connection whose topic subscription has many messages waiting."""
    link = world.link()
    ask(link, b"SUBSCRIBE\nid:0\ndestination:/topic/slow\nack:client\nconsumer-window-size:1\nreceipt:r\n\n\0")
    world.filled("slow", destination="/topic/slow")
    return lambda: ended(link)


def commit(world: World) -> Callable[[], object]:
    """COMMIT of a transaction with a tenth of the messages."""
    link = world.link()
    _sent_in(world, link)
    return lambda: ask(link, b"COMMIT\ntransaction:t\nreceipt:done\n\n\0")


def _sent_in(world: World, link: Link) -> None:
    link.sock.setblocking(True)
    link.sock.sendall(b"BEGIN\ntransaction:t\n\n\0")
    frame = b"SEND\ndestination:/queue/tx\npersistent:true\ntransaction:t\n%s\n" + BODY + b"\0"
    count = world.messages // 10
    link.sock.sendall(b"".join([frame % b""] * (count - 1)))
    ask(link, frame % b"receipt:r\n")


def by_mqtt(case: Case, world: World) -> Work:
    """A case of MQTT clients."""
    return case(world.mqtt_port, world.messages)


def by_logins(case: tuple[str, Logins], world: World) -> Work:
    """A case of peers that have not logged in."""
    protocol, peers = case
    ports = {"stomp": world.port, "amqp": world.amqp_port, "mqtt": world.mqtt_port}
    return peers(ports[protocol], world.process.pid, world.messages)


def by_reads(case: Callable[[Ports, int], Work], world: World) -> Work:
    """A case of STOMP and AMQP clients."""
    return case(Ports(world.port, world.amqp_port), world.messages)


_CASES: Final[tuple[Callable[[World], Work], ...]] = (
    retry,
    rule,
    groups,
    trail,
    move,
    discard,
    rare,
    purge,
    delete,
    subscriptions,
    unacknowledged,
    subscribed,
    commit,
)

CASES: Final[dict[str, Callable[[World], Work]]] = {
    **{case.__name__: case for case in _CASES},
    **{name: partial(by_mqtt, case) for name, case in MQTT_CASES.items()},
    **{name: partial(by_logins, case) for name, case in LOGIN_CASES.items()},
    **{name: partial(by_reads, case) for name, case in READ_CASES.items()},
}

#: The cases without sockets, each with the number of messages.
IN_PROCESS_CASES: Final[dict[str, Callable[[int], Longest]]] = {
    **{name: partial(longest_tick, name) for name in ENGINE_CASES},
    **SESSION_CASES,
    **COMMIT_CASES,
    **MANY_CASES,
}


def measure(case: str, messages: int, config: Path) -> tuple[Waits, Waits]:
    """The waits of a quiet broker and those of the case, in a broker of its own."""
    with tempfile.NamedTemporaryFile() as file:
        ticks = LongestTick(Path(file.name))
        broker = Bartleby(None, config, environment={VARIABLE: file.name}, script=SCRIPT)
        try:
            broker.start()
            world = World(broker, messages)
            work = CASES[case](world)
            probe = Probe(world.host, world.port, world.process.pid, ticks)
            quiet = probe.during(lambda: time.sleep(0.5))
            busy = probe.during(work)
            probe.close()
            return quiet, busy
        finally:
            broker.stop()


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--case", choices=[*CASES, *IN_PROCESS_CASES], action="append")
    chosen = parser.parse_args(arguments)
    columns = " ".join(f"{name:>8}" for name in ("seconds", "median", "p99", "longest", "cpu", "tick", "own"))
    sys.stdout.write(f"{'':16} {columns}   ms of another client's messages\n")
    cases = chosen.case or [*CASES, *IN_PROCESS_CASES]
    for case in [each for each in cases if each in CASES]:
        quiet, busy = measure(case, chosen.messages, Path("etc/broker.toml"))
        for name, waits in (("quiet", quiet), (case, busy)):
            sys.stdout.write(f"{name:16} {waits}\n")
            sys.stdout.flush()
    for case in [each for each in cases if each in IN_PROCESS_CASES]:
        sys.stdout.write(f"{case:16} {IN_PROCESS_CASES[case](chosen.messages)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
