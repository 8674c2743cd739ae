"""What the broker tells the service manager (sd_notify(3)): one datagram a message, nothing if nobody asked.

The environment says where to (NOTIFY_SOCKET: a path, or `@name` for Linux's abstract namespace) and how often a sign
of life is expected (WATCHDOG_USEC).
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
        """The start, or a reload, is complete."""
        self._send("READY=1")

    def reloading(self) -> None:
        """A reload begins; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_ms() * 1000}")

    def stopping(self) -> None:
        """The shutdown begins."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """What `systemctl status` shows."""
        self._send("STATUS=" + printable(text))

    def watchdog(self) -> None:
        """A sign of life."""
        self._send("WATCHDOG=1")

    def beat(self, goes_on: Callable[[], bool], lives: Callable[[], bool] = lambda: True) -> None:
        """Give a sign of life as often as is expected, if it `lives` then, until it no longer `goes_on`."""
        interval = self.watchdog_interval()
        if interval is None or not goes_on():
            return
        if lives():
            self.watchdog()
        asyncio.get_running_loop().call_later(interval, self.beat, goes_on, lives)

    def extend_timeout(self, seconds: float) -> None:
        """The start (or the shutdown) goes on: wait so much longer from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def watchdog_interval(self) -> float | None:
        """How often to call `watchdog`, in seconds: half of what is allowed; None if nobody watches this process."""
        if self._environment.get("WATCHDOG_PID", str(self._pid)) != str(self._pid):
            return None
        allowed = self._environment.get("WATCHDOG_USEC", "")
        return int(allowed) / 2_000_000 if allowed.isdigit() and int(allowed) else None

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)  # a manager that does not listen must not stop the broker
            try:
                channel.connect(self._address)
                channel.send(message.encode())
            except OSError:
                return
