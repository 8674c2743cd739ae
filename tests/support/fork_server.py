"""A process that has imported the broker, and forks a copy for each start.

Most of a broker's start is importing, and tests of kills and restarts would pay for it hundreds of times.  A forked
process is a broker process like any other: it has run nothing yet, and `bartleby run` begins in it.

    a test ── request ──> server ── fork ──> keeper ── fork ──> broker
      ^                                        │
      └──── the broker's id, then its end ─────┘

request     one message on a Unix socket: arguments, environment, directory and preparation in JSON, with three
            descriptors: the broker's standard output and standard error, and the pipe for the keeper's reports
preparation Python code that the broker's process runs before its command: it plants a fault, or sets a limit
keeper      waits for the broker, as only a parent can, and reports its exit status; each number in a fixed length

The server ends when the other end of its socket is closed, and so with the process that started it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest.mock import MagicMock

#: Bytes of a request: an environment is a tenth of it.
REQUEST_BYTES_MAX: Final = 131_072

#: Bytes of a number that the keeper writes: two may be in the pipe before the first is read.
NUMBER_BYTES: Final = 8


class Forked:
    """A process forked by the server: the part of `Popen` that tests need."""

    def __init__(self, pid: int, end: int, output: int, errors: int) -> None:
        self.pid = pid
        self.stdout = os.fdopen(output, encoding="utf-8")
        self.stderr = os.fdopen(errors, encoding="utf-8")
        self._end = end
        self._status: int | None = None

    def wait(self, timeout: float) -> int:
        """Wait for its exit status, negative for a signal; `timeout` in seconds.  Raises TimeoutExpired."""
        if self._status is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(["bartleby"], timeout)
            self._status = _read(self._end)
            os.close(self._end)
        return self._status

    def finished(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """Read what it writes to its end, and wait for its exit status.  Raises TimeoutExpired."""
        with self.stdout, self.stderr, ThreadPoolExecutor(1) as reader:
            errors = reader.submit(self.stderr.read)
            output = self.stdout.read()
            return subprocess.CompletedProcess(["bartleby"], self.wait(timeout), output, errors.result())

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._status is None:
            with suppress(ProcessLookupError):  # it has already ended
                os.kill(self.pid, signal.SIGKILL)


def start(arguments: Sequence[str], environment: Mapping[str, str], directory: Path, preparation: str = "") -> Forked:
    """Start `bartleby ARGUMENTS` in a process of its own."""
    (output, its_output), (errors, its_errors), (end, its_end) = os.pipe(), os.pipe(), os.pipe()
    request = json.dumps([list(arguments), dict(environment), str(directory), preparation]).encode()
    assert len(request) <= REQUEST_BYTES_MAX, "an environment like no other"
    socket.send_fds(_server(), [request], [its_output, its_errors, its_end])
    for descriptor in (its_output, its_errors, its_end):
        os.close(descriptor)
    return Forked(_read(end), end, output, errors)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], directory: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `bartleby ARGUMENTS` in a process of its own, to its end.  Raises TimeoutExpired."""
    return start(arguments, environment, directory).finished(timeout)


def _read(end: int) -> int:
    told = os.read(end, NUMBER_BYTES)
    assert told, "the fork server or a keeper is gone: what it said is above"
    return int.from_bytes(told, "little", signed=True)


def _write(end: int, number: int) -> None:
    os.write(end, number.to_bytes(NUMBER_BYTES, "little", signed=True))


@cache
def _server() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            pass_fds=[its.fileno()],
        )
    atexit.register(_dismiss, ours, process)
    return ours


def _dismiss(server: socket.socket, process: subprocess.Popen[bytes]) -> None:
    server.close()
    process.wait()


def _serve(requests: socket.socket) -> tuple[str, list[str]] | None:
    """Serve until the socket's other end is closed; returns None.

    In a broker's process: returns its preparation and its arguments.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one reaps the keepers
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
        if not request:
            return None
        if not os.fork():
            requests.close()
            return _keep(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(request: bytes, descriptors: list[int]) -> tuple[str, list[str]]:
    """Run the keeper, and fork the broker; only the broker returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output, errors, end = descriptors
    pid = os.fork()
    if not pid:
        arguments, environment, directory, preparation = json.loads(request)
        os.dup2(output, 1)
        os.dup2(errors, 2)
        for descriptor in descriptors:
            os.close(descriptor)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        return preparation, arguments
    os.close(output)
    os.close(errors)
    os.closerange(0, 3)  # else a reader of the tests' own output would not see its end
    _write(end, pid)
    _, status = os.waitpid(pid, 0)
    _write(end, os.waitstatus_to_exitcode(status))
    os._exit(0)


def main() -> None:
    """Import and serve; in a forked process, run the broker."""
    import_module("broker.daemon.run")  # the command imports it only when it is called
    from broker.cli.main import main as command
    from broker.engine.filter import prepare
    from broker.management.api import application
    from broker.management.limits import Limits

    application(MagicMock(), "", Limits(), metrics_open=True)  # its routes are read once for each process
    prepare()  # so are the grammars of filters, which take longer than all else of a start
    gc.collect()
    gc.freeze()  # garbage collections in a broker skip the objects shared with the others
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        preparation, arguments = request
        sys.argv[1:] = arguments
        sys.stdout = os.fdopen(1, "w")  # the server's know what was there before: a file, in which they seek
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        exec(preparation, {})
        command()


if __name__ == "__main__":
    main()
