"""Users and permissions of a running broker: changed while it runs, and the first one."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from broker.security.users_file import StoredUser, read_users, write_users
from tests.interop.scram import salt_and_iterations
from tests.support import fork_server
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S, ROOT
from tests.support.sim_gate import cheap_user
from tests.support.stomp_client import StompSocket

SETTINGS = """
[security]
login-failure-delay = 0
[[security-settings]]
match = "#"
send = ["senders"]
consume = ["readers"]
createAddress = ["senders", "readers"]
createDurableQueue = ["senders", "readers"]
"""


def reload(broker: DaemonProcess) -> None:
    """SIGHUP, and wait until it is done."""
    count = broker.log.count("reload.done")
    broker.signal(signal.SIGHUP)
    broker.await_log("reload.done", times=count + 1)


def login(name: str) -> dict[str, str]:
    return {"accept-version": "1.2", "host": "h", "login": name, "passcode": "secret"}


def test_rights_that_are_taken_away_end_what_lives_by_them(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS, users={}) as broker:
        users = {name: cheap_user("secret", "senders", "readers") for name in ("alice", "bob")}
        broker.set_users(users)
        reload(broker)
        with StompSocket(broker.port) as reader, StompSocket(broker.port) as sender:
            for client, name in ((reader, "alice"), (sender, "bob")):
                client.do("CONNECT", login(name))
                assert client.frame().command == "CONNECTED"
            reader.do("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "receipt": "s"})
            assert reader.frame().headers["receipt-id"] == "s"
            broker.set_users({"alice": cheap_user("secret", "senders")})
            reload(broker)
            (error,) = reader.rest()
            assert error.headers["message"] == "subscription closed"
            assert sender.rest() == [], "bob is gone, and cut off"
        (broker.data / "users.toml").unlink()
        broker.signal(signal.SIGHUP)
        broker.await_log("reload.refused")
        with StompSocket(broker.port) as alice:
            alice.do("CONNECT", login("alice"))
            assert alice.frame().command == "CONNECTED", "what was read before stays"
        (broker.data / "users.toml").touch(mode=0o600)
        reload(broker)
        with StompSocket(broker.port) as alice:
            alice.do("CONNECT", login("alice"))
            assert [frame.command for frame in alice.rest()] == ["ERROR"], "an empty file lets nobody in"


def test_first_user(tmp_path: Path) -> None:
    """Listening for others without a user: one is made, and his password shown once."""
    config = tmp_path / "broker.toml"
    config.write_text('[acceptors.stomp]\nprotocol = "stomp"\nhost = "0.0.0.0"\nport = 0\n')
    arguments = ["run", "--config", str(config), "--data", str(tmp_path / "data")]
    found = []
    for _ in range(2):
        process = fork_server.start(arguments, os.environ, ROOT)
        with process.stdout, process.stderr:
            lines = [process.stdout.readline()]
            if not lines[0].startswith("READY"):
                lines.append(process.stdout.readline())
            os.kill(process.pid, signal.SIGTERM)
            found.append((lines, process.stderr.read()))
            assert process.wait(PATIENCE_S) == 0
    (first, log), (second, _) = found
    password = re.search(r"first user is admin, the password (\S+) ", first[0])
    assert password is not None
    assert password[1] not in log
    assert len(second) == 1, "it is shown once"
    assert set(read_users(tmp_path / "data" / "users.toml")) == {"admin"}


def test_a_broker_does_not_start_with_a_users_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    write_users(path, {"a": StoredUser()})
    path.chmod(0o604)
    arguments = ["run", "--data", str(tmp_path)]
    for acceptor in ("stomp", "amqp", "mqtt", "http"):
        arguments += ["--listen", f"{acceptor}=127.0.0.1:0"]
    ended = fork_server.run(arguments, os.environ, ROOT, PATIENCE_S)
    assert ended.returncode == 2
    assert "chmod 600" in ended.stderr


def test_an_unknown_user_has_the_same_salt_after_a_restart(tmp_path: Path) -> None:
    """Otherwise a salt that changes would tell which users do not exist."""
    names = ("alice", "mallory", "nobody")
    with running(tmp_path, SETTINGS, users={"alice": "secret"}) as broker:
        before = [salt_and_iterations(broker.ports["amqp"], name) for name in names]
        broker.stop()
        broker.start()
        assert [salt_and_iterations(broker.ports["amqp"], name) for name in names] == before
        assert len(set(before)) == len(names)
        broker.stop()
        (broker.data / "users.secret").unlink()
        broker.start()
        after = [salt_and_iterations(broker.ports["amqp"], name) for name in names]
        assert [one == two for one, two in zip(before, after, strict=True)] == [True, False, False], "only by the file"
