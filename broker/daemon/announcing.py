"""Announces a started broker: to operators, scripts, the service manager and the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from broker import __version__
from broker.build import COMPILED
from broker.config import Config
from broker.daemon.systemd import Notifier
from broker.log import Log
from broker.management.runtime import (
    TOKEN_FILE,
    Listening,
    Runtime,
    create_token,
    remove_runtime_file,
    write_runtime_file,
)
from broker.security.policy import users_path
from broker.security.reload import ADMIN


class Announcer:
    """Announces one broker.  `started`: when it was started, in ms since the epoch."""

    def __init__(self, config: Config, log: Log, notifier: Notifier, started: int) -> None:
        self._config = config
        self._log = log
        self._notifier = notifier
        self._started = started

    def create_token(self) -> str:
        """Create the token with which the command line logs in; empty without an HTTP acceptor.  Raises OSError."""
        return create_token(self._config.broker.data_directory) if self._config.http_acceptors else ""

    def write_runtime_file(self, listening: Sequence[Listening]) -> None:
        """Write the file through which the command line finds this broker.  Raises OSError."""
        write_runtime_file(
            self._config.broker.data_directory, pid=os.getpid(), started=self._started, listening=listening
        )

    def withdraw(self) -> None:
        """Remove the runtime file.  If the disk cannot be written, it stays, although it is out of date."""
        with suppress(OSError):
            remove_runtime_file(self._config.broker.data_directory)

    def first_user(self, password: str) -> None:
        """Announce the first user and its password."""
        sys.stdout.write(
            f"The first user is {ADMIN}, the password {password} (not shown again; "
            "change it with `bartleby user passwd`)\n"
        )
        sys.stdout.flush()
        self._log("security.first_user", user=ADMIN, file=str(users_path(self._config)))

    def ready(self, listening: Sequence[Listening]) -> None:
        """Announce READY and the address of the console."""
        line = _line(listening)
        console = self._console(listening)
        access = {"console": console, "login": self._login()} if console else {}
        self._log("ready", version=__version__, compiled=COMPILED, pid=os.getpid(), acceptors=line, **access)
        line += f" pid={os.getpid()}" + (f" console={console} (log in with {access['login']})" if console else "")
        self._print_status(f"READY {line}", f"listening on {line}")

    def standby(self, listening: Sequence[Listening]) -> None:
        """Announce STANDBY."""
        self._log("replication.standby")
        self._print_status(
            f"STANDBY {_line(listening)} pid={os.getpid()}", "standby: it copies the journal of its owner"
        )

    def _print_status(self, line: str, status: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        self._notifier.ready()
        self._notifier.status(status)

    def _console(self, listening: Sequence[Listening]) -> str:
        """Return the console's URL for a browser on this machine; empty if no acceptor has the console."""
        shown = {name for name, acceptor in self._config.http_acceptors.items() if acceptor.console}
        places = tuple(address for address in listening if address.acceptor in shown)
        found = Runtime(os.getpid(), self._started, places).management
        return f"{found[0]}/" if found else ""

    def _login(self) -> str:
        """Describe how to log in to the console."""
        token = f"the token in {self._config.broker.data_directory / TOKEN_FILE}"
        return f"{token}, or as a user" if users_path(self._config).exists() else token


def _line(listening: Sequence[Listening]) -> str:
    return " ".join(f"{address.acceptor}={address}" for address in listening)
