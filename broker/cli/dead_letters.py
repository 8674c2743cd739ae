"""`bartleby dead-letters`: count dead letters by group; check and try the rules for them."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.dead_letter_rules import rules
from broker.cli.output import OutputFormat, format_duration, format_time, print_json, print_table
from broker.cli.remote import LONG_SECONDS, call_options, connect


@click.group("dead-letters")
def dead_letters() -> None:
    """Count dead letters by group; check and try the rules for them."""


@dead_letters.command()
@click.option(
    "--by",
    default="reason,origin",
    show_default=True,
    metavar="VALUE,...",
    help="Any of queue, reason, origin, first-origin, words, link, remote-address, remote-broker, hour.",
)
@click.option("--queue", default="", help="Only those on this queue.  [default: all queues of dead letters]")
@call_options
def groups(by: str, queue: str, output: OutputFormat, **where: Any) -> None:
    """Count the dead letters of the running broker: how many share a reason, queue, words or hour of death."""
    remote = connect(**where)
    remote.timeout_seconds = LONG_SECONDS
    answer = remote.get("/api/v1/dead-letters/groups", by=by, queue=queue)
    if output == "json":
        print_json(answer)
        return
    names, now = by.split(","), answer["now"]
    rows = [
        [_value(name, each["group"][name.replace("-", "_")]) for name in names] + _count(each, now)
        for each in answer["groups"]
    ]
    if answer["others"]["messages"]:
        rows.append(["(others)"] + [""] * (len(names) - 1) + _count(answer["others"], now))
    if not rows:
        click.echo("no dead letters")
    else:
        print_table([*names, "messages", "oldest", "newest"], rows, right=["messages", "oldest", "newest"])
    if answer["unreadable"]:
        click.echo(f"{answer['unreadable']} more cannot be read from the disk", err=True)


def _value(name: str, value: str | int) -> str:
    if name == "hour":
        return format_time(int(value))[:-3]
    return str(value)


def _count(count: dict[str, int], now: int) -> list[object]:
    return [count["messages"], format_duration(now - count["oldest"]), format_duration(now - count["newest"])]


dead_letters.add_command(rules)
