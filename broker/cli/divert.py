"""`bartleby divert`: the diverts of the running broker."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.failure import USAGE, Failure
from broker.cli.output import OutputFormat, print_answer, print_json, print_list
from broker.cli.remote import call_options, connect, path_of


@click.group()
def divert() -> None:
    """List, add and remove diverts of the running broker."""


@divert.command("list")
@call_options
def list_diverts(output: OutputFormat, **where: Any) -> None:
    """List all diverts, and how many messages each diverted since the start."""
    columns = ["divert", "address", "forwards to", "filter", "exclusive", "type", "taken"]
    print_list(output, connect(**where).listed("diverts"), columns, _row, right=["taken"])


def _row(divert: dict[str, Any]) -> list[object]:
    return [
        divert["name"],
        divert["address"],
        ", ".join(divert["forwarding_addresses"]),
        divert["filter"],
        divert["exclusive"],
        divert["routing_type"].lower(),
        divert["taken"],
    ]


@divert.command()
@click.argument("name")
@click.argument("address")
@click.argument("forwarding", nargs=-1, required=True)
@click.option("--filter", "selector", default="", help="Only messages that match this selector.")
@click.option("--exclusive", is_flag=True, help="The messages do not reach ADDRESS itself.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["strip", "pass", "anycast", "multicast"]),
    default="strip",
    show_default=True,
    help="The routing type of the queues of FORWARDING that a copy may enter.",
)
@click.option("--add-header", multiple=True, metavar="NAME:VALUE", help="Add this to each copy.  Repeatable.")
@click.option("--remove-header", multiple=True, metavar="NAME", help="Remove this from each copy.  Repeatable.")
@call_options
def add(
    name: str,
    address: str,
    forwarding: tuple[str, ...],
    selector: str,
    exclusive: bool,
    kind: str,
    add_header: tuple[str, ...],
    remove_header: tuple[str, ...],
    output: OutputFormat,
    **where: Any,
) -> None:
    """Add the divert NAME, which copies messages sent to ADDRESS to the addresses FORWARDING."""
    pairs = [each.partition(":") for each in add_header]
    if not all(key.strip() and separator for key, separator, _ in pairs):
        raise Failure(USAGE, "--add-header: give NAME:VALUE")
    wanted = {
        "address": address,
        "forwarding_addresses": list(forwarding),
        "filter": selector,
        "exclusive": exclusive,
        "routing_type": kind.upper(),
        "add_headers": {key.strip(): value.strip() for key, _, value in pairs},
        "remove_headers": list(remove_header),
    }
    answer = connect(**where).put(path_of("diverts", name), wanted)
    if output == "json":
        print_json(answer)
        return
    click.echo(f"divert {answer['name']} is in force: {answer['address']} to {', '.join(forwarding)}")
    lacking = answer["without_queue"]
    if exclusive and len(lacking) == len(answer["forwarding_addresses"]):
        click.echo(f"{', '.join(lacking)}: no queue yet; until there is one, messages stay at {address}", err=True)
        return
    for each in lacking:
        click.echo(f"address {each} has no queue yet: until it has one, its copies are dropped", err=True)


@divert.command()
@click.argument("name")
@call_options
def remove(name: str, output: OutputFormat, **where: Any) -> None:
    """Remove the divert NAME.

    If the configuration has it, the next reload or start creates it again.
    """
    answer = connect(**where).delete(path_of("diverts", name))
    print_answer(output, answer, f"divert {answer['divert']} was removed")
