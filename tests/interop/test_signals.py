"""Signals and a failing disk where a broker starts, and where it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.reasons.exit_status import ExitStatus
from tests.support.daemon import DaemonProcess, running
from tests.support.faulty import planted
from tests.support.process import ROOT


def faulty(directory: Path, fault: str) -> DaemonProcess:
    """A broker with a planted fault, which does not run yet."""
    return DaemonProcess(directory, preparation=planted(fault))


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A broker that is reading its journal as long as there is a file `recovery-waits`."""
    (tmp_path / "recovery-waits").touch()
    broker = faulty(tmp_path, "recovery")
    try:
        broker.begin()
        broker.await_log("reading")
        yield broker
    finally:
        broker.close()


#: The loading of a command's modules, during which the process gets a signal.
LOADING = """
import os, sys, types
class Loading(types.ModuleType):
    def __getattr__(self, name):
        os.kill(os.getpid(), {number})
        return lambda: print("it has survived")
sys.modules["broker.cli.main"] = Loading("loading")
from broker.__main__ import main
main()
"""


def _may_unshare() -> bool:
    try:
        return subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("first", [False, True], ids=["a process", "the first process of a container"])
def test_it_can_be_ended_while_it_loads(number: signal.Signals, first: bool) -> None:
    """The system discards signals to the first process of a container unless they are handled."""
    if first and not _may_unshare():
        pytest.skip("this user may not make a process the first one")
    command = [sys.executable, "-c", LOADING.format(number=int(number))]
    namespace = ["unshare", "--pid", "--fork"] if first else []
    done = subprocess.run([*namespace, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + number if first else -number, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_recovery_is_ended_at_once(recovering: DaemonProcess, number: signal.Signals) -> None:
    recovering.signal(number)
    assert recovering.wait() == ExitStatus.OK
    assert recovering.log.splitlines()[-1].endswith(" stopped status=0")


def test_a_reload_waits_for_the_end_of_the_recovery(recovering: DaemonProcess) -> None:
    recovering.config.write_text('[addresses.late.queues.late]\nrouting-type = "ANYCAST"\n')
    recovering.signal(signal.SIGHUP)
    (recovering.directory / "recovery-waits").unlink()
    recovering.await_ready()
    recovering.await_log("reload.done")
    assert "late" in recovering.queue_names()


def test_a_disk_that_fails_before_the_broker_is_ready(tmp_path: Path) -> None:
    (tmp_path / "sync-fails").touch()
    broker = faulty(tmp_path, "sync")
    try:
        broker.begin()
        assert broker.wait() == ExitStatus.DISK_FAILED
        assert " journal.failed " in broker.log
        assert " ready " not in broker.log
    finally:
        broker.close()


def test_a_disk_that_fails_at_the_last_entry(tmp_path: Path) -> None:
    broker = faulty(tmp_path, "sync")
    try:
        broker.start()
        (tmp_path / "sync-fails").touch()
        assert broker.stop() == ExitStatus.DISK_FAILED
        *_, cause, last = broker.log.splitlines()
        assert " journal.failed " in cause
        assert " stopped status=74 cause=" in last
    finally:
        broker.close()


def test_a_start_that_fails_leaves_nothing_for_the_command_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = DaemonProcess(tmp_path, fixed={"http": taken.getsockname()[1]})
        broker.begin()
        assert broker.wait() == ExitStatus.FAILED
    assert [path.name for path in broker.data.iterdir()] == ["journal"]
    with running(tmp_path) as again:
        assert "verdict=clean" in again.log
