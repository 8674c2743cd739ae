"""What Java is started with, and what of its words is seen; the sessions of test_session start a real one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pyspark
import pytest

from spark_jobs import jvm
from spark_jobs.java import Java

#: What a worker says that was idle for a minute.
_RETIRED: Final = """\
Traceback (most recent call last):
  File "/x/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/x/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
_OURS: Final = """\
Traceback (most recent call last):
  File "/x/spark_jobs/reading.py", line 7, in read
BrokenPipeError: [Errno 32] Broken pipe
"""
_OTHER: Final = _RETIRED.replace("BrokenPipeError: [Errno 32] Broken pipe", "MemoryError")


def _shown(text: str) -> str:
    return "".join(jvm.without_complaints(text.splitlines(keepends=True)))


@pytest.mark.parametrize("text", ["one\n  two \ufffd\n\nthree", _OURS, _OTHER, _RETIRED[:-40]])
def test_messages_of_java_are_seen_and_so_are_tracebacks(text: str) -> None:
    assert _shown(f"before\n{text}") == f"before\n{text}"


def test_retired_workers_complain_in_vain() -> None:
    assert _shown(f"one\n{_RETIRED}{_RETIRED}two\n{_OTHER}{_RETIRED}") == f"one\ntwo\n{_OTHER}"


def test_so_do_two_at_a_time() -> None:
    mixed = "".join(line * 2 for line in _RETIRED.splitlines(keepends=True))
    assert _shown(f"one\n{mixed}two\n") == "one\ntwo\n"


@pytest.mark.parametrize(("quiet", "says"), [(True, "one \ufffd\ntwo"), (False, f"one \ufffd\n{_RETIRED}two")])
def test_it_is_read_to_its_end(quiet: bool, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, end = os.pipe()
    os.write(end, b"one \xff\n" + _RETIRED.encode() + b"two")
    os.close(end)
    jvm._forward(source, quiet=quiet)
    assert capsys.readouterr() == ("", says)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No variable of Spark's or Java's is set, and a Java is found.  Returns the directory for temporary files."""
    for name in list(os.environ):
        if name.startswith(("SPARK", "PYSPARK", "JAVA", "MASTER", "PYTHONPATH")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(jvm, "find_java", lambda environment: Java(tmp_path / "jdk", 21))
    return tmp_path


def _environment(
    temporary: Path, master: str | None = None, *, quiet: bool = True, brief: bool = False
) -> dict[str, str]:
    settings = {} if master is None else {"spark.master": master}
    return jvm._launch_environment(settings, temporary, quiet=quiet, brief=brief)


def test_options_that_java_is_started_with(asked: Path) -> None:
    found = _environment(asked)
    assert found == {
        "JAVA_HOME": str(asked / "java"),
        "PYTHONPATH": str(jvm.ROOT),
        "SPARK_DRIVER_MEMORY": "2g",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f'"-Dlog4j2.configurationFile=file://{asked}/log4j2.properties"',
    }
    settings = (asked / "log4j2.properties").read_text()
    assert "rootLogger.level = error" in settings
    assert "SYSTEM_ERR" in settings


def test_workers_take_the_installed_pyspark_not_that_of_spark(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else is on the path stays where it was."""
    monkeypatch.setenv("PYTHONPATH", "/mine")
    sparks = asked / "pyspark.zip"
    say = "import json, pyspark, sys; print(json.dumps([sys.executable, pyspark.__file__, sys.path[:3]]))"
    done = subprocess.run(
        [jvm.worker_python(asked / "it's here"), "-P", "-c", say],
        env={"PYTHONPATH": f"{sparks}:/mine"},
        capture_output=True,
        text=True,
        check=True,
    )
    packages = Path(pyspark.__file__).parents[1]
    assert json.loads(done.stdout) == [sys.executable, pyspark.__file__, [str(jvm.ROOT), "/mine", str(packages)]]


def test_where_no_script_can_run_they_are_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert jvm.worker_python(tmp_path) == sys.executable


def test_a_log_that_is_asked_for_is_sparks_own(asked: Path) -> None:
    assert "SPARK_SUBMIT_OPTS" not in _environment(asked, quiet=False)


def test_a_brief_session_of_a_local_spark_has_the_quick_compiler_only(asked: Path) -> None:
    assert _environment(asked, quiet=False, brief=True)["SPARK_SUBMIT_OPTS"] == jvm.BRIEF_OPTIONS


def test_but_not_that_of_a_cluster(asked: Path) -> None:
    assert "SPARK_SUBMIT_OPTS" not in _environment(asked, "spark://h:7077", quiet=False, brief=True)


def test_options_that_are_set_already_stay(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "9g")
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=y")
    found = _environment(asked, brief=True)
    assert found["PYTHONPATH"] == f"{jvm.ROOT}:/mine"
    assert found["SPARK_DRIVER_MEMORY"] == "9g"
    assert found["SPARK_LOCAL_IP"] == "10.0.0.7"
    assert found["SPARK_SUBMIT_OPTS"].startswith(f'{jvm.BRIEF_OPTIONS} -Dx=y "-Dlog4j2'), "the last one counts"


@pytest.mark.parametrize(
    ("master", "variable", "local"),
    [
        (None, None, True),
        ("local[4]", "SPARK_HOME", True),
        ("spark://h:7077", None, False),
        (None, "SPARK_HOME", False),
        (None, "SPARK_CONF_DIR", False),
        (None, "MASTER", False),
    ],
)
def test_only_a_local_spark_is_kept_to_loopback(
    asked: Path, monkeypatch: pytest.MonkeyPatch, master: str | None, variable: str | None, local: bool
) -> None:
    """Where Spark's own files may name a cluster, they are left to it."""
    if variable is not None:
        monkeypatch.setenv(variable, "something")
    assert ("SPARK_LOCAL_IP" in _environment(asked, master)) == local


def _terminated() -> None:
    with jvm.terminated_in_order(), contextlib.ExitStack() as stack:
        stack.push(jvm.end_after_interrupt)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()


def test_sigterm_to_this_process_alone_ends_java_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java ends when its standard input does, like what stands for it here; until then the block is not left."""
    before = signal.getsignal(signal.SIGTERM)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as java:
        monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=java))
        monkeypatch.setattr("pyspark.SparkContext._jvm", object())
        with pytest.raises(SystemExit) as ended:
            _terminated()
        assert java.returncode == 0
    assert ended.value.code == 128 + signal.SIGTERM
    assert (pyspark.SparkContext._gateway, pyspark.SparkContext._jvm) == (None, None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "1")
    monkeypatch.delenv("TWO", raising=False)
    with contextlib.suppress(RuntimeError), jvm.environment({"ONE": "x", "TWO": "y"}):
        assert (os.environ["ONE"], os.environ["TWO"]) == ("x", "y")
        raise RuntimeError
    assert os.environ["ONE"] == "1"
    assert "TWO" not in os.environ
