"""`bartleby connection` and `bartleby consumer`: list and close connections and consumers."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import click

from broker.cli.output import OutputFormat, format_time, print_answer, print_list
from broker.cli.remote import call_options, connect, path_of


@click.group()
def connection() -> None:
    """List the clients of the running broker, and close their connections."""


@connection.command("list")
@call_options
def list_connections(output: OutputFormat, **where: Any) -> None:
    """List all clients that have logged in, in the order in which they connected."""
    columns = ["id", "protocol", "remote", "user", "client_id"]

    def row(each: dict[str, Any]) -> list[object]:
        return [*(each[column] for column in columns), format_time(each["since"])]

    print_list(output, connect(**where).listed("connections"), [*columns, "since"], row)


@connection.command("close")
@click.argument("id")
@click.option("--reason", default="", help="A reason to send to the client.")
@call_options
def close_connection(id: str, reason: str, output: OutputFormat, **where: Any) -> None:
    """Close the connection ID; messages that its client had not acknowledged return to their queues.

    The client may reconnect at once.
    """
    answer = connect(**where).delete(path_of("connections", id), reason=reason)
    print_answer(output, answer, f"connection {answer['id']} of {answer['remote']} was closed")


@click.group()
def consumer() -> None:
    """List the consumers of the running broker, and close them."""


@consumer.command("list")
@call_options
def list_consumers(output: OutputFormat, **where: Any) -> None:
    """List all consumers; a paused one gets no messages now, because its client is slow or disconnected.

    Messages are kept for a consumer that is away: for a client's session, or for another broker's link.
    """
    columns = ["id", "queue", "client_id", "user", "remote", "ack_mode", "unacknowledged", "paused", "away", "selector"]
    consumers = connect(**where).listed("consumers")
    print_list(output, consumers, columns, itemgetter(*columns), right=["id", "unacknowledged"])


@consumer.command("close")
@click.argument("id")
@click.option("--reason", default="", help="A reason to send to the client.")
@call_options
def close_consumer(id: str, reason: str, output: OutputFormat, **where: Any) -> None:
    """Close the consumer ID: over AMQP its link, over STOMP and MQTT its connection.

    Messages that it had not acknowledged return to the queue. Messages kept for another broker's disconnected link go
    to other consumers.
    """
    answer = connect(**where).delete(path_of("consumers", id), reason=reason)
    print_answer(output, answer, f"consumer {answer['id']} of queue {answer['queue']} was closed")
