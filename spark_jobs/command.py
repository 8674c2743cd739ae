"""The command line of the audits: `bartleby audit`, and job.py under spark-submit.

Each command pins a snapshot, starts Spark, runs one audit, and writes its result to the requested place.  Standard
output contains only results; everything else goes to standard error.  The exit status tells the finding
(results.ExitStatus), so that a timer can act on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

import click

from spark_jobs.audits.options import TOP, TOP_MAX, Options
from spark_jobs.jvm import terminated_in_order
from spark_jobs.moment import parse_moment
from spark_jobs.report.delivery import FORMATS, TO_A_PATH, Delivery
from spark_jobs.report.text import clean
from spark_jobs.results import ExitStatus, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.journal.snapshot import Snapshot

STATUSES: Final = """\b
Exit status:
  0  clean
  1  the audit itself failed: Spark, or writing the result
  2  the command is wrong, or something that it needs is missing
  6  there is no journal, or it is not readable
  7  the journal is damaged or incomplete; for a ledger: not provable
  8  the ledger is violated
  9  more messages than --fail-over allows
"""

_MORE: Final = "--spark-log shows Spark's own log"

#: In bytes.  A journal up to this size is read before Spark's preparations for speed would pay off
#: (docs/performance.md).
BRIEF_BYTES: Final = 256 << 20

#: How often the journal is listed, if the running broker removes segments between its balance and the list.
LISTED_MAX: Final = 10

_TOO_FAST: Final = (
    "--compare: the broker removes segments faster than they can be listed: turn on retention (journal.retention), or "
    "compare when it is less busy"
)

#: Ids count up from 1: an id beyond Spark's largest number was never assigned.
_ID_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = len(str(_ID_MAX))

Command = TypeVar("Command", bound=Callable[..., object])


class Stop(click.ClickException):
    """Ends a command with a message on standard error and an exit status."""

    def __init__(self, status: ExitStatus | int, *lines: str) -> None:
        super().__init__("\n".join(map(clean, lines)))
        self.exit_code = int(status)  # type: ignore[misc]  # click looks at the instance, whatever it declares
        context = click.get_current_context(silent=True)
        self._name = context.find_root().info_name if context else None

    def show(self, file: IO[Any] | None = None) -> None:
        """Print all lines, the first one with the program's name in front."""
        click.echo(f"{self._name or 'bartleby-audit'}: {self.message}", err=True, file=file)


class Bound(NamedTuple):
    """One end of a range: a position, a time in ms since the epoch, or none."""

    position: int | None = None
    time: int | None = None


