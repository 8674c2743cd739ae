"""`bartleby task`, and how other commands start a task and follow it to its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.output import (
    OutputFormat,
    format_duration,
    format_time,
    print_answer,
    print_fields,
    print_json,
    print_list,
    progress_bar,
)
from broker.cli.remote import NotThere, Remote, TaskWaits, call_options, connect, queue_path
from broker.cli.settings import together
from broker.reasons.messages import HELD, why_they_stay
from store.counted import counted

#: Ms between updates of the progress bar of a running task.
WAIT_MS: Final = 300

#: What each kind of task does to messages.
DONE: Final = {
    "retry": "moved",
    "move": "moved",
    "purge": "removed",
    "delete-queue": "removed",
    "export": "exported",
    "import": "imported",
    "replay": "brought back",
}

#: Characters of the error that a command reports to its task.
ERROR_CHARS_MAX: Final = 1_000

#: The speed of a task.
rate_option: Final = click.option(
    "--rate", type=click.IntRange(min=1), help="At most this many messages a second.  [default: no limit]"
)
dry_run_option: Final = click.option("--dry-run", is_flag=True, help="Only count, change nothing.")


#: The options of a command that starts a task and follows it.
task_options: Final = together(
    dry_run_option,
    rate_option,
    click.option(
        "--detach", is_flag=True, help="Start the task and do not wait; `bartleby task show` shows its progress."
    ),
)


class Steps:
    """A task whose steps this command makes: each is a call that names the task."""

    def __init__(self, remote: Remote, number: int) -> None:
        self.number = number
        self.shown: dict[str, Any] = {}  # the task, once it has ended
        self._remote = remote

    def step(self, call: Callable[[int], Any]) -> Any:
        """Make a call with the task's number once the task is not paused or ahead of its rate; return the answer."""
        while True:
            try:
                return call(self.number)
            except TaskWaits:  # the broker has already waited for some seconds
                continue

    def end(self, error: str = "") -> None:
        """End the task: all is done, or this command failed with `error`."""
        self.shown = self._remote.post(f"{_path(self.number)}:end", {"error": error[:ERROR_CHARS_MAX]})


@contextmanager
def driven(remote: Remote, requested: dict[str, Any]) -> Iterator[Steps]:
    """A task whose steps the block makes; it ends with the block, if not before, with the block's error if it fails."""
    steps = Steps(remote, remote.post("/api/v1/tasks", requested)["id"])
    try:
        yield steps
    except BaseException as error:
        reason = error.message if isinstance(error, Failure) else str(error) or "its command was interrupted"
        with suppress(Failure):  # it has already ended, or the broker is gone
            steps.end(reason)
        raise
    if not steps.shown:
        steps.end()


def batches(
    placed: Iterable[tuple[str, dict[str, Any], int]], most: int, nbytes_max: int
) -> Iterator[tuple[str, list[str], int]]:
    """Messages for the same target, as many as fit one call, with how far the last one is; a body fills a call."""
    batch: list[str] = []
    to, nbytes, at = "", 0, 0
    for target, line, read in placed:
        text = json.dumps(line, separators=(",", ":"))
        full = len(batch) == most or nbytes + len(text) > nbytes_max or "upload" in line
        if batch and (full or target != to):
            yield to, batch, at
            batch, nbytes = [], 0
        batch.append(text)
        to, at = target, read
        nbytes += nbytes_max if "upload" in line else len(text)  # the broker keeps the upload only a minute
    if batch:
        yield to, batch, at


def body_of(batch: list[str], **head: object) -> bytes:
    """The body of a call with these messages."""
    return f'{json.dumps(head)[:-1]},"messages":[{",".join(batch)}]}}'.encode()


@click.group()
def task() -> None:
    """List, follow, pause, resume and cancel tasks, such as retries, moves and exports of many messages."""


@task.command("list")
@call_options
def list_tasks(output: OutputFormat, **where: Any) -> None:
    """List the tasks under way and the last ones that ended, latest first."""
    columns = ["task", "kind", "queue or name", "state", "started", "by", "done", "of", "stay"]
    print_list(output, connect(**where).listed("tasks"), columns, _row, right=["task", "done", "of", "stay"])


def _row(task: dict[str, Any]) -> list[object]:
    return [
        task["id"],
        _kind(task),
        task["queue"] or task["name"],
        task["state"],
        format_time(task["created"]),
        _by(task),
        task["moved"],
        task["total"] if task["queue"] or task["total"] else "",
        sum(task["refused"].values()),
    ]


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@call_options
def show(number: int, output: OutputFormat, **where: Any) -> None:
    """Show the task NUMBER."""
    answer = connect(**where).get(_path(number))
    if output == "json":
        print_json(answer)
    else:
        _print_task(answer)


@task.command()
@click.argument("number", type=click.IntRange(min=1))
@call_options
def wait(number: int, output: OutputFormat, **where: Any) -> None:
    """Wait for the end of the task NUMBER, for example after --detach.

    The exit status is that of the command that started it: 5 if some messages stay.
    """
    remote = connect(**where)
    finish(remote, remote.get(_path(number)), output)


