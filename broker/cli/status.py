"""`bartleby status` and `bartleby queue`: the running broker, looked at, its messages moved and purged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import click

from broker.cli.asking import confirm
from broker.cli.completion import queue_names
from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.output import (
    OutputFormat,
    duration_shown,
    output_option,
    print_facts,
    print_json,
    print_table,
    size_shown,
    time_shown,
)
from broker.cli.remote import THINGS_PER_CALL, Remote, connect, queue_path, remote_options
from broker.log import cut
from broker.reasons.messages import why_they_stay

#: Characters of a body in a table: what fits beside the other columns.
BODY_CHARS: Final = 60

#: Characters of the sentence why a message died: the client's address and what the consumer said.
WHY_CHARS: Final = 160

Command = TypeVar("Command", bound=Callable[..., object])

_COUNTS: Final = ("messages", "ready", "paged", "scheduled", "delivering", "consumers")


@click.command()
@remote_options
@output_option
def status(output: OutputFormat, **where: Any) -> None:
    """Show the running broker; exit status 1 if it is not ready."""
    answer = connect(**where).get("/api/v1/status")
    if output == "json":
        print_json(answer)
    else:
        print_facts(_status_facts(answer))
    if not answer["ready"]:
        raise Failure(CHECK_FAILED, "the broker is not ready: " + "; ".join(answer["reasons"]))


def _status_facts(answer: dict[str, Any]) -> dict[str, object]:
    journal = answer["journal"]
    limit = answer["memory_bytes_max"]
    memory = size_shown(answer["memory_bytes"]) + (f" of {size_shown(limit)}" if limit >= 0 else "")
    header: dict[str, object] = {
        "broker": f"{answer['name']} {answer['version']}" + (" (compiled)" if answer["compiled"] else ""),
        "ready": answer["ready"],
        "running since": f"{time_shown(answer['started'])} ({duration_shown(answer['uptime'])})",
    }
    for acceptor in answer["acceptors"]:
        listening = ", ".join(acceptor["listening"])
        header[f"acceptor {acceptor['name']}"] = f"{listening}, {acceptor['connections']} connections"
    paused = f", {answer['paused_queues']} of them paused" if answer["paused_queues"] else ""
    header |= {
        "addresses": answer["addresses"],
        "queues": f"{answer['queues']}{paused}",
        "consumers": answer["consumers"],
        "messages": answer["messages"],
        "memory": memory,
        "journal": f"{journal['segments']} segments, {size_shown(journal['pending_bytes'])} not yet durable",
        "disk": f"{size_shown(journal['disk_free_bytes'])} free" + _disk_state(journal),
    }
    return header


def _disk_state(journal: dict[str, Any]) -> str:
    if not journal["accepting"]:
        return ", full"
    return ", fuller than its limit: producers wait" if journal["disk_full"] else ""


@click.group()
def queue() -> None:
    """Show, create, change and delete queues of the running broker; move and purge their messages."""


@queue.command("list")
@click.option("--internal", is_flag=True, help="Include the broker's own.")
@remote_options
@output_option
def list_queues(output: OutputFormat, internal: bool, **where: Any) -> None:
    """List all queues."""
    queues = list(connect(**where).listed("queues", internal="true" if internal else ""))
    if output == "json":
        print_json(queues)
        return
    rows = [
        [q["name"], q["address"], q["routing_type"].lower(), *(q[name] for name in _COUNTS), _queue_state(q)]
        for q in queues
    ]
    print_table(["queue", "address", "type", *_COUNTS, "state"], rows, right=_COUNTS)


def _queue_state(queue: dict[str, Any]) -> str:
    """Why it gives no messages, or takes none."""
    states = {"paused": queue["paused"], "disabled": not queue["enabled"], "full": queue["address_full"]}
    return ", ".join(state for state, so in states.items() if so)


@queue.command()
@click.argument("name", shell_complete=queue_names)
@remote_options
@output_option
def show(name: str, output: OutputFormat, **where: Any) -> None:
    """Show the queue NAME (or ADDRESS::QUEUE): counts, attributes, counters, settings, consumers."""
    answer = connect(**where).get(queue_path(name))
    if output == "json":
        print_json(answer)
        return
    header = {name.replace("_", " "): value for name, value in answer.items() if not isinstance(value, dict | list)}
    for group in ("attributes", "counters", "settings"):
        header |= {f"{group[:-1]} {name.replace('_', ' ')}": value for name, value in answer[group].items()}
    print_facts(header)
    if answer["consumer_list"]:
        columns = ["id", "client_id", "user", "remote", "ack_mode", "unacknowledged", "selector"]
        click.echo()
        print_table(columns, [[each[column] for column in columns] for each in answer["consumer_list"]])


@queue.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--filter", "selector", default="", help="Only messages that match this selector.")
@click.option("--page", type=click.IntRange(1, 1 << 31), default=1, show_default=True, help="The page to show.")
@click.option(
    "--size",
    type=click.IntRange(1, THINGS_PER_CALL),
    help="Messages on a page.  [default: management-browse-page-size]",
)
@remote_options
@output_option
def browse(name: str, selector: str, page: int, size: int | None, output: OutputFormat, **where: Any) -> None:
    """Show messages of the queue NAME, oldest first, without removing them."""
    pages = _pages(connect(**where), f"{queue_path(name)}/messages", selector, size or 0)
    messages = next(islice(pages, page - 1, None), [])
    if output == "json":
        print_json({"messages": messages})
    else:
        _print_messages(messages)


def _pages(remote: Remote, path: str, selector: str, size: int) -> Iterator[list[dict[str, Any]]]:
    """A queue's messages, so many at a time; 0: as the settings say.  To look through many takes several calls."""
    after: str | None = ""
    while after is not None:
        page: list[dict[str, Any]] = []
        while after is not None and (not size or len(page) < size):
            answer = remote.get(path, filter=selector, limit=min(size - len(page), THINGS_PER_CALL), after=after)
            page += answer["messages"]
            after, size = answer["next"], size or answer["limit"]
        yield page


