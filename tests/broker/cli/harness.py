"""Runs commands as an operator does, beside a broker or without one."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from broker.cli.main import cli
from broker.management.runtime import TOKEN_FILE, Listening, write_private, write_runtime_file
from tests.broker.management.harness import NOW, TOKEN, Client

#: No variable of the tests' own environment reaches a command.
CLEAN = {name: None for name in os.environ if name.startswith("BARTLEBY_")}


def invoke(*arguments: str, input: str | None = None, environment: dict[str, str] | None = None) -> Result:
    """One command; a traceback is never what it ends with."""
    result = CliRunner().invoke(cli, arguments, input=input, env={**CLEAN, **(environment or {})})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


class Operator:
    """Somebody at the command line of a running broker."""

    def __init__(self, directory: Path, client: Client) -> None:
        self.directory = directory
        self.url = f"http://127.0.0.1:{client.port}"

    async def run(self, *arguments: str, input: str | None = None) -> Result:
        """One command; the broker goes on meanwhile."""
        return await asyncio.to_thread(invoke, *arguments, "--data", str(self.directory), input=input)

    async def json(self, *arguments: str) -> Any:
        """What a command prints as JSON; it must succeed."""
        result = await self.run(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


async def says(operator: Operator, *arguments: str, status: int = 0) -> str:
    """What a command says: on standard output, or why it failed."""
    result = await operator.run(*arguments)
    assert result.exit_code == status, result.output
    return (result.stdout if not status else result.stderr).strip()


def introduced(directory: Path, client: Client) -> Operator:
    """The operator of a broker that has left its files in the directory."""
    write_private(directory / TOKEN_FILE, TOKEN + "\n")
    listening = Listening("http", "http", "127.0.0.1", client.port)
    write_runtime_file(directory, pid=os.getpid(), started=NOW, listening=[listening])
    return Operator(directory, client)
