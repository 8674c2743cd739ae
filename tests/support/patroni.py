"""PostgreSQL run by Patroni as etc/high-availability configures it, on this machine; and a failure as clients see it.

Patroni and etcd are no dependencies: `python3 -m venv DIRECTORY; DIRECTORY/bin/pip install 'patroni[etcd3,psycopg3]'`,
and Debian's etcd-server.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import httpx
import psycopg
import yaml

from tests.support.peers import PeerProcess, free_port, program
from tests.support.postgresql import PostgreSQL, dsn
from tests.support.postgresql_keeper import working_in
from tests.support.process import ROOT, BrokerProcess, Process, awaited, spawn

#: The tested files, by the names of their machines.
CONFIGURATIONS: Final = {
    name: ROOT / "etc" / "high-availability" / f"patroni-{name}.yml" for name in ("one", "two", "three")
}

_PASSWORD: Final = "secret"
_PASSWORDS: Final = {f"PATRONI_{user}_PASSWORD": _PASSWORD for user in ("SUPERUSER", "REPLICATION")}

#: How long a failure may last, in seconds.
_PATIENCE_S: Final = 180.0


class Etcd(PeerProcess):
    """A single etcd, where production has three."""

    name = "etcd"
    protocols: Sequence[str] = ("clients", "peers")
    ready = re.compile("ready to serve client requests")

    def __init__(self, place: PostgreSQL) -> None:
        super().__init__(_directory(place, self.name))
        self._place = place

    def launch(self) -> Process:
        """See BrokerProcess."""
        clients, peers = (f"http://127.0.0.1:{port}" for port in self.ports.values())
        options = {
            "data-dir": self.directory / "data",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
        }
        command = [program("etcd"), *(f"--{name}={value}" for name, value in options.items())]
        return spawn(command, self._place.environment, merged=True, cwd=self.directory, user=self._place.user)


class Machine(BrokerProcess):
    """Patroni and its PostgreSQL, from a file of etc/high-availability with addresses of this machine."""

    name = "patroni"
    ready = re.compile("the leader with the lock|a secondary, and following")

    def __init__(self, place: PostgreSQL, called: str, patroni: Path, etcd: Etcd) -> None:
        super().__init__(_directory(place, called), patience_s=_PATIENCE_S)
        self.called = called
        self.ports = {"postgresql": free_port(), "http": free_port()}
        self.data = self.directory / "data"
        self._place = place
        self._command = [str(patroni), str(self.directory / "patroni.yml")]
        configuration = yaml.safe_load(CONFIGURATIONS[called].read_text())
        self._adapt(configuration, etcd)
        Path(self._command[1]).write_text(yaml.safe_dump(configuration))

    def _adapt(self, configuration: dict[str, Any], etcd: Etcd) -> None:
        server, here = configuration["postgresql"], {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        configuration["etcd3"]["hosts"] = f"127.0.0.1:{etcd.ports['clients']}"
        configuration["restapi"] |= {"listen": here["http"], "connect_address": here["http"]}
        server |= {"listen": here["postgresql"], "connect_address": here["postgresql"]}
        server |= {"bin_dir": str(self._place.programs), "data_dir": str(self.data)}
        server["pgpass"] = str(self.directory / "pgpass")
        server["parameters"] = {"unix_socket_directories": str(self.directory), "shared_buffers": "16MB"}

    def launch(self) -> Process:
        """See BrokerProcess."""
        environment = {**self._place.environment, **_PASSWORDS}
        return spawn(self._command, environment, merged=True, cwd=self.directory, user=self._place.user)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to Patroni and to all of PostgreSQL's processes."""
        sent: set[int] = set()
        while fresh := set(working_in(self.directory)) - sent:
            for pid in fresh:
                _kill(pid, number)
            sent |= fresh

    def crash_postgresql(self) -> None:
        """Send SIGKILL to PostgreSQL alone, which Patroni notices."""
        for pid in working_in(self.data):
            _kill(pid, signal.SIGKILL)

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        with psycopg.connect(_dsn(self), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _directory(place: PostgreSQL, name: str) -> Path:
    directory = place.directory / name
    place.run(["mkdir", str(directory)])
    return directory


def _dsn(*machines: Machine) -> str:
    ports = [machine.ports["postgresql"] for machine in machines]
    return dsn(*ports, password=_PASSWORD, connect_timeout=2)


class Cluster:
    """Machines of which one has the primary."""

    def __init__(self, place: PostgreSQL, patroni: Path, machines: int) -> None:
        self._etcd = Etcd(place)
        names = list(CONFIGURATIONS)[:machines]
        self.machines = {name: Machine(place, name, patroni, self._etcd) for name in names}
        self.dsn = _dsn(*self.machines.values())

    def __enter__(self) -> Self:
        self._etcd.start()
        for machine in self.machines.values():
            machine.start()
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines.values():
            machine.close()
        self._etcd.close()

    def roles(self) -> Mapping[str, str]:
        """Return the Patroni role of each running machine: leader, sync_standby, replica."""
        for machine in self.machines.values():
            try:
                told = httpx.get(f"http://127.0.0.1:{machine.ports['http']}/cluster", timeout=2, trust_env=False)
            except httpx.TransportError:
                continue
            members = told.json().get("members", [])
            return {each["name"]: each["role"] for each in members if each["state"] in ("running", "streaming")}
        return {}

    def await_whole(self) -> Machine:
        """Wait until each has its role, and one is the synchronous standby; returns the primary."""
        wanted = ["leader", "sync_standby", *["replica"] * (len(self.machines) - 2)]
        awaited(lambda: sorted(self.roles().values()) == sorted(wanted), patience_s=_PATIENCE_S)
        [leader] = [name for name, role in self.roles().items() if role == "leader"]
        return self.machines[leader]


class Inserts:
    """A client that commits one number after another, and reconnects when necessary."""

    def __init__(self, dsn: str) -> None:
        self.confirmed: list[tuple[float, int]] = []
        self.doubtful = 0
        self._dsn = dsn
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inserts")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True) as connection:
                    while not self._ending.is_set():
                        number += 1
                        connection.execute("INSERT INTO probe VALUES (%s)", [number])
                        self.confirmed.append((time.monotonic(), number))
            except psycopg.Error:
                self.doubtful += 1
                self._ending.wait(0.05)

    def stall(self, since: float) -> float:
        """Return the longest time between two confirmations since then, in seconds."""
        moments = [moment for moment, _ in self.confirmed if moment >= since]
        return max(later - earlier for earlier, later in pairwise(moments))

    def await_more(self) -> None:
        """Wait until more commits are confirmed."""
        before = len(self.confirmed)
        awaited(lambda: len(self.confirmed) > before + 10, patience_s=_PATIENCE_S)


def fail_over(cluster: Cluster, client: Inserts, *, machine: bool) -> float:
    """Kill the primary, alone or with its machine; returns how long the client got no confirmation, in seconds.

    The machine comes back once the client gets confirmations again.
    """
    primary = cluster.await_whole()
    client.await_more()
    since = client.confirmed[-1][0]
    if machine:
        primary.kill()
    else:
        primary.crash_postgresql()
    awaited(
        lambda: cluster.roles().get(primary.called) != "leader" and "leader" in cluster.roles().values(),
        patience_s=_PATIENCE_S,
    )
    client.await_more()
    if machine:
        primary.start()
    cluster.await_whole()
    client.await_more()
    return client.stall(since)
