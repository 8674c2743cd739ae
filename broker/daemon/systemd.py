"""Notifies the service manager (sd_notify(3)): one datagram per message, none if the environment names no socket.

The environment has the socket (NOTIFY_SOCKET: a path, or `@name` for Linux's abstract namespace) and the watchdog's
timeout (WATCHDOG_USEC).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from broker.clock import monotonic_ms
from broker.log import printable


class Notifier:
    """The service manager of this process; without one every call does nothing."""

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        self._environment = environment
        self._pid = pid
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self) -> None:
        """Report that the start, or a reload, is complete."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that a reload begins; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_ms() * 1000}")

    def stopping(self) -> None:
        """Report that the shutdown begins."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Set the text that `systemctl status` shows."""
        self._send("STATUS=" + printable(text))

    def watchdog(self) -> None:
        """Reset the watchdog."""
        self._send("WATCHDOG=1")

    def beat(self, goes_on: Callable[[], bool], lives: Callable[[], bool] = lambda: True) -> None:
        """Reset the watchdog in time, whenever `lives` is true, for as long as `goes_on` is true."""
        interval = self.watchdog_interval()
        if interval is None or not goes_on():
            return
        if lives():
            self.watchdog()
        asyncio.get_running_loop().call_later(interval, self.beat, goes_on, lives)

    def extend_timeout(self, seconds: float) -> None:
        """Ask for more time: the start or shutdown may take this many seconds from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def watchdog_interval(self) -> float | None:
        """Return how often to call `watchdog`, in seconds: half the timeout; None if this process has no watchdog."""
        if self._environment.get("WATCHDOG_PID", str(self._pid)) != str(self._pid):
            return None
        allowed = self._environment.get("WATCHDOG_USEC", "")
        return int(allowed) / 2_000_000 if allowed.isdigit() and int(allowed) else None

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)  # a service manager that does not read must not block the broker
            try:
                channel.connect(self._address)
                channel.send(message.encode())
            except OSError:
                return
