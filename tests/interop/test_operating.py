"""What an operator does with a real broker, and meets when it does not start."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from broker.security.users_file import write_users
from tests.interop.operating import operate, run
from tests.support import fork_server
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S, ROOT
from tests.support.sim_gate import cheap_user
from tests.support.stomp_client import StompSocket
from tests.support.stomp_py import connected

#: The tests' own, without what is meant for brokers.
CLEAN_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("BARTLEBY_")}


def test_a_client_that_has_said_goodbye_and_lingers_is_closed_by_an_operator(tmp_path: Path) -> None:
    """Nothing can be sent any more: the broker's side is shut down."""
    with running(tmp_path) as broker, StompSocket(broker.port) as client:
        client.connect()
        client.do("DISCONNECT", {"receipt": "bye"})
        assert client.frame().command == "RECEIPT"
        [connection] = operate(broker, "connection", "list")
        run(broker, "connection", "close", connection["id"])
        broker.await_log("connection.dismissed")
        run(broker, "status")
        assert "connection.failed" not in broker.log


def test_creations_of_an_operator_survive_a_crash_and_deletions_last(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        run(broker, "address", "create", "orders", "--anycast")
        run(broker, "queue", "create", "orders", "ring-size=2")
        run(broker, "queue", "create", "eu", "--address", "orders", "--filter", "region = 'eu'")
        run(broker, "queue", "create", "kept", "--make-address", "--type", "anycast")
        run(broker, "queue", "create", "gone", "--make-address", "--type", "anycast")
        run(broker, "divert", "add", "audit", "orders", "kept", "--filter", "region = 'eu'")
        run(broker, "queue", "delete", "gone")
        for number in range(3):
            run(broker, "address", "send", "orders::orders", str(number))
        run(broker, "address", "send", "orders", "hello", "--property", "region=eu")
        broker.restart()
        counts = {each["name"]: each["messages"] for each in operate(broker, "queue", "list")}
        assert (counts["orders"], counts["kept"]) == (2, 1), "a ring of two; what the divert copied"
        assert "gone" not in counts
        assert [each["name"] for each in operate(broker, "divert", "list")] == ["audit"]
        assert operate(broker, "queue", "show", "eu")["filter"] == "region = 'eu'"
        run(broker, "queue", "purge", "kept", "--filter", "region = 'eu'", "--yes")
        run(broker, "divert", "remove", "audit")
        run(broker, "address", "delete", "orders", "--force", "--yes")
        broker.restart()
        assert {each["name"]: each["messages"] for each in operate(broker, "queue", "list")}["kept"] == 0
        assert "orders" not in {each["name"] for each in operate(broker, "address", "list")}
        assert operate(broker, "divert", "list") == []


def test_a_client_is_sent_away(tmp_path: Path) -> None:
    with running(tmp_path) as broker, connected(broker.port) as client:
        client.subscribe("/queue/a", "client-individual")
        run(broker, "address", "send", "a", "hello", "--type", "anycast")
        assert client.take().text == "hello"
        (consumer,) = operate(broker, "consumer", "list")
        (connection,) = operate(broker, "connection", "list")
        assert (consumer["queue"], consumer["unacknowledged"], consumer["remote"]) == ("a", 1, connection["remote"])
        run(broker, "connection", "close", connection["id"], "--reason", "it is late")
        assert "it is late" in client.error().text
        shown = operate(broker, "queue", "show", "a")
        assert (shown["ready"], shown["consumers"], shown["counters"]["redelivered"]) == (1, 0, 0)


@pytest.mark.parametrize(("closed", "numbers"), [("0<&- 1>&-", (0, 1)), ("0<&- 2>&-", (0, 2))])
def test_streams_that_are_closed_lead_nowhere(tmp_path: Path, closed: str, numbers: Sequence[int]) -> None:
    """Else a file of the broker has their number, and whoever writes to the stream writes there."""
    broker = DaemonProcess(tmp_path, wrapper=("sh", "-c", f'exec "$@" {closed}', "sh"))
    try:
        broker.begin()
        if 2 in numbers:
            broker.await_ready()
        else:
            broker.await_log(" ready ")
        assert [os.readlink(f"/proc/{broker.pid}/fd/{number}") for number in numbers] == [os.devnull] * 2
        assert broker.stop() == 0
    finally:
        broker.close()


def fails(directory: Path, settings: str, data: Path | str, *more: str) -> tuple[int, str]:
    """A start that must fail: the exit status, and the log."""
    config = directory / "broker.toml"
    config.write_text(settings)
    arguments = ["run", "--config", str(config), "--data", str(data), *more]
    done = fork_server.run(arguments, CLEAN_ENVIRONMENT, ROOT, PATIENCE_S)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = f'[acceptors.mine]\nprotocol = "stomp"\nport = {port}\n'
        status, log = fails(tmp_path, settings, tmp_path / "data")
    assert status == 1
    assert f"start.listen acceptor=mine address=127.0.0.1:{port} " in log
    assert "address already in use" in log


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    status, log = fails(tmp_path, "", Path("/proc/nothing"))
    assert status == 74
    assert "opening the journal directory /proc/nothing/journal" in log


@pytest.mark.parametrize("host", ["x" * 100, "a..b", "999.1.1.1"])
def test_a_host_that_is_no_name_is_named(tmp_path: Path, host: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_users(data / "users.toml", {"alice": cheap_user("secret", "amq")})  # beyond this machine it needs one
    status, log = fails(tmp_path, "", data, "--listen", f"stomp={host}:0")
    assert status == 1
    assert "Traceback" not in log
    assert f"start.listen acceptor=stomp address={host}:0 " in log
    assert "correct acceptors.stomp.host" in log


def test_a_port_of_thousands_of_digits_and_a_directory_without_a_name(tmp_path: Path) -> None:
    status, told = fails(tmp_path, "", tmp_path / "data", "--listen", "stomp=127.0.0.1:" + "9" * 5_000)
    assert (status, "the port is at most 65535" in told) == (2, True)
    status, told = fails(tmp_path, "", "")
    assert (status, "'--data': the name is empty" in told) == (2, True)
