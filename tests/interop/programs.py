"""The programs that drive clients of other languages, built once for each state of their sources.

Each takes a port and what to do: `suite`, `mqtt`, or `forward` with a selector and routes (see `forwarding`).  Those of
Node.js that are suites are run by its own test runner, and told by their environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent

#: Fetching and building takes some seconds; an index that cannot be reached takes long to give up.
BUILD_S: Final = 240
#: What a program may take.
RUN_S: Final = 120

#: What to install for a tool, where its name is not that of the package.
_PACKAGES: Final = {
    "cargo": "cargo",
    "go": "golang",
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "keytool": "default-jdk-headless",
    "mosquitto_pub": "mosquitto-clients",
    "mosquitto_rr": "mosquitto-clients",
    "mosquitto_sub": "mosquitto-clients",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "perl": "perl",
    "php": "php-cli",
    "ruby": "ruby",
    "stdbuf": "coreutils",
}

#: A virtual machine that starts quickly and leaves the processors to others.
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")

#: Without optimizing, and without what debuggers need: a fresh machine compiles Go's own library too, which
#: takes longer than the program runs.
_GO_FLAGS: Final = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w")


def tool(name: str) -> str:
    """Where a tool is.  Skips the test if it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}: apt-get install {_PACKAGES[name]}")
    return found


def fresh(product: Path, *patterns: str) -> bool:
    """Whether a product is younger than its sources, which stand in the folder before its first wildcard."""
    sources = [source for pattern in patterns for source in HERE.glob(pattern)]
    assert sources, patterns
    return product.exists() and product.stat().st_mtime >= max(source.stat().st_mtime for source in sources)


def build(directory: Path, *command: str) -> None:
    """Run a build: Maven's in such a virtual machine, Go's without C.  Raises CalledProcessError, TimeoutExpired."""
    environment = {"MAVEN_OPTS": " ".join(_JVM), "CGO_ENABLED": "0", **os.environ}
    subprocess.run(command, cwd=directory, check=True, timeout=BUILD_S, env=environment)


def java(main: str) -> list[str]:
    """A class of the Maven project."""
    product = HERE / "java" / "target"
    machine, maven = tool("java"), tool("mvn")
    tool("javac")
    if not fresh(product / "classes" / f"{main}.class", "java/pom.xml", "java/src/main/java/*.java"):
        shutil.rmtree(product, ignore_errors=True)
        build(HERE / "java", maven, "--quiet", "--batch-mode", "compile")
    return [machine, *_JVM, "-cp", f"{product / 'classes'}{os.pathsep}{product / 'lib'}/*", main]


def go() -> list[str]:
    """The Go program."""
    product = HERE / "go" / "peer"
    compiler = tool("go")
    if not fresh(product, "go/go.*", "go/*.go"):
        build(HERE / "go", compiler, "build", *_GO_FLAGS, "-o", str(product), ".")
    return [str(product)]


def rust() -> list[str]:
    """The Rust program, whose 80 packages take too long to compile for the normal run.  Skips if it is not built."""
    product = HERE / "rust" / "target" / "debug" / "interop"
    if not fresh(product, "rust/Cargo.*", "rust/src/*.rs"):
        pytest.skip("tests/interop/rust is not built: make interop, which needs cargo")
    return [str(product)]


def script(interpreter: str, name: str, *check: str, package: str) -> list[str]:
    """A script of an interpreter that has the client: the `check` succeeds.  Skips if it has not."""
    command = tool(interpreter)
    if subprocess.run([command, *check], capture_output=True, timeout=RUN_S).returncode:
        pytest.skip(f"{interpreter} has no client: apt-get install {package}")
    return [command, str(HERE / name)]


def node(script: str) -> list[str]:
    """A script with what package-lock.json says, in a git-ignored folder, fetched once for each lock file."""
    interpreter, npm = tool("node"), tool("npm")
    if not fresh(HERE / "node" / "node_modules" / ".package-lock.json", "node/package-lock.json"):
        build(HERE / "node", npm, "ci", "--loglevel=error")
    return [interpreter, str(HERE / "node" / script)]


def node_suite(script: str, **told: str) -> int:
    """A suite of Node's own test runner, which has to pass: its number of scenarios.  `told`: its environment."""
    interpreter, path = node(script)
    environment = {**os.environ, **told}
    command = [interpreter, "--test", "--test-reporter=tap", path]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_S)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^# pass (\d+)$", result.stdout, re.MULTILINE)
    assert passed is not None
    return int(passed[1])


def forwarding(name: str, port: int, selector: str, routes: Sequence[str]) -> list[str]:
    """The command that forwards messages with a client; routes are `FROM>TO,TO`, and end with the case `end`."""
    arguments = [selector, *routes]
    match name:
        case "jms":
            return [*java("Forward"), str(port), *arguments]
        case "rhea":
            return [*node("amqp_forward.mjs"), str(port), *arguments]
        case "go":
            return [*go(), str(port), "forward", *arguments]
        case "rust":
            return [*rust(), str(port), "forward", *arguments]
    raise KeyError(name)


def run(command: Sequence[str]) -> str:
    """A program that has to succeed: what it wrote."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
