"""A limit of open files, and a broker that works at it while strangers hold all that they can.

journal    segments roll, large bodies are written, messages page to disk
clients    a producer and a consumer that logged in before, one that logs in meanwhile, a link
health     /livez, /readyz, and the status for the command line
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.peers import free_port
from tests.support.process import awaited
from tests.support.stomp_py import DURABLE, connected
from tests.support.strangers import half_open, settings

LOGIN: Final = ("alice", "secret")

_SETTINGS: Final = """
[journal]
segment-size = "4MiB"
reserve = "1MiB"
[limits]
body-bytes-max = "1MiB"
transaction-bytes-max = "1MiB"
connections-max = 65000
[[address-settings]]
match = "#"
max-size-bytes = "1MiB"
[addresses.far.queues.far]
routing-type = "ANYCAST"
[links.itself]
url = "amqp://127.0.0.1:{amqp}"
user = "{user}"
password-file = "{file}"
[links.itself.remote-queues.near]
queue = "far"
"""

#: Messages of each kind that a broker takes while strangers are there: three segments, four times the memory.
LARGE: Final = 12
PAGED: Final = 50

#: `LimitNOFILE` of the unit.
UNIT: Final = 65_536

#: Descriptors of this process that are not strangers' sockets.
OWN: Final = 100

#: Descriptors that may stay open: of another segment, of threads that read.
SLACK: Final = 8


def most() -> tuple[int, int]:
    """The greatest limit of open files for a broker, at most that of its unit, and a number of strangers beyond it.

    This process can hold so many from now on.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = min(UNIT, hard * 4 // 5)
    return limit, limit * 5 // 4 - OWN


@contextmanager
def limited(directory: Path, limit: int) -> Iterator[DaemonProcess]:
    """Run a broker with this limit, which its shell has lowered to half; it has a link to itself."""
    lowered = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit // 2}, {limit}))"
    user, password = LOGIN
    file = directory / "password"
    file.write_text(password)
    file.chmod(0o600)
    ports = {name: free_port() for name in ("stomp", "amqp", "mqtt", "web", "http", "secure")}
    text = settings(Authority(directory / "ca"), timeout="5min") + _SETTINGS.format(
        amqp=ports["amqp"], user=user, file=file
    )
    with running(directory, text, users={user: password}, preparation=lowered, fixed=ports) as broker:
        yield broker


def _open(broker: DaemonProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def _connections(broker: DaemonProcess) -> dict[str, int]:
    return {each["name"]: each["connections"] for each in broker.get("status")["acceptors"] if each["name"] != "http"}


def probe(broker: DaemonProcess, path: str) -> float:
    """Ask a health probe; returns the seconds that it took.  Raises AssertionError."""
    begun = time.monotonic()
    answer = httpx.get(f"http://127.0.0.1:{broker.ports['http']}{path}", timeout=20, trust_env=False)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - begun


def outlive(broker: DaemonProcess, count: int) -> float:
    """Work while `count` strangers have begun handshakes.  Returns the seconds of the slowest health probe.

    Raises AssertionError if anything is in their way, or they leave something behind.
    """
    with connected(broker.port, login=LOGIN) as producer, connected(broker.port, login=LOGIN) as consumer:
        consumer.subscribe("/queue/far")

        def passes(number: int) -> None:
            producer.put("/queue/near", f"{number}", DURABLE)
            assert consumer.take().text == f"{number}"

        passes(0)
        before, opened = _connections(broker), _open(broker)
        with half_open(broker, count):
            for n in range(LARGE):
                producer.put("/queue/rolling", f"{n}" + "x" * 900_000, DURABLE)
                passes(n)
            for _ in range(PAGED):
                producer.put("/queue/paging", "y" * 90_000, DURABLE)
            with connected(broker.port, login=LOGIN) as another:
                another.put("/queue/rolling", "of one who comes later", DURABLE)
            slowest = max(probe(broker, path) for path in ("/livez", "/readyz"))
            assert broker.get("status")["ready"]
            passes(LARGE)
        awaited(lambda: _connections(broker), lambda now: now == before, what=f"{before} connections as before")
        awaited(lambda: _open(broker), lambda now: now <= opened + SLACK, what=f"{opened} descriptors as before")
        passes(LARGE + 1)
    assert "journal.failed" not in broker.log
    assert "connection.accept_failed" not in broker.log
    return slowest
