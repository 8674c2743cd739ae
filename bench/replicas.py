"""Brokers that keep each message on several machines, all of them processes of this one.

    bartleby    an owner and its standby, with their journal in PostgreSQL: a primary and its synchronous standby
    files       one Bartleby with its journal in files: what the replication is measured against
    rabbitmq    three nodes, quorum queues
    artemis     a primary and its backup, with replication

Each is started and stopped as a whole.
"""

from __future__ import annotations

import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.brokers import START_S, Bartleby
from bench.generator import Target
from bench.link import Link
from tests.support import peers
from tests.support.peers import free_port
from tests.support.postgresql import PostgreSQL
from tests.support.process import BrokerProcess, NotAvailable, NotReady, Process, spawn

#: The durable queues in STOMP and AMQP, before their number; and how many there are.
QUEUES: Final = "/queue/bench."
COUNT: Final = 16

#: A database as its operator would set it up on a machine of this size.
_POSTGRESQL: Final = """
shared_buffers = 256MB
max_wal_size = 4GB
"""

#: How STOMP asks RabbitMQ for a queue that three nodes have.
_QUORUM: Final = ("durable:true", "auto-delete:false", "x-queue-type:quorum")


class Replicated:
    """name: as in reports.  warm_up_s: seconds of load, in each protocol, before anything is measured.

    brokers: the processes whose CPU time is the broker's.  prefix: what STOMP and AMQP say before a queue's name, as
    it is sent.
    """

    name: str
    prefix = QUEUES
    warm_up_s = 1.0

    def __init__(self, parent: Path | None) -> None:
        self._parent = parent
        self._stack = ExitStack()
        self.brokers: list[BrokerProcess] = []

    def start(self) -> None:
        """Start all of it.  Raises NotAvailable."""
        raise NotImplementedError

    def target(self, protocol: str) -> Target:
        """Where clients connect."""
        raise NotImplementedError

    @property
    def clocks(self) -> Mapping[str, Callable[[], float]]:
        """CPU seconds so far, of `broker` and whatever else there is."""
        return {"broker": lambda: sum([broker.cpu_seconds() for broker in self.brokers])}

    def stop(self) -> None:
        """Stop all of it, and remove its data."""
        self._stack.close()

    def _directory(self, called: str) -> Path:
        directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-{called}-", dir=self._parent))
        self._stack.callback(shutil.rmtree, directory, ignore_errors=True)
        return directory

    def _run(self, process: BrokerProcess) -> None:
        self._stack.callback(process.close)
        try:
            process.start()
        except NotReady as ended:
            raise NotAvailable(str(ended)) from ended


class Files(Replicated):
    """One Bartleby with its journal in files."""

    name = "files"

    def __init__(self, parent: Path | None, config: Path, python: str = sys.executable) -> None:
        super().__init__(parent)
        self._broker = Bartleby(parent, config, python)
        self._stack.callback(self._broker.stop)

    def start(self) -> None:
        self._broker.start()
        self.brokers.append(self._broker.process)

    def target(self, protocol: str) -> Target:
        return self._broker.target(protocol)


class Pair(Replicated):
    """Two Bartlebys and two PostgreSQL servers."""

    name = "bartleby"

    def __init__(self, parent: Path | None, config: Path, python: str = sys.executable) -> None:
        super().__init__(parent)
        self._config = config
        self._python = python
        self._both: list[Bartleby] = []
        self._database: list[BrokerProcess] = []

    def start(self) -> None:
        place = self._stack.enter_context(PostgreSQL(settings=_POSTGRESQL))
        servers = place.pair()
        self._database += servers.servers
        settings = {"LOG": "postgresql", "POSTGRESQL__DSN": servers.dsn}
        environment = {f"BARTLEBY_JOURNAL__{name}": value for name, value in settings.items()}
        for _ in range(2):
            broker = Bartleby(self._parent, self._config, self._python, environment=environment)
            self._stack.callback(broker.stop)
            self._both.append(broker)
        owner, standby = self._both
        owner.start()
        standby.stand_by()
        self.brokers += [owner.process, standby.process]

    def target(self, protocol: str) -> Target:
        return self._both[0].target(protocol)

    @property
    def clocks(self) -> Mapping[str, Callable[[], float]]:
        return {**super().clocks, "database": lambda: sum([server.cpu_seconds() for server in self._database])}


