"""A broker of any kind in a process of its own: started, killed, restarted, stopped, measured.

    broker = Mosquitto(directory)
    broker.start()    # returns once it serves
    broker.kill()     # its data remain, so that the next start recovers
    broker.start()
    broker.close()

Its output is read from pipes as it arrives.  If a broker does not get ready, the error has the last lines of its log.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Self, TypeVar

from tests.support.fork_server import Forked

ROOT: Final = Path(__file__).parents[2]

#: How long a broker may take to start or to end, in seconds: many times what it needs on a busy machine.
PATIENCE_S: Final = 60.0

#: A child of this process, or of the fork server.
Process = Forked | subprocess.Popen[str]

Answer = TypeVar("Answer")
Figure = TypeVar("Figure")

#: Seconds between two questions: less than anything asked for takes, and little work for the broker that is asked.
_ASK_S: Final = 0.01

#: How many of a broker's last log lines an error shows.
_LAST_LINES: Final = 40

#: Which of a process's clocks: its CPU time, the kernel's CPUCLOCK_SCHED.
_CPU_CLOCK: Final = 2


def awaited(
    ask: Callable[[], Answer],
    fits: Callable[[Answer], object] = bool,
    *,
    what: str = "",
    patience_s: float = PATIENCE_S,
) -> Answer:
    """Ask every few milliseconds until an answer fits, and return it: for what nothing reports when it comes true.

    Raises AssertionError when it is out of patience.
    """
    until, never = time.monotonic() + patience_s, threading.Event()
    while not fits(answer := ask()):
        assert time.monotonic() < until, f"not within {patience_s} s: {what or answer}"
        never.wait(_ASK_S)
    return answer


class NotReady(Exception):
    """The broker ended, or was silent for too long, instead of getting ready; the text has its status and log."""


class NotAvailable(Exception):
    """This broker cannot be started here; the text says what to install."""


class _Output:
    """The lines that come through a pipe."""

    def __init__(self, pipe: IO[str], lines: list[str]) -> None:
        self.open = True
        self._descriptor = pipe.fileno()
        self._lines = lines
        self._begun = b""  # a line that has no end yet

    def wait(self, seconds: float | None) -> bool:
        """Wait until there is something to read, or the pipe's end; whether there is."""
        polled = select.poll()
        polled.register(self._descriptor, select.POLLIN)
        return bool(polled.poll(seconds))

    def read(self) -> None:
        """Append the lines that are in the pipe, without waiting."""
        while self.open and self.wait(0):
            data = os.read(self._descriptor, 65_536)
            self.open = bool(data)
            *whole, self._begun = (self._begun + data).split(b"\n")
            self._lines += [line.decode(errors="replace") + "\n" for line in whole]
        if not self.open and self._begun:
            self._lines.append(self._begun.decode(errors="replace"))
            self._begun = b""


