"""A limit of open files that strangers use up: the journal, the health probes and those who log in have theirs."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.stomp_py import connected
from tests.support.strangers import BEGINNINGS, connections

SETTINGS = """
[journal]
segment-size = "4MiB"
reserve = "1MiB"
[limits]
body-bytes-max = "1MiB"
transaction-bytes-max = "1MiB"
[[address-settings]]
match = "#"
max-size-bytes = "1MiB"
[links.other]
url = "amqp://127.0.0.1:1"
[links.other.remote-queues.there]
queue = "there"
"""

#: Connections that a stranger tries to hold.
STRANGERS = 1_100


def limited(limit: int) -> list[str]:
    """The command line of a broker with this soft and hard limit."""
    code = (
        f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit} // 2, {limit}));"
        "os.execv(sys.executable, [sys.executable, '-m', 'broker', *sys.argv[1:]])"
    )
    return [sys.executable, "-c", code]


def probe(broker: DaemonProcess, path: str) -> int:
    return httpx.get(f"http://127.0.0.1:{broker.ports['http']}{path}", timeout=20, trust_env=False).status_code


@pytest.mark.parametrize("limit", [128, 1_024, 65_536])
def test_strangers_do_not_stop_the_journal(tmp_path: Path, limit: int) -> None:
    """Segments roll, messages page, large bodies come and go, and a link tries to connect."""
    if limit > resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (ValueError, OSError):
            pytest.skip(f"this machine permits fewer than {limit} open files")
    users = {"alice": "secret"}
    with running(tmp_path, SETTINGS, users=users, command=limited(limit)) as broker:
        broker.await_log("descriptors.raised")
        assert broker.log.count("descriptors.few") == (limit < 10_000)
        with connections(broker.port, STRANGERS, BEGINNINGS["stomp"][0]) as strangers:
            with connected(broker.port, login=("alice", "secret")) as client:
                for n in range(12):
                    client.put("/queue/rolling", f"{n}" + "x" * 900_000, {"persistent": "true"})
                    strangers.drip(b"x")
                for _ in range(150):
                    client.put("/queue/paging", "y" * 90_000, {"persistent": "true"})
            assert (probe(broker, "/livez"), probe(broker, "/readyz")) == (200, 200)
            assert broker.get("status")["ready"]
            assert len(broker.bodies) == 12
        assert broker.queue("paging")["messages"] == 150
        assert not [line for line in broker.log.splitlines() if "journal.failed" in line]
        broker.restart()
        assert (broker.queue("rolling")["messages"], broker.queue("paging")["messages"]) == (12, 150)
