"""`bartleby dead-letters`: the rules for dead letters, checked and tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.output import OutputFormat, output_option, print_json, print_table
from broker.cli.settings import load_config

if TYPE_CHECKING:  # its models take a while to make
    from broker.config import RuleSection

#: What a rule asks for, as it stands in the file.
_CONDITIONS = ("queue", "reasons", "origin-address", "origin-queue", "user", "min-age", "min-attempts", "selector")


@click.group("dead-letters")
def dead_letters() -> None:
    """Check and try the rules for dead letters."""


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
