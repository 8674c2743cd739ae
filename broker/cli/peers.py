"""`bartleby connection` and `bartleby consumer`: who is there, and sending somebody away."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.output import OutputFormat, output_option, print_json, print_table, time_shown
from broker.cli.remote import connect, path_of, remote_options


@click.group()
def connection() -> None:
    """Look at the clients of the running broker, and close their connections."""


@connection.command("list")
@remote_options
@output_option
def list_connections(output: OutputFormat, **where: Any) -> None:
    """List all clients that have introduced themselves, as they came."""
    connections = list(connect(**where).listed("connections"))
    if output == "json":
        print_json(connections)
        return
    columns = ["id", "protocol", "remote", "user", "client_id"]
    rows = [[*(each[column] for column in columns), time_shown(each["since"])] for each in connections]
    print_table([*columns, "since"], rows)


@connection.command("close")
@click.argument("id")
@click.option("--reason", default="", help="What the client is told.")
@remote_options
@output_option
def close_connection(id: str, reason: str, output: OutputFormat, **where: Any) -> None:
    """Close the connection ID; what its client had not acknowledged goes back to the queues.

    A client that connects again by itself is back at once.
    """
    answer = connect(**where).delete(path_of("connections", id), reason=reason)
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"connection {answer['id']} of {answer['remote']} is closed")


@click.group()
def consumer() -> None:
    """Look at the consumers of the running broker, and close them."""


@consumer.command("list")
@remote_options
@output_option
def list_consumers(output: OutputFormat, **where: Any) -> None:
    """List all consumers; one that is paused cannot take anything now: its client is slow, or away for a while."""
    consumers = list(connect(**where).listed("consumers"))
    if output == "json":
        print_json(consumers)
        return
    columns = ["id", "queue", "client_id", "user", "remote", "ack_mode", "unacknowledged", "paused", "selector"]
    print_table(columns, [[each[column] for column in columns] for each in consumers], right=["id", "unacknowledged"])


@consumer.command("close")
@click.argument("id")
@click.option("--reason", default="", help="What the client is told.")
@remote_options
@output_option
def close_consumer(id: str, reason: str, output: OutputFormat, **where: Any) -> None:
    """Close the consumer ID: over STOMP and MQTT with its connection, over AMQP its link.

    What it had not acknowledged goes back to the queue.
    """
    answer = connect(**where).delete(path_of("consumers", id), reason=reason)
    if output == "json":
        print_json(answer)
    else:
        click.echo(f"consumer {answer['id']} of queue {answer['queue']} is closed")
