"""`bartleby task`, and how commands start a task and follow it to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.output import (
    OutputFormat,
    duration_shown,
    output_option,
    print_facts,
    print_json,
    print_table,
    progress_bar,
    time_shown,
)
from broker.cli.remote import Remote, connect, queue_path, remote_options
from broker.reasons.messages import why_they_stay

#: How long one look at a task that runs takes, in ms: the progress bar moves so often.
WAIT_MS: Final = 300

#: What tasks do to messages.
DONE: Final = {"retry": "moved", "move": "moved", "purge": "removed", "delete-queue": "removed"}

Command = TypeVar("Command", bound=Callable[..., object])


def task_options(command: Command) -> Command:
    """How a task is done: --dry-run, --rate, --detach."""
    for option in (
        click.option("--detach", is_flag=True, help="Start it and do not wait: `bartleby task show` tells of it."),
        click.option("--rate", type=click.IntRange(min=1), help="Messages a second at most.  [default: no limit]"),
        click.option("--dry-run", is_flag=True, help="Only count."),
    ):
        command = option(command)
    return command


@click.group()
def task() -> None:
    """List, follow, pause, resume and cancel tasks: retries, moves and purges of many messages."""


@task.command("list")
@remote_options
@output_option
def list_tasks(output: OutputFormat, **where: Any) -> None:
    """List the tasks under way and the last that ended, the latest first."""
    tasks = list(connect(**where).listed("tasks"))
    if output == "json":
        print_json(tasks)
        return
    columns = ["task", "kind", "queue", "state", "started", "by", "done", "of", "stay"]
    rows = [
        [
            each["id"],
            each["kind"] + (" (dry run)" if each["dry_run"] else ""),
            each["queue"],
            each["state"],
            time_shown(each["created"]),
            _by(each),
            each["moved"],
            each["total"],
            sum(each["refused"].values()),
        ]
        for each in tasks
    ]
    print_table(columns, rows, right=["task", "done", "of", "stay"])


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@remote_options
@output_option
def show(number: int, output: OutputFormat, **where: Any) -> None:
    """Show the task NUMBER."""
    answer = connect(**where).get(_path(number))
    if output == "json":
        print_json(answer)
    else:
        _print_task(answer)


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@remote_options
@output_option
def wait(number: int, output: OutputFormat, **where: Any) -> None:
    """Wait for the end of the task NUMBER, which may have been started with --detach.

    Exit status as that of the command that started it: 5 if some messages stay.
    """
    remote = connect(**where)
    finish(remote, remote.get(_path(number)), output)


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@remote_options
@output_option
def pause(number: int, output: OutputFormat, **where: Any) -> None:
    """Pause the task NUMBER until it is resumed, also across restarts."""
    _steer(number, "pause", output, where)


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@remote_options
@output_option
def resume(number: int, output: OutputFormat, **where: Any) -> None:
    """Resume the paused task NUMBER."""
    _steer(number, "resume", output, where)


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@remote_options
@output_option
def cancel(number: int, output: OutputFormat, **where: Any) -> None:
    """End the task NUMBER; what it has done stays done."""
    _steer(number, "cancel", output, where)


def _steer(number: int, verb: str, output: OutputFormat, where: dict[str, Any]) -> None:
    answer = connect(**where).post(f"{_path(number)}:{verb}")
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"task {number} is {answer['state']}: {_said(answer)}")


def _path(number: int) -> str:
    return f"/api/v1/tasks/{number}"


def start(remote: Remote, asked: dict[str, Any], output: OutputFormat, *, detach: bool) -> None:
    """Start a task, follow it to its end unless it is detached, and print what became of it."""
    answer = remote.post("/api/v1/tasks", asked)
    if not detach:
        return finish(remote, answer, output)
    if output == "json":
        return print_json(answer)
    click.echo(f"task {answer['id']} is {answer['state']}: {_said(answer)}")


def finish(remote: Remote, answer: dict[str, Any], output: OutputFormat) -> None:
    """Follow a task to its end, and print what became of it.

    Raises Failure if it failed, was paused or cancelled, or if messages stay.
    """
    answer = followed(remote, answer)
    queue = {} if answer["kind"] == "delete-queue" else remote.get(queue_path(answer["queue"]))
    if output == "json":
        print_json(answer)
    else:
        click.echo(_said(answer))
    if answer["state"] == "failed":
        raise Failure(CHECK_FAILED, answer["why"])
    left = why_they_stay(answer["refused"], "stay")
    if not answer["ids"] and queue.get("delivering"):
        left.append(f"{queue['delivering']} messages stay: consumers hold them")
    if answer["state"] != "completed":
        left.insert(0, f"task {answer['id']} is {answer['state']}" + (f": {answer['why']}" if answer["why"] else ""))
    if left:
        raise Failure(PARTIAL, *left)


def followed(remote: Remote, answer: dict[str, Any]) -> dict[str, Any]:
    """A task as it is when it runs no more, after a progress bar."""
    number = answer["id"]
    try:
        with progress_bar(f"task {number}") as bar:
            bar.length = max(answer["total"], 1)
            while answer["state"] == "running":
                answer = remote.get(_path(number), wait=WAIT_MS)
                bar.update(max(answer["looked_at"] - bar.pos, 0))
    except KeyboardInterrupt:
        raise Failure(PARTIAL, f"task {number} goes on: bartleby task wait {number}, or cancel {number}") from None
    except Failure:
        click.echo(f"task {number}: {_said(answer)} so far; it goes on when the broker does", err=True)
        raise
    return answer


def _said(answer: dict[str, Any]) -> str:
    would = "would be " if answer["dry_run"] else ""
    return f"{answer['moved']} messages {would}{DONE[answer['kind']]}"


def _by(answer: dict[str, Any]) -> str:
    by = answer["by"]
    return str(by.get("user") or by.get("operator") or by.get("token", ""))


def _print_task(answer: dict[str, Any]) -> None:
    facts: dict[str, object] = {
        "task": answer["id"],
        "kind": answer["kind"] + (" (dry run)" if answer["dry_run"] else ""),
        "queue": answer["queue"],
        "state": answer["state"],
        "why": answer["why"],
        "filter": answer["filter"],
        "group": ", ".join(f"{name} = {value}" for name, value in answer["group"].items()),
        "messages named": answer["ids"] or "",
        "target": answer["target"],
        "rate": f"{answer['rate']} messages a second" if answer["rate"] else "",
        "started": time_shown(answer["created"]),
        "by": _by(answer),
        "ended": time_shown(answer["ended"]),
        "took": duration_shown(answer["ended"] - answer["created"]) if answer["ended"] else "",
        "done": _said(answer),
        "looked at": f"{answer['looked_at']} of {answer['total']}",
    }
    facts |= {f"to {target}": count for target, count in answer["targets"].items()}
    facts |= {f"stay ({why})": count for why, count in answer["refused"].items()}
    print_facts({name: value for name, value in facts.items() if value != ""})


def value_of(text: str) -> tuple[str, str]:
    """NAME=VALUE of the command line."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise Failure(USAGE, f"{text}: give NAME=VALUE")
    return name, value
