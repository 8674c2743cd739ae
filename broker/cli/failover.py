"""`bartleby failover`: hand the journal over to the other broker of a pair."""

from __future__ import annotations

from typing import Any

import click

from broker.cli.remote import connect, remote_options


@click.command()
@remote_options
def failover(**where: Any) -> None:
    """Hand over to the other broker of a pair: this one confirms what is in flight, then becomes the standby."""
    connect(**where).post("/api/v1/failover")
    click.echo("the journal is being handed over; `bartleby status` on the other broker shows when it has it")
