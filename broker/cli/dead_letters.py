"""`bartleby dead-letters`: dead letters counted by group; the rules for them, checked and tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.cli.output import OutputFormat, duration_shown, output_option, print_json, print_table, time_shown
from broker.cli.remote import connect, remote_options
from broker.cli.settings import load_config

if TYPE_CHECKING:  # its models take a while to make
    from broker.config import RuleSection

#: What a rule asks for, as it stands in the file.
_CONDITIONS = ("queue", "reasons", "origin-address", "origin-queue", "user", "min-age", "min-attempts", "selector")


@click.group("dead-letters")
def dead_letters() -> None:
    """Count dead letters by group; check and try the rules for them."""


@dead_letters.command()
@click.option(
    "--by",
    default="reason,origin",
    show_default=True,
    metavar="VALUE,...",
    help="Any of queue, reason, origin, first-origin, words, hour.",
)
@click.option("--queue", default="", help="Only those on this queue.  [default: all queues that keep dead letters]")
@remote_options
@output_option
def groups(by: str, queue: str, output: OutputFormat, **where: Any) -> None:
    """Count the dead letters of the running broker: how many have the same reason, queue, words, hour of death."""
    answer = connect(**where).get("/api/v1/dead-letters/groups", by=by, queue=queue)
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
        return time_shown(int(value))[:-3]
    return str(value)


def _count(count: dict[str, int], now: int) -> list[object]:
    return [count["messages"], duration_shown(now - count["oldest"]), duration_shown(now - count["newest"])]


@dead_letters.group()
def rules() -> None:
    """What the broker does with dead letters by itself."""


@rules.command()
@click.argument("file", required=False, envvar="BARTLEBY_CONFIG", type=click.Path(dir_okay=False, path_type=Path))
@output_option
def check(file: Path | None, output: OutputFormat) -> None:
    """Check the `[[dead-letter-rules]]` of FILE, and show them in their order; exit status 2 if there are problems.

    FILE is a broker.toml, or a file with nothing but rules.  Problems of its other sections are shown too.
    """
    sections = load_config(file).dead_letter_rules
    if output == "json":
        print_json([section.model_dump(mode="json", by_alias=True, exclude_defaults=True) for section in sections])
    elif not sections:
        click.echo("no rules")
    else:
        rows = [[at, each.name, _action(each), _conditions(each)] for at, each in enumerate(sections, start=1)]
        print_table(["", "rule", "action", "dead letters"], rows, right=[""])


def _action(section: RuleSection) -> str:
    if section.to:
        return f"{section.action} to {section.to}"
    if section.action == "retry":
        return f"retry every {_duration(section.every)}, at most {section.at_most}"
    return str(section.action)


def _conditions(section: RuleSection) -> str:
    """What a rule asks for, by the keys of the file."""
    found = section.model_dump(by_alias=True, exclude_defaults=True)
    if section.min_age:
        found["min-age"] = _duration(section.min_age)
    if section.reasons:
        found["reasons"] = " or ".join(section.reasons)
    return ", ".join(f"{key} = {found[key]}" for key in _CONDITIONS if key in found) or "all"


def _duration(ms: int) -> str:
    from broker.config.units import DURATION_UNITS, written  # with the models, which are read by now

    return written(ms, DURATION_UNITS)
