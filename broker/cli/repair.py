"""`bartleby journal repair`: make a broker start on a damaged journal; replaced files are copied first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from broker.cli.failure import CHECK_FAILED, DAMAGED, NO_JOURNAL, USAGE, Failure, confirm
from broker.cli.output import format_value, print_table
from broker.cli.owner import left_to_owner
from broker.cli.settings import JOURNAL, journal_there
from broker.clock import wall_ms
from store.counted import counted
from store.errors import Corrupt, DirectoryLocked
from store.files import OsFiles
from store.repair import plan as repairing


@click.command()
@click.argument("directory", metavar="DIR", type=JOURNAL)
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to copy the replaced files; must not exist.  [default: beside the journal]",
)
@click.option("--dry-run", is_flag=True, help="Show what is lost, but change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
def repair(directory: Path, backup: Path | None, dry_run: bool, yes: bool) -> None:
    """Repair a journal on which a broker does not start.

    Everything valid stays as it is.  Lost records are counted and marked: a message whose record is lost is gone, one
    whose removal is lost is back.  The broker must be stopped.  DIR is the journal or the broker's data directory.
    """
    journal = Path(journal_there(directory))
    now = wall_ms()
    today = datetime.fromtimestamp(now / 1000, UTC)
    target = backup or journal.with_name(f"{journal.name}-before-repair-{today:%Y%m%dT%H%M%SZ}")
    files = OsFiles()
    try:
        lock = files.lock(f"{journal}/lock")
    except DirectoryLocked as locked:
        raise Failure(CHECK_FAILED, f"{locked}: stop the broker first") from None
    except OSError as error:
        raise Failure(NO_JOURNAL, f"{error.filename}: {error.strerror}") from None
    try:
        plan = repairing.plan(files, str(journal), now)
        _show(plan)
        if dry_run:
            return
        if target.exists():
            raise Failure(USAGE, f"{target} exists: name another directory with --backup")
        if not yes:
            confirm(f"Copy the replaced files to {target} and repair {journal}?", "repaired")
        with left_to_owner(journal):
            repairing.apply(files, str(journal), plan, str(target))
    except repairing.CannotRepair as wrong:
        raise Failure(CHECK_FAILED, str(wrong)) from None
    except Corrupt as corrupt:
        raise Failure(DAMAGED, str(corrupt)) from None
    except OSError as error:
        raise Failure(CHECK_FAILED, f"{error.filename or journal}: {error.strerror}; run the command again") from None
    finally:
        lock.release()
    click.echo(f"repaired; the original files are in {target}")


def _show(plan: repairing.Plan) -> None:
    """Print what is lost, and what will be done about it."""
    rows = [
        [
            loss.segment,
            loss.offset,
            format_value(loss.first_position) if loss.first_position >= 0 else "",
            format_value(loss.records) if loss.records >= 0 else "unknown",
            loss.what,
        ]
        for loss in plan.losses
    ]
    print_table(["segment", "at byte", "position", "records lost", "what"], rows, right=["segment", "at byte"])
    for name in plan.queues:
        click.echo(f"messages of a queue whose definition is lost will be on {name}")
    for id in plan.messages:
        click.echo(
            f"message {id} is removed from its queues (killed): its body is lost; what is left of it goes to torn/"
        )
    lost = counted(plan.records_lost, "record is lost", "records are lost")
    click.echo(f"{lost} for certain, {counted(len(plan.written), 'segment')} will be written")
