"""`bartleby status`, `failover` and `queue`: show the running broker and its queues, and hand over."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import click

from broker.cli.completion import queue_names
from broker.cli.failure import CHECK_FAILED, Failure
from broker.cli.output import (
    OutputFormat,
    format_duration,
    format_size,
    format_time,
    print_fields,
    print_json,
    print_list,
    print_table,
)
from broker.cli.remote import THINGS_PER_CALL, Remote, call_options, connect, queue_path, remote_options
from broker.log import cut
from store.counted import counted

#: Characters of a body in a table: as many as fit beside the other columns.
BODY_CHARS: Final = 60

#: Characters of the sentence on why a message died: the client's address and the consumer's words.
WHY_CHARS: Final = 160

#: Matches of settings that `status` shows; it is about the broker as a whole.
MATCHES_SHOWN_MAX: Final = 20

_COUNTS: Final = ("messages", "ready", "paged", "scheduled", "delivering", "consumers")


@click.command()
@click.option(
    "--alive", is_flag=True, help="Only ask whether it is alive, as health checks do: a standby is, and a full one."
)
@call_options
def status(output: OutputFormat, alive: bool, **where: Any) -> None:
    """Show the running broker; exit status 1 if it is not ready.

    With --alive only if it has to be restarted.
    """
    remote = connect(**where)
    if alive:
        click.echo(remote.get_bytes("/livez").decode("utf-8", "replace").strip())
        return
    answer = remote.get("/api/v1/status")
    if output == "json":
        print_json(answer)
    else:
        print_fields(_status_fields(answer) if "journal" in answer else _standby_fields(answer))
    if not answer["ready"]:
        raise Failure(CHECK_FAILED, "the broker is not ready: " + "; ".join(answer["reasons"]))


@click.command()
@remote_options
def failover(**where: Any) -> None:
    """Hand over to the other broker of a pair: this one confirms what is in flight, then becomes the standby."""
    connect(**where).post("/api/v1/failover")
    click.echo("the journal is being handed over; `bartleby status` on the other broker shows when it has it")


def _standby_fields(answer: dict[str, Any]) -> dict[str, object]:
    replication = answer["replication"]
    behind = "no entry"
    if replication["lag_entries"]:
        behind = f"{counted(replication['lag_entries'], 'entry', 'entries')}, for {replication['lag_seconds']:.1f} s"
    elif replication["starting"]:
        behind = "not known yet"
    return _header(answer) | {"missing of the journal": behind}


def _header(answer: dict[str, Any]) -> dict[str, object]:
    header: dict[str, object] = {
        "broker": f"{answer['name']} {answer['version']}" + (" (compiled)" if answer["compiled"] else ""),
        "ready": answer["ready"],
        "running since": f"{format_time(answer['started'])} ({format_duration(answer['uptime'])})",
    }
    if answer["replication"] is not None:
        header |= _pair_fields(answer["replication"])
    return header


def _pair_fields(replication: dict[str, Any]) -> dict[str, object]:
    """The part of a broker of a pair: what of this can be said."""
    role = replication["role"]
    if replication["starting"]:
        role += f" (starting: {replication['starting']})"
    fields: dict[str, object] = {"role": f"{role}, epoch {replication['epoch']}"}
    fields |= {"confirmed by": replication["confirmed_by"]} if replication["confirmed_by"] else {}
    fields |= {"trouble": replication["trouble"]} if replication["trouble"] else {}
    return fields


def _status_fields(answer: dict[str, Any]) -> dict[str, object]:
    journal = answer["journal"]
    limit = answer["memory_bytes_max"]
    memory = format_size(answer["memory_bytes"]) + (f" of {format_size(limit)}" if limit >= 0 else "")
    header = _header(answer)
    for acceptor in answer["acceptors"]:
        listening = ", ".join(acceptor["listening"])
        header[f"acceptor {acceptor['name']}"] = f"{listening}, {counted(acceptor['connections'], 'connection')}"
    for name, state in answer["links"].items():
        header[f"link {name}"] = state
    paused = f", {answer['paused_queues']} of them paused" if answer["paused_queues"] else ""
    header |= {
        "addresses": answer["addresses"],
        "queues": f"{answer['queues']}{paused}",
        "consumers": answer["consumers"],
        "messages": answer["messages"],
        "memory": memory,
        **_transactions_fields(answer),
        "journal": f"{counted(journal['segments'], 'segment')},"
        f" {format_size(journal['pending_bytes'])} not yet durable",
        **_settings_fields(answer),
        "disk": f"{format_size(journal['disk_free_bytes'])} free" + _disk_state(journal),
    }
    return header


def _transactions_fields(answer: dict[str, Any]) -> dict[str, object]:
    """What open transactions hold; a broker of an older version shows nothing."""
    if not answer.get("transactions"):
        return {}
    return {"transactions": f"{answer['transactions']} open, {format_size(answer['transactions_bytes'])} of the memory"}


def _settings_fields(answer: dict[str, Any]) -> dict[str, object]:
    """The matches of settings whose messages are removed when they die; a broker of an older version shows none."""
    matches = answer.get("without_dead_letter_address")
    if not matches:
        return {}
    more = len(matches) - MATCHES_SHOWN_MAX
    shown = ", ".join(matches[:MATCHES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return {"no dead-letter address": f"for {shown}: messages that die there are removed"}


def _disk_state(journal: dict[str, Any]) -> str:
    if not journal["accepting"]:
        return ", full"
    limit = journal.get("disk_limit") or "over its limit"  # an older broker does not say which
    return f"; {limit}: producers wait" if journal["disk_full"] else ""


@click.group()
def queue() -> None:
    """Show, create, change and delete queues of the running broker; move, purge, export and import messages."""


@queue.command("list")
@click.option("--internal", is_flag=True, help="Include the broker's own.")
@call_options
def list_queues(output: OutputFormat, internal: bool, **where: Any) -> None:
    """List all queues."""
    queues = connect(**where).listed("queues", internal="true" if internal else "")
    print_list(output, queues, ["queue", "address", "type", *_COUNTS, "state"], _row, right=_COUNTS)


def _row(queue: dict[str, Any]) -> list[object]:
    """A queue in the list; its state says why it delivers no messages, or accepts none."""
    states = {"paused": queue["paused"], "disabled": not queue["enabled"], "full": queue["address_full"]}
    state = ", ".join(state for state, so in states.items() if so)
    return [queue["name"], queue["address"], queue["routing_type"].lower(), *(queue[name] for name in _COUNTS), state]


@queue.command()
@click.argument("name", shell_complete=queue_names)
@call_options
def show(name: str, output: OutputFormat, **where: Any) -> None:
    """Show the queue NAME (or ADDRESS::QUEUE): counts, attributes, counters, settings, consumers."""
    answer = connect(**where).get(queue_path(name))
    if output == "json":
        print_json(answer)
        return
    header = {name.replace("_", " "): value for name, value in answer.items() if not isinstance(value, dict | list)}
    for group in ("attributes", "counters", "settings"):
        header |= {f"{group[:-1]} {name.replace('_', ' ')}": value for name, value in answer[group].items()}
    print_fields(header)
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
@call_options
def browse(name: str, selector: str, page: int, size: int | None, output: OutputFormat, **where: Any) -> None:
    """Show messages of the queue NAME, oldest first, without removing them."""
    pages = _pages(connect(**where), f"{queue_path(name)}/messages", selector, size or 0)
    messages = next(islice(pages, page - 1, None), [])
    if output == "json":
        print_json({"messages": messages})
    else:
        _print_messages(messages)


def _pages(remote: Remote, path: str, selector: str, size: int) -> Iterator[list[dict[str, Any]]]:
    """A queue's messages in pages of `size`; 0: as set for its address.  A page may take several calls."""
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
        text = body["data"] if body["encoding"] == "text" else f"({counted(body['bytes'], 'byte')})"
        rows.append(
            [
                message["id"],
                message["state"],
                format_time(message["timestamp"]),
                format_time(message["expiration"]),
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
