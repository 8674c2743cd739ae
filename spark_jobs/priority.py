"""How an audit gives way to the broker on its machine, and to everybody else there.

    give_way()      once, before anything is read or started
    gives_way()     whether this process does

An audit takes all cores that it is given, for minutes.  The broker beside it has to notice as little of that as can be:

1. **Processor.**  Nice 19: of a core that others want all the time it gets some 1.5 %, so that the broker keeps its
   95 % and the audit comes to its end all the same (in the class SCHED_IDLE it stood still for minutes).  Threads and
   processes inherit it from what starts them.
2. **Disk.**  Disk schedulers that know priorities (bfq) derive theirs from niceness.
3. **Memory.**  If there is not enough, the kernel ends the audit and not the broker.

What a process is not allowed to change is how groups of processes (cgroups) and sessions (autogroups, sched(7)) share
the processor: that is for systemd and containers, as docs/audits.md says.  An audit that was started with nice 19, as
by the unit in etc/, does the rest as well.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The lowest priority.
LOWEST: Final = 19

#: To be ended first when memory runs out: the highest value there is (proc(5)).
_OOM_SCORE_ADJ: Final = Path("/proc/self/oom_score_adj")
_FIRST: Final = "1000"


def give_way() -> None:
    """Take the lowest priority, with what is started from now on.  It cannot be taken back.

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
    """Whether others want all the cores that there are, so that giving way takes long."""
    return os.getloadavg()[0] >= len(os.sched_getaffinity(0))
