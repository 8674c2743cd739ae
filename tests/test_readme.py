"""What README.md tells people to type works, and what it and the other pages link to exists."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from broker.engine.model import message
from store.record import DeadLetterReason
from tests.support.story import check as check_story
from tests.support.story import check_cluster

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text()
BLOCKS: Final = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS: Final = [
    line.partition("#")[0].rstrip() for language, block in BLOCKS if language == "sh" for line in block.splitlines()
]

#: Made by `make` itself in a fresh clone; here the tests' own environment takes its place.
INSTALLED: Final = ("-o", ".venv/.installed-run", "-o", ".venv/.installed-demo", "-o", ".venv/.installed-test")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The project's files, with an environment that is complete, and a place for `./var`."""
    for path in ROOT.iterdir():
        if path.name not in (".venv", ".git", "var"):
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name, arguments in (("python", ""), ("bartleby", "-m broker")):
        script = tmp_path / ".venv" / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    return tmp_path


def make(clone: Path, target: str) -> list[str]:
    """`make TARGET`, without installing anything."""
    return ["make", "-C", str(clone), "--no-print-directory", *INSTALLED, target]


@contextmanager
def make_run(clone: Path) -> Iterator[int]:
    """`make run`; the port that takes STOMP.  Free ports, so that the test may run beside a broker."""
    ports = {f"BARTLEBY_ACCEPTORS__{name}__PORT": "0" for name in ("STOMP", "AMQP", "MQTT", "HTTP")}
    settings = ports | {"BARTLEBY_BROKER__MAX_DISK_USAGE": "-1"}  # a full disk here is no matter of the test
    process = subprocess.Popen(make(clone, "run"), stdout=subprocess.PIPE, text=True, env={**os.environ, **settings})
    assert process.stdout is not None
    pid = 0
    try:
        for line in process.stdout:
            if line.startswith("READY "):
                break
        ready = re.search(r"stomp=127\.0\.0\.1:(\d+) .*pid=(\d+)", line)
        assert ready is not None, line
        pid = int(ready[2])
        yield int(ready[1])
        os.kill(pid, signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        if process.poll() is None and pid:
            os.kill(pid, signal.SIGKILL)
        process.wait(20)
        process.stdout.close()


def shell(clone: Path, command: str) -> str:
    """What a command prints; it must succeed."""
    result = subprocess.run(command, shell=True, cwd=clone, capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def test_a_first_message(clone: Path) -> None:
    (python,) = [block for language, block in BLOCKS if language == "python"]
    assert len(python.splitlines()) == 5
    with make_run(clone) as port:
        script = clone / "first.py"
        script.write_text(python.replace("61613", str(port)))
        subprocess.run([sys.executable, str(script)], check=True, timeout=30)
        printed = "".join(shell(clone, command) for command in COMMANDS if command.startswith(".venv/bin/bartleby"))
        assert "orders" in printed
        assert "three cups of tea" in printed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_make_demo(clone: Path) -> None:
    """With Spark at its end, which needs most of the time."""
    environment = {**os.environ, "COLUMNS": "80"}
    result = subprocess.run(make(clone, "demo"), env=environment, capture_output=True, text=True, timeout=280)
    check_story(result)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_make_cluster(clone: Path) -> None:
    """Three brokers, of which one is killed, and Spark at the end."""
    environment = {**os.environ, "COLUMNS": "80"}
    result = subprocess.run(make(clone, "cluster"), env=environment, capture_output=True, text=True, timeout=280)
    check_cluster(result)


def test_make_test_is_there(clone: Path) -> None:
    """It is not run here, being what runs this."""
    assert "pytest" in shell(clone, "make -n test")


def test_every_command_is_run_by_a_test() -> None:
    ours = {"make run", "make demo", "make cluster", "make test"}
    assert {command for command in COMMANDS if not command.startswith(".venv/bin/bartleby ")} == ours


PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_every_header_of_a_dead_letter_is_explained() -> None:
    """What the broker writes on dead letters, and docs/dead-letters.md, name the same headers and reasons."""
    page = (ROOT / "docs" / "dead-letters.md").read_text()
    named = {value for value in vars(message).values() if isinstance(value, str) and value.startswith("_AMQ_")}
    named -= {message.GROUP_ID, message.OWN_PREFIX}  # senders write it; no header
    assert set(re.findall(r"`(_AMQ_[A-Z_]+)`", page)) == named
    words = {reason.word for reason in DeadLetterReason}
    assert set(re.findall(r"^\| `([a-z-]+)` \| (?:it failed|a consumer|its time)", page, re.MULTILINE)) <= words
