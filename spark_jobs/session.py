"""A Spark session for an audit: on this machine, on a cluster, or the one that spark-submit has started.

    with spark_session("bartleby audit ledger", master=None, conf={}, progress=Progress()) as spark:
        ...
    spark = open_session()          in a notebook: it ends with the process

Settings have this order of precedence:

    the arguments (`master`, `conf`)  >  spark-submit and spark-defaults.conf  >  the defaults below

Spark reads its files when Java starts; after that, the defaults are set where nothing else is.  `jvm` starts Java, with
the settings that are needed before.

Results go to stdout, so nothing here or in Spark writes to it.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from spark_jobs import jvm
from spark_jobs.priority import gives_way
from spark_jobs.source import register

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from spark_jobs.progress import Progress

#: Reduce tasks per core: a local audit reduces a few thousand rows; Spark's default of 200 tasks would waste seconds.
SHUFFLE_PARTITIONS_PER_CORE: Final = 2

#: Defaults for all sessions.  Unix sockets to the Python workers halve the cost of a task.
DEFAULTS: Final[dict[str, str]] = {
    "spark.master": jvm.LOCAL_MASTER,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
}

#: A socket's path can have at most 107 bytes (unix(7)), of which Spark's own name takes 43.
SOCKET_DIRECTORY_CHARS_MAX: Final = 64

#: For a local master: everything listens only on loopback, and a host name that does not resolve is no problem.
LOCAL_DEFAULTS: Final[dict[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

#: For a local master that yields to other processes: its parts may have to wait for hours while others need the
#: machine, and must not be considered dead.
PATIENT_DEFAULTS: Final[dict[str, str]] = {
    "spark.executor.heartbeatInterval": "1h",
    "spark.network.timeout": "24h",
    "spark.python.authenticate.socketTimeout": "1h",
    "spark.sql.broadcastTimeout": "86400",
}

#: The same for this process: seconds until Java responds.
_PATIENCE: Final = {"SPARK_AUTH_SOCKET_TIMEOUT": "3600"}

#: For a local master and a brief session: queries are interpreted, and planned once.  For little data, generating and
#: compiling code for a query, and planning it again after each stage, takes longer than running it; so does noting for
#: each expression which line of Python made it.
BRIEF_DEFAULTS: Final[dict[str, str]] = {
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}

#: Set unless `conf` says otherwise: hours are in UTC wherever the audit runs; the progress line is our own.
FIXED: Final[dict[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


class NoSpark(Exception):
    """Spark did not start; the message is Spark's."""


@contextmanager
def spark_session(
    app: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
    brief: bool = False,
    progress: Progress | None = None,
    interrupts_end: bool = True,
) -> Iterator[SparkSession]:
    """A session that is stopped at the end.  An existing session (of a notebook) is used, and left running.

    `quiet`: show only those errors of Spark's log that nothing else reports.  `brief`: for little data, where the start
    takes most of the time.  `interrupts_end`: Ctrl-C ends Spark; otherwise it cancels the current job, as usual in
    PySpark.  Raises NoJava, NoSpark, OSError.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with ExitStack() as stack:
        if progress is not None and quiet:
            stack.enter_context(progress).say("Starting Spark")
        if SparkContext._active_spark_context is not None:
            spark = SparkSession.builder.getOrCreate()
        else:
            temporary = TemporaryDirectory(prefix="bartleby-audit-", ignore_cleanup_errors=True)
            directory = Path(stack.enter_context(temporary))
            if gives_way():
                stack.enter_context(jvm.environment(_PATIENCE))
            with _start_errors(), jvm.interrupts_left_alone() if interrupts_end else nullcontext():
                spark = _start(app, master, dict(conf or {}), directory, quiet=quiet, brief=brief)
            stack.push(jvm.end_after_interrupt)
            stack.callback(_stop, spark)
        if progress is not None:
            progress.say("Working")
            progress.watch(spark.sparkContext.statusTracker())
            stack.callback(progress.watch, None)
        stack.enter_context(_interrupts_first())
        yield spark


def open_session(*, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session for a notebook or a script, with the data source registered, which ends with the process.

    An existing session is used, and left running.  Raises the same exceptions as spark_session.
    """
    session = ExitStack()
    spark = session.enter_context(spark_session("bartleby", master=master, conf=conf, interrupts_end=False))
    atexit.register(session.close)
    register(spark)
    return spark


def _start(
    app: str, master: str | None, conf: dict[str, str], temporary: Path, *, quiet: bool, brief: bool
) -> SparkSession:
    from pyspark.sql import SparkSession

    asked = FIXED | conf
    if master is not None:
        asked["spark.master"] = master
    python = asked.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if not python:
        local = jvm.will_be_local(asked) and not jvm.submitted()
        python = jvm.worker_python(temporary) if local else sys.executable
    with jvm.environment({"PYSPARK_PYTHON": python}):
        jvm.start(asked, temporary, quiet=quiet, brief=brief)
        settings = _settings(asked, temporary, brief=brief).setAppName(app)
        spark = SparkSession.builder.config(conf=settings).getOrCreate()
    if jvm.submitted() and quiet:
        spark.sparkContext.setLogLevel("ERROR")
    if _is_local(settings) and not settings.contains("spark.sql.shuffle.partitions"):
        tasks = SHUFFLE_PARTITIONS_PER_CORE * spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    return spark


def _settings(asked: Mapping[str, str], temporary: Path, *, brief: bool) -> SparkConf:
    """The requested settings, those that Spark read when Java started, and the defaults."""
    from pyspark import SparkConf

    settings = SparkConf().setAll(list(asked.items()))
    defaults = DEFAULTS | {"spark.sql.warehouse.dir": (temporary / "warehouse").as_uri()}
    if _is_local(settings):
        defaults |= LOCAL_DEFAULTS | {"spark.local.dir": str(temporary / "spark")}
        if len(str(temporary)) <= SOCKET_DIRECTORY_CHARS_MAX:
            defaults["spark.python.unix.domain.socket.dir"] = str(temporary)
        if gives_way():
            defaults |= PATIENT_DEFAULTS
        if brief:
            defaults |= BRIEF_DEFAULTS
    for key, value in defaults.items():
        settings.setIfMissing(key, value)
    return settings


def _is_local(settings: SparkConf) -> bool:
    return settings.get("spark.master", jvm.LOCAL_MASTER).startswith("local")


def _stop(spark: SparkSession) -> None:
    """Stop Spark.

    Java may have ended already, as after Ctrl-C.  PySpark then warns or raises an exception, depending on where it
    notices; neither may hide what ended the audit.
    """
    from py4j.protocol import Py4JError

    with warnings.catch_warnings(), suppress(Py4JError, OSError):
        warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


@contextmanager
def _interrupts_first() -> Iterator[None]:
    """Report Ctrl-C and SIGTERM as such.

    They may end Java as well; PySpark's calls during the exit then fail, and would be reported instead.
    """
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError) as error:
        before: BaseException | None = error
        while before is not None and not isinstance(before, KeyboardInterrupt):
            before = before.__context__
        if before is None:
            raise
        raise before from None


@contextmanager
def _start_errors() -> Iterator[None]:
    """Turn exceptions at the start of Spark into NoSpark with one sentence instead of a page.

    PySpark converts Java's exceptions only after the first start.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        raise NoSpark(str(error.java_exception.getMessage())) from error
    except PySparkException as error:
        raise NoSpark(str(error)) from error
