"""`bartleby definitions export|import`: everything that defines the running broker, except its messages.

Definitions go over HTTP (`GET` and `POST /api/v1/definitions`), credentials never do: with --users they are read from
the users file of one machine and written to that of another, by users who may read and write these files.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import click

from broker.cli.failure import CHECK_FAILED, PARTIAL, USAGE, Failure
from broker.cli.output import OutputFormat, print_json
from broker.cli.remote import call_options, connect, remote_options
from broker.cli.user import changing, read, users_file
from broker.log import printable
from broker.security.users_file import StoredUser, read_table, written_table
from store.counted import counted

#: Definitions in one call: fewer than the API takes, so that other clients hardly notice.
DEFINITIONS_PER_CALL: Final = 200

#: Bytes of a document: some 500,000 queues.
DOCUMENT_BYTES_MAX: Final = 256 << 20

#: Definitions named in the last line: as many as fit a screen; the lines above have all.
NAMED_MAX: Final = 10

#: The key of the users' credentials in a document.
USERS_FILE: Final = "users_file"

#: The kinds that can be imported, then those that are compared, in this order.
_LISTS: Final = {"addresses": "address", "queues": "queue", "diverts": "divert"}
_MATCHES: Final = ("address_settings", "permissions")

#: For the kinds that are compared, the table in broker.toml and the key in the document.
_TABLES: Final = {
    "address-setting": ("address-settings", "address_settings"),
    "permission": ("security-settings", "permissions"),
}

_OTHER_USER: Final = "a user of this name has other roles or another password: `bartleby user` changes it"

_SIGNS: Final = {"created": "+", "changed": "~", "refused": "!", "by-hand": "#"}


@click.group()
def definitions() -> None:
    """Export and import addresses, queues and diverts; compare settings, permissions and users."""


@definitions.command("export")
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="The file.  [default: standard output]")
@click.option(
    "--auto-created", is_flag=True, help="Include anycast queues and addresses that were created automatically."
)
@click.option("--users", is_flag=True, help="Include the users' credentials, from the users file of this machine.")
@remote_options
def export_(to: Path | None, auto_created: bool, users: bool, **where: Any) -> None:
    """Write the definitions of the running broker as one JSON document, always in the same order.

    It leaves out the broker's own, temporary destinations, and what clients create.  With --users the file is secret:
    only you can read it.
    """
    document = connect(**where).get("/api/v1/definitions", auto_created=str(auto_created).lower())
    if users:
        path = users_file(None, where["data"], where["config"])
        document[USERS_FILE] = {name: written_table(user) for name, user in sorted(read(path).items())}
    text = json.dumps(document, indent=2, ensure_ascii=to is None) + "\n"
    if to is None:
        click.echo(text, nl=False)
        return
    try:
        new = to.with_name(f".{to.name}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if users else 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(to)
    except OSError as error:
        raise Failure(CHECK_FAILED, f"{error.filename or to}: {error.strerror}") from None
    counts = ", ".join(counted(len(document[kind]), one, kind) for kind, one in _LISTS.items())
    click.echo(f"{counts} were written to {to}", err=True)


@definitions.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--users", is_flag=True, help="Also add missing users to the users file of this machine.")
@call_options
def import_(file: IO[bytes], dry_run: bool, users: bool, output: OutputFormat, **where: Any) -> None:
    """Create and change what FILE defines in the running broker.  Nothing is deleted.

    Address settings, permissions and users are in files of the broker: the command shows how they differ, and what to
    put where.  Exit status 5 if something was refused or has to be done by hand; with --dry-run, if it would be.
    """
    document = _read(file)
    tables = document.pop(USERS_FILE, None)
    if users and tables is None:
        raise Failure(USAGE, f"{file.name} has no {USERS_FILE}: export it with --users")
    stored = _stored(tables) if users else {}
    remote = connect(**where)
    path = f"/api/v1/definitions?dry_run={str(dry_run).lower()}"
    changes: list[dict[str, Any]] = [each for part in _parts(document) for each in remote.post(path, part)["changes"]]
    if users:
        file_of_users = users_file(None, where["data"], where["config"])
        changes = [each for each in changes if each["kind"] != "user"]
        changes += _add_users(file_of_users, stored, dry_run=dry_run)
    if output == "json":
        print_json({"dry_run": dry_run, "changes": changes})
    else:
        _print(changes, document, dry_run=dry_run)
    if left := list(_left(changes, dry_run=dry_run)):
        raise Failure(PARTIAL, "; ".join(left))


def _read(file: IO[bytes]) -> dict[str, Any]:
    try:
        document = json.loads(file.read(DOCUMENT_BYTES_MAX))
    except (ValueError, RecursionError):
        raise Failure(USAGE, f"{file.name} is not a JSON document as `bartleby definitions export` writes it") from None
    if not isinstance(document, dict) or not isinstance(document.get("version"), int):
        raise Failure(USAGE, f"{file.name} has no definitions: a document begins with its version")
    return document


def _parts(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a document into small ones, in order."""
    head = {name: value for name, value in document.items() if name not in (*_LISTS, *_MATCHES, "users")}
    part, size = dict(head), 0
    for kind in (*_LISTS, *_MATCHES, "users"):
        found = document.get(kind, {} if kind in _MATCHES else [])
        if not isinstance(found, dict if kind in _MATCHES else list):
            part[kind] = found  # the API says what is wrong
            continue
        for each in found.items() if isinstance(found, dict) else found:
            if size == DEFINITIONS_PER_CALL:
                yield part
                part, size = dict(head), 0
            size += 1
            if isinstance(found, dict):
                part.setdefault(kind, {})[each[0]] = each[1]
            else:
                part.setdefault(kind, []).append(each)
    yield part