class BrokerProcess:
    """A broker in a directory of its own.

    `ports` holds the port of each protocol once it runs; `started_s` is how long its last start took, in seconds.
    """

    name: str

    #: The line of its output that reports that it is ready.
    ready: re.Pattern[str]

    def __init__(self, directory: Path, *, patience_s: float = PATIENCE_S) -> None:
        self.directory = directory
        self.ports: dict[str, int] = {}
        self.starts = 0
        self.started_s = 0.0
        self._patience_s = patience_s
        self._process: Process | None = None
        self._pid = 0
        self._outputs: list[_Output] = []
        self._readers: list[threading.Thread] = []
        self._said: list[str] = []  # its standard output since its last start
        self._lines: list[str] = []  # its standard error, over all its starts
        self._changed = threading.Condition()

    def launch(self) -> Process:
        """Start the process.  Raises NotAvailable."""
        raise NotImplementedError

    def on_ready(self, found: re.Match[str]) -> None:
        """Note its ready line.  Raises NotReady."""

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, and wait until it is ready.  Raises NotAvailable, NotReady."""
        begun = time.monotonic()
        self.begin()
        self.await_ready()
        self.started_s = time.monotonic() - begun
        return self

    def begin(self) -> None:
        """Start without waiting.  Raises NotAvailable."""
        assert self._process is None, "the broker runs already"
        self.starts += 1
        self._said = []
        process = self._process = self.launch()
        self._pid = process.pid
        pipes = [(pipe, lines) for pipe, lines in ((process.stdout, self._said), (process.stderr, self._lines)) if pipe]
        self._outputs = [_Output(*each) for each in pipes]
        self._readers = [threading.Thread(target=self._read, args=[each], name="broker log") for each in self._outputs]
        for reader in self._readers:
            reader.start()

    def await_ready(self) -> None:
        """Wait until it is ready.  Raises NotReady."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready() or not self._speaking, self._patience_s)
            found = self._ready()
        if found is None:
            raise self.not_ready()
        self.on_ready(found)

    def _ready(self) -> re.Match[str] | None:
        return next(filter(None, map(self.ready.search, self._said)), None)

    def _read(self, output: _Output) -> None:
        while output.open:
            output.wait(None)
            with self._changed:
                output.read()
                self._changed.notify_all()

    def _catch_up(self) -> None:
        """Read what it has written: a reader's turn may come later than an answer to what was written before it."""
        for output in self._outputs:
            output.read()

    @property
    def _speaking(self) -> bool:
        """Whether a pipe is still open."""
        return any(output.open for output in self._outputs)

    def not_ready(self) -> NotReady:
        """End a broker that did not get ready, and return the error with its last log lines."""
        assert self._process is not None, "the broker does not run"
        self._end()
        status = self._forget()
        words = "".join([*self._said, *self._lines][-_LAST_LINES:])
        return NotReady(f"{self.name} is not ready, status {status}:\n{words}")

    def kill(self) -> None:
        """Kill it by SIGKILL, in the middle of its work."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Stop it by SIGTERM; returns its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> Self:
        """Kill it and start it again."""
        self.kill()
        return self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        assert self._process is not None, "the broker does not run"
        os.killpg(self._pid, number)

    def wait(self) -> int:
        """Wait for its end; returns the exit status, negative for a signal.  Raises TimeoutExpired."""
        assert self._process is not None, "the broker does not run"
        self._process.wait(PATIENCE_S)
        return self._forget()

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)

    def _forget(self) -> int:
        process = self._process
        assert process is not None
        status = process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        self._process = None
        self._outputs = []
        return status

    def close(self) -> None:
        """End it if it still runs."""
        if self._process is not None:
            self._end()
            self._forget()

    # -- log and resources -----------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether it was started, and no call has noticed its end."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._pid

    @property
    def log(self) -> str:
        """Its standard error, over all its starts: all that it has written by now."""
        with self._changed:
            self._catch_up()
            return "".join(self._lines)

    def await_log(self, text: str, *, times: int = 1) -> None:
        """Wait until the log has `text` in that many lines."""
        with self._changed:
            found = self._changed.wait_for(lambda: sum(text in line for line in self._lines) >= times, PATIENCE_S)
        assert found, f"{text!r} is not {times} times in the log:\n{self.log}"

    def cpu_seconds(self) -> float:
        """Return the user and system time of its processes so far."""
        return sum(self._each(cpu_seconds))

    def memory_bytes(self) -> int:
        """Return the resident memory of its processes."""
        return sum(self._each(memory_bytes))

    def peak_bytes(self) -> int:
        """Return the peak of its process's resident memory."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def _each(self, measure: Callable[[int], Figure]) -> Iterator[Figure]:
        """Measure each of its processes that does not end meanwhile."""
        for pid in self._processes():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield measure(pid)

    def _processes(self) -> list[int]:
        """Return the processes of its session."""
        return list(session(self._pid))

    def pids(self) -> list[int]:
        """Return its processes."""
        return self._processes()


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    merged: bool,
    cwd: Path = ROOT,
    user: str | None = None,
) -> Process:
    """Start a process in a session of its own; `merged`: its errors go to its output; `user`: the user it runs as."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=cwd,
        env=environment,
        user=user,
        start_new_session=True,
    )


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process, with all its threads, dead ones too; to the nanosecond.

    The clock of a process has the number that clock_getcpuclockid(3) returns, which Python does not offer.
    Raises ProcessLookupError.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError as gone:
        raise ProcessLookupError(f"there is no process {pid}") from gone


def state(pid: int) -> str:
    """Return its state as a letter: R runs, S and D wait, T is stopped, Z has ended (proc(5), stat, field 3)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def session(leader: int) -> Iterator[int]:
    """Yield the processes of the session that this one leads."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(path.name)) == leader:
                yield int(path.name)
        except ProcessLookupError:
            continue


Broker = TypeVar("Broker", bound=BrokerProcess)


@contextmanager
def started(broker: Broker) -> Iterator[Broker]:
    """Start a broker, and end it afterwards in any case."""
    try:
        yield broker.start()
    except BaseException:
        sys.stderr.write(f"--- log of the broker in {broker.directory}\n{broker.log}")
        raise
    finally:
        broker.close()
