"""`bartleby completion`: click's completion scripts for shells, and the names that they complete."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import click
from click.shell_completion import get_completion_class

from broker.cli.failure import Failure
from broker.cli.remote import CALLING, PASSWORD_VARIABLE, Remote, connect
from broker.clock import monotonic_ms

#: The environment variable by which a script asks click for completions.
_VARIABLE: Final = "_BARTLEBY_COMPLETE"

#: How long the broker may take to name its queues: a user who pressed Tab is waiting.
PATIENCE_MS: Final = 1_000

#: Names that every shell takes unquoted, without characters at which bash splits words.
_PLAIN: Final = re.compile(r"[\w./%+-]+")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and queues.

    \b
    bash: bartleby completion bash > ~/.local/share/bash-completion/completions/bartleby
    zsh:  bartleby completion zsh > DIRECTORY/_bartleby    (a DIRECTORY of $fpath)
    fish: bartleby completion fish > ~/.config/fish/completions/bartleby.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows each of them"
    click.echo(found(context.find_root().command, {}, "bartleby", _VARIABLE).source())


def _names_of(what: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes names of the running broker; none if it does not answer at once, or needs a password."""

    def names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        where = {name: context.params.get(name) for name in ("config", "data", *CALLING)}
        if where["user"] and PASSWORD_VARIABLE not in os.environ:
            return []
        try:
            return list(_plain(_in_time(connect(**where), what), incomplete))
        except Failure:
            return []

    return names


queue_names: Final = _names_of("queues")
address_names: Final = _names_of("addresses")
link_names: Final = _names_of("links")


def words(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The words that `bartleby explain` knows."""
    from broker.reasons.table import reasons

    return list(_plain((reason.word for reason in reasons()), incomplete))


def _in_time(remote: Remote, what: str) -> Iterator[str]:
    """The names that arrive in time."""
    remote.timeout_seconds = PATIENCE_MS / 1_000
    deadline = monotonic_ms() + PATIENCE_MS
    for each in remote.listed(what):
        yield each["name"]
        if monotonic_ms() > deadline:
            return


def _plain(names: Iterable[str], incomplete: str) -> Iterator[str]:
    return (name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name))
