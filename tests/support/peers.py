"""Other brokers, each in a process of its own, for comparisons, measurements and interoperability tests.

Their limits are set so high that they do not interfere; `settings` are lines of their own configuration.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.process import PATIENCE_S, BrokerProcess, NotAvailable, Process, spawn

_VERSION: Final = re.compile(r"Artemis ([0-9][0-9.]*)")

#: How to get ActiveMQ Artemis; Debian has no package of it.
FETCH: Final = (
    "mvn dependency:copy -Dartifact=org.apache.activemq:apache-artemis:2.44.0:tar.gz:bin -DoutputDirectory=., unpack "
    "it, and name the directory by --artemis or ARTEMIS_HOME"
)


#: Sockets that keep the ports of `free_port` from other programs, and from the outgoing connections of all.
_HELD: Final = ExitStack()
atexit.register(_HELD.close)


def free_port() -> int:
    """Return a port that no process listens on; until this process ends, a process gets it only by its number.

    A bound socket that does not listen keeps a port from being chosen by the system, while SO_REUSEADDR on both lets
    another one listen there.  So a broker that is started again finds its port free.
    """
    held = _HELD.enter_context(socket.socket())
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port: int = held.getsockname()[1]
    return port


def program(name: str, *places: str) -> str:
    """Return the path of the program of a Debian package of this name.  Raises NotAvailable."""
    found = next(filter(None, map(shutil.which, (name, *places))), None)
    if found is None:
        raise NotAvailable(f"no {name}: install the Debian package {name}")
    return found


def java() -> str:
    """Return Java's path.  Raises NotAvailable."""
    found = shutil.which("java")
    if found is None:
        raise NotAvailable("no java on the PATH: install a Java runtime")
    return found


class PeerProcess(BrokerProcess):
    """Another broker, with the same ports after each restart."""

    protocols: Sequence[str]

    def __init__(self, directory: Path, *, patience_s: float = PATIENCE_S) -> None:
        super().__init__(directory, patience_s=patience_s)
        self.ports = {protocol: free_port() for protocol in self.protocols}

    def on_ready(self, found: re.Match[str]) -> None:
        """Wait until it listens: some brokers report that they are ready before."""
        begun = time.monotonic()
        for port in self.ports.values():
            while not _listens(port):
                if not self._speaking or time.monotonic() - begun > self._patience_s:
                    raise self.not_ready()
                with self._changed:
                    self._changed.wait(0.01)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Mosquitto(PeerProcess):
    """Mosquitto with its persistence, which saves a snapshot now and then and never syncs."""

    name = "mosquitto"
    protocols: Sequence[str] = ("mqtt",)
    ready = re.compile(" running")

    def __init__(self, directory: Path, *settings: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__(directory, patience_s=patience_s)
        self._settings = settings

    def launch(self) -> Process:
        """See BrokerProcess."""
        command = program(self.name, "/usr/sbin/mosquitto")  # Debian's path, which is not in every user's PATH
        config = self.directory / "mosquitto.conf"
        lines = [
            f"listener {self.ports['mqtt']} 127.0.0.1",
            "allow_anonymous true",
            "persistence true",
            f"persistence_location {self.directory}/",
            "log_type error",
            "log_type information",
            "connection_messages false",
            *(["user root"] if os.getuid() == 0 else []),
            *self._settings,
        ]
        config.write_text("\n".join(lines) + "\n")
        return spawn([command, "-c", str(config)], merged=True)


class RabbitMQ(PeerProcess):
    """RabbitMQ with its plugins for MQTT and AMQP 1.0, through durable classic queues and publisher confirms.

    Its addresses of AMQP 1.0 begin with /queue/.  `environment` is set besides its own.
    """

    name = "rabbitmq"
    protocols: Sequence[str] = ("mqtt", "amqp")
    ready = re.compile("completed with")
    PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    PLUGINS: Final = {"mqtt": "rabbitmq_mqtt", "amqp": "rabbitmq_amqp1_0", "stomp": "rabbitmq_stomp"}

    def __init__(
        self,
        directory: Path,
        *settings: str,
        program: Path | None = None,
        environment: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(directory, patience_s=patience_s)
        self.node = f"bench-{self.ports['amqp']}@localhost"
        self._program = program or self.PROGRAM
        self._settings = settings
        self._environment = environment or {}

    def launch(self) -> Process:
        """See BrokerProcess."""
        if not self._program.exists():
            raise NotAvailable(f"no {self._program}: install the Debian package rabbitmq-server")
        directory = self.directory
        config, plugins = directory / "rabbitmq.conf", directory / "enabled_plugins"
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.ports['amqp']}",
            f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.ports['mqtt']}",
            "mqtt.allow_anonymous = true",
            "mqtt.prefetch = 1000",
            *([f"stomp.listeners.tcp.1 = 127.0.0.1:{self.ports['stomp']}"] if "stomp" in self.ports else []),
            "vm_memory_high_watermark.relative = 0.8",
            "disk_free_limit.absolute = 50MB",
            "log.console = false",
            "log.console.level = error",
            *self._settings,
        ]
        config.write_text("\n".join(lines) + "\n")
        plugins.write_text(f"[{','.join(self.PLUGINS[protocol] for protocol in self.protocols)}].\n")
        environment = {
            "HOME": str(directory),
            "ERL_CRASH_DUMP": str(directory / "erl_crash.dump"),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "none.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_DIST_PORT": str(free_port()),
        }
        return spawn([str(self._program)], {**os.environ, **environment, **self._environment}, merged=True)


