"""What very many queues cost: made by sends, after a restart, and listed.

    python -m bench.many_queues [--queues 100000]

A STOMP client sends one durable message to each of so many queues that do not exist yet, with a receipt every thousand.
Then the broker is killed, started again, and asked for all queues page by page, as `bartleby queue list` does, and for
the metrics; meanwhile another client waits for the answers to sends of its own.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from bench.brokers import Bartleby
from bench.generator import Target
from bench.link import Link
from broker.cli.remote import connect

#: Sends between two receipts.
RUN: Final = 1_000


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


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.many_queues", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queues", type=int, default=100_000)
    queues = parser.parse_args(arguments).queues
    broker = Bartleby(None, Path("etc/broker.toml"))
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
    finally:
        broker.stop()
    return 0


def say(what: str, figure: str) -> None:
    """One line."""
    sys.stdout.write(f"{what:34} {figure}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
