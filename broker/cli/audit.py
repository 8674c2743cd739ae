"""`bartleby audit`: the audits of spark_jobs, for a configured broker.

Here JOURNAL is optional, a ledger can be compared with the running broker, and an audit yields the CPU to a broker on
the same machine.  Everything else is in spark_jobs.command, which is loaded only for an audit: it needs the extra
[spark].
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from broker.build import missing_of
from broker.cli.failure import need
from broker.cli.remote import CALLING, connect, remote_options
from broker.cli.settings import broker_options, data_directory, journal_in
from broker.clock import rest
from spark_jobs.priority import give_way, has_to_wait
from store.errors import JournalError
from store.files import OsFiles
from store.log import COPY
from store.segment_directory import SegmentDirectory, read_segment

#: How often to wait for a standby's copy, and seconds of each wait: together many times its usual delay.
COPY_WAITS: Final = 40
COPY_WAIT_SECONDS: Final = 0.25

#: The default first: an audit beside a broker in production can wait.
_PRIORITIES: Final = ("idle", "normal")


def _theirs() -> click.Group:
    """The command group of spark_jobs."""
    need("bartleby audit", "spark")
    from spark_jobs.command import audit

    return audit


class _Audits(click.Group):
    """Loads the audits on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        if ctx.resilient_parsing and missing_of("spark"):  # for shell completion
            return []
        return _theirs().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if ctx.resilient_parsing and missing_of("spark"):
            return None
        command = _theirs().get_command(ctx, cmd_name)
        return None if command is None else _found(command)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = _theirs().epilog
        super().format_epilog(ctx, formatter)


@click.group(cls=_Audits)
def audit() -> None:
    """Account for every message in a journal.

    JOURNAL is a broker's data directory, its journal or retention directory, or the URI of one (s3://bucket/path);
    several of one broker are read as one.  Without it, the configured data directory is read.  The broker may be
    running.
    """


def _found(command: click.Command) -> click.Command:
    """An audit with a default JOURNAL; the ledger also gets --compare."""
    comparing = (_compare_option, remote_options) if command.name == "ledger" else (broker_options,)

    @click.pass_context
    def run(
        context: click.Context,
        /,
        config: Path | None,
        data: Path | None,
        priority: str,
        compare: bool = False,
        **given: Any,
    ) -> None:
        _take(priority)
        where: dict[str, Any] = {name: given.pop(name) for name in CALLING if name in given}
        if not compare and ParameterSource.COMMANDLINE in map(context.get_parameter_source, where):
            raise click.UsageError("--url, --ca-file, --user and --token-file are for --compare")
        given["journal"] = _journal(given["journal"], config, None if compare and given["journal"] else data)
        if compare:
            given["ask"] = partial(_balance, config, data, where, given["journal"])
        context.invoke(command, **given)

    for option in (_priority_option, *reversed(comparing)):
        run = option(run)
    return click.command(
        command.name, params=[*command.params], help=command.help, short_help=command.short_help, epilog=command.epilog
    )(run)


_compare_option: Final = click.option(
    "--compare", is_flag=True, help="Also compare each queue with the running broker's."
)

_priority_option: Final = click.option(
    "--priority",
    type=click.Choice(_PRIORITIES),
    default=_PRIORITIES[0],
    show_default=True,
    help="idle: use only what other processes leave; normal: take a full share.",
)


_WAITING: Final = (
    "All cores of this machine are busy: the audit only uses what other processes leave, and takes longer.\n"
    "--priority normal gives it a full share."
)


def _take(priority: str) -> None:
    """Set this process's priority, before any other process is started, so that all inherit it."""
    if priority == _PRIORITIES[0]:
        try:
            give_way()
        except OSError as error:
            click.echo(f"bartleby: the audit's priority cannot be lowered: {error.strerror}", err=True)
            return
        if has_to_wait():
            click.echo(_WAITING, err=True)


def _journal(given: tuple[str, ...], config: Path | None, data: Path | None) -> tuple[str, ...]:
    if not given:
        return (str(data_directory(config, data)),)
    if data is not None:
        raise click.UsageError("JOURNAL and --data both say where the journal is: give only one of them")
    return given


def _await_copy(journal: str, balance: Any) -> None:
    """Wait until a standby's copy, which lags a moment behind its owner, has reached the position of the balance.

    If it never does, the audit says what is missing.
    """
    directory = journal_in(Path(journal))
    if not (directory / COPY).is_file():
        return
    source = SegmentDirectory(OsFiles(), str(directory))
    for _ in range(COPY_WAITS):
        with suppress(JournalError, OSError):
            newest = max(source.segments(), default=0)
            if newest and read_segment(source, newest).found.position >= int(balance["position"]):
                return
        rest(COPY_WAIT_SECONDS)


def _balance(config: Path | None, data: Path | None, where: dict[str, Any], journals: tuple[str, ...]) -> Any:
    """The running broker's balance of its queues.

    It is fetched before the journal is listed, so that the journal has everything that the balance counts.
    """
    balance = connect(config, data, **where).get("/api/v1/balance")
    for journal in journals:
        _await_copy(journal, balance)
    return balance
