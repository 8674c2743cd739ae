"""A disk that really fills, a small file system of its own: refused cleanly, drained, healed without a restart."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost
from tests.support.stomp_py import Client, connected

#: Four segments and a little: the disk is full after some hundred messages.
DISK_MIB = 20

#: max-disk-usage is off where the journal itself has to find out.
FILLS = """
[broker]
max-disk-usage = -1

[journal]
segment-size = "4MiB"
reserve = "1MiB"
full-retry-interval = "100ms"

[limits]
body-bytes-max = "1MiB"
transaction-bytes-max = "1MiB"
"""

STOPS = FILLS.replace("max-disk-usage = -1", 'max-disk-usage = 70\ndisk-scan-period = "50ms"')

BODY = "x" * 100_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(mounted)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small file system")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=True)


def send_until_refused(broker: DaemonProcess) -> int:
    """How many messages were confirmed before one was refused."""
    confirmed = 0
    with connected(broker.port) as client:
        while confirmed < DISK_MIB * 30:
            try:
                client.put("/queue/q", BODY, {"persistent": "true"})
            except Lost:
                assert "the journal has no room" in client.error().headers["message"]
                return confirmed
            confirmed += 1
    raise AssertionError("the disk is never full")


def test_no_space_left(disk: Path) -> None:
    with running(disk, FILLS) as broker:
        confirmed = send_until_refused(broker)
        broker.await_log("journal.full")
        assert broker.get("status")["reasons"] == ["the disk is full"]
        drain(broker, confirmed)
        broker.await_log("journal.room")
        confirmed = send_until_refused(broker)
        broker.restart()
        assert broker.queue("q")["messages"] == confirmed, "a crash on a full disk loses nothing"
        drain(broker, confirmed)
        with connected(broker.port) as client:
            client.put("/queue/q", BODY, {"persistent": "true"})


def drain(broker: DaemonProcess, number: int) -> None:
    with connected(broker.port) as client:
        client.subscribe("/queue/q", "client-individual")
        for _ in range(number):
            client.ack(client.take())
        client.leave()


def test_producers_wait_before_the_disk_is_full(disk: Path) -> None:
    """max-disk-usage: the file is somebody else's, and so is the room when it goes."""
    with running(disk, STOPS) as broker:
        other = disk / "other"
        other.write_bytes(bytes(DISK_MIB << 19))
        broker.await_log("disk.full")
        with connected(broker.port) as producer, connected(broker.port) as consumer:
            producer.put("/queue/q", "one more", {"persistent": "true"})
            send_unconfirmed(producer, "waits")
            consumer.subscribe("/queue/q", "auto")
            assert consumer.take().text == "one more"
            assert broker.get("status")["journal"]["disk_full"] is True
            assert broker.queue("q")["counters"]["added"] == 1, "the second was not read"
            other.unlink()
            assert consumer.take().text == "waits"
        broker.await_log("disk.room")
        assert broker.get("status")["reasons"] == []


def send_unconfirmed(client: Client, text: str) -> None:
    client.connection.send("/queue/q", text, headers={"persistent": "true"})
