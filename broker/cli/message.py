"""`bartleby message`: show what became of a message."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.output import OutputFormat, format_time, print_json, print_table
from broker.cli.remote import LONG_SECONDS, call_options, connect
from broker.log import printable


@click.group()
def message() -> None:
    """Show what became of a message of the running broker."""


@message.command()
@click.argument("id", type=click.IntRange(min=1))
@call_options
def trail(id: int, output: OutputFormat, **where: Any) -> None:
    """Show all that the journal records about the message ID: where it was sent, its deliveries, deaths and end.

    ID is any id that the message ever had: it gets a new one each time it dies, expires or is moved.
    """
    remote = connect(**where)
    remote.timeout_seconds = LONG_SECONDS  # without indexes the journal is searched, some ten segments a second
    answer = remote.get(f"/api/v1/messages/{id}/trail")
    if output == "json":
        print_json(answer)
        return
    rows = [
        [
            f"{format_time(step['time'])}.{step['time'] % 1000:03d}",
            step["message"],
            ", ".join(step["queues"]),
            step["told"],
            f"{step['segment']}:{step['offset']}",
        ]
        for step in answer["steps"]
    ]
    print_table(["time", "message", "queue", "what happened", "where"], rows, right=["message"])
    click.echo()
    for place in answer["places"]:
        click.echo(f"it is on {printable(place['queue'])} as {place['message']}")
    if not answer["places"]:
        click.echo(f"it is on no queue any more: {answer['ended'] or 'the journal does not say why'}")
    for problem in answer["problems"]:
        click.echo(printable(problem), err=True)
