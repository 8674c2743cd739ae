"""The one Java process of this process: how it is started, and which of its output reaches the terminal.

Settings that Java needs at its start (heap, log, the place of the Python code) are passed in the environment, where all
of Spark's own ways to set them have precedence.

Java's stderr passes through this process, because Spark's Python workers write to it too: when one has been idle for a
minute, or Spark ends, it is stopped by closing its pipe, and prints a traceback about that.  An audit that takes
minutes would show several of these, although nothing is wrong.  (`spark.python.daemon.module` does not help: the
workers that plan a data source always use PySpark's own daemon.)
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Final

from spark_jobs.java import find_java, spark_home_of, write_script

LOCAL_MASTER: Final = "local[*]"

#: The heap of a local Spark.  Partitions are decoded outside it; sorting and grouping use it, and spill to disk.
LOCAL_HEAP: Final = "2g"

#: For a brief session of a local Spark, in which much code runs only a few times: the quick compiler alone is faster
#: than both.  It gets as much space for its code as Java gives to both.  Spark's classes take so much memory that Java
#: would collect garbage four times because of them.
BRIEF_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"

#: Where this code is.  Python workers on this machine also import it from there, wherever the audit is started.
ROOT: Final = Path(__file__).resolve().parents[1]

#: How long an interrupted Java may take to end: usually a second, longer on a busy machine.
END_SECONDS_MAX: Final = 20

#: The traceback of a stopped worker: its beginning, its origin, and its end.
_TRACEBACK: Final = "Traceback (most recent call last):"
_DAEMON: Final = "pyspark/daemon.py"
_BROKEN_PIPE: Final = "BrokenPipeError:"

_LOG_SETTINGS: Final = "log4j2.properties"

_PYTHON: Final = """\
#!/bin/sh
PYTHONPATH={first}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} "$@"
"""


def without_complaints(lines: Iterable[str]) -> Iterator[str]:
    """Java's output, without the tracebacks of stopped workers.

    A traceback is held back until its last line, which tells what it is about.  If two are interleaved, the end of one
    may be alone.
    """
    held: list[str] = []
    for line in lines:
        if line.startswith(_TRACEBACK) or (held and line.startswith(" ")):
            held.append(line)
            continue
        retired = line.startswith(_BROKEN_PIPE) and (not held or any(_DAEMON in each for each in held))
        yield from [] if retired else [*held, line]
        held = []
    yield from held


def _forward(source: int, *, quiet: bool) -> None:
    """Copy a pipe to stderr, until Java has ended."""
    with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
        for line in without_complaints(lines) if quiet else lines:
            sys.stderr.write(line)


def submitted() -> bool:
    """Whether spark-submit has started Java and this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start(asked: Mapping[str, str], temporary: Path, *, quiet: bool, brief: bool) -> None:
    """Start Java with these settings, unless it is running.  Raises NoJava, OSError, and pyspark's exceptions."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    if submitted():
        SparkContext._ensure_initialized()
        return
    conf = SparkConf(loadDefaults=False).setAll(list(asked.items()))
    source, end = os.pipe()
    reader = partial(_forward, source, quiet=quiet)
    threading.Thread(target=reader, name="Java's stderr", daemon=True).start()
    try:
        with environment(_launch_environment(asked, temporary, quiet=quiet, brief=brief)):
            gateway = launch_gateway(conf, {"stderr": end})  # type: ignore[no-untyped-call]
    finally:
        os.close(end)
    SparkContext._ensure_initialized(gateway=gateway)


def worker_python(temporary: Path) -> str:
    """The Python of the workers on this machine: this one, with the installed PySpark.

    Spark has its workers import PySpark from a zip of sources, which each of them compiles anew: most of the CPU time
    of a small audit outside Java.  Therefore, a script puts the installed one in front of it on the path.
    """
    import pyspark

    packages = str(Path(pyspark.__file__).parents[1])
    first = os.pathsep.join([*_python_path(), packages])
    script = temporary / "python"
    text = _PYTHON.format(first=shlex.quote(first), python=shlex.quote(sys.executable))
    return str(script) if write_script(script, text) else sys.executable


def _python_path() -> list[str]:
    """This code, and what was on the path before."""
    return [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]


def _launch_environment(asked: Mapping[str, str], temporary: Path, *, quiet: bool, brief: bool) -> dict[str, str]:
    local = will_be_local(asked)
    variables = {
        "PYTHONPATH": os.pathsep.join(_python_path()),
        "JAVA_HOME": str(spark_home_of(find_java(os.environ), temporary / "java")),
        "SPARK_DRIVER_MEMORY": os.environ.get("SPARK_DRIVER_MEMORY", LOCAL_HEAP),
    }
    options = [BRIEF_OPTIONS] if brief and local else []
    options += filter(None, [os.environ.get("SPARK_SUBMIT_OPTS")])
    if quiet:
        log_settings = temporary / _LOG_SETTINGS
        log_settings.write_text((resources.files("spark_jobs") / _LOG_SETTINGS).read_text())
        options.append(f'"-Dlog4j2.configurationFile={log_settings.as_uri()}"')
    if options:
        variables["SPARK_SUBMIT_OPTS"] = " ".join(options)
    if local:
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def will_be_local(asked: Mapping[str, str]) -> bool:
    """Whether Spark will run only on this machine, as far as this is known before its own files are read."""
    elsewhere = any(os.environ.get(name) for name in ("MASTER", "SPARK_CONF_DIR", "SPARK_HOME"))
    return asked.get("spark.master", "" if elsewhere else LOCAL_MASTER).startswith("local")


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables temporarily."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Terminated(KeyboardInterrupt):
    """SIGTERM.  A KeyboardInterrupt, because Py4J leaves a call to Java for nothing else."""


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """Make SIGTERM end the block like Ctrl-C, so that nothing is left behind.  A second one ends it at once.

    Either ends the process with the status that shells show for it.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        raise SystemExit(128 + signal.SIGTERM) from None
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def end_after_interrupt(kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    """After Ctrl-C or SIGTERM, end Java too, and wait: until its end, it may write files that would remain."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None or not isinstance(error, KeyboardInterrupt):
        return
    with suppress(OSError):
        process.stdin.close()  # Java ends when its standard input is closed
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS_MAX)
    SparkContext._gateway = SparkContext._jvm = None  # a later session starts another one


@contextmanager
def interrupts_left_alone() -> Iterator[None]:
    """Undo PySpark's handling of Ctrl-C, which calls Java during another call: Ctrl-C must end the audit and Spark."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