def _stored(tables: Any) -> dict[str, StoredUser]:
    """The users of a document, with their credentials.  Raises Failure."""
    if not isinstance(tables, dict):
        raise Failure(USAGE, f"{USERS_FILE} is an object with a table for each user")
    try:
        return {name: read_table(name, table) for name, table in tables.items()}
    except ValueError as error:
        raise Failure(USAGE, str(error)) from None


def _add_users(path: Path, wanted: dict[str, StoredUser], *, dry_run: bool) -> list[dict[str, Any]]:
    """Add missing users; existing ones stay as they are."""
    if dry_run:
        return [_of_user(name, user, read(path).get(name)) for name, user in sorted(wanted.items())]
    with changing(path) as users:
        changes = [_of_user(name, user, users.get(name)) for name, user in sorted(wanted.items())]
        users |= {name: user for name, user in wanted.items() if name not in users}
    return changes


def _of_user(name: str, user: StoredUser, present: StoredUser | None) -> dict[str, Any]:
    outcome = "created" if present is None else "same" if present == user else "refused"
    change = {"kind": "user", "name": name, "outcome": outcome, "changes": [], "why": ""}
    return change | {"why": _OTHER_USER} if outcome == "refused" else change


# -- what is shown -----------------------------------------------------------------------------------------------------


def _print(changes: list[dict[str, Any]], document: dict[str, Any], *, dry_run: bool) -> None:
    """Print a line for each definition that differs, then what to put into files."""
    for each in changes:
        if each["outcome"] != "same":
            click.echo(printable(f"{_SIGNS[each['outcome']]} {each['kind']} {each['name']}{_details(each)}"))
    toml = [text for each in changes if each["outcome"] == "by-hand" for text in _toml(each, document)]
    if toml:
        click.echo("\nput these into broker.toml, instead of entries with the same match, and reload:\n")
        click.echo("\n".join(toml))
    counts = Counter(each["outcome"] for each in changes)
    done = "would be " if dry_run else ""
    click.echo(
        f"{counts['created']} {done}created, {counts['changed']} {done}changed, {counts['same']} the same,"
        f" {counts['refused']} {done}refused, {counts['by-hand']} to do by hand"
    )


def _left(changes: list[dict[str, Any]], *, dry_run: bool) -> Iterator[str]:
    """Sentences about the definitions that an import does not apply."""
    for outcome, (one, more), what in (
        ("refused", ("was", "were"), "refused"),
        ("by-hand", ("is", "are"), "left to do by hand"),
    ):
        names = [f"{each['kind']} {each['name']}" for each in changes if each["outcome"] == outcome]
        if not names:
            continue
        one, more = ("would be", "would be") if dry_run else (one, more)
        found = counted(len(names), f"definition {one}", f"definitions {more}")
        others = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
        yield printable(f"{found} {what}: {', '.join(names[:NAMED_MAX])}{others}")


def _details(change: dict[str, Any]) -> str:
    differences = [
        f"{each['field']} {_format_value(each['before'])} -> {_format_value(each['after'])}"
        for each in change["changes"]
    ]
    return "".join(f": {text}" for text in ("; ".join(differences), change["why"]) if text)


def _format_value(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def _toml(change: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    """The entry for broker.toml.  Strings, numbers and lists of strings look the same in TOML and JSON."""
    if change["kind"] in _TABLES:
        table, kind = _TABLES[change["kind"]]
        yield f"[[{table}]]"
        for name, value in {"match": change["name"], **document[kind][change["name"]]}.items():
            yield printable(f"{name} = {_format_value(value)}")
        yield ""
