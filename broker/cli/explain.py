"""`bartleby explain`: the meaning of a word or number that the broker, a client or a command shows."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import Final

import click

from broker.cli import completion as completing
from broker.cli.failure import CHECK_FAILED, Failure
from broker.cli.output import OutputFormat, output_option, print_json
from broker.reasons.reason import Kind, Reason

#: Columns of a paragraph.
_WIDTH: Final = 100


@click.command()
@click.argument("words", metavar="[WORD]...", nargs=-1, shell_complete=completing.words)
@output_option
def explain(words: tuple[str, ...], output: OutputFormat) -> None:
    """Explain a word or number that the broker, a client or a command shows.

    WORD is a dead-letter or removal reason, a log event, an AMQP condition, an MQTT reason code (name or number), the
    message of a STOMP ERROR, an error of the management API or its status (`http 503`), an exit status (`exit 3`), or
    a code of IBM MQ (`MQRC_Q_FULL`, 2053, 0x00000805); or a line that contains one.

    Without WORD, all are listed.
    """
    # Imported here: the table needs the engine's errors and the codecs' codes.
    from broker.reasons.find import find, suggest
    from broker.reasons.table import reasons

    text = " ".join(words)
    found = find(reasons(), text) if text else list(reasons())
    if not found:
        near = suggest(reasons(), text)
        hint = f"did you mean {' or '.join(near)}?" if near else "`bartleby explain` without a word lists all"
        raise Failure(CHECK_FAILED, f"Bartleby has no code or word {text[:100]!r}", hint)
    if output == "json":
        print_json([reason.view() for reason in found])
    elif text:
        click.echo("\n\n".join(map(_paragraph, found)))
    else:
        click.echo("\n\n".join(_list(kind, list(group)) for kind, group in groupby(found, lambda reason: reason.kind)))


def _paragraph(reason: Reason) -> str:
    kind = " ".join(filter(None, (reason.kind.label, reason.number_text, reason.level)))
    lines = [reason.meaning, f"Do: {reason.action}"]
    if reason.see:
        lines.append(f"See: {', '.join(reason.see)}")
    return "\n".join([f"{click.style(reason.word, bold=True)}  ({kind})", *map(_wrapped, lines)])


def _list(kind: Kind, reasons: list[Reason]) -> str:
    width = max(len(reason.word) for reason in reasons)
    rows = [f"  {reason.number_text:>8}  {reason.word:{width}}  {reason.meaning}" for reason in reasons]
    return "\n".join([click.style(kind.title, bold=True), _wrapped(kind.where), *rows])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