def _print_messages(messages: list[dict[str, Any]]) -> None:
    columns = ["id", "state", "sent", "expires", "failed", "bytes", "reason", "from", "body"]
    rows = []
    for message in messages:
        notes, body = message["annotations"], message["body"]
        text = body["data"] if body["encoding"] == "text" else f"({body['bytes']} bytes)"
        rows.append(
            [
                message["id"],
                message["state"],
                time_shown(message["timestamp"]),
                time_shown(message["expiration"]),
                message["failed_deliveries"],
                message["size"],
                notes.get("_AMQ_DL_REASON", ""),
                notes.get("_AMQ_ORIG_ADDRESS", ""),
                cut(text, BODY_CHARS),
            ]
        )
    reasons = [cut(str(message["annotations"].get("_AMQ_DL_TEXT", "")), WHY_CHARS) for message in messages]
    if any(reasons):
        columns.append("why")
        for row, why in zip(rows, reasons, strict=True):
            row.append(why)
    print_table(columns, rows, right=["id", "failed", "bytes"])


def selecting(command: Command) -> Command:
    """Which messages of a queue: --filter, --id."""
    chosen = click.option("--filter", "selector", default="", help="Only messages that match this selector.")
    return chosen(
        click.option("--id", "id", type=click.IntRange(min=1), help="Only the message with this id.")(command)
    )


@queue.command()
@click.argument("name", shell_complete=queue_names)
@selecting
@click.option("--yes", is_flag=True, help="Do not ask first.")
@remote_options
@output_option
def retry(name: str, selector: str, id: int | None, yes: bool, output: OutputFormat, **where: Any) -> None:
    """Move messages of the queue NAME, such as DLQ, back to the queues they came from.

    Asks first if NAME is not on a dead-letter or expiry address: messages would go back among the dead letters.

    Exit status 5 if some stay: those that consumers hold, and those that cannot go back.
    """
    _one_choice(selector, id)
    remote = connect(**where)
    if not (yes or id):
        found = remote.get(queue_path(name))
        if not found.get("keeps_dead", True) and found["messages"]:
            click.echo(f"queue {name} is not on a dead-letter or expiry address", err=True)
            those = "those of its" if selector else "its"
            confirm(
                f"Take {those} {found['messages']} messages that were moved to it back to where they were?", "moved"
            )
    _move(remote, f"{queue_path(name)}/messages:retry", output, _chosen(selector, id))


