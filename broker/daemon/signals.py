"""What signals tell the process, over all lives of its broker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """SIGTERM and SIGINT: stop.  SIGHUP: read the configuration again, once there is something to put it into force in.

    Until the broker listens, as during a recovery, which has nothing to lose, `end_at_once` is called to stop.
    """

    def __init__(self, end_at_once: Callable[[], None]) -> None:
        self.told_to_stop = False
        self._stop: Callable[[], None] = end_at_once
        self._reload: Callable[[], None] | None = None
        self._reload_asked = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        for number in _STOPS:
            signal.signal(number, lambda *_: end_at_once())  # the event loop stands still while the journal is read

    def listen(self, stop: Callable[[], None]) -> None:
        """From now on `stop` is called to stop."""
        self._stop = stop
        for number in _STOPS:
            self._loop.add_signal_handler(number, self._on_stop)

    def reload_with(self, reload: Callable[[], None] | None) -> None:
        """What is called to reload, at once if that was asked for before; None: it has to wait."""
        self._reload = reload
        if reload is not None and self._reload_asked:
            self._on_reload()

    def _on_stop(self) -> None:
        self.told_to_stop = True
        self._stop()

    def _on_reload(self) -> None:
        self._reload_asked = self._reload is None
        if self._reload is not None:
            self._reload()
