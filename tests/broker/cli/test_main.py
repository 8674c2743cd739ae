"""The command itself: what it says of its commands, and that none of them waits for what another one needs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import pytest

from broker.cli.main import PLACES, cli
from broker.security.users_file import StoredUser, write_users

#: What takes long to import, and who may need it.
HEAVY: Final = {
    "asyncio": "the daemon",
    "broker.config": "who reads a configuration",
    "broker.engine": "the daemon",
    "cryptography": "tokens",
    "fastapi": "management",
    "jinja2": "pages",
    "jwt": "tokens",
    "lark": "filters",
    "prometheus_client": "metrics",
    "pydantic": "who reads a configuration",
    "pyspark": "audits",
    "rich": "tables",
    "scramp": "logins",
    "starlette": "management",
    "uvicorn": "management",
    "websockets": "acceptors for browsers",
}

#: A broker that has read its configuration and opened what is open as shipped.
DAEMON: Final = """
import os
from broker import config, daemon
from broker.management import api
config.load(None, os.environ)
"""


def _imported(code: str) -> set[str]:
    """Which of the heavy ones a fresh interpreter has after this."""
    asking = f"import sys\n{code}\nprint('\\nHEAVY', *sorted(sys.modules.keys() & {set(HEAVY)!r}))"
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["--help"]])
def test_who_asks_for_the_command_itself_waits_for_nothing_else(arguments: list[str]) -> None:
    assert not _imported(f"from broker.cli.main import cli\ncli({arguments!r}, standalone_mode=False)")


def test_calls_to_a_running_broker_read_no_configuration_that_they_do_not_need() -> None:
    calling = ["queue", "list", "--url", "http://127.0.0.1:1", "--token-file", "/dev/null"]
    code = f"from broker.cli.main import cli\ntry: cli({calling!r}, standalone_mode=False)\nexcept Exception as error:"
    assert not _imported(f"{code}\n    assert 'cannot be reached' in str(error), error")


def test_a_broker_starts_without_what_no_configuration_as_shipped_needs() -> None:
    assert _imported(DAEMON) & {"cryptography", "jwt", "lark", "pyspark", "rich", "websockets"} == set()


def test_the_help_says_of_each_command_what_it_says_of_itself() -> None:
    context = click.Context(cli)
    assert cli.list_commands(context) == sorted({*PLACES, "version"})
    for name, place in PLACES.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(limit=1_000) == place.line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_names_that_a_terminal_cannot_show_are_escaped(tmp_path: Path, encoding: str) -> None:
    users = tmp_path / "users.toml"
    write_users(users, {"☃": StoredUser(frozenset({"amq"}))})
    command = [sys.executable, "-m", "broker", "user", "list", "--file", str(users)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2603" in done.stdout


@pytest.mark.parametrize(
    ("closed", "arguments", "status", "said"),
    [
        (">&-", ["user", "list"], 0, ""),
        ("<&-", ["user", "add", "zoe", "--role", "amq"], 2, "bartleby: no password was given"),
        (
            "<&-",
            ["queue", "list", "--url", "http://127.0.0.1:1", "--user", "zoe"],
            2,
            "there is no terminal to ask for",
        ),
        ("<&- >&- 2>&-", ["user", "list"], 0, ""),
        (">/dev/full", ["user", "list"], 1, "bartleby: the output cannot be written: No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full(
    tmp_path: Path, closed: str, arguments: list[str], status: int, said: str
) -> None:
    data = ["--data", str(tmp_path)]
    command = shlex.join([sys.executable, "-m", "broker", *arguments, *([] if "--url" in arguments else data)])
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_such_command() -> None:
    assert cli.get_command(click.Context(cli), "nobody") is None
