"""A real broker process: started, killed, restarted, asked.

Nothing here polls: the ready line, log lines and the end of the process are waited for on its pipes.  When a test
fails, what the broker logged is printed, so that the report shows it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from broker.security.users_file import StoredUser, write_users
from tests.support.fork_server import Forked, start
from tests.support.sim_gate import cheap_user

ROOT: Final = Path(__file__).parents[2]

#: A broker by itself, or under a wrapper.
Process = Forked | subprocess.Popen[str]

#: How long a broker may take to get ready or to end, in seconds: many times what it needs on a busy machine.
PATIENCE_S: Final = 60.0

_ADDRESS: Final = re.compile(r"(\w+)=127\.0\.0\.1:(\d+)")

#: One for all calls, since it takes its time to be made; no connection outlives its call, or a test might count it.
_CLIENT: Final = httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False)

#: Debuggers, sanitizers and tracers of the broker go before its command line.
Wrapper = Sequence[str]


class NotReady(Exception):
    """The broker ended, or was silent for too long, instead of saying READY; the text has its status and log."""


class DaemonProcess:
    """A broker in a directory of its own; `settings` is its whole configuration file, in TOML.

    With `users` (name and password, each in the role `amq`), or `stored`, nobody else comes in.

    `ports` holds the port of each acceptor once it runs; they are others after a restart.
    """

    def __init__(
        self,
        directory: Path,
        settings: str = "",
        *,
        wrapper: Wrapper = (),
        users: Mapping[str, str] | None = None,
        stored: Mapping[str, StoredUser] | None = None,
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.config = directory / "broker.toml"
        self.config.write_text(settings)
        self._acceptors = tuple(tomllib.loads(settings).get("acceptors", ("stomp", "amqp", "mqtt", "http")))
        if users is not None:
            self.set_users({name: cheap_user(password, "amq") for name, password in users.items()})
        if stored is not None:
            self.set_users(stored)
        self.ports: dict[str, int] = {}
        self.starts = 0
        self._wrapper = tuple(wrapper)
        self._process: Process | None = None
        self._pid = 0
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._changed = threading.Condition()

    def set_users(self, users: Mapping[str, StoredUser]) -> None:
        """Write the users file."""
        self.data.mkdir(parents=True, exist_ok=True)
        write_users(self.data / "users.toml", users)

    # -- its life --------------------------------------------------------------------------------------------------

    def start(self) -> DaemonProcess:
        """Start, and wait for READY.  Raises NotReady."""
        assert self._process is None, "the broker runs already"
        self.starts += 1
        arguments = ["run", "--config", str(self.config), "--data", str(self.data)]
        for acceptor in self._acceptors:
            arguments += ["--listen", f"{acceptor}=127.0.0.1:0"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARTLEBY_")}
        if "disk" not in self.config.read_text():  # how full this machine's disk is, is no matter of the test
            environment["BARTLEBY_BROKER__MAX_DISK_USAGE"] = "-1"
        process = self._wrapped(arguments, environment) if self._wrapper else start(arguments, environment, ROOT)
        self._process = process
        self._reader = threading.Thread(target=self._read_log, args=(process,), name="broker log")
        self._reader.start()
        self._await_ready(process)
        return self

    def _wrapped(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._wrapper, sys.executable, "-m", "broker", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def _await_ready(self, process: Process) -> None:
        assert process.stdout is not None
        impatience = threading.Timer(PATIENCE_S, process.kill)
        impatience.start()
        try:
            ready = process.stdout.readline()
        finally:
            impatience.cancel()
            impatience.join()
        if not ready.startswith("READY "):
            status = self._forget(process)
            raise NotReady(f"status {status} instead of READY:\n{self.log}")
        self.ports = {name: int(port) for name, port in _ADDRESS.findall(ready)}
        self._pid = int(ready.rpartition("pid=")[2])

    def _read_log(self, process: Process) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> DaemonProcess:
        """Kill it and start it again."""
        self.kill()
        return self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker itself, not to what wraps it."""
        assert self._process is not None, "the broker does not run"
        os.kill(self._pid, number)

    def wait(self) -> int:
        """Wait for its end; the exit status, negative for a signal.  Raises TimeoutExpired."""
        assert self._process is not None, "the broker does not run"
        self._process.wait(PATIENCE_S)
        return self._forget(self._process)

    def _forget(self, process: Process) -> int:
        status = process.wait(PATIENCE_S)
        assert self._reader is not None
        self._reader.join(PATIENCE_S)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        self._process = None
        self.ports = {}
        return status

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None:
            self._process.kill()
            if self._pid and self._wrapper:
                self._kill_wrapped()
            self._forget(self._process)

    def _kill_wrapped(self) -> None:
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether it was started and nobody has seen its end."""
        return self._process is not None

    @property
    def port(self) -> int:
        """The STOMP port."""
        return self.ports["stomp"]

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._pid

    @property
    def log(self) -> str:
        """All it logged, over all its lives."""
        with self._changed:
            return "".join(self._lines)

    def await_log(self, text: str, *, times: int = 1) -> None:
        """Wait until the log has `text` so many times."""
        with self._changed:
            found = self._changed.wait_for(lambda: sum(text in line for line in self._lines) >= times, PATIENCE_S)
        assert found, f"{text!r} is not {times} times in the log:\n{self.log}"

    def reload(self, settings: str) -> None:
        """Other settings and SIGHUP; returns once they are in force."""
        before = self.log.count("reload.done")
        self.config.write_text(settings)
        self._acceptors = tuple(tomllib.loads(settings).get("acceptors", ("stomp", "amqp", "mqtt", "http")))
        self.signal(signal.SIGHUP)
        self.await_log("reload.done", times=before + 1)

    # -- its management calls --------------------------------------------------------------------------------------

    def get(self, path: str, **parameters: str | int) -> Any:
        """The answer of a management call: `status`, `queues/NAME`."""
        token = (self.data / "management.token").read_text().strip()
        url = f"http://127.0.0.1:{self.ports['http']}/api/v1/{path}"
        answer = _CLIENT.get(url, params=parameters, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200, f"{url}: {answer.status_code} {answer.text}"
        return answer.json()

    def queue(self, name: str) -> dict[str, Any]:
        """A queue: counts, counters, settings, consumers."""
        found: dict[str, Any] = self.get(f"queues/{quote(name, safe='')}")
        return found

    def queue_names(self) -> set[str]:
        """All queues there are."""
        return {queue["name"] for queue in self.get("queues", size=1000)["queues"]}

    def memory_bytes(self) -> int:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def running(
    directory: Path,
    settings: str = "",
    *,
    wrapper: Wrapper = (),
    users: Mapping[str, str] | None = None,
    stored: Mapping[str, StoredUser] | None = None,
) -> Iterator[DaemonProcess]:
    """A broker that runs; whatever becomes of it, it has ended afterwards."""
    broker = DaemonProcess(directory, settings, wrapper=wrapper, users=users, stored=stored)
    try:
        yield broker.start()
    except BaseException:
        sys.stderr.write(f"--- log of the broker in {directory}\n{broker.log}")
        raise
    finally:
        broker.close()
