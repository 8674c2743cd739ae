"""Faults of the broker's own, planted in a real process: what each of them costs, and whom."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

from broker.reasons.exit_status import ExitStatus
from broker.sessions.tick import APOLOGY
from tests.support.daemon import DaemonProcess, running
from tests.support.faulty import planted
from tests.support.links import Lost
from tests.support.sim_gate import cheap_user
from tests.support.stomp_client import StompSocket
from tests.support.stomp_py import DURABLE, connected


def test_a_session_that_fails_costs_nobody_else(tmp_path: Path) -> None:
    with running(tmp_path, preparation=planted("deliver")) as broker, connected(broker.port) as other:
        with StompSocket(broker.port) as victim:
            victim.connect()
            victim.do("SUBSCRIBE", {"destination": "/queue/q", "id": "s", "ack": "client-individual"})
            other.put("/queue/q", "poison", DURABLE)
            error = victim.frame()
            assert (error.command, error.headers["message"]) == ("ERROR", "internal error")
            assert APOLOGY.encode() in error.body
            assert victim.rest() == []
        broker.await_log("connection.failed")
        other.put("/queue/other", "x", DURABLE)
        with connected(broker.port) as reader:
            reader.subscribe("/queue/other")
            assert reader.take().text == "x"
        assert broker.queue("q")["messages"] == 1
        assert broker.log.count("connection.failed") == 1
        assert "planted" in broker.log


def test_half_a_move_never_reaches_the_disk(tmp_path: Path) -> None:
    """The engine fails between the copy of a dead letter and the removal of the original, under a load."""
    broker = DaemonProcess(tmp_path, preparation=planted("move"))
    try:
        broker.start()
        with connected(broker.port) as client, connected(broker.port) as other:
            client.put("/queue/work", "once", DURABLE)
            client.subscribe("/queue/work", ack="client-individual")
            message = client.take()
            for number in range(100):
                other.send("/queue/load", str(number), DURABLE)
            with pytest.raises(Lost):
                client.nack(message, requeue="false")
        assert broker.wait() == ExitStatus.FAULT
        assert "broker.failed" in broker.log.splitlines()[-1]
        assert "planted" in broker.log
    finally:
        broker.close()
    with running(tmp_path) as again:
        assert again.queue("work")["messages"] == 1
        assert "DLQ" not in again.queue_names() or again.queue("DLQ")["messages"] == 0


def test_a_task_that_dies_ends_the_process(tmp_path: Path) -> None:
    broker = DaemonProcess(tmp_path, preparation=planted("task"))
    try:
        broker.start()
        (tmp_path / "task-dies").touch()
        assert broker.wait() == ExitStatus.FAULT
        assert "planted" in broker.log
    finally:
        broker.close()


def test_a_failing_disk_is_told_to_every_client_and_in_the_log(tmp_path: Path) -> None:
    broker = DaemonProcess(tmp_path, preparation=planted("sync"))
    try:
        broker.start()
        with connected(broker.port) as sender, StompSocket(broker.port) as bystander:
            bystander.connect()
            sender.put("/queue/q", "before", DURABLE)
            for name in ("sync-fails", "read-only"):  # as the system makes it then
                (tmp_path / name).touch()
            with pytest.raises(Lost):
                sender.put("/queue/q", "after", DURABLE)
            error = bystander.frame()
            assert error.command == "ERROR"
            assert b"disk has failed" in error.body
        assert broker.wait() == ExitStatus.DISK_FAILED
        *_, cause, last = [line for line in broker.log.splitlines() if "connection." not in line]
        assert "journal.failed" in cause
        assert "stopped" in last
        assert "cause=" in last
    finally:
        broker.close()


def test_an_unreadable_directory_of_the_users_file_stops_nothing(tmp_path: Path) -> None:
    """It is told once, the last good users stay, heart-beats and the rest go on, and it is tried again."""
    users = {"anna": "secret"}
    with running(tmp_path, preparation=planted("users"), users=users) as broker:
        with StompSocket(broker.port) as client:
            client.connect(login="anna", passcode="secret", **{"heart-beat": "0,500"})
            (tmp_path / "users-hidden").touch()
            broker.await_log("security.refused")
            with connected(broker.port, login=("anna", "secret")) as other:
                other.put("/queue/q", "x", DURABLE)
            client.subscribe("/queue/q", ack="auto")
            assert client.frame().body == b"x"
            beats = client.reader.heartbeats
            client.wait(lambda: client.reader.heartbeats > beats + 2)  # longer than two looks
        broker.set_users({"bert": cheap_user("other", "amq")})
        (tmp_path / "users-hidden").unlink()
        broker.await_log("security.changed")
        with connected(broker.port, login=("bert", "other")):
            pass
        assert broker.log.count("security.refused") == 1
        assert broker.log.count("broker.error") == 0


@pytest.mark.parametrize(
    ("fault", "code"), [("users", "reload.refused"), ("reload", "reload.failed"), ("reload", "broker.error")]
)
def test_a_reload_that_fails_in_any_way_ends_for_the_service_manager_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, code: str
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with running(tmp_path, preparation=planted(fault), users={"anna": "secret"}) as broker:
            while manager.recv(4096) != b"READY=1":
                pass
            (tmp_path / "users-hidden").touch()
            broker.signal(signal.SIGHUP)
            broker.await_log(code)
            while not manager.recv(4096).startswith(b"RELOADING=1"):
                pass
            while manager.recv(4096) != b"READY=1":
                pass
            with connected(broker.port, login=("anna", "secret")) as client:
                client.put("/queue/q", "x", DURABLE)


def drain(manager: socket.socket) -> NoReturn:
    """Read what comes, as long as something does."""
    while True:
        manager.recv(4096)


def test_the_watchdog_is_fed_as_long_as_ticks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        with running(tmp_path, preparation=planted("stuck")) as broker:
            for _ in range(3):
                while manager.recv(4096) != b"WATCHDOG=1":
                    pass
            (tmp_path / "ticks-stuck").touch()
            assert httpx.get(f"http://127.0.0.1:{broker.ports['http']}/livez", timeout=30).status_code == 503
            manager.settimeout(1)
            with pytest.raises(TimeoutError):
                drain(manager)
