"""`bartleby journal replay`: bring back messages that left their queues, through the running broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.output import OutputFormat, print_json, print_table, progress_bar
from broker.cli.remote import Remote, call_options, connect
from broker.cli.settings import JOURNAL, data_directory, journal_read, journal_there
from broker.cli.task import batches, body_of, driven, rate_option
from broker.clock import wall_ms
from broker.reasons.messages import why_they_stay
from store.counted import counted
from store.files import OsFiles

#: Bytes and messages of one call: some 50 ms of the broker's time, so that clients hardly notice.
BATCH_BYTES: Final = 2 << 20
BATCH_MESSAGES: Final = 500

#: Digits of a time ago: more than any has.
DIGITS_MAX: Final = 18

_UNITS: Final = {"s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Moment(click.ParamType[int]):
    """A time, in ms since the epoch: ISO 8601, UTC by default; or how long ago: 90s, 30min, 2h, 7d."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        for unit, ms in _UNITS.items():
            number = value.removesuffix(unit)
            if number != value and number.isascii() and number.isdigit() and len(number) <= DIGITS_MAX:
                return wall_ms() - int(number) * ms
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time: give 2026-11-21T18:30:00, or how long ago: 90s, 30min, 2h, 7d", param, ctx
            )
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(slots=True)
class _Sent:
    """The result of sending messages to the broker."""

    replayed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    stopped: str = ""


@click.command()
@click.argument("directory", metavar="[DIR]", required=False, type=JOURNAL)
@click.option(
    "--from", "start", type=Moment(), default=0, help="Only messages that left their queue at or after this time."
)
@click.option("--to", "end", type=Moment(), default=1 << 62, help="Only messages that left before this time.")
@click.option("--queue", default="", help="Only messages that left this queue.")
@click.option("--address", default="", help="Only messages that left a queue of this address.")
@click.option(
    "--reason", "reasons", multiple=True, help="Why they left: consumed, expired, ...  Repeatable.  [default: consumed]"
)
@click.option("--filter", "selector", default="", help="Only messages that match this selector.")
@click.option("--id", "id", type=click.IntRange(min=1), default=None, help="Only the message with this id.")
@click.option(
    "--to-address",
    default="",
    help="The address, queue or ADDRESS::QUEUE to send them to.  [default: the queue they left]",
)
@click.option(
    "--name",
    default="replay",
    show_default=True,
    help="Skip messages that a replay of this name has already brought back.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would come back.")
@rate_option
@call_options
def replay(
    directory: Path | None, output: OutputFormat, dry_run: bool, rate: int | None, to_address: str, **options: Any
) -> None:
    """Bring back messages that left their queues, from the journal and its kept segments.

    DIR is a journal, a copy of one, or a data directory; without it, the running broker's.  Messages go back to the
    queue that they left, as new messages that say where they came from.  If a replay breaks off, repeat it: messages
    already brought back are skipped.  The replay is a task that `bartleby task pause` and `cancel` control and that
    ends with this command.  Exit status 5 if some messages do not come back.
    """
    where = {name: options.pop(name) for name in ("config", "data", "url", "ca_file", "user", "token_file")}
    if directory is None:
        directory = data_directory(where["config"], where["data"])
    with _errors_as_failures(), progress_bar("segments", hidden=dry_run) as bar:

        def progress(done: int, of: int) -> None:
            bar.length = of
            bar.update(done - bar.pos)

        reading = _reading(directory, progress, options)
        found = reading.look()
        total = found.missing
        lines = reading.messages()
        sent = _Sent()
        if dry_run:
            for _ in lines:
                pass
        else:
            requested = {
                "kind": "replay",
                "name": options["name"],
                "target": to_address,
                "rate": rate or 0,
                "total": total,
            }
            _send(connect(**where), requested, lines, sent)
    _print(found, sent, output, dry_run=dry_run)


def _reading(directory: Path, progress: Callable[[int, int], None], options: dict[str, Any]) -> Any:
    # Imported here: other commands do without the engine and start faster.
    from broker.offline.replaying import Replaying, wanted

    requested = wanted(**options)
    return Replaying(OsFiles(), journal_there(directory), requested, progress)


@contextmanager
def _errors_as_failures() -> Iterator[None]:
    """Turn errors of the journal into a Failure."""
    from broker.offline.parts import Unusable

    try:
        with journal_read():
            yield
    except Unusable as error:
        raise Failure(CHECK_FAILED, str(error)) from None
    except ValueError as error:
        raise Failure(USAGE, str(error)) from None


def _send(remote: Remote, requested: dict[str, Any], lines: Iterable[dict[str, Any]], sent: _Sent) -> None:
    """Send all messages, or as many as the broker takes; the calls are the steps of a task."""
    to, rate = requested["target"], requested["rate"]
    placed = (("", line | {"to": to} if to else line, 0) for line in lines)
    most = min(max(rate // 10, 1), BATCH_MESSAGES) if rate else BATCH_MESSAGES
    with driven(remote, requested) as steps:
        for _, batch, _ in batches(placed, most, BATCH_BYTES):
            body = body_of(batch, name=requested["name"], task=steps.number)
            try:
                answer = steps.step(partial(_call, remote, body))
            except Failure:
                if sent.replayed:
                    brought = counted(sent.replayed, "message was brought back", "messages were brought back")
                    click.echo(f"{brought}, then:", err=True)
                raise
            sent.replayed += answer["replayed"]
            sent.refused.update(answer["refused"])
            sent.stopped = answer["stopped"]
            if sent.stopped:
                return steps.end(sent.stopped)


def _call(remote: Remote, body: bytes, task: int) -> Any:
    return remote.send("/api/v1/messages:replay", body)


def _print(found: Any, sent: _Sent, output: OutputFormat, *, dry_run: bool) -> None:
    rows = [[queue, reason, count] for (queue, reason), count in sorted(found.chosen.items())]
    missing = 0 if sent.stopped else found.missing
    if output == "json":
        answer: dict[str, Any] = {
            "chosen": [{"queue": queue, "reason": reason, "messages": count} for queue, reason, count in rows],
            "replayed": sent.replayed,
            "refused": sent.refused,
            "stopped": sent.stopped,
            "repeated": found.repeated,
            "unfit": found.unfit,
            "bodiless": found.bodiless,
            "missing": missing,
        }
        print_json(answer)
    else:
        print_table(["queue", "left", "messages"], rows, right=["messages"])
        come = counted(found.total if dry_run else sent.replayed, "message")
        click.echo(f"{come} would come back" if dry_run else f"{come} came back")
        for count, what in (
            (found.repeated, ("was already brought back under this name", "were already brought back under this name")),
            (found.unfit, ("does not match", "do not match")),
        ):
            if count:
                click.echo(counted(count, *what))
    problems = why_they_stay(sent.refused, "does not come back", "do not come back")
    if missing:
        what = ("message is no longer on disk: its segment is", "messages are no longer on disk: their segments are")
        problems.append(f"{counted(missing, *what)} gone (see journal.retention)")
    if found.bodiless:
        what = (
            "message does not come back: its large body is gone, or is",
            "messages do not come back: their large bodies are gone, or are",
        )
        problems.append(f"{counted(found.bodiless, *what)} above 10 MiB")
    if sent.stopped:
        problems.append(f"{sent.stopped}; repeat the command when there is room: what came back already is skipped")
    if problems:
        raise Failure(PARTIAL, *problems)
