"""How a broker ends: told to (SIGTERM), beside another, with a reload before, and when its disk fails."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost
from tests.support.process import NotReady
from tests.support.stomp_client import StompSocket
from tests.support.stomp_py import DURABLE, connected

SHIPPED = """
[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"
"""

STRACE = shutil.which("strace")

#: The sync that fails: some belong to the start, the others to messages.
FAILING_SYNC = 12

#: How long it may take to end after that, in seconds: a second, and what a machine with other work needs under strace.
ENDED_S = 5.0


def test_sigterm_lets_confirmations_out_and_says_goodbye(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        with StompSocket(broker.port) as sender:
            sender.connect()
            for number in range(200):
                sender.do("SEND", {"destination": "/queue/q", "receipt": str(number), **DURABLE}, b"x" * 10_000)
            # The first receipt shows that the broker reads; the others are on their way when it is told to stop.
            first = sender.frame()
            broker.signal(signal.SIGTERM)
            *others, goodbye = sender.rest()
        assert (goodbye.command, goodbye.headers["message"]) == ("ERROR", "broker shutting down")
        confirmed = [receipt.headers["receipt-id"] for receipt in (first, *others)]
        assert confirmed == [str(number) for number in range(len(confirmed))]
        assert broker.wait() == 0
        broker.start()
        assert broker.queue("q")["messages"] >= len(confirmed)
        assert "verdict=clean" in broker.log
        assert "journal.torn_tail" not in broker.log


def test_peers_that_do_not_read_cannot_keep_a_broker_from_stopping(tmp_path: Path) -> None:
    with running(tmp_path) as broker, StompSocket(broker.port) as deaf, StompSocket(broker.port) as silent:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect()
        deaf.do("SUBSCRIBE", {"id": "1", "destination": "/queue/q"})
        silent.connect()
        for number in range(100):
            silent.do("SEND", {"destination": "/queue/q", "receipt": str(number), **DURABLE}, b"x" * 100_000)
            assert silent.frame().command == "RECEIPT"
        begun = time.monotonic()
        assert broker.stop() == 0
        # Long before the shutdown timeout: a goodbye that nobody reads is waited for only shortly.
        assert time.monotonic() - begun < 10
        broker.start()
        assert broker.queue("q")["messages"] > 50


def test_a_delivery_taken_back_at_a_shutdown_has_left_and_not_failed(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        with connected(broker.port) as client:
            client.put("/queue/q", "x", DURABLE)
            client.subscribe("/queue/q", "client")
            client.take()
            assert broker.stop() == 0
            assert client.error().headers["message"] == "broker shutting down"
        broker.start()
        assert [m["failed_deliveries"] for m in broker.get("queues/q/messages")["messages"]] == [0]
        with connected(broker.port) as client:
            client.subscribe("/queue/q")
            assert client.take().redelivered is True


def test_a_second_broker_refuses_and_names_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        second = DaemonProcess(tmp_path)
        with pytest.raises(NotReady, match="status 75"):
            second.start()
        assert f"pid={broker.pid}" in second.log
        with connected(broker.port) as client:
            client.put("/queue/q", "the first goes on", DURABLE)


def test_a_reload_changes_address_settings_at_once(tmp_path: Path) -> None:
    with running(tmp_path, SHIPPED) as broker, connected(broker.port) as client:
        client.put("/queue/q", "bad", DURABLE)
        client.subscribe("/queue/q", "client-individual")
        broker.reload(SHIPPED + '[[address-settings]]\nmatch = "q"\nmax-delivery-attempts = 1\n')
        assert broker.queue("q")["settings"]["max-delivery-attempts"] == 1
        client.nack(client.take())
        assert broker.queue("DLQ")["messages"] == 1
        assert "changed=address-settings" in broker.log


def test_a_bad_reload_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path, SHIPPED) as broker:
        broker.config.write_text(SHIPPED + "max-delivery-attempts = 'many'\n")
        broker.signal(signal.SIGHUP)
        broker.await_log("reload.refused")
        assert "max-delivery-attempts" in broker.log
        assert broker.get("status")["ready"] is True


@pytest.mark.skipif(STRACE is None, reason="no strace: apt-get install strace")
def test_a_failing_disk_stops_the_broker_at_once(tmp_path: Path) -> None:
    """P1 when the disk fails: no receipt for what could not be synced, and no second try."""
    assert STRACE is not None
    trace = tmp_path / "trace"
    strace = [STRACE, "-f", "-ttt", "-o", str(trace), "-e", "trace=fdatasync,pwritev2"]
    strace += ["-e", "signal=none"]
    strace += ["-e", f"inject=pwritev2:error=EIO:when={FAILING_SYNC}+"]
    with running(tmp_path, wrapper=strace) as broker:
        with StompSocket(broker.port) as sender:
            sender.connect()
            confirmed = 0
            while confirmed < FAILING_SYNC and send_one(sender, confirmed):
                confirmed += 1
            assert confirmed < FAILING_SYNC
        assert broker.wait() == 74
        assert "journal.failed" in broker.log
        traced = trace.read_text()
        print(f"{ended_after(traced):.3f} s from the failed sync to the end")  # of an idle machine: some hundredths
        assert ended_after(traced) < ENDED_S
        syncs = re.findall(r"(?:fdatasync|pwritev2)\(.*= (.+)", traced)
        assert [sync for sync in syncs if "EIO" in sync] == syncs[-1:], "a failed sync is never tried again"
    with running(tmp_path) as broker:
        assert broker.queue("q")["messages"] >= confirmed


def ended_after(trace: str) -> float:
    """Seconds from the sync that failed to the end of the process."""
    failed = re.search(r"^\d+ +([\d.]+) .*EIO", trace, re.MULTILINE)
    ends = re.findall(r"^\d+ +([\d.]+) \+\+\+ exited with 74", trace, re.MULTILINE)
    assert failed is not None
    return float(ends[-1]) - float(failed[1])


def send_one(sender: StompSocket, number: int) -> bool:
    """Send a durable message; whether its receipt came before the end of the connection, or the word that it ends."""
    sender.do("SEND", {"destination": "/queue/q", "receipt": str(number), **DURABLE}, b"x")
    try:
        answer = sender.frame()
    except Lost:
        return False
    if answer.command == "ERROR":
        assert b"disk has failed" in answer.body
        return False
    assert (answer.command, answer.headers["receipt-id"]) == ("RECEIPT", str(number))
    return True