class _Epmd(BrokerProcess):
    """Erlang's port mapper, by which nodes find each other; otherwise the first node leaves one behind."""

    name = "epmd"
    ready = re.compile("running")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()

    def launch(self) -> Process:
        """See BrokerProcess."""
        return spawn([peers.program(self.name), "-d", "-address", "127.0.0.1", "-port", str(self.port)], merged=True)


class _Node(peers.RabbitMQ):
    """One of three nodes."""

    protocols = (*peers.RabbitMQ.protocols, "stomp")


class Quorum(Replicated):
    """Three RabbitMQ nodes.  Queues of STOMP and AMQP are quorum queues, as are those of MQTT's sessions."""

    name = "rabbitmq"
    prefix = "/amq/queue/bench."  # /queue/ makes the queue if it is missing, and a SEND cannot say of which type
    warm_up_s = 5.0
    NODES: Final = 3

    def start(self) -> None:
        epmd = _Epmd(self._directory("epmd"))
        if not peers.RabbitMQ.PROGRAM.exists():
            raise NotAvailable(f"no {peers.RabbitMQ.PROGRAM}: install the Debian package rabbitmq-server")
        self._run(epmd)
        cookie = secrets.token_hex(16)
        nodes: list[_Node] = []
        for number in range(1, self.NODES + 1):
            directory = self._directory(str(number))
            secret = directory / ".erlang.cookie"
            secret.write_text(cookie)
            secret.chmod(0o400)
            nodes.append(self._node(directory, epmd, nodes))
        self.brokers += nodes
        self._declare(self.target("stomp"))

    def _node(self, directory: Path, epmd: _Epmd, others: list[_Node]) -> _Node:
        """A node that runs, and has joined those that run already."""
        settings = ["mqtt.durable_queue_type = quorum"]
        if others:
            settings.append("cluster_formation.peer_discovery_backend = classic_config")
        settings += [f"cluster_formation.classic_config.nodes.{at} = {each.node}" for at, each in enumerate(others, 1)]
        environment = {"ERL_EPMD_PORT": str(epmd.port)}
        node = _Node(directory, *settings, environment=environment, patience_s=START_S)
        self._run(node)
        return node

    def _declare(self, target: Target) -> None:
        link = target.connect()
        for number in range(COUNT):
            _declare(link, f"{QUEUES}{number:02d}")
        link.close()

    def target(self, protocol: str) -> Target:
        port = self.brokers[0].ports[protocol]
        headers = (*_QUORUM, "prefetch-count:1000")
        return Target("127.0.0.1", port, "guest", "guest", headers, virtual_host="/", prefixed=True)


def _declare(link: Link, queue: str) -> None:
    headers = "\n".join(_QUORUM)
    link.request(f"SUBSCRIBE\nid:0\ndestination:{queue}\nack:client\n{headers}\nreceipt:there\n\n\0".encode())
    link.request(b"UNSUBSCRIBE\nid:0\nreceipt:over\n\n\0")


class _Backup(peers.Artemis):
    """A backup, which is ready when it has all that its primary has."""

    ready = re.compile("AMQ221024")

    def on_ready(self, found: re.Match[str]) -> None:
        """It listens to nobody as long as its primary lives."""


class ArtemisPair(Replicated):
    """A primary and its backup."""

    name = "artemis"
    warm_up_s = 10.0

    def __init__(self, parent: Path | None, home: Path | None, heap: str) -> None:
        super().__init__(parent)
        self._home = home
        self._heap = heap

    def start(self) -> None:
        ports = free_port(), free_port()
        queues = ",".join([f"{QUEUES}{number:02d}" for number in range(COUNT)])
        for kind, own, other, more in (
            (peers.Artemis, ports[0], ports[1], ()),
            (_Backup, ports[1], ports[0], ("--backup",)),
        ):
            options = ["--java-memory", self._heap, "--clustered", "--replicated", *more, "--queues", queues]
            options += ["--cluster-user", "cluster", "--cluster-password", "cluster"]
            options += ["--static-cluster", f"tcp://127.0.0.1:{other}", "--name", f"bench-{own}"]
            broker = kind(self._directory(str(own)), self._home, *options, patience_s=START_S)
            broker.ports = {"amqp": own}
            self._run(broker)
            self.brokers.append(broker)

    def target(self, protocol: str) -> Target:
        headers = ("consumer-window-size:1048576",)
        port = self.brokers[0].ports["amqp"]
        # Version 2.44 lets messages of one MQTT producer overtake others that were confirmed before they were sent.
        ordered = protocol != "mqtt"
        return Target("127.0.0.1", port, "bench", "bench", headers, ordered=ordered, prefixed=True)
