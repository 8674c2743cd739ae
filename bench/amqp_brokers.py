"""ActiveMQ Artemis from its binary distribution, as a broker of AMQP: an instance as `artemis create` makes it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.brokers import START_S, Child, NotAvailable, cpu_seconds, free_port
from bench.generator import Target

#: How to get it; it is in no Debian package.
FETCH: Final = (
    "mvn dependency:copy -Dartifact=org.apache.activemq:apache-artemis:2.44.0:tar.gz:bin -DoutputDirectory=., unpack "
    "it, and name the directory by --artemis or ARTEMIS_HOME"
)


class Artemis:
    """One acceptor for all protocols, its journal syncing as is its default; `create` tunes it to the disk."""

    name = "artemis"
    protocols: Sequence[str] = ("amqp",)
    strict_prefix: str | None = None
    warm_up_s = 10.0  # the JVM compiles its hot paths meanwhile

    def __init__(self, parent: Path | None, home: Path | None, heap: str = "2g") -> None:
        self._child = Child(self.name, parent)
        self._home = home
        self._heap = heap
        self._port = 0

    def start(self) -> float:
        if self._home is None or not (self._home / "bin" / "artemis").is_file():
            raise NotAvailable(f"no ActiveMQ Artemis in {self._home or '(nowhere)'}: {FETCH}")
        if shutil.which("java") is None:
            raise NotAvailable("no java on the PATH: install a Java runtime")
        instance = self._child.directory / "instance"
        if not instance.exists():
            self._port = free_port()
            self._create(self._home, instance)
        command = [str(instance / "bin" / "artemis"), "run"]  # a script, which becomes the Java machine
        _, seconds = self._child.start(command, re.compile("AMQ221007"))
        return seconds

    def _create(self, home: Path, instance: Path) -> None:
        command = [str(home / "bin" / "artemis"), "create", str(instance), "--silent", "--allow-anonymous"]
        command += ["--host", "127.0.0.1", "--default-port", str(self._port), "--no-web", "--java-memory", self._heap]
        command += ["--user", "bench", "--password", "bench"]
        command += [f"--no-{protocol}-acceptor" for protocol in ("amqp", "hornetq", "mqtt", "stomp")]
        made = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
        if made.returncode:
            raise NotAvailable(f"artemis create ended with status {made.returncode}:\n{made.stdout}{made.stderr}")

    def target(self, protocol: str) -> Target:
        assert protocol == "amqp", protocol
        pid = self._child.pid
        return Target("127.0.0.1", self._port, "bench", "bench", cpu=lambda: cpu_seconds(pid))

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> None:
        self._child.stop()
