"""The man pages, which `make reference` writes, as the programs see them that show and check them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from broker.cli.main import cli
from tests.support import manual

PAGES = sorted(manual.DIRECTORY.glob("*.1"))


def _needed(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (Debian package {package})")
    return found


def _shown(page: Path) -> str:
    """A page as a reader sees it, on one line."""
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANWIDTH": "1000", "MAN_KEEP_FORMATTING": ""}
    command = [_needed("man", "man-db"), "--warnings", "-l", str(page)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return " ".join(done.stdout.split())


def _commands(group: click.Group, above: click.Context) -> Iterator[click.Context]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, parent=above, info_name=name)
        yield context
        if isinstance(command, click.Group):
            yield from _commands(command, context)


def test_each_command_and_option_is_on_a_page() -> None:
    shown = {page.stem: _shown(page) for page in PAGES}
    for context in _commands(cli, click.Context(cli, info_name="bartleby", **cli.context_settings)):
        page = shown["-".join(context.command_path.split()[:2])]
        assert f"{context.command_path} [OPTIONS]" in page, context.command_path
        for option in context.command.params:
            assert not isinstance(option, click.Option) or option.opts[-1] in page, (context.command_path, option)
    assert "8 The ledger is violated: messages vanished" in shown["bartleby"]
    assert "bartleby-queue(1)" in shown["bartleby"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_mandoc_finds_nothing_wrong(page: Path) -> None:
    command = [_needed("mandoc", "mandoc"), "-T", "lint", "-W", "warning", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if "missing date" not in line]  # they are of a version, no day
    assert found == []


@pytest.mark.parametrize("text", ["'quoted", ".SH x", "a\\b", "--option"])
def test_text_is_shown_as_it_is(text: str, tmp_path: Path) -> None:
    page = tmp_path / "x.1"
    page.write_text(f'.TH X 1 "" "" ""\n.SH NAME\n{manual._text(text)}\n')
    assert text in _shown(page)
