"""etc/high-availability: the two servers of the profile `ha` of docker-compose.yml, on addresses of this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml

from tests.packaging.project import ROOT, bartleby_command
from tests.support.peers import free_port
from tests.support.postgresql import PostgreSQL
from tests.support.postgresql_keeper import working_in
from tests.support.process import PATIENCE_S, BrokerProcess, NotReady, Process, spawn

SCRIPTS: Final = ROOT / "etc" / "high-availability"
HOSTS: Final = ("127.0.0.2", "127.0.0.3")

#: The image listens on all addresses, and has a directory for sockets: here each server has an address and a directory.
_POSTGRES: Final = """\
#!/bin/sh
[ "$1" = --single ] && exec {postgres} "$@"
exec {postgres} "$@" -c listen_addresses={host} -c unix_socket_directories={directory} -c shared_buffers=16MB
"""


class ScriptedServer(BrokerProcess):
    """A server that database.sh starts."""

    name = "postgresql"
    ready = re.compile("database system is ready to accept (?:read-only )?connections")

    def __init__(self, place: PostgreSQL, directory: Path, secrets: Path, port: int) -> None:
        super().__init__(directory)
        self._place = place
        self._port = port
        self.host = directory.name
        self.volume = directory / "volume"
        [other] = {*HOSTS} - {self.host}
        first = ["first"] if self.host == HOSTS[0] else []
        self._command = ["sh", str(SCRIPTS / "database.sh"), self.host, other, str(secrets), *first]
        place.run(["mkdir", "-p", str(self.volume), str(directory / "bin")])
        wrapper = directory / "bin" / "postgres"
        program = place.programs / "postgres"
        wrapper.write_text(_POSTGRES.format(postgres=program, host=self.host, directory=directory))
        wrapper.chmod(0o755)

    def launch(self) -> Process:
        """See BrokerProcess."""
        environment = self._place.environment | {
            "PATH": f"{self.directory / 'bin'}:{self._place.programs}:/usr/bin:/bin",
            "PGDATA": str(self.volume),
            "PGPORT": str(self._port),
            "TMPDIR": str(self.directory),
        }
        return spawn(self._command, environment, merged=True, cwd=self.directory, user=self._place.user)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        for pid in working_in(self.directory):
            os.kill(pid, number)

    def promote(self) -> None:
        """As an operator does."""
        self._place.run(["pg_ctl", "promote", "--pgdata", str(self.volume / "data")])


def _prepare(secrets: Path, commands: Path) -> dict[str, str]:
    environment = {"PATH": f"{commands}:/usr/bin:/bin"}
    command = ["sh", str(SCRIPTS / "prepare.sh"), str(secrets), ",".join(HOSTS)]
    subprocess.run(command, env=environment, stderr=subprocess.PIPE, check=True)
    return {path.name: path.read_text() for path in secrets.iterdir()}


def test_passwords_are_made_once(tmp_path: Path) -> None:
    commands, secrets = bartleby_command(tmp_path), tmp_path / "secrets"
    first = _prepare(secrets, commands)
    modes = {path.name: path.stat().st_mode & 0o777 for path in secrets.iterdir()}
    assert modes == {
        "users.toml": 0o600,
        "users.secret": 0o600,
        "admin.password": 0o600,
        "dsn": 0o600,
        "bartleby.password": 0o640,
        "replicator.password": 0o640,
    }
    assert secrets.stat().st_mode & 0o777 == 0o750
    passwords = {name: text.strip() for name, text in first.items() if name.endswith(".password")}
    assert {len(password) for password in passwords.values()} == {36}
    assert len(set(passwords.values())) == 3
    assert first["dsn"].split() == [
        f"host={','.join(HOSTS)}",
        "dbname=bartleby",
        "user=bartleby",
        f"password={passwords['bartleby.password']}",
    ]
    assert _prepare(secrets, commands) == first, "started again, it changes nothing"
    (secrets / "admin.password").unlink()
    again = _prepare(secrets, commands)
    assert again.pop("admin.password") != first.pop("admin.password")
    assert again.pop("users.toml") != first.pop("users.toml")
    assert again == first


@pytest.fixture
def servers(postgresql: PostgreSQL, tmp_path: Path) -> Iterator[tuple[ScriptedServer, ScriptedServer, str]]:
    """Both, and how the brokers name them."""
    home, port = postgresql.directory / "scripted", free_port()
    postgresql.run(["mkdir", str(home)])
    dsn = _prepare(home / "secrets", bartleby_command(tmp_path))["dsn"].strip()
    for path in (home / "secrets", *(home / "secrets").iterdir()):
        if postgresql.user is not None:
            shutil.chown(path, postgresql.user)
    one, two = (ScriptedServer(postgresql, home / host, home / "secrets", port) for host in HOSTS)
    yield one, two, f"{dsn} port={port}"
    one.close()
    two.close()
    shutil.rmtree(home)


def _sql(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True, target_session_attrs="read-write") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.mark.slow
def test_a_promoted_standby_and_an_old_primary(servers: tuple[ScriptedServer, ScriptedServer, str]) -> None:
    one, two, dsn = servers
    one.start()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(_sql, dsn, "CREATE TABLE kept (number int); INSERT INTO kept VALUES (1)")
        two.start()  # until then nothing is confirmed
        first.result(PATIENCE_S)
        assert _sql(dsn, "SHOW synchronous_commit") == [("on",)]
        one.kill()
        two.promote()
        assert _sql(dsn, "SELECT number FROM kept") == [(1,)]
        assert _sql(dsn, "SHOW synchronous_standby_names") == [('FIRST 1 ("127.0.0.2", "127.0.0.3")',)]
        second = pool.submit(_sql, dsn, "INSERT INTO kept VALUES (2)")
        with pytest.raises(NotReady, match=rf"{two.host} has been promoted: this server's data is older"):
            one.start()
        shutil.rmtree(one.volume / "data")
        one.start()
        second.result(PATIENCE_S)
    two.kill()
    one.promote()
    assert _sql(dsn, "SELECT number FROM kept ORDER BY number") == [(1,), (2,)]


def test_both_start_again_as_what_they_were(servers: tuple[ScriptedServer, ScriptedServer, str]) -> None:
    one, two, dsn = servers
    for server in (one, two, one, two):
        if server.running:
            server.kill()
        server.start()
    _sql(dsn, "CREATE TABLE kept (number int)")
    sees = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'MEMBER')"
    assert _sql(dsn, sees) == [(True,)], "so that the broker can show which server confirms"
    assert (two.volume / "data" / "standby.signal").exists()
    assert not (one.volume / "data" / "standby.signal").exists()


def test_the_configurations_of_patroni_differ_in_the_name_only() -> None:
    names, bare = [], set()
    for path in sorted(SCRIPTS.glob("patroni-*.yml")):
        name = path.stem.removeprefix("patroni-")
        configuration = yaml.safe_load(path.read_text())
        agreed = configuration["bootstrap"]["dcs"]
        assert agreed["synchronous_mode"] is agreed["synchronous_mode_strict"] is True
        assert agreed["postgresql"]["parameters"]["synchronous_commit"] == "on", "which is no boolean here"
        assert agreed["ttl"] >= agreed["loop_wait"] + 2 * agreed["retry_timeout"]
        assert "password" not in str(configuration), "they are in the environment"
        names.append(name)
        bare.add(re.sub(rf"(`|name: |_address: ){name}\b", r"\1NAME", path.read_text()))
    assert names == ["one", "three", "two"]
    assert len(bare) == 1
    hosts = configuration["etcd3"]["hosts"].split(",")
    assert [host.partition(":")[0] for host in hosts] == ["one", "two", "three"]
