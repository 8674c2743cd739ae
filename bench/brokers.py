"""Brokers under test, each a process of its own in a directory of its own that goes when it does."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from bench.generator import Target
from tests.support import peers
from tests.support.daemon import DaemonProcess
from tests.support.process import BrokerProcess, NotAvailable, NotReady, cpu_seconds, memory_bytes

START_S: Final = 600.0  # seconds a broker may take to get ready; recovering ten million messages is part of it


class Broker(Protocol):
    """name: as in reports. strict_prefix: destinations with strict delivery counts, None if it has none."""

    name: str
    protocols: Sequence[str]  # what it speaks: stomp, amqp, mqtt
    strict_prefix: str | None
    warm_up_s: float  # seconds of load before anything is measured
    compiles: bool  # while it runs, so that it is warm when its throughput rises no more

    def start(self) -> float:
        """Starts it and returns the seconds until it was ready. Raises NotAvailable."""
        ...

    def target(self, protocol: str) -> Target: ...

    def kill(self) -> None:
        """SIGKILL; the data stay, so that `start` recovers."""
        ...

    def stop(self) -> None:
        """Stops it for good and removes its data."""
        ...


class Measured:
    """A broker that is started here."""

    name: str
    protocols: Sequence[str]
    strict_prefix: str | None = None
    warm_up_s = 1.0
    compiles = False
    subscription_headers: tuple[str, ...] = ()

    def __init__(self, parent: Path | None, make: Callable[[Path], BrokerProcess]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-", dir=parent))
        self._make = make
        self._process: BrokerProcess | None = None

    @property
    def process(self) -> BrokerProcess:
        """The process, once it was started."""
        assert self._process is not None, "the broker was not started"
        return self._process

    def start(self) -> float:
        """See Broker."""
        self._process = self._process or self._make(self.directory)
        try:
            return self._process.start().started_s
        except NotReady as ended:
            raise NotAvailable(str(ended)) from ended

    def target(self, protocol: str) -> Target:
        """See Broker."""
        assert protocol in self.protocols or protocol == "http", protocol
        process = self.process
        return Target(
            "127.0.0.1",
            process.ports[protocol],
            subscription_headers=self.subscription_headers,
            cpu=process.cpu_seconds,
            memory=process.memory_bytes,
            pids=process.pids,
        )

    def kill(self) -> None:
        """See Broker."""
        self.process.kill()

    def stop(self) -> None:
        """See Broker."""
        if self._process is not None:
            self._process.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Bartleby(Measured):
    """Bartleby with etc/broker.toml and one address setting added, or more: `settings`.

    With `tree` it runs what is there, else what `python` finds.  `script` is run in place of `python -m broker`.
    """

    name = "bartleby"
    protocols: Sequence[str] = ("stomp", "amqp", "mqtt")
    strict_prefix: str | None = "/queue/strict."
    # The as-shipped window of client acknowledgement (10 KiB, some 40 messages) is for slow consumers; this is about
    # the 1,000 messages of ActiveMQ's prefetch.
    subscription_headers = ("consumer-window-size:262144",)
    STRICT: Final = '\n[[address-settings]]\nmatch = "strict.#"\ndelivery-count-persistence = "strict"\n'
    # The limit as shipped is the number of idle connections to measure, and somebody looks at them.
    MORE: Final = {"BARTLEBY_LIMITS__CONNECTIONS_MAX": "50000"}

    def __init__(
        self,
        parent: Path | None,
        config: Path,
        python: str = sys.executable,
        *,
        settings: str = "",
        tree: Path | None = None,
        environment: Mapping[str, str] | None = None,
        script: Path | None = None,
    ) -> None:
        # What `python` has installed is run, not the sources of the directory that the benchmark is started in.
        more = {"PYTHONSAFEPATH": "1", **self.MORE, **(environment or {})}
        more |= {} if tree is None else {"PYTHONPATH": str(tree)}

        def make(directory: Path) -> DaemonProcess:
            if not config.is_file():
                raise NotAvailable(f"no configuration {config}: run from the project's directory or give --config")
            text = config.read_text() + self.STRICT + settings
            command = (python, "-m", "broker") if script is None else (python, str(script.resolve()))
            return DaemonProcess(directory, text, command=command, environment=more, patience_s=START_S)

        super().__init__(parent, make)

    def stand_by(self) -> None:
        """Starts it as the second of a pair.  Raises NotAvailable."""
        process = self._process = self._make(self.directory)
        assert isinstance(process, DaemonProcess)
        process.begin()
        try:
            process.await_standby()
        except NotReady as ended:
            raise NotAvailable(str(ended)) from ended

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.directory / "data"


class ActiveMQ(Measured):
    """ActiveMQ Classic."""

    name = "activemq"
    protocols: Sequence[str] = peers.ActiveMQ.protocols
    warm_up_s = 10.0
    compiles = True  # the JVM its hot paths
    subscription_headers = ("activemq.prefetchSize:1000",)  # messages; the queue prefetch that its own clients use

    def __init__(self, parent: Path | None, heap: str = "2g") -> None:
        super().__init__(parent, lambda directory: peers.ActiveMQ(directory, heap, patience_s=START_S))


class Mosquitto(Measured):
    """Mosquitto."""

    name = "mosquitto"
    protocols: Sequence[str] = peers.Mosquitto.protocols
    LIMITS: Final = ("max_inflight_messages 0", "max_queued_messages 0")

    def __init__(self, parent: Path | None) -> None:
        super().__init__(parent, lambda directory: peers.Mosquitto(directory, *self.LIMITS, patience_s=START_S))


class RabbitMQ(Measured):
    """RabbitMQ."""

    name = "rabbitmq"
    protocols: Sequence[str] = peers.RabbitMQ.protocols
    warm_up_s = 5.0  # its virtual machine compiles when it loads: caches and queues are warm by then

    def __init__(self, parent: Path | None) -> None:
        super().__init__(parent, lambda directory: peers.RabbitMQ(directory, patience_s=START_S))

    def target(self, protocol: str) -> Target:
        """See Broker."""
        found = super().target(protocol)
        return replace(found, login="guest", passcode="guest", prefixed=True) if protocol == "amqp" else found


class Artemis(Measured):
    """ActiveMQ Artemis, its journal syncing as is its default; `create` tunes it to the disk.

    `broker_xml` makes another configuration of the ports.
    """

    name = "artemis"
    protocols: Sequence[str] = ("stomp", "amqp")
    # Without a window: its window as shipped is for slow consumers, and none is ever opened again with ack:auto.
    subscription_headers = ("consumer-window-size:-1",)
    #: For STOMP: what it makes of itself would be topics, and not durable.
    QUEUES: Final = (*(f"/queue/bench.{number:02d}" for number in range(16)), "/queue/latency")
    warm_up_s = 10.0
    compiles = True  # the JVM its hot paths

    def __init__(
        self,
        parent: Path | None,
        home: Path | None,
        heap: str = "2g",
        *,
        broker_xml: Callable[[dict[str, int]], str] | None = None,
    ) -> None:
        def make(directory: Path) -> peers.Artemis:
            options = ("--java-memory", heap, "--queues", ",".join(self.QUEUES))
            return peers.Artemis(directory, home, *options, broker_xml=broker_xml, patience_s=START_S)

        super().__init__(parent, make)

    def target(self, protocol: str) -> Target:
        """See Broker.  One port is for all protocols."""
        return replace(super().target("amqp"), login="bench", passcode="bench")


class Connected:
    """A broker that somebody else runs, on a port for one protocol; `pid` (if known) gives its CPU time."""

    name: str
    strict_prefix: str | None = None
    warm_up_s = 2.0
    compiles = False

    def __init__(self, target: Target, pid: int | None, protocol: str = "stomp") -> None:
        self.protocols: Sequence[str] = (protocol,)
        self.name = f"{target.host}:{target.port}"
        self._target = target if pid is None else _with_cpu(target, pid)

    def start(self) -> float:
        try:
            socket.create_connection((self._target.host, self._target.port), timeout=1).close()
        except OSError as error:
            raise NotAvailable(f"nobody listens at {self.name}: {error}") from error
        return 0.0

    def target(self, protocol: str) -> Target:
        return self._target

    def kill(self) -> None:
        raise AssertionError("a broker that was not started here is not killed here")

    def stop(self) -> None:
        """Leaves it running."""


def _with_cpu(target: Target, pid: int) -> Target:
    return replace(target, cpu=lambda: cpu_seconds(pid), memory=lambda: memory_bytes(pid), pids=lambda: [pid])