def parse_bound(text: str) -> Bound:
    """`pos:N`, or a time (see parse_moment).  Raises ValueError."""
    if text.startswith("pos:"):
        digits = text.removeprefix("pos:")
        if not _is_id(digits):
            raise ValueError(f"{text!r} is not a position: write pos:4711")
        return Bound(position=int(digits))
    try:
        return Bound(time=parse_moment(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time (2026-03-01, 2026-03-01T12:00:00Z) nor a position (pos:4711)"
        ) from None


def _is_id(digits: str) -> bool:
    """Whether these digits form a number that is possible as an id or a position."""
    return digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX and int(digits) <= _ID_MAX


def parse_message_id(text: str) -> int:
    """An id, or a `message-id` header that ends with it, as STOMP clients see it.  Raises ValueError."""
    digits = text.rpartition(",")[2]
    if not _is_id(digits):
        raise ValueError(f"{text!r} is not a message id: give the number, or a message-id header that ends with it")
    return int(digits)


def _parsed(parse: Callable[[str], Any], empty: Any) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A click callback that parses the option's text with this function."""

    def callback(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        try:
            return empty if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None

    return callback


def _settings(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in value:
        key, equals, setting = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not a setting like spark.executor.memory=4g", context, parameter)
        settings[key] = setting
    return settings


# -- options -----------------------------------------------------------------------------------------------------------


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, in the order in which --help shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_bound: Final = _parsed(parse_bound, Bound())

#: Which part of the journal.
_range_options: Final = _all(
    click.option("--from", "start", metavar="TIME|pos:N", callback=_bound, help="Start at this time or position."),
    click.option("--to", "end", metavar="TIME|pos:N", callback=_bound, help="Stop before this time or position."),
)

#: Where the result goes.
_output_options: Final = _all(
    click.option(
        "--format",
        "format_",
        type=click.Choice(FORMATS),
        default=FORMATS[0],
        show_default=True,
        help="Format of the result.",
    ),
    click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Write the result to PATH instead of standard output: a directory for csv and parquet, a file otherwise.",
    ),
)

#: Where the result goes, and how Spark runs.
_running_options: Final = _all(
    _output_options,
    click.option(
        "--master",
        metavar="URL",
        help="Spark's master.  [default: as configured for spark-submit, else local[*]]",
    ),
    click.option("--conf", multiple=True, metavar="K=V", callback=_settings, help="A Spark setting.  Repeatable."),
    click.option("--spark-log", is_flag=True, help="Show Spark's own log instead of the progress."),
)


def _list_options(fail_over: str) -> Callable[[Command], Command]:
    """Which addresses to audit, how much of each list to show, and the threshold."""
    return _all(
        click.option(
            "--address",
            "addresses",
            multiple=True,
            metavar="PATTERN",
            help="Only addresses that match, such as orders.# (* is one word, # any number).  Repeatable.",
        ),
        click.option(
            "--top", type=click.IntRange(1, TOP_MAX), default=TOP, show_default=True, help="Rows in each list."
        ),
        click.option("--fail-over", type=click.IntRange(min=0), metavar="N", help=fail_over),
    )


@dataclass(frozen=True, slots=True)
class Request:
    """What all audits have in common: the locations, where the result goes, and how Spark runs.

    Raises click.UsageError, Stop.
    """

    journal: tuple[str, ...]
    format_: str
    out: Path | None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    spark_log: bool = False

    def __post_init__(self) -> None:
        if not self.journal:
            raise click.UsageError("name the JOURNAL: a data directory, a journal directory, or a URI")
        if self.format_ in TO_A_PATH and self.out is None:
            raise click.UsageError(f"--format {self.format_} needs --out PATH")
        if self.master is not None and not self.master.strip():
            raise click.UsageError("--master is empty: leave it out, or write local[*] or spark://HOST:PORT")
        try:
            self.delivery.check()
        except OSError as error:
            raise Stop(ExitStatus.USAGE, f"--out {self.out}: {error.filename}: {error.strerror}") from None

    @property
    def delivery(self) -> Delivery:
        """How the result is delivered."""
        return Delivery(self.format_, self.out)


def _options(kind: type[Options], start: Bound, end: Bound, **more: Any) -> Any:
    """The options of an audit; contradictory options are a usage error."""
    try:
        return kind(start.position, end.position, start.time, end.time, **more)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


# -- the commands ------------------------------------------------------------------------------------------------------


@click.group(epilog=STATUSES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def audit() -> None:
    """Account for every message in a journal.

    A JOURNAL is a broker's data directory, its journal or retention directory, or the URI of one (s3://bucket/path).
    Several journals of one broker are read as one; only `ledger` accepts journals of several brokers.  The broker may
    be running.
    """


@audit.command(epilog=STATUSES, short_help="Prove that no message was lost.")
@click.argument("journal", nargs=-1)
@_range_options
@_list_options("Exit with 9 if more messages than this are still on the queues.")
@click.option("--opening", metavar="DIR", help="Start from the balance that --save-balance wrote to DIR.")
@click.option("--save-balance", metavar="DIR", help="Write the closing balance to DIR, for the next ledger.")
@_running_options
def ledger(
    start: Bound,
    end: Bound,
    opening: str | None,
    save_balance: str | None,
    addresses: tuple[str, ...],
    top: int,
    fail_over: int | None,
    ask: Callable[[], Mapping[str, Any]] | None = None,
    **running: Any,
) -> None:
    """Prove that every message that entered a queue left it once, for a recorded reason, or is still there.

    Lists every message for which this does not hold, with its history.

    With the journals of several brokers, also proves that each message that left one broker over a link arrived at
    another exactly once.  In this case, --from, --to, --address, --opening and --save-balance are not allowed.
    """
    # `ask` is not an option: callers that can ask the running broker pass a function (GET /api/v1/balance).
    from spark_jobs.audits import ledger as books
    from spark_jobs.audits.compare import BadComparison, Expected
    from spark_jobs.audits.ledgers import check_several, ledgers
    from spark_jobs.audits.opening import BadBalance, check_target
    from spark_jobs.journal.scan import removed_since

    request = Request(**running)
    try:
        expected = None if ask is None else Expected.from_answer(ask())
        more = {"opening": opening, "save_balance": save_balance, "expected": expected}
        chosen = _options(books.LedgerOptions, start, end, addresses=addresses, top=top, fail_over=fail_over, **more)
        if save_balance is not None:
            check_target(save_balance)
    except (BadBalance, BadComparison) as error:
        raise Stop(ExitStatus.USAGE, str(error)) from None

    def fit(snapshots: Sequence[Snapshot]) -> bool:
        """Whether the options fit the snapshots; if not, the broker was asked again.  Raises OneJournalOnly."""
        nonlocal chosen
        if len(snapshots) > 1:
            check_several(chosen)
        elif ask is not None and removed_since(snapshots[0], chosen.expected.position):
            chosen = replace(chosen, expected=Expected.from_answer(ask()))
            return False
        return True

    def audited(spark: SparkSession, *snapshots: Snapshot) -> Result:
        if len(snapshots) > 1:
            return ledgers(spark, snapshots, chosen)
        return books.ledger(spark, snapshots[0], chosen)

    _deliver(request, partial(_audited, "ledger", request, audited), fit=fit)


@audit.command(epilog=STATUSES, short_help="Show which messages died, and why.")
@click.argument("journal", nargs=-1)
@_range_options
@_list_options("Exit with 9 if more messages than this have died.")
@_running_options
def dlq(start: Bound, end: Bound, addresses: tuple[str, ...], top: int, fail_over: int | None, **running: Any) -> None:
    """Show which messages died, where, why and how often, what happened to the dead letters, and what keeps dying.

    --address selects by the address at which a message died.
    """
    from spark_jobs.audits.dead_letters import dead_letters

    chosen = _options(Options, start, end, addresses=addresses, top=top, fail_over=fail_over)
    request = Request(**running)
    _deliver(request, partial(_audited, "dlq", request, lambda spark, each: dead_letters(spark, each, chosen)))


@audit.command(epilog=STATUSES, short_help="Show which messages expired unread.")
@click.argument("journal", nargs=-1)
@_range_options
@_list_options("Exit with 9 if more messages than this have expired.")
@_running_options
def expiry(
    start: Bound, end: Bound, addresses: tuple[str, ...], top: int, fail_over: int | None, **running: Any
) -> None:
    """Show which messages expired unread, after how long, by which setting, and whether there were consumers."""
    from spark_jobs.audits import expiry as expired

    chosen = _options(Options, start, end, addresses=addresses, top=top, fail_over=fail_over)
    request = Request(**running)
    _deliver(request, partial(_audited, "expiry", request, lambda spark, each: expired.expiry(spark, each, chosen)))


@audit.command(epilog=STATUSES, short_help="Show the history of one message.")
@click.argument("message_id", metavar="MESSAGE-ID", callback=_parsed(parse_message_id, None))
@click.argument("journal", nargs=-1)
@_range_options
@_output_options
def trace(message_id: int, start: Bound, end: Bound, **running: Any) -> None:
    """Show the history of one message, from its first id to its last, and why it died.  Needs no Spark.

    MESSAGE-ID is any of its ids, as `bartleby queue browse` shows them, or a message-id header that ends with one.
    """
    from spark_jobs.audits import trace as tracing

    chosen = _options(Options, start, end)
    _deliver(Request(**running), lambda snapshot: tracing.trace(snapshot, message_id, chosen))


# -- running -----------------------------------------------------------------------------------------------------------


def _deliver(
    request: Request, audit: Callable[..., Result], *, fit: Callable[[Sequence[Snapshot]], bool] | None = None
) -> NoReturn:
    """Run an audit, deliver its result, and exit with its status.

    With `fit`, it accepts the journals of several brokers, unless `fit` raises ValueError; while `fit` returns False,
    the journals are listed again.
    """
    with terminated_in_order():
        with ExitStack() as opened:
            snapshots = _snapshots(request.journal, opened, several=fit is not None)
            try:
                for _ in range(LISTED_MAX):
                    if fit is None or fit(snapshots):
                        break
                    opened.close()
                    snapshots = _snapshots(request.journal, opened, several=True)
                else:
                    raise Stop(ExitStatus.FAILED, _TOO_FAST)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            for note in [note for snapshot in snapshots for note in snapshot.notes]:
                click.echo(clean(note), err=True)
            try:
                result = audit(*snapshots)
            except OSError as error:
                raise Stop(ExitStatus.FAILED, _complaint(error)) from None
        try:
            request.delivery.deliver(result)
        except OSError as error:
            raise Stop(ExitStatus.FAILED, f"the result cannot be written: {_complaint(error)}") from None
    click.get_current_context().exit(int(result.status))


def _snapshots(journal: Sequence[str], opened: ExitStack, *, several: bool) -> list[Snapshot]:
    """Snapshots of these locations: one snapshot of one broker, or one for each of `several`."""
    from spark_jobs.journal.files import BadLocation, locations
    from spark_jobs.journal.segments import OTHER_FILES, OpenSegments
    from spark_jobs.journal.snapshot import NoJournal, SnapshotError, by_broker, take

    found: list[Snapshot] = []
    try:
        places = [place for text in journal for place in locations(text)]
        for group in by_broker(places) if several else [places]:
            before = sum(len(snapshot.segments) for snapshot in found)
            segments = opened.enter_context(OpenSegments(OTHER_FILES + before))
            found.append(take(group, opened=segments))
        return found
    except NoJournal as error:
        raise Stop(ExitStatus.NO_JOURNAL, str(error)) from None
    except (SnapshotError, BadLocation) as error:
        raise Stop(ExitStatus.USAGE, str(error)) from None
    except OSError as error:
        where = error.filename or ", ".join(journal)
        raise Stop(ExitStatus.NO_JOURNAL, f"{where}: {error.strerror or error}") from None


def _audited(name: str, request: Request, audit: Callable[..., Result], *snapshots: Snapshot) -> Result:
    """Run an audit with Spark: called with the session and a snapshot for each broker."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from spark_jobs.audits.compare import BadComparison
    from spark_jobs.audits.opening import BadBalance
    from spark_jobs.audits.reading import NoSuchAddress
    from spark_jobs.java import NoJava
    from spark_jobs.progress import Progress
    from spark_jobs.session import NoSpark, spark_session

    if not request.spark_log:
        logging.getLogger().addHandler(logging.NullHandler())  # py4j logs there what it also raises
    try:
        with spark_session(
            f"bartleby audit {name}",
            master=request.master,
            conf=request.conf,
            quiet=not request.spark_log,
            brief=sum(snapshot.bytes for snapshot in snapshots) <= BRIEF_BYTES,
            progress=Progress(),
        ) as spark:
            return audit(spark, *snapshots)
    except (BadBalance, BadComparison, NoJava, NoSuchAddress) as error:
        raise Stop(ExitStatus.USAGE, str(error)) from None
    except NoSpark as error:
        raise Stop(ExitStatus.FAILED, f"Spark did not start: {_reason(str(error))}", _MORE) from None
    except (PySparkException, Py4JError) as error:
        raise Stop(ExitStatus.FAILED, f"Spark failed: {_reason(str(error))}", _MORE) from None


def _complaint(error: OSError) -> str:
    """The system's error message, with the name of the file if it concerns one."""
    said = error.strerror or str(error)
    return f"{error.filename}: {said}" if error.filename else said


def _reason(said: str) -> str:
    """The one line of Spark's message that says what is wrong: the last error of a Python worker, else the first line.

    After py4j's `An error occurred while calling`, which says nothing, this is Java's error.
    """
    lines = [line.strip().removeprefix(": ") for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and " " in line]
    return errors[-1] if errors else lines[0] if lines else "no reason given"
