"""`bartleby audit`: the audits of spark_jobs, where a broker is configured.

Here the JOURNAL may be left out, a ledger can be compared with the running broker, and an audit gives way to the broker
that it may be beside.  Everything else is spark_jobs.command's, which is only loaded when an audit is asked for: it
needs the extra [spark].
"""

from __future__ import annotations

from contextlib import suppress
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

#: How often, and how long each time in seconds, a copy is waited for: many times the time by which it is late.
COPY_WAITS: Final = 40
COPY_WAIT_SECONDS: Final = 0.25

#: The default first: who audits beside a broker that has customers can wait; who cannot wait says so.
_PRIORITIES: Final = ("idle", "normal")


def _theirs() -> click.Group:
    """The audits as spark-submit knows them."""
    need("bartleby audit", "spark")
    from spark_jobs.command import audit

    return audit


class _Audits(click.Group):
    """Loads the audits when they are looked at."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        if ctx.resilient_parsing and missing_of("spark"):  # a shell asks what there is to complete
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
    """An audit that finds the journal by itself; a ledger can be compared with the running broker as well."""
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
        if compare:
            given["balance"] = _balance(config, data, where)
        elif ParameterSource.COMMANDLINE in map(context.get_parameter_source, where):
            raise click.UsageError("--url, --ca-file, --user and --token-file are for --compare")
        given["journal"] = _journal(given["journal"], config, None if compare and given["journal"] else data)
        if compare:
            for journal in given["journal"]:
                _await_copy(journal, given["balance"])
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
    "All cores of this machine are busy: the audit waits for what other processes leave, and takes longer.\n"
    "--priority normal gives it a full share."
)


def _take(priority: str) -> None:
    """Before anything is read or started: what comes later inherits it."""
    if priority == _PRIORITIES[0]:
        try:
            give_way()
        except OSError as error:
            click.echo(f"bartleby: the audit cannot give way to the broker: {error.strerror}", err=True)
            return
        if has_to_wait():
            click.echo(_WAITING, err=True)


def _journal(given: tuple[str, ...], config: Path | None, data: Path | None) -> tuple[str, ...]:
    if not given:
        return (str(data_directory(config, data)),)
    if data is not None:
        raise click.UsageError("a JOURNAL and --data both say where the journal is: give one of them")
    return given


def _await_copy(journal: str, balance: Any) -> None:
    """A standby's copy gets a moment later what its owner has: wait for what the answer speaks of.

    If it does not come, the audit says what is missing.
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


def _balance(config: Path | None, data: Path | None, where: dict[str, Any]) -> Any:
    """What the running broker says is on its queues.

    It is asked before the journal is looked at, so that the journal has all that the answer speaks of.
    """
    return connect(config, data, **where).get("/api/v1/balance")
