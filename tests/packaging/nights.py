"""The script of a nightly audit, in a directory of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import click

from broker.cli.main import cli

SCRIPT: Final = Path(__file__).parents[2] / "etc" / "nightly-audit.sh"


PATIENCE_S: Final = 20


_BARTLEBY: Final = """\
#!/bin/sh
echo "$*" >>"$HERE/asked"
[ "$1" = status ] && exit "$STATUS_STATUS"
audit=$2
while [ $# -gt 0 ]; do
    [ "$1" = --save-balance ] && mkdir -p "$2" && echo balance >"$2/balance.json"
    [ "$1" = --out ] && echo report >"$2"
    shift
done
case $audit in
    ledger) exit "$LEDGER_STATUS" ;;
    dlq) exit "$DLQ_STATUS" ;;
    expiry) exit "$EXPIRY_STATUS" ;;
esac
"""


#: Each night is a day after the one before; the other questions are answered truly.
_DATE: Final = """\
#!/bin/sh
case $* in
    *%Y*)
        echo x >>"$HERE/nights"
        printf '2026-03-%02dT02-30-00Z\\n' "$(wc -l <"$HERE/nights")"
        ;;
    *) exec /bin/date "$@" ;;
esac
"""


class Nights:
    """The script in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.journal = directory / "data"
        self.keep = "90"
        programs = directory / "bin"
        programs.mkdir()
        for name, text in (("bartleby", _BARTLEBY), ("date", _DATE)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)

    def environment(self, **statuses: int) -> dict[str, str]:
        """What the script and its stand-ins need."""
        wanted = {"STATUS": 0, "LEDGER": 0, "DLQ": 0, "EXPIRY": 0} | statuses
        return {
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "HERE": str(self.directory),
            "BARTLEBY_AUDIT_KEEP": self.keep,
            **{f"{name}_STATUS": str(status) for name, status in wanted.items()},
        }

    def run(self, *options: str, before: tuple[str, ...] = (), **statuses: int) -> int:
        """One night; its exit status."""
        command = [str(SCRIPT), *before, str(self.journal), str(self.state), *options]
        environment = self.environment(**statuses)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (done.stdout, done.stderr) == ("", "")
        return done.returncode

    def asked(self) -> list[str]:
        """What `bartleby` was asked since the last time, as words that do not name the directory."""
        path = self.directory / "asked"
        lines = path.read_text().replace(f"{self.directory}/", "").splitlines()
        path.unlink()
        for line in lines:
            _accepted(line.split())
        return lines

    @property
    def opening(self) -> str:
        """With what the next night opens."""
        return os.readlink(self.state / "opening")


def _accepted(words: list[str]) -> None:
    """The real command takes this command line.  Raises click.UsageError."""
    context = click.Context(cli, **cli.context_settings)
    while words:
        name, command, words = cli.resolve_command(context, words)
        assert isinstance(command, click.Command)
        if not isinstance(command, click.Group):
            command.make_context(name, words, context)
            return
        context = click.Context(command, info_name=name, parent=context)
        found = command.get_command(context, words[0])
        assert found is not None, words
        found.make_context(words[0], words[1:], context)
        return