def _add_verb(verb: str, what: str) -> None:
    """Add a command that steers a task."""

    @task.command(verb, help=what)
    @click.argument("number", type=click.IntRange(min=1))
    @call_options
    def steer(number: int, output: OutputFormat, **where: Any) -> None:
        answer = connect(**where).post(f"{_path(number)}:{verb}")
        print_answer(output, answer, _state(answer))


_add_verb("pause", "Pause the task NUMBER until it is resumed, even across restarts.")
_add_verb("resume", "Resume the paused task NUMBER.")
_add_verb("cancel", "Cancel the task NUMBER; its completed steps are not undone.")


def _path(number: int) -> str:
    return f"/api/v1/tasks/{number}"


def start(remote: Remote, requested: dict[str, Any], output: OutputFormat, *, detach: bool) -> None:
    """Start a task, follow it to its end unless it is detached, and print the result."""
    answer = remote.post("/api/v1/tasks", requested)
    if not detach:
        return finish(remote, answer, output)
    print_answer(output, answer, _state(answer))


def finish(remote: Remote, answer: dict[str, Any], output: OutputFormat) -> None:
    """Follow a task to its end, and print the result.

    Raises Failure if it failed, was paused or cancelled, or if messages stay.
    """
    answer = followed(remote, answer)
    moves = answer["kind"] in ("retry", "move", "purge")
    queue: dict[str, Any] = {}
    with suppress(NotThere):  # its queue may be deleted by now
        queue = remote.get(queue_path(answer["queue"])) if moves else {}
    print_answer(output, answer, _said(answer))
    if answer["state"] == "failed":
        raise Failure(CHECK_FAILED, answer["why"])
    left = why_they_stay(answer["refused"], "stays", "stay")
    if not answer["ids"] and queue.get("delivering"):
        left.append(counted(queue["delivering"], *HELD))
    if answer["state"] != "completed":
        left.insert(0, f"task {answer['id']} is {answer['state']}" + (f": {answer['why']}" if answer["why"] else ""))
    if left:
        raise Failure(PARTIAL, *left)


def followed(remote: Remote, answer: dict[str, Any]) -> dict[str, Any]:
    """Show a progress bar while a task runs, and return the task afterwards."""
    number = answer["id"]
    try:
        with progress_bar(f"task {number}") as bar:
            bar.length = max(answer["total"], 1)
            while answer["state"] == "running":
                answer = remote.get(_path(number), wait=WAIT_MS)
                bar.update(max(answer["looked_at"] - bar.pos, 0))
    except KeyboardInterrupt:
        raise Failure(PARTIAL, f"task {number} continues: bartleby task wait {number}, or cancel {number}") from None
    except Failure:
        goes_on = "ends" if answer["kind"] in ("export", "import", "replay") else "continues when the broker does"
        click.echo(f"task {number}: {_said(answer)} so far; it {goes_on}", err=True)
        raise
    return answer


def _state(answer: dict[str, Any]) -> str:
    return f"task {answer['id']} is {answer['state']}: {_said(answer)}"


def _kind(answer: dict[str, Any]) -> str:
    return str(answer["kind"]) + (" (dry run)" if answer["dry_run"] else "")


def _said(answer: dict[str, Any]) -> str:
    would = " would be" if answer["dry_run"] else ""
    done = DONE[answer["kind"]] + (" and removed" if answer["remove"] else "")
    return f"{counted(answer['moved'], 'message')}{would} {done}"


def _by(answer: dict[str, Any]) -> str:
    by = answer["by"]
    return str(by.get("user") or by.get("operator") or by.get("token", ""))


def _print_task(answer: dict[str, Any]) -> None:
    fields: dict[str, object] = {
        "task": answer["id"],
        "kind": _kind(answer),
        "queue": answer["queue"],
        "name": answer["name"],
        "state": answer["state"],
        "why": answer["why"],
        "filter": answer["filter"],
        "group": ", ".join(f"{name} = {value}" for name, value in answer["group"].items()),
        "messages named": answer["ids"] or "",
        "target": answer["target"],
        "rate": f"{counted(answer['rate'], 'message')} a second" if answer["rate"] else "",
        "started": format_time(answer["created"]),
        "by": _by(answer),
        "ended": format_time(answer["ended"]),
        "took": format_duration(answer["ended"] - answer["created"]) if answer["ended"] else "",
        "done": _said(answer),
        "examined": f"{answer['looked_at']}" + (f" of {answer['total']}" if answer["total"] else ""),
    }
    fields |= {f"to {target}": count for target, count in answer["targets"].items()}
    fields |= {f"stay ({why})": count for why, count in answer["refused"].items()}
    print_fields({name: value for name, value in fields.items() if value != ""})


def value_of(text: str) -> tuple[str, str]:
    """Split NAME=VALUE of the command line."""
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise Failure(USAGE, f"{text}: give NAME=VALUE")
    return name, value
