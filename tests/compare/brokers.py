"""The two brokers, each started with the same broker.xml."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.importing import translate
from tests.compare.configuration import PROTOCOLS, broker_xml
from tests.support.daemon import DaemonProcess

#: Seconds that Artemis may take for a start: a Java machine on a busy computer.
PATIENCE_S: Final = 300.0
_ACTIVE: Final = "AMQ221007"  # server is now active
_VERSION: Final = re.compile(r"Artemis ([0-9][0-9.]*)")

Ports = dict[str, int]


@contextmanager
def bartleby(directory: Path) -> Iterator[Ports]:
    """Bartleby, with what `bartleby import` makes of the file."""
    settings = translate(broker_xml({"amqp": 5672, "stomp": 61613}).encode()).text
    broker = DaemonProcess(directory, settings)
    broker.start()
    try:
        yield {protocol: broker.ports[protocol] for protocol in PROTOCOLS}
        broker.stop()
    finally:
        broker.close()


@contextmanager
def artemis(home: Path, directory: Path) -> Iterator[Ports]:
    """Artemis of this installation, with an instance in the directory.  Raises RuntimeError if it does not start."""
    instance = directory / "artemis"
    create = [str(home / "bin" / "artemis"), "create", "--silent", "--user", "admin", "--password", "admin"]
    create += ["--role", "amq", "--allow-anonymous", "--no-autotune", "--no-web", "--no-fsync", "--nio"]
    subprocess.run([*create, "--java-memory", "512M", str(instance)], check=True, capture_output=True)
    ports = {protocol: _free_port() for protocol in PROTOCOLS}
    (instance / "etc" / "broker.xml").write_text(broker_xml(ports))
    process = subprocess.Popen(
        [str(instance / "bin" / "artemis"), "run"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # the script starts a Java machine: both have to be ended
    )
    try:
        reader = _await_active(process, directory / "artemis.log")
        yield ports
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_S)
        reader.join()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_active(process: subprocess.Popen[str], log: Path) -> threading.Thread:
    """Wait until it runs; the thread that reads what it says from then on.  Raises RuntimeError."""
    assert process.stdout is not None
    impatience = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
    impatience.start()
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if _ACTIVE in line:
            break
    impatience.cancel()
    if not lines or _ACTIVE not in lines[-1]:
        raise RuntimeError("Artemis did not start:\n" + "".join(lines))
    reader = threading.Thread(target=_keep, args=(process, log))
    reader.start()
    return reader


def artemis_version(home: Path) -> str:
    """The version of an installation."""
    result = subprocess.run([str(home / "bin" / "artemis"), "version"], check=True, capture_output=True, text=True)
    found = _VERSION.search(result.stdout)
    return found[1] if found else "unknown"


def _keep(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None
    with log.open("w") as file, process.stdout:
        file.writelines(process.stdout)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
