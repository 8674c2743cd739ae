"""`bartleby user`: show and change the users file, whether or not the broker runs.

Passwords come from a prompt, or from standard input if that is not a terminal; never from the command line, where every
user of the machine can read them.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from broker.cli.failure import CHECK_FAILED, DENIED, USAGE, Failure
from broker.cli.output import OutputFormat, output_option, print_list
from broker.cli.settings import broker_options, load_config, together
from broker.security import decoys
from broker.security.passwords import PASSWORD_BYTES_MAX, SALT_BYTES, is_outdated
from broker.security.policy import users_path
from broker.security.users_file import (
    StoredUser,
    UnusableFile,
    check_user_name,
    read_users,
    with_password,
)
from broker.security.users_file import (
    changing as changing_file,
)
from broker.sessions.sasl import SCRAMS

_APPLIES: Final = "a running broker applies this within seconds"


#: The options that choose the users file.
_where: Final = together(
    broker_options,
    click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="The users file itself."),
)


def users_file(file: Path | None, data: Path | None, config: Path | None) -> Path:
    """The path of the users file: the one given, else that of the configuration.  Raises Failure."""
    return file if file is not None else users_path(load_config(config, data))


def read(path: Path) -> dict[str, StoredUser]:
    """The users; none if there is no file.  Raises Failure."""
    try:
        return dict(read_users(path)) if path.exists() else {}
    except UnusableFile as error:
        raise Failure(USAGE, str(error)) from None
    except OSError as error:
        raise Failure(DENIED, f"{path}: {error.strerror}", "run this as the broker's user") from None


@contextmanager
def changing(path: Path) -> Iterator[dict[str, StoredUser]]:
    """The users, written back at the end, with the secret of the decoys beside them.  Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with changing_file(path) as users:
            yield users
        decoys.make_secret(path.parent)
    except UnusableFile as error:
        raise Failure(USAGE, str(error)) from None
    except OSError as error:
        raise Failure(DENIED, f"{error.filename or path}: {error.strerror}", "run this as the broker's user") from None


def _checked(name: str) -> str:
    try:
        check_user_name(name)
    except ValueError as error:
        raise Failure(USAGE, f"{name!r}: {error}") from None
    return name


def _password(name: str) -> str:
    """Read the new password, on a terminal from two prompts."""
    if sys.stdin.isatty():
        password = str(click.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        text = sys.stdin.readline(PASSWORD_BYTES_MAX + 2)
        password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise Failure(USAGE, "no password was given: type it, or pass it on standard input")
    return password


def _with_password(user: StoredUser, name: str, *, scram: bool) -> StoredUser:
    salts = {mechanism: secrets.token_bytes(SALT_BYTES) for mechanism in SCRAMS} if scram else {}
    try:
        return with_password(user, _password(name), salts=salts)
    except UnicodeError:
        raise Failure(USAGE, f"the password for {name} is not UTF-8") from None
    except ValueError as error:
        raise Failure(USAGE, str(error)) from None


@click.group()
def user() -> None:
    """List and change the broker's users.

    Passwords are asked for, or read from standard input.  A running broker applies changes within seconds.
    """


@user.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, required=True, help="A role of [[security-settings]].  Repeatable.")
@click.option("--no-password", is_flag=True, help="No password: the user logs in with a certificate.")
@click.option("--no-scram", is_flag=True, help="Store only the argon2id hash, so that SCRAM logins fail.")
@_where
def add(name: str, roles: tuple[str, ...], no_password: bool, no_scram: bool, **where: Any) -> None:
    """Add the user NAME."""
    path, stored = users_file(**where), StoredUser(frozenset(map(_checked, roles)))
    with changing(path) as users:
        if _checked(name) in users:
            raise Failure(CHECK_FAILED, f"the user {name} exists already: change it with passwd or roles")
        users[name] = stored if no_password else _with_password(stored, name, scram=not no_scram)
    click.echo(f"user {name} was added to {path}; {_APPLIES}", err=True)


@user.command()
@click.argument("name")
@click.option("--no-scram", is_flag=True, help="Store only the argon2id hash, so that SCRAM logins fail.")
@_where
def passwd(name: str, no_scram: bool, **where: Any) -> None:
    """Change the password of the user NAME; open connections stay."""
    path = users_file(**where)
    with changing(path) as users:
        users[name] = _with_password(_known(users, name), name, scram=not no_scram)
    click.echo(f"user {name} has a new password; {_APPLIES}", err=True)


@user.command()
@click.argument("name")
@click.argument("roles", nargs=-1)
@_where
def roles(name: str, roles: tuple[str, ...], **where: Any) -> None:
    """Replace the roles of the user NAME by ROLES; without roles, it may do nothing."""
    with changing(users_file(**where)) as users:
        users[name] = replace(_known(users, name), roles=frozenset(map(_checked, roles)))
    click.echo(f"user {name} has new roles; {_APPLIES}", err=True)


@user.command()
@click.argument("name")
@_where
def remove(name: str, **where: Any) -> None:
    """Remove the user NAME and close its connections.

    Once the last user is removed, no client can log in.
    """
    with changing(users_file(**where)) as users:
        _known(users, name)
        del users[name]
    click.echo(f"user {name} was removed; {_APPLIES}", err=True)


@user.command("list")
@_where
@output_option
def list_users(output: OutputFormat, **where: Any) -> None:
    """List the users, their roles, and how they can log in, with the iterations of their SCRAM keys."""
    users = read(users_file(**where))
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "roles": sorted(users[name].roles),
            "password": bool(users[name].password),
            "scram": sorted(users[name].scram),
            "iterations": {mechanism: keys[3] for mechanism, keys in sorted(users[name].scram.items())},
            "outdated": sorted(each for each, keys in users[name].scram.items() if is_outdated(each, keys)),
        }
        for name in sorted(users)
    ]

    def row(each: dict[str, Any]) -> list[object]:
        scram = [
            f"{mechanism} ({iterations:,}{', outdated' if mechanism in each['outdated'] else ''})"
            for mechanism, iterations in each["iterations"].items()
        ]
        return [each["name"], ", ".join(each["roles"]), each["password"], ", ".join(scram)]

    print_list(output, found, ["user", "roles", "password", "scram"], row)


def _known(users: dict[str, StoredUser], name: str) -> StoredUser:
    if name not in users:
        raise Failure(CHECK_FAILED, f"there is no user {name}")
    return users[name]
