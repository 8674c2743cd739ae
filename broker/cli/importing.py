"""`bartleby import`: translate another broker's configuration to a broker.toml.  It needs the extra [import]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.failure import USAGE, Failure, need
from broker.log import printable

if TYPE_CHECKING:  # its models take a while to load
    from broker.importing import LinkTo


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.  [default: standard output]",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the report.  [default: standard error]",
)
@click.option("--queue-manager", metavar="NAME", default="", help="This broker's name in a rules table.")
@click.option(
    "--link",
    "links",
    metavar="NAME[=URL|=LINK]",
    multiple=True,
    help="A queue manager to which a rules table forwards: its URL, or the link in the broker.toml that leads there.",
)
def import_(file: Path, output: Path | None, report: Path | None, queue_manager: str, links: tuple[str, ...]) -> None:
    """Make a broker.toml from the configuration of ActiveMQ or Mosquitto, or from IBM MQ's rules for dead letters.

    FILE is Artemis's broker.xml, ActiveMQ Classic's activemq.xml, a mosquitto.conf, or a rules table of runmqdlq; the
    command recognises which.

    The report says whether each part of FILE was taken over, taken over with a change, or has no counterpart, and why.
    Existing files are not overwritten.
    """
    need("bartleby import", "import")
    from broker.importing import XML_BYTES_MAX, InvalidFile, translate

    try:
        imported = translate(_read(file, XML_BYTES_MAX + 1), queue_manager=queue_manager, links=_links(links))
    except InvalidFile as error:
        raise Failure(USAGE, f"{file}: {error}") from None
    lines = [printable(line) for line in imported.report.lines()]
    for target in (output, report):
        if target is not None and target.exists():
            raise Failure(USAGE, f"{target} exists: name another file, or remove it")
    if output is None:
        click.echo(imported.text.encode(), nl=False)  # a configuration is UTF-8, whatever the terminal is
    else:
        _write(output, imported.text)
    if report is None:
        click.echo("\n".join(lines), err=True)
    else:
        _write(report, "\n".join(lines) + "\n")
        click.echo(f"{lines[0]}: see {report}", err=True)


def _links(given: tuple[str, ...]) -> dict[str, LinkTo]:
    """The links to queue managers, by their names."""
    from broker.config.links import parse_url
    from broker.importing import LinkTo

    found: dict[str, LinkTo] = {}
    for each in given:
        name, _, value = each.partition("=")
        url = value if ":" in value else ""
        try:
            if not name or name in found:
                raise ValueError("give each queue manager once, NAME, NAME=URL or NAME=LINK")
            if url and parse_url(url).mqtt:
                raise ValueError("queues are reached over AMQP: give a URL of amqp or amqps")
        except ValueError as error:
            raise Failure(USAGE, f"--link {each}: {error}") from None
        found[name] = LinkTo(name if url or not value else value, url)
    return found


def _read(file: Path, bytes_max: int) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(bytes_max)
    except OSError as error:
        raise Failure(USAGE, f"{file}: {error.strerror}: name a readable file") from None


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise Failure(USAGE, f"{file}: {error.strerror}: name a file that can be written") from None
