"""What very many queues cost: made by sends, after a restart, and listed.

    python -m bench.many_queues [--queues 100000] [--python INTERPRETER]

A STOMP client sends one durable message to each of so many queues that do not exist yet, with a receipt every thousand.
Then the broker is killed, started again, and asked for all queues page by page, as `bartleby queue list` does, and for
the metrics; meanwhile another client waits for the answers to sends of its own.  At last each queue gets a consumer and
a message that is not durable, several times, in turn with as many messages to one queue with one consumer.
"""

from __future__ import annotations

import argparse
import select
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from bench.brokers import Bartleby
from bench.generator import Target
from bench.link import HANDSHAKE_S, BrokerFailed, Link
from bench.report import say
from broker.cli.remote import connect

#: Sends between two receipts.
RUN: Final = 1_000

#: Consumers of a connection.
CONSUMERS: Final = 1_000

#: How often each queue gets a message; the first does not count.
ROUNDS: Final = 4


def fill(target: Target, queues: int) -> float:
    """Makes the queues; returns the seconds."""
    link = Link.connect(target.host, target.port)
    begun = time.perf_counter()
    frame = "SEND\ndestination:/queue/many.{}\npersistent:true\n{}\nsmall\0"
    link.sock.setblocking(True)
    try:
        for start in range(0, queues, RUN):
            run = [frame.format(number, "") for number in range(start, min(start + RUN, queues) - 1)]
            link.sock.sendall("".join(run).encode())
            answer = link.request(frame.format(min(start + RUN, queues) - 1, "receipt:r\n").encode())
            assert answer.startswith(b"RECEIPT"), answer
            link.sock.setblocking(True)
        return time.perf_counter() - begun
    finally:
        link.close()


class Neighbour:
    """A client that sends again and again while something else goes on, and notes how long each answer takes."""

    def __init__(self, target: Target) -> None:
        self._link = Link.connect(target.host, target.port)
        self._waits: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._over.is_set():
            begun = time.perf_counter()
            self._link.request(b"SEND\ndestination:/queue/neighbour\nreceipt:r\n\nhello\0")
            self._waits.append(1000 * (time.perf_counter() - begun))
            time.sleep(0.001)

    def during(self, work: Callable[[], object]) -> float:
        """Does the work; the longest wait in milliseconds."""
        self._waits = []
        self._over.clear()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        try:
            work()
            return max(self._waits, default=0.0)
        finally:
            self._over.set()
            self._thread.join()

    def close(self) -> None:
        """It goes."""
        self._link.close()


class Consumers:
    """Consumers of queues, on as few connections as may have so many."""

    def __init__(self, target: Target, destinations: list[str]) -> None:
        self._poll = select.epoll()
        self._links: dict[int, Link] = {}
        subscribe = "SUBSCRIBE\nid:{}\ndestination:{}\nack:auto\n{}\n\0"
        for start in range(0, len(destinations), CONSUMERS):
            link = Link.connect(target.host, target.port)
            frames = [subscribe.format(at, name, "") for at, name in enumerate(destinations[start : start + CONSUMERS])]
            link.sock.setblocking(True)
            link.sock.sendall("".join(frames).encode())
            answer = link.request(b"SEND\ndestination:/queue/attached\nreceipt:r\n\n\0")
            while not answer.startswith(b"RECEIPT"):  # what was on the queues comes first
                answer = link.request(b"")
            self._links[link.sock.fileno()] = link
            self._poll.register(link.sock, select.EPOLLIN)

    def await_messages(self, count: int) -> None:
        """Return when so many have come."""
        while count > 0:
            ready = self._poll.poll(HANDSHAKE_S)
            if not ready:
                raise BrokerFailed(f"{count} messages do not come")
            for handle, _ in ready:
                count -= self._links[handle].receive().count(b"\0")

    def close(self) -> None:
        """They go."""
        for link in self._links.values():
            link.close()
        self._poll.close()


def deliver(target: Target, consumers: Consumers, destinations: list[str]) -> float:
    """A message to each destination, which its consumer gets; returns the broker's CPU microseconds for each."""
    assert target.cpu is not None
    link = Link.connect(target.host, target.port)
    link.sock.setblocking(True)
    before = target.cpu()
    for start in range(0, len(destinations), RUN):
        run = destinations[start : start + RUN]
        link.sock.sendall("".join([f"SEND\ndestination:{name}\n\nsmall\0" for name in run]).encode())
        consumers.await_messages(len(run))
    link.close()
    return 1e6 * (target.cpu() - before) / len(destinations)


def compare(target: Target, queues: int) -> None:
    """A message to each of many queues, in turn with as many to one."""
    assert target.cpu is not None
    many, one = [f"/queue/many.{number}" for number in range(queues)], ["/queue/one"]
    before = target.cpu()
    of_many, of_one = Consumers(target, many), Consumers(target, one)
    say("a consumer for each", f"{1e6 * (target.cpu() - before) / queues:.0f} us of CPU each")
    turns = [(deliver(target, of_many, many), deliver(target, of_one, one * queues)) for _ in range(ROUNDS)][1:]
    costs = [statistics.median(cost) for cost in zip(*turns, strict=True)]
    say("a message to each", f"{costs[0]:.1f} us of CPU each, to one queue {costs[1]:.1f}, {costs[0] / costs[1]:.2f}")
    of_many.close()
    of_one.close()


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.many_queues", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--python", default=sys.executable, help="interpreter for Bartleby")
    options = parser.parse_args(arguments)
    queues = options.queues
    broker = Bartleby(None, Path("etc/broker.toml"), options.python)
    try:
        broker.start()
        target = broker.target("stomp")
        assert target.memory is not None
        empty = target.memory()
        assert target.cpu is not None
        seconds = fill(target, queues)
        say("made by sends", f"{seconds:.1f} s, {1e6 * target.cpu() / queues:.0f} us of CPU each")
        say("memory of a queue with a message", f"{(target.memory() - empty) / queues:.0f} bytes")
        broker.kill()
        seconds = broker.start()
        target = broker.target("stomp")
        assert target.memory is not None
        assert target.cpu is not None
        say("ready after a SIGKILL", f"{seconds:.1f} s, {target.cpu():.1f} s of CPU")
        say("memory of a queue then", f"{(target.memory() - empty) / queues:.0f} bytes")
        remote = connect(None, broker.data, None, None)
        port = broker.target("http").port
        neighbour = Neighbour(target)
        for what, work in (
            ("all queues listed", lambda: list(remote.listed("queues"))),
            ("one page of queues", lambda: remote.get("/api/v1/queues")),
            ("metrics", lambda: urlopen(f"http://127.0.0.1:{port}/metrics").close()),
        ):
            before = target.cpu()
            wait = neighbour.during(work)
            say(what, f"{1000 * (target.cpu() - before):.0f} ms of CPU, another client waited up to {wait:.0f} ms")
        neighbour.close()
        compare(target, queues)
    finally:
        broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
