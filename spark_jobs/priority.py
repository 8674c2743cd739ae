"""How an audit gives way to the broker on its machine, and to everybody else there.

    give_way()      once, before anything is read or started
    gives_way()     whether this process does

An audit takes all cores that it is given, for minutes.  The broker beside it has to notice as little of that as can be:

1. **Processor.**  The lowest scheduling class there is: on Linux SCHED_IDLE, whose threads run where nobody else wants
   to, and stop as soon as somebody does; elsewhere nice 19.  Threads and processes inherit it from who starts them.
2. **Sessions.**  Linux may share out the processor to sessions first (autogroups, sched(7)); the class then counts only
   within one, and two sessions get a half each.  So Java, and the workers that it starts, have a session of their own
   with the smallest share: `jvm` begins it, the wrapper of `java` asks for the share.
3. **Disk.**  Who is in this class is in the idle class of disk schedulers too, if they know classes (bfq does).
4. **Page cache.**  `journal.files` drops what only the audit has read, so that what others have there stays.
5. **Memory.**  If there is not enough, the kernel ends the audit and not the broker.

What a process is not allowed to change is how groups of processes (cgroups) share the processor: docs/audits.md says
what to do there.  Who decides is the class alone: an audit that was put into it by others, as by the unit in etc/, does
the rest as well.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The lowest nice value; also the smallest share of a session.
LOWEST: Final = 19

#: To be ended first when memory runs out: the highest value there is (proc(5)).
_OOM_SCORE_ADJ: Final = Path("/proc/self/oom_score_adj")
_FIRST: Final = "1000"


def give_way() -> None:
    """Take the lowest priority, with what is started from now on.  It cannot be taken back.

    Raises OSError if the system refuses.
    """
    if not _is_idle():
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except (AttributeError, OSError):  # not Linux, or not allowed
            os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
    with suppress(OSError):  # not Linux
        _OOM_SCORE_ADJ.write_text(_FIRST)


def gives_way() -> bool:
    """Whether this process has the lowest priority."""
    return _is_idle() or os.getpriority(os.PRIO_PROCESS, 0) >= LOWEST


def _is_idle() -> bool:
    try:
        return os.sched_getscheduler(0) == os.SCHED_IDLE
    except AttributeError:  # not Linux
        return False
