"""`bartleby queue pause|resume|set` and `bartleby address pause|resume`: queues of the running broker, changed."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import click

from broker.cli.failure import USAGE, Failure
from broker.cli.output import OutputFormat, output_option, print_json
from broker.cli.remote import connect, queue_path, remote_options
from broker.cli.status import queue


@click.group()
def address() -> None:
    """Change the addresses of the running broker."""


def _pause(path: str, verb: str, what: str, output: OutputFormat, where: dict[str, Any]) -> None:
    answer = connect(**where).post(f"{path}/{verb}")
    if output == "json":
        print_json(answer)
        return
    name = answer["name"]
    if verb == "resume" and answer["paused"]:
        click.echo(f"{what} {name} goes on when its address does: bartleby address resume {answer['address']}")
    else:
        click.echo(f"{what} {name} is paused" if answer["paused"] else f"{what} {name} goes on")


def _address_path(name: str) -> str:
    return "/api/v1/addresses/" + quote(name, safe="")


@queue.command("pause")
@click.argument("name")
@remote_options
@output_option
def pause_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Stop the deliveries of the queue NAME, until `resume`, also over restarts.

    Messages come in and expire meanwhile.
    """
    _pause(queue_path(name), "pause", "queue", output, where)


@queue.command("resume")
@click.argument("name")
@remote_options
@output_option
def resume_queue(name: str, output: OutputFormat, **where: Any) -> None:
    """Let the deliveries of the queue NAME go on."""
    _pause(queue_path(name), "resume", "queue", output, where)


@queue.command("set")
@click.argument("name")
@click.argument("attributes", nargs=-1, required=True, metavar="ATTRIBUTE=VALUE...")
@remote_options
@output_option
def set_attributes(name: str, attributes: tuple[str, ...], output: OutputFormat, **where: Any) -> None:
    """Change attributes of the queue NAME: `bartleby queue set orders ring-size=5 exclusive=true`.

    A queue of the configuration has those of the configuration again after a reload or a restart.
    """
    asked: dict[str, str] = {}
    for attribute in attributes:
        key, separator, value = attribute.partition("=")
        if not separator:
            raise Failure(USAGE, f"{attribute}: give ATTRIBUTE=VALUE")
        asked[key] = value
    answer = connect(**where).post(f"{queue_path(name)}/attributes?{urlencode(asked)}")
    if output == "json":
        print_json(answer)
        return
    shown = answer["attributes"]
    click.echo(f"queue {answer['name']} has " + ", ".join(f"{key}={_shown(shown, key)}" for key in asked))


def _shown(attributes: dict[str, Any], name: str) -> str:
    value = attributes[name.replace("-", "_")]
    return str(value).lower() if isinstance(value, bool) else str(value)


@address.command("pause")
@click.argument("name")
@remote_options
@output_option
def pause_address(name: str, output: OutputFormat, **where: Any) -> None:
    """Stop the deliveries of all queues on the address NAME, also of those that it will have."""
    _pause(_address_path(name), "pause", "address", output, where)


@address.command("resume")
@click.argument("name")
@remote_options
@output_option
def resume_address(name: str, output: OutputFormat, **where: Any) -> None:
    """Let the deliveries of the queues on the address NAME go on."""
    _pause(_address_path(name), "resume", "address", output, where)
