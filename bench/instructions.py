"""User-space instructions that processes execute, counted by `perf stat` where there is one.

They hardly depend on what else the machine does, so that a difference of one per cent shows in a second.  What the
kernel does for a process is not among them, nor how long its memory takes to answer: CPU time is what matters in the
end.  Virtual machines often have no counters.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

EVENT: Final = "instructions:u"

#: Seconds that `perf` may take to begin or to end.
PATIENCE_S: Final = 10.0


def why_not(event: str = EVENT) -> str:
    """Why they cannot be counted here; "" if they can."""
    perf = shutil.which("perf")
    if perf is None:
        return "there is no perf: install the Debian package linux-perf"
    command = [perf, "stat", "-x", ",", "-e", event, "true"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if tried.returncode or _total(tried.stderr) is None:
        said = next((line for line in tried.stderr.splitlines() if line and not line.startswith("#")), "nothing")
        return f"perf counts no {event} here (a virtual machine, or kernel.perf_event_paranoid): it says {said!r}"
    return ""


class Counting:
    """Counts those of processes, and of their threads, from `begin` to `end`."""

    def __init__(self, pids: Sequence[int], event: str = EVENT) -> None:
        perf = shutil.which("perf")
        assert perf is not None, "ask why_not first"
        ours, control = os.pipe()
        answers, theirs = os.pipe()
        self._control, self._answers = control, answers
        command = [perf, "stat", "-x", ",", "-e", event, "-D", "-1", "--control", f"fd:{ours},{theirs}"]
        command += ["-p", ",".join(map(str, pids))]
        self._perf = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, pass_fds=(ours, theirs)
        )
        os.close(ours)
        os.close(theirs)

    def begin(self) -> None:
        """From now on."""
        self._tell(b"enable\n")

    def end(self) -> int | None:
        """Until now: how many; None if they were not counted after all."""
        try:
            self._tell(b"disable\n")
            self._perf.send_signal(signal.SIGINT)
            _, said = self._perf.communicate(timeout=PATIENCE_S)
        finally:
            self.close()
        return _total(said)

    def _tell(self, command: bytes) -> None:
        os.write(self._control, command)
        os.read(self._answers, 16)  # it has done so; b"" if it has ended

    def close(self) -> None:
        """Count no more."""
        if self._perf.poll() is None:
            self._perf.kill()
        self._perf.wait()
        if self._perf.stderr is not None:
            self._perf.stderr.close()
        os.close(self._control)
        os.close(self._answers)


def _total(said: str) -> int | None:
    """The sum of the counts in perf's output, value first in each line; None where one is missing."""
    counts = [line.split(",")[0] for line in said.splitlines() if "," in line]
    return sum(int(float(count)) for count in counts) if counts and all(map(_is_number, counts)) else None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
