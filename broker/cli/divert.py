"""`bartleby divert`: the diverts of the running broker."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.output import OutputFormat, output_option, print_json, print_table
from broker.cli.remote import connect, path_of, remote_options


@click.group()
def divert() -> None:
    """List, add and remove diverts of the running broker."""


@divert.command("list")
@remote_options
@output_option
def list_diverts(output: OutputFormat, **where: Any) -> None:
    """List all diverts, and how many messages each took since the start."""
    diverts = connect(**where).get("/api/v1/diverts")["diverts"]
    if output == "json":
        print_json(diverts)
        return
    rows = [
        [
            each["name"],
            each["address"],
            ", ".join(each["forwarding-addresses"]),
            each["filter"],
            each["exclusive"],
            each["routing-type"].lower(),
            each["taken"],
        ]
        for each in diverts
    ]
    print_table(["divert", "address", "forwards to", "filter", "exclusive", "type", "taken"], rows, right=["taken"])


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
    help="Which queues of FORWARDING a copy may enter.",
)
@click.option("--add-header", multiple=True, metavar="NAME:VALUE", help="Add this to each copy.  Repeatable.")
@click.option("--remove-header", multiple=True, metavar="NAME", help="Remove this from each copy.  Repeatable.")
@remote_options
@output_option
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
    """Add the divert NAME, which copies what is sent to ADDRESS to the addresses FORWARDING."""
    answer = connect(**where).put(
        path_of("diverts", name),
        address=address,
        forwarding_address=",".join(forwarding),
        filter=selector,
        exclusive="true" if exclusive else "",
        routing_type=kind.upper(),
        add_header=add_header,
        remove_header=remove_header,
    )
    if output == "json":
        print_json(answer)
        return
    click.echo(f"divert {answer['name']} is in force: {answer['address']} to {', '.join(forwarding)}")
    lacking = answer["without-queue"]
    if exclusive and len(lacking) == len(answer["forwarding-addresses"]):
        click.echo(f"{', '.join(lacking)}: no queue yet; until there is one, messages stay at {address}", err=True)
        return
    for each in lacking:
        click.echo(f"address {each} has no queue yet: until it has one, its copies are dropped", err=True)


@divert.command()
@click.argument("name")
@remote_options
@output_option
def remove(name: str, output: OutputFormat, **where: Any) -> None:
    """Remove the divert NAME.

    If the configuration has it, the next reload or start creates it again."""
    answer = connect(**where).delete(path_of("diverts", name))
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"divert {answer['divert']} was removed")
