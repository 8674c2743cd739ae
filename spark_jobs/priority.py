"""How an audit yields to the broker on its machine, and to all other processes.

    give_way()      call once, before anything is read or started
    gives_way()     whether this process yields

An audit uses all available cores for minutes.  The broker on the same machine should notice this as little as
possible:

1. **Processor.**  Nice 19: on a core that others use all the time, the audit gets about 1.5 %, so that the broker keeps
   its 95 % and the audit still makes progress (in the class SCHED_IDLE, it stood still for minutes).  Threads and
   processes inherit the value.
2. **Disk.**  Disk schedulers with priorities (bfq) derive them from niceness.
3. **Memory.**  If memory runs out, the kernel ends the audit and not the broker.

A process cannot change how groups of processes (cgroups) and sessions (autogroups, sched(7)) share the processor:
systemd and containers control this, see docs/audits.md.  If an audit is started with nice 19, as by the unit in
etc/, it still does the rest.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The lowest priority.
LOWEST: Final = 19

#: Be ended first when memory runs out: the highest possible value (proc(5)).
_OOM_SCORE_ADJ: Final = Path("/proc/self/oom_score_adj")
_FIRST: Final = "1000"


def give_way() -> None:
    """Switch to the lowest priority, also for everything started from now on.  This cannot be undone.

    Raises OSError if the system refuses.
    """
    if not gives_way():
        os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    with suppress(OSError):  # not Linux
        _OOM_SCORE_ADJ.write_text(_FIRST)


def gives_way() -> bool:
    """Whether this process has the lowest priority."""
    return os.getpriority(os.PRIO_PROCESS, 0) >= LOWEST


def has_to_wait() -> bool:
    """Whether other processes use all cores, so that yielding may take long."""
    return os.getloadavg()[0] >= len(os.sched_getaffinity(0))
