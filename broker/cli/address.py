"""`bartleby address`: show, create, delete and pause addresses of the running broker, and send to them."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.completion import address_names
from broker.cli.control import say_paused
from broker.cli.failure import PARTIAL, USAGE, Failure, confirm
from broker.cli.output import OutputFormat, format_size, print_answer, print_fields, print_json, print_list, print_table
from broker.cli.remote import call_options, connect, path_of
from store.counted import counted

#: The numeric columns of the list.
_NUMBERS = ("queues", "messages", "bytes", "unrouted", "dropped")


@click.group()
def address() -> None:
    """Show, create, delete and pause addresses of the running broker, and send to them."""


@address.command("list")
@click.option("--internal", is_flag=True, help="Include the broker's own.")
@call_options
def list_addresses(output: OutputFormat, internal: bool, **where: Any) -> None:
    """List all addresses."""
    addresses = connect(**where).listed("addresses", internal="true" if internal else "")
    print_list(output, addresses, ["address", "type", *_NUMBERS, "state"], _row, right=_NUMBERS)


def _row(address: dict[str, Any]) -> list[object]:
    return [
        address["name"],
        ", ".join(address["routing_types"]).lower(),
        address["queues"],
        address["messages"],
        format_size(address["bytes"]),
        address["unrouted"],
        address["dropped"],
        ", ".join(state for state in ("full", "paused") if address[state]),
    ]


@address.command()
@click.argument("name", shell_complete=address_names)
@call_options
def show(name: str, output: OutputFormat, **where: Any) -> None:
    """Show the address NAME: counts, queues, diverts, and all settings that apply to it."""
    answer = connect(**where).get(path_of("addresses", name))
    if output == "json":
        print_json(answer)
        return
    header = {name.replace("_", " "): value for name, value in answer.items() if not isinstance(value, dict | list)}
    for names in ("routing_types", "queue_names", "divert_names"):
        header[names.replace("_", " ")] = ", ".join(answer[names])
    if target := answer["remote_queue"]:
        header["remote queue"] = f"{target['queue']} over the link {target['link']}"
        header["transmission queue"] = target["transmission_queue"]
    else:
        del header["remote queue"]
    header |= {f"setting {name}": value for name, value in answer["settings"].items()}
    print_fields(header)


@address.command("settings")
@click.argument("name", shell_complete=address_names)
@call_options
def show_settings(name: str, output: OutputFormat, **where: Any) -> None:
    """Show each setting of the address NAME, and the match that sets it; NAME need not exist yet."""
    answer = connect(**where).get(f"{path_of('addresses', name)}/settings")
    if output == "json":
        print_json(answer)
        return
    found = sorted(answer["settings"].items(), key=lambda each: (each[1]["match"] is None, each[0]))
    print_table(["setting", "value", "match"], [[name, each["value"], each["match"]] for name, each in found])


@address.command()
@click.argument("name")
@click.option("--anycast", is_flag=True, help="Each message goes to one of its anycast queues.")
@click.option("--multicast", is_flag=True, help="Each message goes to all of its multicast queues.")
@call_options
def create(name: str, anycast: bool, multicast: bool, output: OutputFormat, **where: Any) -> None:
    """Create the address NAME.

    Without --anycast or --multicast its type is default-address-routing-type.
    """
    types = [kind for kind, wanted in (("ANYCAST", anycast), ("MULTICAST", multicast)) if wanted]
    answer = connect(**where).put(path_of("addresses", name), {"routing_types": types})
    shown = ", ".join(answer["routing_types"]).lower()
    print_answer(output, answer, f"address {answer['name']} was created: {shown}")


@address.command()
@click.argument("name", shell_complete=address_names)
@click.option("--force", is_flag=True, help="Delete its queues, their messages and consumers too.")
@click.option("--yes", is_flag=True, help="With --force: do not ask first.")
@call_options
def delete(name: str, force: bool, yes: bool, output: OutputFormat, **where: Any) -> None:
    """Delete the address NAME.

    If the configuration has it, the next reload or start creates it again.
    """
    remote = connect(**where)
    if force and not yes:
        shown = remote.get(path_of("addresses", name))
        confirm(f"Delete address {name}, its {counted(shown['queues'], 'queue')} and all messages for good?", "deleted")
    answer = remote.delete(path_of("addresses", name), force="true" if force else "")
    print_answer(output, answer, f"address {answer['name']} was deleted, with {counted(answer['queues'], 'queue')}")


@address.command()
@click.argument("name", shell_complete=address_names)
@call_options
def pause(name: str, output: OutputFormat, **where: Any) -> None:
    """Pause all queues of the address NAME, including those created later."""
    say_paused(path_of("addresses", name), "address", output, where, paused=True)


@address.command()
@click.argument("name", shell_complete=address_names)
@call_options
def resume(name: str, output: OutputFormat, **where: Any) -> None:
    """Resume the queues of the address NAME."""
    say_paused(path_of("addresses", name), "address", output, where, paused=False)


@address.command()
@click.argument("name", shell_complete=address_names)
@click.argument("text")
@click.option("--non-durable", is_flag=True, help="The message does not survive a restart.")
@click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True, help="9 is the highest.")
@click.option("--type", "kind", type=click.Choice(["anycast", "multicast"]), help="Send to queues of this type only.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property of the message.  Repeatable."
)
@call_options
def send(
    name: str,
    text: str,
    non_durable: bool,
    priority: int,
    kind: str | None,
    properties: tuple[str, ...],
    output: OutputFormat,
    **where: Any,
) -> None:
    """Send TEXT as a message to the address NAME, or to the queue ADDRESS::QUEUE.

    The address is created if it is missing and that is allowed.  Exit status 5 if no queue took the message.
    """
    pairs = [each.partition("=") for each in properties]
    if not all(key and separator for key, separator, _ in pairs):
        raise Failure(USAGE, "--property: give NAME=VALUE")
    message = {
        "text": text,
        "durable": not non_durable,
        "priority": priority,
        "routing_type": kind.upper() if kind else None,
        "properties": {key: value for key, _, value in pairs},
    }
    answer = connect(**where).post(f"{path_of('addresses', name)}/messages", message)
    if output == "json":
        print_json(answer)
    elif answer["taken"]:
        click.echo(f"message {answer['message']} was sent to {name}")
    if not answer["taken"]:
        raise Failure(PARTIAL, f"no queue of address {answer['address']} took the message")
