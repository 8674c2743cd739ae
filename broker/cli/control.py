"""`bartleby queue create|delete|pause|resume|set`: create and change queues of the running broker."""

from __future__ import annotations

from typing import Any, Final

import click

from broker.cli.asking import confirm
from broker.cli.completion import queue_names
from broker.cli.failure import PARTIAL, USAGE, Failure
from broker.cli.output import OutputFormat, output_option, print_json
from broker.cli.remote import connect, queue_path, remote_options
from broker.cli.status import queue as queue
from broker.cli.task import followed
from store.counted import counted

#: Digits of a numeric attribute: more than any valid value has.
DIGITS_MAX: Final = 18


def say_paused(path: str, what: str, output: OutputFormat, where: dict[str, Any], *, paused: bool) -> None:
    """Pause or resume, and print the result."""
    answer = connect(**where).patch(path, {"paused": paused})
    if output == "json":
        print_json(answer)
        return
    name = answer["name"]
    if answer["paused"] and not paused:
        click.echo(f"{what} {name} stays paused with its address: bartleby address resume {answer['address']}")
    else:
        click.echo(f"{what} {name} is paused" if answer["paused"] else f"{what} {name} is resumed")


@queue.command("create")
@click.argument("name")
@click.argument("attributes", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--address", default="", help="Its address.  [default: the address of the same name]")
@click.option("--type", "kind", type=click.Choice(["anycast", "multicast"]), help="[default: the type of the address]")
@click.option("--filter", "selector", default="", help="Accept only messages that match this selector.")
@click.option("--non-durable", is_flag=True, help="A restart deletes the queue and its messages.")
@click.option("--make-address", is_flag=True, help="Create the address if it is missing, and add this type to it.")
@remote_options
@output_option
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
        "attributes": _asked(attributes),
    }
    answer = connect(**where).put(queue_path(name), wanted)
    if output == "json":
        print_json(answer)
    else:
        shown = answer["routing_type"].lower()
        click.echo(f"queue {answer['name']} was created: {shown}, on address {answer['address']}")


@queue.command("delete")
@click.argument("name", shell_complete=queue_names)
@click.option("--force", is_flag=True, help="Delete it even if it has messages or consumers.")
@click.option("--yes", is_flag=True, help="With --force: do not ask first.")
@remote_options
@output_option
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
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"queue {answer['queue']} was deleted, with {counted(answer['messages'], 'message')}")


@queue.command("pause")
@click.argument("name", shell_complete=queue_names)
@remote_options
@output_option
def pause_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Pause the deliveries of the queue NAME until `resume`, even across restarts.

    Messages still enter the queue and expire.
    """
    say_paused(queue_path(name), "queue", output, where, paused=True)


@queue.command("resume")
@click.argument("name", shell_complete=queue_names)
@remote_options
@output_option
def resume_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Resume the deliveries of the queue NAME."""
    say_paused(queue_path(name), "queue", output, where, paused=False)


@queue.command("set")
@click.argument("name", shell_complete=queue_names)
@click.argument("attributes", nargs=-1, required=True, metavar="ATTRIBUTE=VALUE...")
@remote_options
@output_option
def set_attributes(name: str, attributes: tuple[str, ...], output: OutputFormat, **where: Any) -> None:
    """Change attributes of the queue NAME: `bartleby queue set orders ring-size=5 exclusive=true`.

    If the configuration has the queue, the next reload or start restores its configured attributes.
    """
    asked = _asked(attributes)
    answer = connect(**where).patch(queue_path(name), {"attributes": asked})
    if output == "json":
        print_json(answer)
        return
    shown = answer["attributes"]
    click.echo(f"queue {answer['name']} has " + ", ".join(f"{key}={_shown(shown, key)}" for key in asked))


def _asked(attributes: tuple[str, ...]) -> dict[str, bool | int | str]:
    asked: dict[str, bool | int | str] = {}
    for attribute in attributes:
        key, separator, value = attribute.partition("=")
        if not separator:
            raise Failure(USAGE, f"{attribute}: give ATTRIBUTE=VALUE")
        asked[key] = _typed(key, value)
    return asked


def _typed(name: str, text: str) -> bool | int | str:
    """Parse a value.  An attribute whose name ends in -key is the name of a property and stays text."""
    if name.endswith("-key"):
        return text
    if text in ("true", "false"):
        return text == "true"
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX else text


def _shown(attributes: dict[str, Any], name: str) -> str:
    value = attributes[name]
    return str(value).lower() if isinstance(value, bool) else str(value)
