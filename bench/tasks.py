"""What a task costs others: a million dead letters are retried while a client waits for answers to its own sends.

    python -m bench.tasks [--messages 1000000] [--rate 0]

A STOMP client sends durable messages of several sizes to a queue, another refuses each for good (NACK), so that they
lie on the dead-letter queue.  A probe then sends a durable message every few ms and waits for its receipt: alone, and
while `POST /api/v1/tasks` brings all dead letters back.  It is told how long that took, whether the second half took
as long as the first, and how long the probe waited.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from bench.brokers import Bartleby
from bench.generator import Target
from bench.link import READ_BYTES, Link
from broker.cli.remote import Remote, connect

#: Sends between two receipts, and bytes of bodies, in turns.
RUN: Final = 1_000
SIZES: Final = (16, 200, 1_000, 64, 500)

#: Seconds between two sends of the probe, and of its time alone.
PAUSE_S: Final = 0.005
ALONE_S: Final = 5.0

_ACK: Final = re.compile(rb"\nack:([^\n]+)\n")


def fill(target: Target, messages: int) -> None:
    """Sends so many messages to one queue."""
    link = Link.connect(target.host, target.port)
    frame = "SEND\ndestination:/queue/orders\npersistent:true\nnumber:{}\nkind:k{}\n{}\n{}\0"
    try:
        for start in range(0, messages, RUN):
            end = min(start + RUN, messages)
            run = [frame.format(n, n % 17, "", "x" * SIZES[n % len(SIZES)]) for n in range(start, end - 1)]
            link.sock.setblocking(True)
            link.sock.sendall("".join(run).encode())
            answer = link.request(frame.format(end - 1, 0, "receipt:r\n", "last").encode())
            assert answer.startswith(b"RECEIPT"), answer
    finally:
        link.close()


def refuse(target: Target, messages: int) -> None:
    """Refuses so many messages for good."""
    link = Link.connect(target.host, target.port)
    sock = link.sock
    sock.settimeout(60)
    sock.sendall(
        b"SUBSCRIBE\ndestination:/queue/orders\nid:0\nack:client-individual\nconsumer-window-size:262144\n\n\0"
    )
    refused, rest = 0, b""
    while refused < messages:
        *whole, rest = (rest + sock.recv(READ_BYTES)).split(b"\0")
        ids = _ACK.findall(b"\0".join(whole))
        sock.sendall(b"".join([b"NACK\nid:%b\nrequeue:false\n\n\0" % id for id in ids]))
        refused += len(ids)
    link.request(b"UNSUBSCRIBE\nid:0\nreceipt:u\n\n\0")
    link.close()


class Probe:
    """A client that sends again and again, and notes how long each receipt took, in ms."""

    def __init__(self, target: Target) -> None:
        self._link = Link.connect(target.host, target.port)
        self._link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waits: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._over.is_set():
            begun = time.perf_counter()
            self._link.request(b"SEND\ndestination:/queue/probe\npersistent:true\nreceipt:r\n\nhello\0")
            self.waits.append(1000 * (time.perf_counter() - begun))
            time.sleep(PAUSE_S)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._link.close()

    def __str__(self) -> str:
        waits = sorted(self.waits)
        at = {name: waits[int(part * (len(waits) - 1))] for name, part in (("p50", 0.5), ("p99", 0.99), ("most", 1.0))}
        return f"{', '.join(f'{name} {ms:.1f} ms' for name, ms in at.items())}, of {len(waits)}"


def retry(remote: Remote, queue: str, rate: int) -> tuple[dict[str, Any], float, float]:
    """Brings all messages of a queue back; the task when it ended, seconds of its first half, and of all."""
    begun, half = time.perf_counter(), 0.0
    task = remote.post("/api/v1/tasks", {"kind": "retry", "queue": queue, "rate": rate})
    while task["state"] == "running":
        task = remote.get(f"/api/v1/tasks/{task['id']}", wait=200)
        if not half and 2 * task["looked_at"] >= task["total"]:
            half = time.perf_counter() - begun
    return task, half, time.perf_counter() - begun


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=0)
    given = parser.parse_args(arguments)
    broker = Bartleby(None, Path("etc/broker.toml"))
    try:
        broker.start()
        target = broker.target("stomp")
        fill(target, given.messages)
        refuse(target, given.messages)
        remote = connect(None, broker.data, None, None)
        with Probe(target) as alone:
            time.sleep(ALONE_S)
        say("probe alone", str(alone))
        assert target.cpu is not None
        before = target.cpu()
        with Probe(target) as probe:
            task, half, seconds = retry(remote, "DLQ", given.rate)
        cpu = target.cpu() - before
        say(
            "retried",
            f"{task['moved']:,} of {task['total']:,} ({task['state']}) in {seconds:.1f} s, {cpu:.1f} s of CPU",
        )
        say("the first half, the second", f"{half:.1f} s, {seconds - half:.1f} s")
        say("probe meanwhile", str(probe))
        return 0 if task["state"] == "completed" else 1
    finally:
        broker.stop()


def say(what: str, figure: str) -> None:
    """One line."""
    sys.stdout.write(f"{what:28} {figure}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
