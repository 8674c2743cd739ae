"""Brokers under test, each a process of its own in a directory of its own that goes when it does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from bench.generator import Target

START_S: Final = 600.0  # seconds a broker may take to get ready; recovering ten million messages is part of it
STOP_S: Final = 30.0  # seconds it may take to stop before it is killed
POLL_S: Final = 0.005  # seconds between two looks at a starting broker
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class NotAvailable(Exception):
    """This broker cannot be started here; the text says what is missing."""


class Broker(Protocol):
    """name: as in reports. strict_prefix: destinations with strict delivery counts, None if it has none."""

    name: str
    protocols: Sequence[str]  # what it speaks: stomp, amqp, mqtt
    strict_prefix: str | None
    warm_up_s: float  # seconds of load before anything is measured

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


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all its threads, dead ones too (proc(5), stat, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def session_cpu_seconds(leader: int) -> float:
    """The same of all processes of a session that run."""
    return sum(cpu_seconds(pid) for pid in _session(leader))


def session_memory_bytes(leader: int) -> int:
    """Resident memory of all processes of a session."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _session(leader))
    return pages * os.sysconf("SC_PAGE_SIZE")


def _session(leader: int) -> list[int]:
    """The processes of the session that this one leads."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == leader:
                found.append(int(path.name))
        except ProcessLookupError:
            continue
    return found


class Child:
    """A broker's process and its directory."""

    def __init__(self, name: str, parent: Path | None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=parent))
        self._output = self.directory / "stdout"
        self._errors = self.directory / "stderr"
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self, command: Sequence[str], ready: re.Pattern[str]) -> tuple[re.Match[str], float]:
        """Runs the command until its standard output matches; returns the match and the seconds it took."""
        assert self._process is None, "the broker runs already"
        begun = time.perf_counter()
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        while (match := ready.search(self._output.read_text(errors="replace"))) is None:
            self.wait_a_little(begun)
        return match, time.perf_counter() - begun

    def wait_a_little(self, begun: float) -> None:
        """Between two looks at a broker started at `begun`. Raises NotAvailable when it ended or takes too long."""
        assert self._process is not None, "the broker was not started"
        if self._process.poll() is not None:
            raise NotAvailable(f"{self._name} ended with status {self._process.returncode}:\n{self._tail()}")
        if time.perf_counter() - begun > START_S:
            raise NotAvailable(f"{self._name} was not ready after {START_S:.0f} s:\n{self._tail()}")
        time.sleep(POLL_S)

    def await_port(self, port: int) -> float:
        """Waits until somebody listens there; returns the seconds.  Raises NotAvailable."""
        begun = time.perf_counter()
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                self.wait_a_little(begun)
            else:
                return time.perf_counter() - begun

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _tail(self) -> str:
        said = self._output.read_text(errors="replace") + self._errors.read_text(errors="replace")
        return "\n".join(said.splitlines()[-15:])


class Bartleby:
    """`python -m broker run`, with etc/broker.toml and one address setting added, or more: `settings`."""

    name = "bartleby"
    protocols: Sequence[str] = ("stomp", "amqp", "mqtt")
    strict_prefix: str | None = "/queue/strict."
    warm_up_s = 1.0
    # The as-shipped window of client acknowledgement (10 KiB, some 40 messages) is for slow consumers; this is about
    # the 1,000 messages of ActiveMQ's prefetch.
    subscription_headers = ("consumer-window-size:262144",)
    STRICT: Final = '\n[[address-settings]]\nmatch = "strict.#"\ndelivery-count-persistence = "strict"\n'

    def __init__(self, parent: Path | None, config: Path, python: str = sys.executable, *, settings: str = "") -> None:
        self._child = Child(self.name, parent)
        self._settings = settings
        self._config = config
        self._python = python
        self._ports: dict[str, int] = {}

    def start(self) -> float:
        if not self._config.is_file():
            raise NotAvailable(f"no configuration {self._config}: run from the project's directory or give --config")
        config = self._child.directory / "broker.toml"
        config.write_text(self._config.read_text() + self.STRICT + self._settings)
        # The limit as shipped is the number of idle connections to measure, and somebody looks at them.
        more = "BARTLEBY_LIMITS__CONNECTIONS_MAX=50000"
        command = ["/usr/bin/env", more, self._python, "-m", "broker", "run"]
        command += ["--config", str(config), "--data", str(self.data)]
        for acceptor in ("stomp", "amqp", "mqtt", "http"):
            command += ["--listen", f"{acceptor}=127.0.0.1:0"]
        match, seconds = self._child.start(command, re.compile(r"READY .*"))
        self._ports = {name: int(port) for name, port in re.findall(r"\b(\w+)=[^\s:]+:(\d+)\s", match[0])}
        return seconds

    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.pid

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self._child.directory / "data"

    def target(self, protocol: str) -> Target:
        pid = self._child.pid
        return Target(
            "127.0.0.1",
            self._ports[protocol],
            subscription_headers=self.subscription_headers,
            cpu=lambda: cpu_seconds(pid),
            memory=lambda: session_memory_bytes(pid),
        )

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()


