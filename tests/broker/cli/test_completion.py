"""Completion in the shells themselves, at a terminal: what is typed, the Tab key, and the command that then runs."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from tests.broker.cli.harness import Operator, invoke
from tests.broker.management.harness import TestBroker

#: How each shell is started without anybody's settings, and how it is told of the completions in a file.
SHELLS: Final = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D; source"),
    "fish": (["fish", "--no-config", "--interactive"], "source"),
}

PATIENCE_S: Final = 30


class Terminal:
    """A shell at a terminal."""

    def __init__(self, shell: str, directory: Path) -> None:
        command, self._load = SHELLS[shell]
        if shutil.which(command[0]) is None:
            pytest.skip(f"{shell} is not installed (Debian package {shell})")
        self._directory, self._shell = directory, shell
        self._mine, theirs = pty.openpty()
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": programs, "HOME": str(directory), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        command = ["setsid", "--ctty", *command]  # the terminal is its own: fish insists
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=directory
        )
        os.close(theirs)
        self._said = ""

    def load(self) -> None:
        """Load the script that `bartleby completion` prints."""
        script = self._directory / "script"
        script.write_text(invoke("completion", self._shell).stdout)
        self.type(f"{self._load} {script}; echo lo''aded\n", until="loaded")

    def type(self, text: str, *, until: str) -> str:
        """Type, and read until the shell or a command has said something after it; what was said."""
        os.write(self._mine, text.encode())
        deadline = time.monotonic() + PATIENCE_S
        while until not in self._said:
            ready, _, _ = select.select([self._mine], [], [], max(deadline - time.monotonic(), 0))
            assert ready, self._said
            self._said += os.read(self._mine, 65_536).decode(errors="replace")
        said, _, self._said = self._said.partition(until)
        return said + until

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.wait()
        os.close(self._mine)


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_are_completed(shell: str, tmp_path: Path) -> None:
    terminal = Terminal(shell, tmp_path)
    try:
        terminal.load()
        terminal.type("bartleby queue pur\t", until="purge")
        terminal.type("--help\n", until="Usage: bartleby queue purge")
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", SHELLS)
async def test_queues_are_completed_by_the_running_broker(shell: str, broker: TestBroker, operator: Operator) -> None:
    for name in ("orders.europe", "a queue", "it's"):
        broker.queue(name)
    terminal = Terminal(shell, operator.directory)

    def use() -> None:
        terminal.load()
        terminal.type(f"bartleby queue show --data {operator.directory} orders.e\t", until="orders.europe")
        terminal.type("-o json | grep '\"messages\"'\n", until='"messages": 0')

    try:
        await asyncio.to_thread(use)
    finally:
        terminal.close()


async def _completed(operator: Operator, *words: str, **more: str) -> list[str]:
    """What is offered for the last word."""
    line = {"COMP_WORDS": " ".join(["bartleby", *words]), "COMP_CWORD": str(len(words))}
    command = [sys.executable, "-c", "from broker.cli.main import main; main()"]
    environment = {"PATH": os.environ["PATH"], "_BARTLEBY_COMPLETE": "bash_complete", **line, **more}
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False, cwd=operator.directory
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [offered.removeprefix("plain,") for offered in done.stdout.split()]


async def test_names_that_a_shell_would_take_apart_are_left_out(broker: TestBroker, operator: Operator) -> None:
    for name in ("orders", "a queue", "it's", "a:b", "$x", "a,b", "zürich"):
        broker.queue(name)
    where = ("--data", str(operator.directory))
    assert await _completed(operator, "queue", "purge", *where, "") == ["orders", "zürich"]
    assert await _completed(operator, "address", "show", *where, "o") == ["orders"]
    assert await _completed(operator, "queue", "create", *where, "") == []


async def test_a_broker_that_does_not_answer_is_no_error(operator: Operator) -> None:
    for where in (["--data", "/nowhere"], ["--url", "http://127.0.0.1:1"], ["--config", "/nowhere"]):
        assert await _completed(operator, "queue", "show", *where, "") == []


async def test_nobody_is_asked_for_a_password(operator: Operator) -> None:
    where = ["--user", "alice", "--url", operator.url]
    assert await _completed(operator, "queue", "show", *where, "") == []


async def test_words_to_explain(operator: Operator) -> None:
    assert await _completed(operator, "explain", "max-del") == ["max-deliveries"]
    assert "login.refused" in await _completed(operator, "explain", "login.")