@queue.command()
@click.argument("name", shell_complete=queue_names)
@click.argument("target", shell_complete=queue_names)
@selecting
@remote_options
@output_option
def move(name: str, target: str, selector: str, id: int | None, output: OutputFormat, **where: Any) -> None:
    """Move messages of the queue NAME to TARGET: an address, a queue, or ADDRESS::QUEUE.

    Exit status 5 if some stay: those that consumers hold, and those that no queue of the target takes.
    """
    _one_choice(selector, id)
    _move(connect(**where), f"{queue_path(name)}/messages:move", output, _chosen(selector, id) | {"to": target})


def _chosen(selector: str, id: int | None) -> dict[str, Any]:
    return {"filter": selector, "id": id}


def _move(remote: Remote, path: str, output: OutputFormat, chosen: dict[str, Any]) -> None:
    """Call step by step until all messages were looked at, and print what became of them."""
    total: dict[str, Any] = {"queue": "", "moved": 0, "refused": {}, "delivering": 0}
    complete = False
    while not complete:
        try:
            answer = remote.post(path, chosen)
        except Failure:
            if total["queue"]:
                click.echo(f"{total['moved']} messages were moved, then:", err=True)
            raise
        total |= {
            "queue": answer["queue"],
            "delivering": answer["delivering"],
            "moved": total["moved"] + answer["moved"],
        }
        for reason, count in answer["refused"].items():
            total["refused"][reason] = total["refused"].get(reason, 0) + count
        complete = answer["complete"]
        chosen = chosen | {"after": answer["last"], "below": answer["below"]}
    _print_moved(total, output, one=bool(chosen["id"]))


def _print_moved(total: dict[str, Any], output: OutputFormat, *, one: bool) -> None:
    if output == "json":
        print_json(total)
    else:
        click.echo(f"{total['moved']} messages moved")
    left = why_they_stay(total["refused"], "stay")
    if total["delivering"] and not one:
        left.append(f"{total['delivering']} messages stay: consumers hold them")
    if left:
        raise Failure(PARTIAL, *left)


@queue.command()
@click.argument("name", shell_complete=queue_names)
@selecting
@click.option("--yes", is_flag=True, help="Do not ask first.")
@remote_options
@output_option
def purge(name: str, selector: str, id: int | None, yes: bool, output: OutputFormat, **where: Any) -> None:
    """Remove all messages of the queue NAME, or those that --filter or --id selects.

    Exit status 5 if some stay because consumers hold them.
    """
    _one_choice(selector, id)
    remote = connect(**where)
    if not yes:
        count = remote.get(queue_path(name))["messages"]
        which = f"message {id}" if id else f"the matching ones of {count} messages" if selector else f"{count} messages"
        confirm(f"Remove {which} for good?", "removed")
    total: dict[str, Any] = {"purged": 0}
    chosen = _chosen(selector, id)
    complete = False
    while not complete:
        answer = remote.post(f"{queue_path(name)}/messages:purge", chosen)
        total |= {"queue": answer["queue"], "purged": total["purged"] + answer["purged"]}
        total["delivering"] = answer["delivering"]
        complete = answer["complete"]
        chosen = chosen | {"after": answer["last"], "below": answer["below"]}
    if output == "json":
        print_json(total)
    else:
        click.echo(f"{total['purged']} messages removed")
    if total["delivering"] and not id:
        raise Failure(PARTIAL, f"{total['delivering']} messages stay: consumers hold them")


def _one_choice(selector: str, id: int | None) -> None:
    if selector and id:
        raise Failure(USAGE, "--id names one message: give no --filter with it")
