"""A disk that really fills, a small file system of its own: refused cleanly, drained, healed without a restart."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost
from tests.support.process import awaited
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


def send_until_refused(broker: DaemonProcess, queue: str = "/queue/q") -> int:
    """How many messages were confirmed before one was refused."""
    confirmed = 0
    with connected(broker.port) as client:
        while confirmed < DISK_MIB * 30:
            try:
                client.put(queue, BODY, {"persistent": "true"})
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


#: Little room for the broker's own removals, so that some thousand use it up; expired messages are removed.
SCARCE = (
    FILLS.replace('reserve = "1MiB"', 'reserve = "256KiB"')
    + """
[[address-settings]]
match = "q"
expiry-address = ""
"""
)

#: Messages that expire, more than the reserve and a spare segment have room for, and that are consumed.
EXPIRING = 40_000
KEPT = 30
CONSUMED = 15_000

#: From when a message is sent until it expires, in ms: each has arrived before.
LIFE_MS = 5_000

#: How often the broker looks for what has expired.
LOOKS = "BARTLEBY_BROKER__MESSAGE_EXPIRY_SCAN_PERIOD"


def send_small(client: Client, queue: str, number: int, life_ms: int = 0) -> None:
    """Send small messages; the last one is confirmed."""
    for left in range(number, 0, -1):
        headers = {"persistent": "true"}
        if life_ms:
            headers["expires"] = str(int(time.time() * 1000) + life_ms)
        (client.send if left > 1 else client.put)(queue, "small", headers)


def enlarge(disk: Path) -> None:
    """Make room."""
    subprocess.run(["mount", "-o", f"remount,size={4 * DISK_MIB}m", str(disk)], check=True)


def await_empty(broker: DaemonProcess, queue: str) -> None:
    """Wait until a queue has no messages."""
    awaited(lambda: broker.queue(queue)["messages"] == 0, what=f"queue {queue} is empty")


def test_a_message_without_room_to_leave_waits_even_through_kill_9(disk: Path) -> None:
    """The first messages keep every segment, so nothing that leaves makes room for others."""
    environment = {LOOKS: "-1"}  # what expires waits until the disk is full
    with running(disk, SCARCE, environment=environment) as broker:
        with connected(broker.port) as client:
            for _ in range(KEPT):
                client.put("/queue/keep", BODY, {"persistent": "true"})
            send_small(client, "/queue/q", EXPIRING, LIFE_MS)
            expired_at = time.time() + LIFE_MS / 1000
            send_small(client, "/queue/c", CONSUMED)
        confirmed = send_until_refused(broker, "/queue/ballast")
        assert broker.queue("q")["messages"] == EXPIRING
        environment[LOOKS] = "50"
        broker.restart()
        broker.await_log("move.disk_full")
        left = broker.queue("q")["messages"]
        assert 0 < left < EXPIRING
        broker.restart()
        broker.await_log("move.disk_full", times=2)
        assert broker.log.count("move.disk_full") == 2, "once for each run"
        assert broker.queue("q")["messages"] <= left
        awaited(lambda: time.time() > expired_at, what="all have expired")
        with connected(broker.port) as client:
            client.subscribe("/queue/q", "auto")
            client.subscribe("/queue/c", "client-individual")
            for _ in range(CONSUMED):  # they may need more than consumers have in reserve, and wait for room then
                message = client.take()
                assert message.headers["destination"] == "/queue/c", "what has expired is not delivered"
                client.connection.ack(message.headers["ack"])
            await_empty(broker, "c")
            fuller = broker.log.count("journal.room")
            enlarge(disk)
            client.leave()
        broker.await_log("journal.room", times=fuller + 1)
        await_empty(broker, "q")
        broker.restart()
        assert broker.queue("c")["messages"] == 0
        assert broker.queue("ballast")["messages"] == confirmed
