"""`bartleby dead-letters rules`: check and try the rules for dead letters, and show what they did."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from broker.cli.output import OutputFormat, output_option, print_json, print_list, print_table
from broker.cli.remote import Remote, call_options, connect, queue_path
from broker.cli.settings import load_config

if TYPE_CHECKING:  # its models take a while to load
    from broker.config import RuleSection

#: The keys of a rule's conditions, in the order of the file.
_CONDITIONS = ("queue", "reasons", "origin-address", "origin-queue", "user", "min-age", "min-attempts", "selector")


@click.group()
def rules() -> None:
    """List, check and try the rules by which the broker handles dead letters."""


@rules.command()
@click.argument("file", required=False, envvar="BARTLEBY_CONFIG", type=click.Path(dir_okay=False, path_type=Path))
@output_option
def check(file: Path | None, output: OutputFormat) -> None:
    """Check the `[[dead-letter-rules]]` of FILE, and show them in order; exit status 2 if there are problems.

    FILE is a broker.toml, or a file with only rules.  Problems in its other sections are shown too.
    """
    sections = load_config(file).dead_letter_rules
    if output == "json":
        print_json([section.model_dump(mode="json", by_alias=True, exclude_defaults=True) for section in sections])
    elif not sections:
        click.echo("no rules")
    else:
        rows = [[at, each.name, _action(each), _conditions(each)] for at, each in enumerate(sections, start=1)]
        print_table(["", "rule", "action", "dead letters"], rows, right=[""])


@rules.command("list")
@call_options
def list_rules(output: OutputFormat, **where: Any) -> None:
    """List the rules in force, and how many messages each handled.

    Counts begin when the broker starts or the rule is added.
    """
    found = connect(**where).get("/api/v1/dead-letter-rules")["rules"]
    columns = ["name", "action", "retried", "moved", "discarded", "refused"]
    print_list(output, found, ["rule", *columns[1:]], itemgetter(*columns), right=columns[2:])


@rules.command("try")
@click.option("--queue", help="Only this queue.  [default: all queues of dead letters]")
@click.option(
    "--rules",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with rules to try instead of those in force.",
)
@call_options
def try_rules(queue: str | None, file: Path | None, output: OutputFormat, **where: Any) -> None:
    """Show what the rules would do with the present dead letters; nothing is changed.

    Each is treated as if it had just died.  `later`: once it is old enough, or the next attempt is due.
    """
    sections = () if file is None else load_config(file).dead_letter_rules
    rules = [section.model_dump(mode="json", exclude_defaults=True) for section in sections]
    body = {} if file is None else {"rules": rules}
    remote = connect(**where)
    queues = remote.get("/api/v1/dead-letter-rules")["queues"] if queue is None else [queue]
    verdicts = [verdict for name in queues for verdict in _tried(remote, name, body)]
    if output == "json":
        print_json(verdicts)
        return
    if not verdicts:
        click.echo("no dead letters")
        return
    rows = [
        [
            each["queue"],
            each["rule"] or "(none)",
            each["action"],
            "later" if each["later"] else "" if each["action"] == "leave" else "now",
            each["messages"],
            ", ".join(map(str, each["examples"])),
        ]
        for each in verdicts
    ]
    print_table(["queue", "rule", "action", "when", "messages", "for example"], rows, right=["messages"])


def _tried(remote: Remote, queue: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What would become of the dead letters of a queue, some thousand per call; equal verdicts are summed."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    after: str | None = ""
    while after is not None:
        answer = remote.post(f"{queue_path(queue)}/dead-letter-rules:try", {**body, "after": after})
        for each in answer["verdicts"]:
            key = (each["rule"], each["action"], each["later"])
            if key in found:
                found[key]["messages"] += each["messages"]
            else:
                found[key] = {"queue": queue, **each}
        after = answer["next"]
    yield from found.values()


def _action(section: RuleSection) -> str:
    if section.to:
        return f"{section.action} to {section.to}"
    if section.action == "retry":
        return f"retry every {_duration(section.every)}, at most {section.at_most}"
    return str(section.action)


def _conditions(section: RuleSection) -> str:
    """A rule's conditions, with the keys of the file."""
    found = section.model_dump(by_alias=True, exclude_defaults=True)
    if section.min_age:
        found["min-age"] = _duration(section.min_age)
    if section.reasons:
        found["reasons"] = " or ".join(section.reasons)
    return ", ".join(f"{key} = {found[key]}" for key in _CONDITIONS if key in found) or "all"


def _duration(ms: int) -> str:
    from broker.config.units import DURATION_UNITS, written  # the models are loaded by now

    return written(ms, DURATION_UNITS)
