"""`bartleby link`: show and control the links to other brokers."""

from __future__ import annotations

from typing import Any, Final

import click

from broker.cli.completion import link_names
from broker.cli.failure import USAGE, Failure
from broker.cli.output import (
    OutputFormat,
    format_duration,
    format_time,
    print_answer,
    print_fields,
    print_json,
    print_list,
    print_table,
)
from broker.cli.remote import call_options, connect, path_of
from store.counted import counted

#: Counters that are summed over a link's routes, and the numeric columns of a route.
_SUMS: Final = ("passed", "refused", "in_doubt")
_NUMBERS: Final = ("depth", "lag", "passed", "refused", "unsettled", "in_doubt")


@click.group()
def link() -> None:
    """List, start, stop and pause the links to other brokers, and resolve routes in doubt."""


@link.command("list")
@call_options
def list_links(output: OutputFormat, **where: Any) -> None:
    """List all links; `depth` counts the messages that wait on this broker for them."""
    columns = ["link", "state", "since", "broker", "routes", "depth", *_SUMS, "error"]
    print_list(output, connect(**where).listed("links"), columns, _row, right=["routes", "depth", *_SUMS])


def _row(link: dict[str, Any]) -> list[object]:
    routes = link["routes"]
    return [
        link["name"],
        link["state"],
        format_time(link["since"]),
        link["remote"] or link["urls"][0],
        f"{sum(route['state'] == 'running' for route in routes)} of {len(routes)}",
        sum({route["queue"]: route["depth"] or 0 for route in routes}.values()),  # some share a queue
        *(sum(route[name] for route in routes) for name in _SUMS),
        link["error"],
    ]


@link.command()
@click.argument("name", shell_complete=link_names)
@call_options
def show(name: str, output: OutputFormat, **where: Any) -> None:
    """Show the link NAME and its routes."""
    answer = connect(**where).get(path_of("links", name))
    if output == "json":
        print_json(answer)
        return
    fields = {
        "link": answer["name"],
        "state": answer["state"],
        "since": format_time(answer["since"]),
        "urls": ", ".join(answer["urls"]),
        "connected to" if answer["connected"] else "last tried": answer["remote"],
        "broker": answer["peer"],
        "client identifier": answer["client_id"],
        "enabled": answer["enabled"],
        "failed attempts": answer["attempts"] or "",
        "next attempt": format_time(answer["retry_at"]),
        "error": answer["error"],
        "last error at": format_time(answer["error_at"]),
    }
    print_fields({name: value for name, value in fields.items() if value != ""})
    if answer["routes"]:
        click.echo()
        columns = ["route", "kind", "state", "here", "there", *_NUMBERS, "error"]
        print_table(columns, [_route_row(each) for each in answer["routes"]], right=_NUMBERS)


def _route_row(route: dict[str, Any]) -> list[object]:
    lag = "" if route["lag"] is None else format_duration(route["lag"])
    numbers = [lag if name == "lag" else route[name] for name in _NUMBERS]
    kind = f"mqtt {route['direction']}" if route["kind"] == "mqtt" else route["kind"]
    return [route["name"], kind, route["state"], route["local"], route["remote"], *numbers, route["error"]]


def _add_verb(verb: str, what: str) -> None:
    """Add a command that steers a link."""

    @link.command(verb, help=what)
    @click.argument("name", shell_complete=link_names)
    @call_options
    def steer(name: str, output: OutputFormat, **where: Any) -> None:
        answer = connect(**where).post(f"{path_of('links', name)}:{verb}")
        later = ", and will be paused once it connects" if answer["pausing"] and not answer["connected"] else ""
        print_answer(output, answer, f"link {name} is {answer['state']}{later}")


_add_verb(
    "start", "Start the link NAME; reconnect it at once if it waits for its next attempt, or resume it if it is paused."
)
_add_verb("stop", "Close the connection of the link NAME until the link is started or the broker restarts.")
_add_verb("pause", "Let the link NAME stay connected but transfer nothing until it is started or the broker restarts.")


@link.command()
@click.argument("name", shell_complete=link_names)
@click.argument("route", default="")
@click.option("--resend", "verdict", flag_value="resend", help="Send them again; the other broker may get them twice.")
@click.option("--discard", "verdict", flag_value="discard", help="Remove them, because the other broker has them.")
@call_options
def resolve(name: str, route: str, verdict: str | None, output: OutputFormat, **where: Any) -> None:
    """Resend or discard the messages that ROUTE of the link NAME holds in doubt; without ROUTE, those of all routes.

    Check first whether the other broker has them.
    """
    if verdict is None:
        raise Failure(USAGE, "give --resend or --discard: only the other broker's queues show which is right")
    remote, discard = connect(**where), verdict == "discard"
    routes = [route]
    if not route:
        found = remote.get(path_of("links", name))["routes"]
        routes = [each["name"] for each in found if each["state"] == "in-doubt"]
    answers = []
    for each in routes:
        answers.append(remote.post(f"{path_of('links', name, 'routes', each)}:resolve", {"discard": discard}))
        if output == "table":
            one, more = ("was removed", "were removed") if discard else ("is sent again", "are sent again")
            done = counted(answers[-1]["messages"], f"message {one}", f"messages {more}")
            click.echo(f"route {each} of link {name}: {done}")
    if output == "json":
        print_json(answers)
    elif not answers:
        click.echo(f"link {name} has no route in doubt")
