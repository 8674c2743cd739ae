"""Handles the signals of the process, over all lives of its broker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """SIGTERM and SIGINT: stop.  SIGHUP: reload the configuration, as soon as the broker can.

    Until `listen` is called, as during a recovery, which has nothing to lose, `end_at_once` is called to stop.
    """

    def __init__(self, end_at_once: Callable[[], None]) -> None:
        self.told_to_stop = False
        self._stop: Callable[[], None] = end_at_once
        self._reload: Callable[[], None] | None = None
        self._reload_requested = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        for number in _STOPS:
            signal.signal(number, lambda *_: end_at_once())  # the event loop does not run while the journal is read

    def listen(self, stop: Callable[[], None]) -> None:
        """Call `stop` to stop from now on."""
        self._stop = stop
        for number in _STOPS:
            self._loop.add_signal_handler(number, self._on_stop)

    def reload_with(self, reload: Callable[[], None]) -> None:
        """Call `reload` to reload, at once if a reload was requested before."""
        self._reload = reload
        if self._reload_requested:
            self._on_reload()

    def reload_later(self, *, requested: bool) -> None:
        """Let requests wait; `asked`: the last one was not fulfilled."""
        self._reload, self._reload_requested = None, requested

    def _on_stop(self) -> None:
        self.told_to_stop = True
        self._stop()

    def _on_reload(self) -> None:
        self._reload_requested = self._reload is None
        if self._reload is not None:
            self._reload()