class ProtonBroker(PeerProcess):
    """The small broker of `proton_broker`, with these queues."""

    name = "proton"
    protocols: Sequence[str] = ("amqp",)
    ready = re.compile("READY")

    def __init__(self, directory: Path, *queues: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__(directory, patience_s=patience_s)
        self._queues = queues

    def launch(self) -> Process:
        """See BrokerProcess."""
        command = [sys.executable, "-m", "tests.support.proton_broker", str(self.ports["amqp"])]
        return spawn([*command, str(self.directory / "messages.db"), *self._queues], merged=True)


class Artemis(PeerProcess):
    """ActiveMQ Artemis from its binary distribution: an instance made by `artemis create` with these options.

    One acceptor for all protocols; `broker_xml` makes another configuration from the ports.
    """

    name = "artemis"
    protocols: Sequence[str] = ("amqp",)
    ready = re.compile("AMQ221007")  # server is now active

    def __init__(
        self,
        directory: Path,
        home: Path | None,
        *options: str,
        user: tuple[str, str] = ("bench", "bench"),
        broker_xml: Callable[[dict[str, int]], str] | None = None,
        patience_s: float = 300.0,
    ) -> None:
        super().__init__(directory, patience_s=patience_s)
        self._home = home
        self._options = options
        self._user = user
        self._broker_xml = broker_xml

    def launch(self) -> Process:
        """See BrokerProcess."""
        if self._home is None or not (self._home / "bin" / "artemis").is_file():
            raise NotAvailable(f"no ActiveMQ Artemis in {self._home or '(nowhere)'}: {FETCH}")
        java()
        instance = self.directory / "instance"
        if not instance.exists():
            self._create(self._home, instance)
        return spawn([str(instance / "bin" / "artemis"), "run"], merged=True)

    def _create(self, home: Path, instance: Path) -> None:
        command = [str(home / "bin" / "artemis"), "create", str(instance), "--silent", "--allow-anonymous", "--no-web"]
        command += ["--host", "127.0.0.1", "--default-port", str(self.ports["amqp"]), *self._options]
        command += ["--user", self._user[0], "--password", self._user[1]]
        command += [f"--no-{protocol}-acceptor" for protocol in ("amqp", "hornetq", "mqtt", "stomp")]
        made = subprocess.run(command, capture_output=True, text=True, timeout=self._patience_s)
        if made.returncode:
            raise NotAvailable(f"artemis create ended with status {made.returncode}:\n{made.stdout}{made.stderr}")
        if self._broker_xml is not None:
            (instance / "etc" / "broker.xml").write_text(self._broker_xml(self.ports))

    @staticmethod
    def version(home: Path) -> str:
        """Return the version of an installation."""
        result = subprocess.run([str(home / "bin" / "artemis"), "version"], check=True, capture_output=True, text=True)
        found = _VERSION.search(result.stdout)
        return found[1] if found else "unknown"


class ActiveMQ(PeerProcess):
    """ActiveMQ Classic from Debian's package: KahaDB syncing every write, as is its default; one STOMP connector."""

    name = "activemq"
    protocols: Sequence[str] = ("stomp",)
    ready = re.compile("Loading message broker")
    HOME: Final = Path("/usr/share/activemq")
    # bytes. With its default of 64 KiB both directions of the consumer's connection fill up when every message is
    # acknowledged; Linux (seen on 6.18) then drops what lies beyond the window and waits for retransmissions, seconds
    # long. That would measure the environment, not the broker, so it gets larger buffers.
    BUFFERS: Final = "socketBufferSize=1048576&amp;transport.socketBufferSize=1048576"

    def __init__(self, directory: Path, heap: str = "2g", *, patience_s: float = PATIENCE_S) -> None:
        super().__init__(directory, patience_s=patience_s)
        self._heap = heap

    def launch(self) -> Process:
        """See BrokerProcess."""
        jar = self.HOME / "bin" / "activemq.jar"
        if not jar.exists():
            raise NotAvailable(f"{jar} does not exist: install the Debian package activemq")
        directory = self.directory
        config = directory / "activemq.xml"
        config.write_text(_ACTIVEMQ_XML.format(directory=directory, port=self.ports["stomp"], buffers=self.BUFFERS))
        command = [java(), f"-Xms{self._heap}", f"-Xmx{self._heap}", f"-Dactivemq.home={self.HOME}"]
        command += [f"-Dactivemq.{name}={directory}" for name in ("base", "conf", "data")]
        return spawn([*command, "-jar", str(jar), "start", f"xbean:file:{config}"], merged=True)


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
