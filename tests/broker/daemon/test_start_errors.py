"""What keeps a broker from starting is told with what to do about it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from broker.daemon.acceptors import taken
from broker.daemon.start_errors import CannotListen, cannot_listen, cannot_open, fields, opening
from store.errors import CopyAhead, DirectoryLocked, JournalFull, LogFailed

DATA = Path("/data")


def listening(host: str, port: int) -> OSError:
    """What the system says to whoever listens there."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        return error
    raise AssertionError("it listens")


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = cannot_listen("stomp", listening("127.0.0.1", taken.getsockname()[1]))
    assert told.startswith("address already in use: another process uses this port (`ss -ltnp` shows which)")
    assert told.endswith("acceptors.stomp.port or --listen stomp=HOST:PORT")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_can_be_tried_before_it_is_needed(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listens:
        port = listens.getsockname()[1]
        assert taken("stomp", host, port).startswith(f"acceptors.stomp: {host}:{port}: address already in use: another")
        with socket.create_connection(listens.getsockname()) as client:
            listens.accept()[0].close()
            client.recv(1)
    assert taken("stomp", host, port) == "", "also while a connection of it lingers"
    assert "the host name is unknown" in taken("stomp", "no.such.host.invalid", 1)
    assert "the host name is unknown" in taken("stomp", "x" * 64, 1) or "valid host name" in taken("stomp", "x" * 64, 1)


def test_an_address_of_another_machine() -> None:
    told = cannot_listen("amqp", listening("192.0.2.1", 0))
    assert told.startswith("cannot assign requested address: this machine does not have that address")
    assert told.endswith("set acceptors.amqp.host to one that it has, or to 0.0.0.0 for all")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EACCES, "Permission denied"), "grant CAP_NET_BIND_SERVICE"),
        (OSError(errno.ENFILE, "Too many open files"), "Too many open files: correct acceptors.a"),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "Name or service not known: the host name is unknown: correct acceptors.a.host",
        ),
    ],
)
def test_other_reasons(error: OSError, told: str) -> None:
    assert cannot_listen("a", error).endswith(told)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, f"user {os.geteuid()} may not do that: run the broker as the owner of /data"),
        (errno.EROFS, "with --data or broker.data-directory"),
        (errno.ENOTDIR, "choose a directory"),
    ],
)
def test_a_directory_that_cannot_be_used(number: int, advice: str) -> None:
    error = LogFailed("opening the journal directory /data/journal: it failed")
    error.__cause__ = OSError(number, "it failed")
    told = cannot_open(DATA, error)
    assert told.startswith(f"{error}: ")
    assert advice in told


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.EACCES, "Permission denied", "/data/management.token"),
            f"/data/management.token: Permission denied: user {os.geteuid()} may not do that: run the broker as",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/management.token"),
            "/data/management.token: No space left on device: free space on the disk of /data",
        ),
        (OSError(errno.EIO, "Input/output error"), "[Errno 5] Input/output error"),
        (
            JournalFull("there is no room"),
            "there is no room: free space on the disk of /data, or choose a directory on another disk with --data",
        ),
        (
            CopyAhead("the copy ends at byte 9"),
            "the copy ends at byte 9: the database has lost entries that were confirmed (was a standby promoted that"
            " was not synchronous, or a backup restored?); docs/high-availability.md says how to go on from either",
        ),
    ],
)
def test_what_cannot_be_opened_or_written(error: Exception, told: str) -> None:
    assert cannot_open(DATA, error).startswith(told)


@pytest.mark.parametrize("error", [OSError(errno.EADDRINUSE, "Address already in use"), UnicodeError("label too long")])
def test_an_acceptor_that_cannot_be_opened_is_named(error: Exception) -> None:
    with pytest.raises(CannotListen) as raised, opening("mine", "host", 1234):
        raise error
    told = fields(DATA, raised.value)
    assert (told["acceptor"], told["address"]) == ("mine", "host:1234")
    assert "acceptors.mine" in str(told["error"])


def test_a_directory_in_use() -> None:
    told = fields(DATA, DirectoryLocked("/data/journal", 17))
    assert (told["directory"], told["pid"]) == ("/data/journal", 17)
    assert "--data" in str(told["advice"])


def test_what_nobody_can_advise_on_stays_as_it_is() -> None:
    assert cannot_open(DATA, LogFailed("the disk failed")) == "the disk failed"


def test_all_addresses_are_tried_as_an_acceptor_binds_them() -> None:
    """An acceptor on `::` listens on IPv4 too, so a taken port of IPv4 is taken for it."""
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = other.getsockname()[1]
        assert "address already in use" in taken("stomp", "::", port)
    assert taken("stomp", "::", port) == ""
