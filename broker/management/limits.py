"""Bounds on how long one call may hold the event loop, where every client waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: HTTP connections of an acceptor beyond its limit, whose first request decides: health probes and holders of the
#: broker's token are answered, others refused.  Then they are closed.
RESERVED_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on single calls."""

    #: Messages of a queue on which one request tries a filter; the next request continues after them.
    filtered_max: int = 5_000
    #: Queues with their own series; the others share `queue=""`.  Reading this many takes some 25 ms.
    measured_queues_max: int = 1_000
    #: Seconds in which a tick must end: the longest work of one tick that was measured is below 2, and kubelets and
    #: load balancers wait for 1 to 10.
    tick_seconds_max: float = 5.0
