"""docs/high-availability.md: the commands for two database servers, each run as shown, on addresses of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from store.replicated.postgresql import Postgres, PostgresLease
from store.replicated.server import PostgresSettings
from store.replicated.standbys import Standbys
from tests.packaging.project import ROOT
from tests.support.peers import free_port
from tests.support.postgresql import PostgreSQL
from tests.support.process import PATIENCE_S, awaited

HOSTS: Final = {"one": "127.0.0.2", "two": "127.0.0.3"}
PASSWORD: Final = "secret"

#: Each machine has an address here, and a directory for its sockets.
_PG_CTL: Final = """\
#!/bin/sh
[ "$1" = start ] || exec {programs}/pg_ctl "$@"
exec {programs}/pg_ctl "$@" --silent --log {directory}/log \
    -o "-c listen_addresses={host} -c unix_socket_directories={directory} -c shared_buffers=16MB"
"""

#: What an operator types when it asks for a password, twice.
_ANSWERED: Final = """\
#!/bin/sh
printf '{password}\\n{password}\\n' | exec {programs}/{program} "$@"
"""


def blocks(heading: str) -> list[str]:
    """The commands of a section of the page, in order."""
    page = (ROOT / "docs" / "high-availability.md").read_text()
    section = page.split(f"### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    found = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found
    return found


class Machine:
    """One of the two: a shell of its user `postgres`."""

    def __init__(self, place: PostgreSQL, home: Path, name: str, port: int) -> None:
        self.directory = home / name
        self._place = place
        self._commands = self.directory / "bin"
        place.run(["mkdir", "-p", str(self._commands)])
        self._wrap("pg_ctl", _PG_CTL.format(programs=place.programs, directory=self.directory, host=HOSTS[name]))
        for program in ("createuser", "pg_basebackup"):
            self._wrap(program, _ANSWERED.format(password=PASSWORD, programs=place.programs, program=program))
        self._environment = place.environment | {
            "PATH": f"{self._commands}:{place.programs}:/usr/bin:/bin",
            "PGDATA": str(self.directory / "data"),
            "PGPORT": str(port),
            "PGHOST": str(self.directory),
            "HOME": str(self.directory),
        }

    def _wrap(self, program: str, script: str) -> None:
        wrapper = self._commands / program
        wrapper.write_text(script)
        wrapper.chmod(0o755)

    def run(self, commands: str) -> str:
        """Run commands of the page, whose machines are addresses of this one."""
        for name, host in HOSTS.items():
            commands = commands.replace(f"host={name} ", f"host={host} ")
        done = subprocess.run(
            ["sh", "-eu", "-c", commands],
            env=self._environment,
            cwd=self.directory,
            user=self._place.user,
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            start_new_session=True,  # without a terminal
            check=False,
        )
        log = self.directory / "log"
        assert done.returncode == 0, f"{commands}\n{done.stdout}{log.read_text() if log.exists() else ''}"
        return done.stdout


@pytest.fixture
def machines(postgresql: PostgreSQL) -> Iterator[tuple[Machine, Machine, int]]:
    home, port = postgresql.directory / "page", free_port()
    one, two = (Machine(postgresql, home, name, port) for name in HOSTS)
    yield one, two, port
    for machine in (one, two):
        machine.run("pg_ctl stop --mode immediate || true")
    shutil.rmtree(home)


def test_the_commands_of_the_page(machines: tuple[Machine, Machine, int]) -> None:
    one, two, port = machines
    first, users, standby, synchronous, look = blocks("Two database servers")
    promote, rebuild = blocks("Promote the standby, and rebuild the old primary")
    for machine, commands in ((one, first), (one, users), (two, standby), (one, synchronous), (two, synchronous)):
        machine.run(commands)
    awaited(lambda: re.search(r"two +\| streaming \| sync", one.run(look)), what="the standby is synchronous")
    hosts = ",".join(HOSTS.values())
    chosen = PostgresSettings(f"host={hosts} port={port} dbname=bartleby user=bartleby password={PASSWORD}")
    with closing(Postgres(chosen)) as database, closing(PostgresLease(chosen)) as leases:
        database.check()
        assert leases.take_lease("me", 60_000)
        assert database.claim("me")
        assert database.standbys == Standbys(("two",))
    one.run("pg_ctl stop --mode immediate")
    assert two.run(promote).split() == ["pg_promote", "------------", "t", "(1", "row)"]
    one.run(rebuild)
    awaited(lambda: re.search(r"one +\| streaming \| sync", two.run(look)), what="the old primary is the standby")
    with closing(Postgres(chosen)) as database, closing(PostgresLease(chosen)) as leases:
        database.check()
        assert leases.take_lease("me", 60_000)
        assert database.claim("me")
        assert database.standbys == Standbys(("one",))
