"""`bartleby queue create|delete|pause|resume|set`: queues of the running broker, made and changed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import click

from broker.cli.asking import confirm
from broker.cli.failure import USAGE, Failure
from broker.cli.output import OutputFormat, output_option, print_json
from broker.cli.remote import connect, queue_path, remote_options
from broker.cli.status import queue as queue


def say_paused(path: str, verb: str, what: str, output: OutputFormat, where: dict[str, Any]) -> None:
    """Pause or resume, and say what came of it."""
    answer = connect(**where).post(f"{path}/{verb}")
    if output == "json":
        print_json(answer)
        return
    name = answer["name"]
    if verb == "resume" and answer["paused"]:
        click.echo(f"{what} {name} stays paused with its address: bartleby address resume {answer['address']}")
    else:
        click.echo(f"{what} {name} is paused" if answer["paused"] else f"{what} {name} is resumed")


@queue.command("create")
@click.argument("name")
@click.argument("attributes", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--address", default="", help="Its address.  [default: the address of the same name]")
@click.option("--type", "kind", type=click.Choice(["anycast", "multicast"]), help="[default: the type of the address]")
@click.option("--filter", "selector", default="", help="Take only messages that match this selector.")
@click.option("--non-durable", is_flag=True, help="A restart deletes the queue and its messages.")
@click.option("--make-address", is_flag=True, help="Create the address if it is missing, and give it this type.")
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
    asked: dict[str, Any] = _asked(attributes)
    asked |= {"address": address, "routing-type": kind or "", "filter": selector}
    asked |= {"durable": "false" if non_durable else "", "make-address": "true" if make_address else ""}
    answer = connect(**where).put(queue_path(name), **asked)
    if output == "json":
        print_json(answer)
    else:
        shown = answer["routing_type"].lower()
        click.echo(f"queue {answer['name']} was created: {shown}, on address {answer['address']}")


@queue.command("delete")
@click.argument("name")
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
        confirm(f"Delete queue {name} and its {shown['messages']} messages for good?", "deleted")
    answer = remote.delete(queue_path(name), force="true" if force else "")
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"queue {answer['queue']} was deleted, with {answer['messages']} messages")


@queue.command("pause")
@click.argument("name")
@remote_options
@output_option
def pause_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Pause the deliveries of the queue NAME until `resume`, also across restarts.

    Messages still enter the queue and expire.
    """
    say_paused(queue_path(name), "pause", "queue", output, where)


@queue.command("resume")
@click.argument("name")
@remote_options
@output_option
def resume_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Resume the deliveries of the queue NAME."""
    say_paused(queue_path(name), "resume", "queue", output, where)


@queue.command("set")
@click.argument("name")
@click.argument("attributes", nargs=-1, required=True, metavar="ATTRIBUTE=VALUE...")
@remote_options
@output_option
def set_attributes(name: str, attributes: tuple[str, ...], output: OutputFormat, **where: Any) -> None:
    """Change attributes of the queue NAME: `bartleby queue set orders ring-size=5 exclusive=true`.

    If the configuration has the queue, the next reload or start restores its configured attributes.
    """
    asked = _asked(attributes)
    answer = connect(**where).post(f"{queue_path(name)}/attributes?{urlencode(asked)}")
    if output == "json":
        print_json(answer)
        return
    shown = answer["attributes"]
    click.echo(f"queue {answer['name']} has " + ", ".join(f"{key}={_shown(shown, key)}" for key in asked))


def _asked(attributes: tuple[str, ...]) -> dict[str, str]:
    asked: dict[str, str] = {}
    for attribute in attributes:
        key, separator, value = attribute.partition("=")
        if not separator:
            raise Failure(USAGE, f"{attribute}: give ATTRIBUTE=VALUE")
        asked[key] = value
    return asked


def _shown(attributes: dict[str, Any], name: str) -> str:
    value = attributes[name.replace("-", "_")]
    return str(value).lower() if isinstance(value, bool) else str(value)
