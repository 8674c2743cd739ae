"""`bartleby queue retry|move|purge`: tasks that move messages of the running broker or remove them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import click

from broker.cli import task
from broker.cli.completion import queue_names
from broker.cli.control import queue as queue
from broker.cli.failure import USAGE, Failure, confirm
from broker.cli.output import OutputFormat
from broker.cli.remote import call_options, connect, queue_path
from broker.cli.settings import together
from broker.cli.task import task_options
from broker.reasons.messages import DEAD_LETTERS
from store.counted import counted


def _reason(context: click.Context, parameter: click.Parameter, word: str | None) -> str | None:
    """Check a reason; empty: messages that did not die.  Raises BadParameter, since a typo would match nothing."""
    words = [each.word for each in DEAD_LETTERS]
    if word and word not in words:
        raise click.BadParameter(f"no such reason: give one of {', '.join(words)}")
    return word


#: The options that select messages, also by the group of dead letters that they are in.
selecting: Final = together(
    click.option("--filter", "selector", default="", help="Only messages that match this selector."),
    click.option("--id", "ids", type=click.IntRange(min=1), multiple=True, help="Only this message.  Repeatable."),
    click.option(
        "--reason",
        default=None,
        callback=_reason,
        help="Only messages that died for this reason, such as `max-deliveries`.",
    ),
    click.option("--origin", default=None, metavar="QUEUE", help="Only messages that last died on this queue."),
    click.option("--first-origin", default=None, metavar="QUEUE", help="Only messages that first died on this queue."),
    click.option(
        "--words",
        default=None,
        help="Only dead letters with exactly this text, or with these words of `dead-letters groups`.",
    ),
    click.option("--link", default=None, metavar="NAME", help="Only dead letters that died on this link."),
    click.option("--remote-address", default=None, help="Only dead letters of links, for this address there."),
    click.option("--remote-broker", default=None, help="Only dead letters of links to the broker of this name."),
)

#: Those of them that name the values of a group.
_GROUP: Final = ("reason", "origin", "first_origin", "words", "link", "remote_address", "remote_broker")

#: The options that edit messages on their way.
editing: Final = together(
    click.option("--set", "set_", multiple=True, metavar="NAME=VALUE", help="Set this property.  Repeatable."),
    click.option("--unset", multiple=True, metavar="NAME", help="Remove this property.  Repeatable."),
    click.option(
        "--body",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with the new body of each message.",
    ),
)


@queue.command()
@click.argument("name", shell_complete=queue_names)
@selecting
@editing
@click.option(
    "--to-first-origin", is_flag=True, help="To the queues where they first died, instead of where they last died."
)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@task_options
@call_options
def retry(name: str, to_first_origin: bool, yes: bool, detach: bool, output: OutputFormat, **given: Any) -> None:
    """Move messages of the queue NAME, such as DLQ, back to the queues they came from.

    It asks first if NAME is not on a dead-letter or expiry address, since messages could go back to a dead-letter
    queue.

    Exit status 5 if some stay, because consumers hold them or they cannot go back.
    """
    requested = _requested("retry", name, given) | {"first_origin": to_first_origin, "edit": _edit(given)}
    remote = connect(**given)
    if not (yes or requested["ids"] or requested["dry_run"]):
        found = remote.get(queue_path(name))
        if not found.get("keeps_dead", True) and found["messages"]:
            click.echo(f"queue {name} is not on a dead-letter or expiry address", err=True)
            those = "those of its" if _chooses(requested) else "its"
            count = counted(found["messages"], "message")
            confirm(f"Take {those} {count} back, to where each was before it was moved here?", "moved")
    task.start(remote, requested, output, detach=detach)


@queue.command()
@click.argument("name", shell_complete=queue_names)
@click.argument("target", shell_complete=queue_names)
@selecting
@editing
@task_options
@call_options
def move(name: str, target: str, detach: bool, output: OutputFormat, **given: Any) -> None:
    """Move messages of the queue NAME to TARGET: an address, a queue, or ADDRESS::QUEUE.

    Exit status 5 if some stay, because consumers hold them or no queue of the target takes them.
    """
    requested = _requested("move", name, given) | {"target": target, "edit": _edit(given)}
    task.start(connect(**given), requested, output, detach=detach)


@queue.command()
@click.argument("name", shell_complete=queue_names)
@selecting
@click.option("--yes", is_flag=True, help="Do not ask first.")
@task_options
@call_options
def purge(name: str, yes: bool, detach: bool, output: OutputFormat, **given: Any) -> None:
    """Remove all messages of the queue NAME, or those that options select.

    Exit status 5 if some stay because consumers hold them.
    """
    requested = _requested("purge", name, given)
    remote = connect(**given)
    if not (yes or requested["dry_run"]):
        count, ids = remote.get(queue_path(name))["messages"], requested["ids"]
        every = counted(count, "message")
        some = f"{len(ids)} of {every}" if ids else f"the matching ones of {every}"
        confirm(f"Remove {some if ids or _chooses(requested) else every} for good?", "removed")
    task.start(remote, requested, output, detach=detach)


def _requested(kind: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The request for a task, without the fields that only some kinds have; removes its options from `given`."""
    group = {field: given.pop(field) for field in _GROUP}
    ids, selector = list(given.pop("ids")), given.pop("selector")
    if ids and (selector or any(value is not None for value in group.values())):
        others = ", ".join("--" + field.replace("_", "-") for field in _GROUP)
        raise Failure(USAGE, f"--id names messages: give no --filter, {others} with it")
    return {
        "kind": kind,
        "queue": name,
        "ids": ids,
        "filter": selector,
        "group": {field: value for field, value in group.items() if value is not None},
        "dry_run": given.pop("dry_run"),
        "rate": given.pop("rate") or 0,
    }


def _chooses(requested: dict[str, Any]) -> bool:
    return bool(requested["filter"] or requested["group"])


def _edit(given: dict[str, Any]) -> dict[str, Any]:
    """The requested edit; removes its options from `given`."""
    body, remove, values = given.pop("body"), list(given.pop("unset")), dict(map(task.value_of, given.pop("set_")))
    edit: dict[str, Any] = {"remove": remove, "set": values}
    if body is not None:
        try:
            edit["base64"] = base64.b64encode(body.read_bytes()).decode()
        except OSError as error:
            raise Failure(USAGE, f"{body}: {error.strerror}") from None
    return edit
