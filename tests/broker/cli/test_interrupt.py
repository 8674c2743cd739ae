"""Ctrl-C ends a command silently, with the status that shells show for it."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import pytest

from broker.cli.failure import confirm, is_interrupt
from tests.support.process import PATIENCE_S, ROOT

#: What runs a command so that it hears SIGINT, which the tests may ignore.
HEARS: Final = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " runpy.run_module('broker', run_name='__main__', alter_sys=True)"
)


@pytest.mark.parametrize("arguments", [["queue", "list"], ["queue", "purge", "q", "--yes"], ["status"]])
def test_while_it_waits_for_the_broker(tmp_path: Path, arguments: list[str]) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", HEARS, *arguments, "--url", url, "--token-file", str(token)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            client, _ = silent.accept()
            client.recv(1)
            running.send_signal(signal.SIGINT)
            said = running.communicate(timeout=PATIENCE_S)
            client.close()
    assert (running.returncode, *said) == (130, b"", b"")


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (["queue", "list", "--url", "http://127.0.0.1:1", "--user", "alice"], b"Password of alice:"),
        (["user", "add", "alice", "--role", "amq", "--data", "."], b"Password for alice:"),
    ],
)
def test_at_a_question(tmp_path: Path, arguments: list[str], question: bytes) -> None:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {HEARS}", *arguments]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        said = b""
        while question not in said:
            said += os.read(ours, 1000)
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 130
    os.close(theirs)
    with contextlib.suppress(OSError):  # the end of a terminal
        while more := os.read(ours, 1000):
            said += more
    os.close(ours)
    assert said.split(question)[1].strip() == b""


def test_at_a_question_that_has_to_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    with pytest.raises(click.Abort) as ended:
        confirm("Remove them?", "removed")
    assert is_interrupt(ended.value)
