"""What a service manager hears, over a real datagram socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from os import getpid
from pathlib import Path

import pytest

from broker.daemon.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket in the file system, and its name."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.settimeout(5)
        yield listening, path


def test_each_call_is_one_datagram(manager: tuple[socket.socket, str]) -> None:
    listening, path = manager
    notifier = Notifier({"NOTIFY_SOCKET": path}, 1)
    notifier.ready()
    notifier.status("recovering\n100 records")
    notifier.stopping()
    notifier.watchdog()
    notifier.extend_timeout(1.5)
    heard = [listening.recv(4096) for _ in range(5)]
    assert heard == [
        b"READY=1",
        b"STATUS=recovering\\n100 records",
        b"STOPPING=1",
        b"WATCHDOG=1",
        b"EXTEND_TIMEOUT_USEC=1500000",
    ]


def test_a_reload_says_when_it_began(manager: tuple[socket.socket, str]) -> None:
    listening, path = manager
    Notifier({"NOTIFY_SOCKET": path}, 1).reloading()
    first, second = listening.recv(4096).split(b"\n")
    assert first == b"RELOADING=1"
    name, _, microseconds = second.partition(b"=")
    assert name == b"MONOTONIC_USEC"
    assert int(microseconds) > 0


def test_an_abstract_socket_is_reached() -> None:
    name = f"bartleby-test-{getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + name)
        listening.settimeout(5)
        Notifier({"NOTIFY_SOCKET": "@" + name}, 1).ready()
        assert listening.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/no/such/socket", "@no-such-socket", "x" * 200])
def test_a_manager_that_is_not_there_is_no_error(address: str) -> None:
    Notifier({"NOTIFY_SOCKET": address}, 1).ready()
    Notifier({}, 1).ready()


def test_a_manager_that_does_not_listen_stops_nobody(manager: tuple[socket.socket, str]) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager[1]}, 1)
    for _ in range(5_000):  # more than any queue of datagrams holds
        notifier.watchdog()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_PID": "42"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked(environment: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environment, 42).watchdog_interval() == seconds


def test_signs_of_life_as_long_as_it_goes_on(manager: tuple[socket.socket, str]) -> None:
    """Without one where it does not live."""
    listening, path = manager
    notifier = Notifier({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000"}, 1)
    living = [False, True, False]

    async def beat() -> None:
        over = asyncio.Event()

        def goes_on() -> bool:
            if not living:
                over.set()
            return bool(living)

        notifier.beat(goes_on, living.pop)
        await asyncio.wait_for(over.wait(), 5)

    asyncio.run(beat())
    notifier.stopping()
    assert [listening.recv(4096) for _ in range(2)] == [b"WATCHDOG=1", b"STOPPING=1"]


def test_nobody_who_watches_is_told_nothing(manager: tuple[socket.socket, str]) -> None:
    listening, path = manager
    notifier = Notifier({"NOTIFY_SOCKET": path}, 1)
    notifier.beat(lambda: True)
    notifier.stopping()
    assert listening.recv(4096) == b"STOPPING=1"
