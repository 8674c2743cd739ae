"""What one call may cost the event loop, on which every client waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of single calls."""

    #: Messages of a queue that one page of the console may look at: some 40 ms.
    looked_at_max: int = 200_000
    #: Messages of a queue on which one request tries a filter; the next request goes on behind them.
    filtered_max: int = 5_000
    #: Queues with series of their own; the others share `queue=""`.  Reading so many takes some 25 ms.
    measured_queues_max: int = 1_000
    #: How long a tick may take to end, in seconds: the longest that work of one tick has been seen to take is below 2,
    #: and those who ask (a kubelet, a load balancer) wait for 1 to 10.
    tick_seconds_max: float = 5.0
