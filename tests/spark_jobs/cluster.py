"""Spark's own standalone cluster on loopback: a master, a worker and executors, each a process of its own.

Nothing here polls: what a process says on its pipe is waited for.  A cluster that is left takes its executors with it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Final, Self

import pyspark

from spark_jobs.java import find_java, spark_home_of
from spark_jobs.jvm import BRIEF_OPTIONS
from spark_jobs.session import BRIEF_DEFAULTS

SPARK_HOME: Final = Path(pyspark.__file__).parent

#: How long a process may take to say what is waited for, in seconds: many times what it needs on a busy machine.
PATIENCE_S: Final = 60.0

#: How long an application may take, in seconds: all of its processes need 40 s of CPU, of which a busy machine may give
#: them a tenth.
RUN_S: Final = 900.0

#: For what lives for seconds: the quick compiler only, a collector without threads, Spark's code is not verified.
QUICK: Final = f"{BRIEF_OPTIONS} -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"

#: The settings of applications: as little as the data needs, and two executors.
CONF: Final = BRIEF_DEFAULTS | {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "2",
}

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class Service:
    """A daemon of Spark; `lines` is what it has said."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self._said: Queue[str | None] = Queue()
        self._process = subprocess.Popen(
            [f"{environment['SPARK_HOME']}/bin/spark-class", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="Spark's log")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self._said.put(line)
        self._said.put(None)

    def await_line(self, pattern: str) -> re.Match[str]:
        """The next line in which this is found."""
        while True:
            try:
                line = self._said.get(timeout=PATIENCE_S)
            except Empty:
                line = None
            if line is None:
                raise AssertionError(f"Spark did not say {pattern!r} but: {''.join(self.lines)}")
            self.lines.append(line)
            found = re.search(pattern, line)
            if found:
                return found

    def stop(self) -> None:
        """End it and all that it has started."""
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)


class Cluster:
    """A master and a worker with two cores; `url` is the master's, `work` the directory of the executors' own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"
        self.url = ""
        self._services: list[Service] = []
        java = spark_home_of(find_java(os.environ), directory / "java")
        # Not with its zip of PySpark, which each Python would compile: they have the installed one.
        home = directory / "spark"
        home.mkdir()
        for name in ("bin", "jars"):
            (home / name).symlink_to(SPARK_HOME / name)
        #: The environment of a machine on which nothing of ours is installed but a Python with its packages.
        self.environment = {
            "PATH": os.environ["PATH"],
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def __enter__(self) -> Self:
        try:
            master = self._start(_MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = master.await_line(r"Starting Spark master at (spark://\S+)")[1]
            here = ("--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self.work))
            worker = self._start(_WORKER, *here, "--cores", "2", "--memory", "2g", self.url)
            worker.await_line("Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self, *command: str) -> Service:
        service = Service(command, self.environment)
        self._services.append(service)
        return service

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything, the worker first."""
        while self._services:
            self._services.pop().stop()

    def submit(self, script: Path, *arguments: str, py_files: Path) -> subprocess.CompletedProcess[str]:
        """Run spark-submit in an empty directory."""
        here = self.directory / "here"
        here.mkdir()
        options = ["--master", self.url, "--py-files", str(py_files)]
        for name, value in CONF.items():
            options += ["--conf", f"{name}={value}"]
        return subprocess.run(
            [f"{self.environment['SPARK_HOME']}/bin/spark-submit", *options, str(script), *arguments],
            cwd=here,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
