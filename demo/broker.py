"""A broker of our own, in a temporary directory, that can be killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import Request, urlopen

#: How long the broker may take to stop, in seconds.
STOP_S: Final = 10


class Broker:
    """`python -m broker run` with a configuration, and more settings of its environment.

    `ports` fixes where some of its acceptors listen; the others listen anywhere.
    """

    def __init__(
        self, data: Path, config: Path, *, environment: Mapping[str, str] = {}, ports: Mapping[str, int] = {}
    ) -> None:
        self.data = data
        self._config = config
        # However full this machine's disk is: little is stored, and not for long.
        self._environment = {**os.environ, "BARTLEBY_BROKER__MAX_DISK_USAGE": "-1", **environment}
        self._fixed = ports
        self._process: subprocess.Popen[str] | None = None
        self._ports: dict[str, int] = {}

    def start(self) -> None:
        """Start, and wait until it is ready.  Raises RuntimeError with what it said instead."""
        command = [sys.executable, "-m", "broker", "run", "--config", str(self._config), "--data", str(self.data)]
        for acceptor in ("stomp", "amqp", "mqtt", "http"):
            command += ["--listen", f"{acceptor}=127.0.0.1:{self._fixed.get(acceptor, 0)}"]
        process = self._process = subprocess.Popen(command, env=self._environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready.startswith("READY"):
            raise RuntimeError(f"the broker ended with status {process.wait()}")
        self._ports = {name: int(port) for name, port in re.findall(r"(\w+)=127\.0\.0\.1:(\d+)", ready)}

    def end(self, number: signal.Signals) -> None:
        """Send it a signal, and wait for its end."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @property
    def port(self) -> int:
        """Where it listens for STOMP."""
        return self._ports["stomp"]

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    def command(self, *arguments: str) -> dict[str, Any]:
        """`bartleby ARGUMENTS -o json`.  Raises RuntimeError with what it said if it fails."""
        command = [sys.executable, "-m", "broker", *arguments, "--data", str(self.data), "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"bartleby {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    @property
    def console(self) -> str:
        """Where its web console is."""
        return f"http://127.0.0.1:{self._ports['http']}/"

    @property
    def token(self) -> str:
        """What its owner logs in with."""
        return (self.data / "management.token").read_text().strip()

    def call(self, path: str) -> dict[str, Any]:
        """What a management call answers."""
        url = f"{self.console}api/v1/{path}"
        with urlopen(Request(url, headers={"Authorization": f"Bearer {self.token}"})) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def messages(self, queue: str) -> list[dict[str, Any]]:
        """What is on a queue, without taking it."""
        found: list[dict[str, Any]] = self.call(f"queues/{quote(queue, safe='')}/messages")["messages"]
        return found
