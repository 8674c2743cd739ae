"""`bartleby queue create|delete|pause|resume|set`: create and change queues of the running broker."""

from __future__ import annotations

from typing import Any, Final

import click

from broker.cli.completion import queue_names
from broker.cli.failure import PARTIAL, USAGE, Failure, confirm
from broker.cli.output import OutputFormat, print_answer
from broker.cli.remote import call_options, connect, queue_path
from broker.cli.status import queue as queue
from broker.cli.task import followed
from store.counted import counted

#: Digits of a numeric attribute: more than any valid value has.
DIGITS_MAX: Final = 18


def say_paused(path: str, what: str, output: OutputFormat, where: dict[str, Any], *, paused: bool) -> None:
    """Pause or resume, and print the result."""
    answer = connect(**where).patch(path, {"paused": paused})
    state = "is paused" if answer["paused"] else "is resumed"
    if answer["paused"] and not paused:
        state = f"stays paused with its address: bartleby address resume {answer['address']}"
    print_answer(output, answer, f"{what} {answer['name']} {state}")


@queue.command("create")
@click.argument("name")
@click.argument("attributes", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--address", default="", help="Its address.  [default: the address of the same name]")
@click.option("--type", "kind", type=click.Choice(["anycast", "multicast"]), help="[default: the type of the address]")
@click.option("--filter", "selector", default="", help="Accept only messages that match this selector.")
@click.option("--non-durable", is_flag=True, help="A restart deletes the queue and its messages.")
@click.option("--make-address", is_flag=True, help="Create the address if it is missing, and add this type to it.")
@call_options
def create_queue(
    name: str,
    attributes: tuple[str, ...],
    address: str,
    kind: str | None,
    selector: str,
    non_durable: bool,
    make_address: bool,
    output: OutputFormat,
    **where: Any,
) -> None:
    """Create the queue NAME: `bartleby queue create prices --make-address --type anycast ring-size=5`."""
    wanted = {
        "address": address,
        "routing_type": kind.upper() if kind else None,
        "filter": selector,
        "durable": not non_durable,
        "make_address": make_address,
        "attributes": _requested(attributes),
    }
    answer = connect(**where).put(queue_path(name), wanted)
    shown = f"{answer['routing_type'].lower()}, on address {answer['address']}"
    print_answer(output, answer, f"queue {answer['name']} was created: {shown}")


@queue.command("delete")
@click.argument("name", shell_complete=queue_names)
@click.option("--force", is_flag=True, help="Delete it even if it has messages or consumers.")
@click.option("--yes", is_flag=True, help="With --force: do not ask first.")
@call_options
def delete_queue(name: str, force: bool, yes: bool, output: OutputFormat, **where: Any) -> None:
    """Delete the queue NAME.

    If the configuration has it, the next reload or start creates it again.
    """
    remote = connect(**where)
    if force and not yes:
        shown = remote.get(queue_path(name))
        confirm(f"Delete queue {name} and its {counted(shown['messages'], 'message')} for good?", "deleted")
    if force:
        task = followed(remote, remote.post("/api/v1/tasks", {"kind": "delete-queue", "queue": name}))
        if task["state"] != "completed":
            raise Failure(PARTIAL, f"task {task['id']} is {task['state']}: {task['why']}")
        answer = {"queue": task["queue"], "messages": task["moved"]}
    else:
        answer = remote.delete(queue_path(name))
    print_answer(output, answer, f"queue {answer['queue']} was deleted, with {counted(answer['messages'], 'message')}")


@queue.command("pause")
@click.argument("name", shell_complete=queue_names)
@call_options
def pause_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Pause the deliveries of the queue NAME until `resume`, even across restarts.

    Messages still enter the queue and expire.
    """
    say_paused(queue_path(name), "queue", output, where, paused=True)


@queue.command("resume")
@click.argument("name", shell_complete=queue_names)
@call_options
def resume_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Resume the deliveries of the queue NAME."""
    say_paused(queue_path(name), "queue", output, where, paused=False)


@queue.command("set")
@click.argument("name", shell_complete=queue_names)
@click.argument("attributes", nargs=-1, required=True, metavar="ATTRIBUTE=VALUE...")
@click.option("--yes", is_flag=True, help="Do not ask before purge-on-no-consumers removes messages.")
@call_options
def set_attributes(name: str, attributes: tuple[str, ...], yes: bool, output: OutputFormat, **where: Any) -> None:
    """Change attributes of the queue NAME: `bartleby queue set orders ring-size=5 exclusive=true`.

    A duration is a number of milliseconds, or has a unit: `delay-before-dispatch=5s` (ms, s, min, h, d).

    If the configuration has the queue, the next reload or start restores its configured attributes.
    """
    requested, remote = _requested(attributes), connect(**where)
    if requested.get("purge-on-no-consumers") is True and not yes:
        present = remote.get(queue_path(name))
        if present["messages"] and not present["consumers"]:
            confirm(
                f"Queue {name} has no consumers: remove {counted(present['messages'], 'message')} for good?", "changed"
            )
    answer = remote.patch(queue_path(name), {"attributes": requested})
    shown = ", ".join(f"{key}={_format_value(answer['attributes'][key])}" for key in requested)
    print_answer(output, answer, f"queue {answer['name']} has {shown}")


def _requested(attributes: tuple[str, ...]) -> dict[str, bool | int | str]:
    requested: dict[str, bool | int | str] = {}
    for attribute in attributes:
        key, separator, value = attribute.partition("=")
        if not separator:
            raise Failure(USAGE, f"{attribute}: give ATTRIBUTE=VALUE")
        if key in requested:
            raise Failure(USAGE, f"{key} is given more than once")
        requested[key] = _typed(key, value)
    return requested


def _typed(name: str, text: str) -> bool | int | str:
    """Parse a value.  An attribute whose name ends in -key is the name of a property and stays text."""
    if name.endswith("-key"):
        return text
    if text in ("true", "false"):
        return text == "true"
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX else text


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
