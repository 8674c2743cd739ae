"""The lease of a replicated log: renewed by a separate thread as long as this broker owns the log.

The lease says which broker should write; it is the epoch that prevents others from writing.  An owner that could not
renew its lease in time releases the log: another broker may own it already, and nothing could be confirmed any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from store.errors import LogFailed
from store.log import Place
from store.replicated.database import Doubtful, Leases, Unavailable


class LeaseKeeper:
    """Renews a lease that was taken at `since`, in monotonic seconds; `lease` and `renewal` are in ms.

    `replicated`: how far the log is replicated, for the standbys.
    """

    def __init__(
        self,
        leases: Leases,
        *,
        name: str,
        epoch: int,
        since: float,
        lease: int,
        renewal: int,
        replicated: Callable[[], Place],
        monotonic: Callable[[], float],
    ) -> None:
        self.epoch = epoch
        self._leases = leases
        self._name = name
        self._lease = lease
        self._renewal = renewal / 1000
        self._replicated = replicated
        self._monotonic = monotonic
        self._until = since + lease / 1000
        self._lost = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-lease", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether another broker may own the log."""
        return self._lost or self._monotonic() > self._until

    def end(self, *, give_up: bool) -> None:
        """Stop renewing.  Another broker can take the lease at once if it is given up, else when it expires."""
        self._ending.set()
        if not give_up:
            self._leases.interrupt()
        self._thread.join()
        if give_up:
            with suppress(Doubtful, Unavailable, LogFailed):  # then the lease expires
                self._leases.give_up_lease(self._name)

    def _run(self) -> None:
        while not self._ending.wait(self._renewal):
            requested = self._monotonic()
            try:
                if not self._leases.renew_lease(self._name, self.epoch, self._lease, self._replicated()):
                    self._lost = True
                    return
                self._until = requested + self._lease / 1000
            except (Doubtful, Unavailable, LogFailed):
                continue  # until the lease expires
