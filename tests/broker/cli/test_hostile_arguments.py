"""Arguments that nobody means: every command says what is wrong, in a sentence that is not Python's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import Result

from broker.cli.main import cli
from broker.reasons.exit_status import ExitStatus
from tests.broker.cli.harness import Operator, invoke

#: Bytes that are no UTF-8 as Python hands them over, a name that is too long for a file, numbers beyond all.
HOSTILE: Final = ("\udcff\udc80", "x" * 5_000, str(2**64), "-1", "http://[", "http://h:99999")

#: What Python says of such values.
PYTHON: Final = re.compile(
    r"Traceback|Errno|codec can't|surrogates|embedded null|islice|has no attribute|object at 0x|the output cannot be"
)

#: What is given for the parameters that are not attacked.
HARMLESS: Final = {"DIR": "{data}", "FILE": "{data}/none"}

#: Commands with tests of their own: they run until they are told to stop, or start Spark.
_LONG: Final = ("run", "audit")


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands that do something."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        if name not in _LONG:
            yield from leaves(found, (*path, name))


COMMANDS: Final = dict(leaves(cli))


def lines(path: tuple[str, ...], data: str) -> Iterator[list[str]]:
    """Command lines of one command, in each of which one parameter is hostile."""
    command = COMMANDS[path]
    options = [each for each in command.params if isinstance(each, click.Option)]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    flags = ["--yes"] if any("--yes" in each.opts for each in options) else []
    for attacked in [each for each in (*options, *arguments) if not getattr(each, "is_flag", False)]:
        for value in HOSTILE:
            line = [*path, *flags]
            for each in options:
                long = max(each.opts, key=len)
                if each is attacked:
                    line.append(f"{long}={value}")
                elif long == "--data":
                    line += [long, data]
                elif each.required:
                    line += [long, "1"]
            line.append("--")
            for argument in arguments:
                name = argument.human_readable_name
                line.append(value if argument is attacked else HARMLESS.get(name, "1").format(data=data))
            yield line


def check(line: list[str], result: Result) -> None:
    """It ended with a sentence."""
    assert result.exit_code in range(ExitStatus.NO_JOURNAL + 1), line
    assert not PYTHON.search(result.output), (line, result.output[:500])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
async def test_no_command_answers_in_python(
    operator: Operator, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(operator.directory)  # some make the directories that they are told
    for line in lines(path, str(operator.directory)):
        check(line, await asyncio.to_thread(invoke, *line, input=""))


def test_a_broker_that_is_not_there_is_told_without_a_number() -> None:
    url = "http://127.0.0.1:1"
    result = invoke("status", "--url", url, "--token-file", "/dev/null")
    assert (result.exit_code, result.output) == (3, f"bartleby: {url} cannot be reached: Connection refused\n")


def test_a_password_or_token_that_no_header_can_hold(tmp_path: Path) -> None:
    url = ["status", "--url", "http://127.0.0.1:1"]
    done = invoke(*url, "--user", "ann", environment={"BARTLEBY_PASSWORD": "\udcff"})
    assert (done.exit_code, done.output) == (2, "bartleby: the password of ann is not UTF-8\n")
    token = tmp_path / "token"
    for text in ("one\ntwo", "☃"):
        token.write_text(text, "utf-8")
        done = invoke(*url, "--token-file", str(token))
        assert (done.exit_code, "holds no token" in done.output) == (2, True), done.output


@pytest.mark.parametrize("command", [["status"], ["journal", "compact"]])
def test_an_empty_name_is_not_the_working_directory(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*command, "--data", "")
    assert result.exit_code == 2
    assert "'--data': the name is empty" in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[broker]\ndata-directory = "a\\u0000b"', "U+0000"),
        ('[security]\nusers-file = "a\\u0000b"', "U+0000"),
        ('[acceptors.stomp]\nprotocol = "stomp"\nhost = "a\\u0000b"', "U+0000"),
        ("x = " + "9" * 5_000, "digits"),
    ],
)
def test_a_configuration_that_python_chokes_on(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    result = invoke("config", "check", "--config", str(file))
    assert result.exit_code == 2
    assert why in result.output
    assert not PYTHON.search(result.output)