class ActiveMQ:
    """ActiveMQ Classic from Debian's package: KahaDB syncing every write, as is its default; one STOMP connector."""

    name = "activemq"
    protocols: Sequence[str] = ("stomp",)
    strict_prefix: str | None = None
    warm_up_s = 10.0  # the JVM compiles its hot paths meanwhile
    subscription_headers = ("activemq.prefetchSize:1000",)  # messages; the queue prefetch that its own clients use
    HOME: Final = Path("/usr/share/activemq")
    # bytes. With its default of 64 KiB both directions of the consumer's connection fill up when every message is
    # acknowledged; Linux (seen on 6.18) then drops what lies beyond the window and waits for retransmissions, seconds
    # long. That would be a broker slowed down by its surroundings, so it gets room.
    BUFFERS: Final = "socketBufferSize=1048576&amp;transport.socketBufferSize=1048576"

    def __init__(self, parent: Path | None, heap: str = "2g") -> None:
        self._child = Child(self.name, parent)
        self._heap = heap
        self._port = 0

    def start(self) -> float:
        jar = self.HOME / "bin" / "activemq.jar"
        if not jar.exists():
            raise NotAvailable(f"{jar} does not exist: install the Debian package activemq, or give --broker bartleby")
        java = shutil.which("java")
        if java is None:
            raise NotAvailable("no java on the PATH: install a Java runtime")
        self._port = self._port or free_port()
        directory = self._child.directory
        config = directory / "activemq.xml"
        config.write_text(_ACTIVEMQ_XML.format(directory=directory, port=self._port, buffers=self.BUFFERS))
        command = [java, f"-Xms{self._heap}", f"-Xmx{self._heap}", f"-Dactivemq.home={self.HOME}"]
        command += [f"-Dactivemq.{name}={directory}" for name in ("base", "conf", "data")]
        command += ["-jar", str(jar), "start", f"xbean:file:{config}"]
        _, before = self._child.start(command, re.compile("Loading message broker"))
        return before + self._child.await_port(self._port)

    def target(self, protocol: str) -> Target:
        assert protocol == "stomp", protocol
        pid = self._child.pid
        return Target(
            "127.0.0.1",
            self._port,
            subscription_headers=self.subscription_headers,
            cpu=lambda: cpu_seconds(pid),
        )

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()


class Connected:
    """A broker that somebody else runs, on a port for one protocol; `pid` (if known) gives its CPU time."""

    name: str
    strict_prefix: str | None = None
    warm_up_s = 2.0

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
    return replace(target, cpu=lambda: cpu_seconds(pid), memory=lambda: session_memory_bytes(pid))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Debian's main instance with a STOMP connector; limits so high that flow control does not interfere.
_ACTIVEMQ_XML: Final = """\
<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
    xsi:schemaLocation="
      http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
      http://activemq.apache.org/schema/state http://activemq.apache.org/schema/state/activemq-state.xsd">
  <broker xmlns="http://activemq.apache.org/schema/state" brokerName="bench" useJmx="false"
      dataDirectory="{directory}/data">
    <persistenceAdapter>
      <kahaDB directory="{directory}/data/kahadb" enableJournalDiskSyncs="true"/>
    </persistenceAdapter>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="1 gb"/></memoryUsage>
        <storeUsage><storeUsage limit="20 gb"/></storeUsage>
        <tempUsage><tempUsage limit="10 gb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}?{buffers}"/>
    </transportConnectors>
  </broker>
</beans>
"""
