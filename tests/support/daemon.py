"""Bartleby in a process of its own: its configuration, its reloads and its management calls."""

from __future__ import annotations

import os
import re
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from broker.security.users_file import StoredUser, write_users
from tests.support import fork_server
from tests.support.process import PATIENCE_S, ROOT, BrokerProcess, Process, spawn, started
from tests.support.sim_gate import cheap_user

_ADDRESS: Final = re.compile(r"(\w+)=127\.0\.0\.1:(\d+)")

#: Shared by all calls, as it is slow to create; no connection outlives its call, or a test might count it.
_CLIENT: Final = httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False)

#: Debuggers, sanitizers and tracers of the broker go before its command line.
Wrapper = Sequence[str]


class DaemonProcess(BrokerProcess):
    """Bartleby; `settings` is its whole configuration file, in TOML.

    With `users` (name and password, each in the role `amq`), or `stored`, other logins are refused.  `command` runs the
    broker's command line; without it, the broker is forked from a process that has imported it, and first runs its
    `preparation` (see `fork_server`).

    `ports` holds the port of each acceptor once it runs; they change with each start, unless they are `fixed`.  A
    broker of a pair is a standby at first: `begin` and `await_standby`.
    """

    name = "bartleby"
    ready = re.compile(r"^READY .* pid=(\d+)")

    def __init__(
        self,
        directory: Path,
        settings: str = "",
        *,
        wrapper: Wrapper = (),
        users: Mapping[str, str] | None = None,
        stored: Mapping[str, StoredUser] | None = None,
        command: Sequence[str] = (),
        preparation: str = "",
        environment: Mapping[str, str] | None = None,
        fixed: Mapping[str, int] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(directory, patience_s=patience_s)
        self.data = directory / "data"
        self.config = directory / "broker.toml"
        self.config.write_text(settings)
        self._acceptors = tuple(tomllib.loads(settings).get("acceptors", ("stomp", "amqp", "mqtt", "http")))
        if users is not None:
            self.set_users({name: cheap_user(password, "amq") for name, password in users.items()})
        if stored is not None:
            self.set_users(stored)
        self._environment = environment or {}
        self._fixed = fixed or {}
        self._command = [*wrapper, sys.executable, "-m", "broker"] if wrapper else list(command)
        self._preparation = preparation

    def set_users(self, users: Mapping[str, StoredUser]) -> None:
        """Write the users file."""
        self.data.mkdir(parents=True, exist_ok=True)
        write_users(self.data / "users.toml", users)

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def launch(self) -> Process:
        """See BrokerProcess."""
        self.ports = dict(self._fixed)
        arguments = ["run", "--config", str(self.config), "--data", str(self.data)]
        for acceptor in self._acceptors:
            arguments += ["--listen", f"{acceptor}=127.0.0.1:{self._fixed.get(acceptor, 0)}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BARTLEBY_")}
        environment |= self._environment
        if "disk" not in self.config.read_text():  # a full disk of this machine must not affect the test
            environment["BARTLEBY_BROKER__MAX_DISK_USAGE"] = "-1"
        if self._command:
            return spawn([*self._command, *arguments], environment, merged=False)
        return fork_server.start(arguments, environment, ROOT, self._preparation)

    def on_ready(self, found: re.Match[str]) -> None:
        """See BrokerProcess."""
        self.ports = {name: int(port) for name, port in _ADDRESS.findall(found[0])}
        self._pid = int(found[1])  # of the broker itself, not of its wrapper

    def await_standby(self) -> None:
        """Wait until it is a standby, whether or not it owned the journal before.  Raises NotReady."""
        with self._changed:
            self._changed.wait_for(lambda: self._stands_by() or not self._speaking, self._patience_s)
            found = self._stands_by()
        if not found:
            raise self.not_ready()

    def _stands_by(self) -> bool:
        roles = [line.split()[0] for line in self._said if line.startswith(("READY ", "STANDBY "))]
        return roles[-1:] == ["STANDBY"]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker itself, not to its wrapper."""
        assert self._process is not None, "the broker does not run"
        os.kill(self._pid, number)

    def close(self) -> None:
        """End it if it still runs, and its wrapper."""
        if self._process is not None:
            self._process.kill()
        super().close()

    def _processes(self) -> list[int]:
        return [self._pid]

    # -- configuration ---------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The STOMP port."""
        return self.ports["stomp"]

    def reload(self, settings: str) -> None:
        """Write other settings and send SIGHUP; returns once they are in force."""
        before = self.log.count("reload.done")
        self.config.write_text(settings)
        self._acceptors = tuple(tomllib.loads(settings).get("acceptors", ("stomp", "amqp", "mqtt", "http")))
        self.signal(signal.SIGHUP)
        self.await_log("reload.done", times=before + 1)

    # -- management calls ------------------------------------------------------------------------------------------

    def get(self, path: str, **parameters: str | int) -> Any:
        """Return the answer of a management call: `status`, `queues/NAME`."""
        url, headers = self._called(path)
        answer = _CLIENT.get(url, params=parameters, headers=headers)
        assert answer.status_code == 200, f"{url}: {answer.status_code} {answer.text}"
        return answer.json()

    def post(self, path: str) -> None:
        """Make a management call that changes something: `failover`."""
        url, headers = self._called(path)
        answer = _CLIENT.post(url, headers=headers)
        assert answer.is_success, f"{url}: {answer.status_code} {answer.text}"

    def delete(self, path: str) -> None:
        """Make a management call that deletes something: `addresses/NAME?force=true`."""
        url, headers = self._called(path)
        answer = _CLIENT.delete(url, headers=headers)
        assert answer.is_success, f"{url}: {answer.status_code} {answer.text}"

    def _called(self, path: str) -> tuple[str, dict[str, str]]:
        """Return the URL and the headers of a management call."""
        token = (self.data / "management.token").read_text().strip()
        return f"http://127.0.0.1:{self.ports['http']}/api/v1/{path}", {"Authorization": f"Bearer {token}"}

    def queue(self, name: str) -> dict[str, Any]:
        """Return a queue: counts, counters, settings, consumers."""
        found: dict[str, Any] = self.get(f"queues/{quote(name, safe='')}")
        return found

    def await_task(self, kind: str, moved: int) -> dict[str, Any]:
        """Wait until the latest task is of this kind and has moved that many messages, and return it."""
        for _ in range(int(PATIENCE_S * 10)):
            latest: dict[str, Any] = self.get("tasks")["tasks"][0]
            if latest["kind"] == kind and latest["moved"] >= moved:
                return latest
            self.get(f"tasks/{latest['id']}", wait=100)
        raise AssertionError(f"no {kind} has moved {moved} messages")

    @property
    def bodies(self) -> list[Path]:
        """The files of large bodies."""
        return [*(self.data / "journal" / "bodies").iterdir()]

    def queue_names(self) -> set[str]:
        """Return the names of all queues."""
        return {queue["name"] for queue in self.get("queues", limit=1000)["queues"]}


def running(directory: Path, settings: str = "", **more: Any) -> AbstractContextManager[DaemonProcess]:
    """Run a broker, and end it afterwards in any case.  `more`: see DaemonProcess."""
    return started(DaemonProcess(directory, settings, **more))
