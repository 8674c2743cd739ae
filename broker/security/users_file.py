"""The users file: one table per user, in TOML, written by `bartleby user` and read by the broker.

    [alice]
    roles = ["orders"]
    password = "$argon2id$v=19$m=19456,t=2,p=1$..."          absent: no password login (certificates, tokens)
    scram-sha-256 = "600000$SALT$STORED-KEY$SERVER-KEY"       absent: not by this mechanism

It is secret: only its owner and group may be able to read it, and only its owner to write it.  With a file without
users no client can log in.  The file is replaced as a whole, so that readers see the old or the new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.security import passwords
from broker.sessions.login import ScramKeys
from broker.sessions.sasl import SCRAMS

NAME: Final = "users.toml"

#: Bytes of the file: 20,000 users.
FILE_BYTES_MAX: Final = 16 << 20

#: Bytes of a user's name, and of a role's: more than any directory allows.
NAME_BYTES_MAX: Final = 255

_KEYS: Final = {mechanism.lower(): mechanism for mechanism in SCRAMS}


class UnusableFile(Exception):
    """A file of secrets cannot be used; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class StoredUser:
    """A user.  `password` is a hash, empty if there is no password login."""

    roles: frozenset[str] = frozenset()
    password: str = ""
    scram: Mapping[str, ScramKeys] = field(default_factory=dict)


Users = Mapping[str, StoredUser]
Stamp = tuple[tuple[int, int, int], ...]


def with_password(user: StoredUser, password: str, *, salts: Mapping[str, bytes]) -> StoredUser:
    """The user with a new password; `salts` has one for each SCRAM mechanism that may be used.  Takes half a second.

    Raises ValueError for an empty or too long password.
    """
    if not password or len(password.encode()) > passwords.PASSWORD_BYTES_MAX:
        raise ValueError(f"a password must have 1 to {passwords.PASSWORD_BYTES_MAX} bytes")
    keys = {mechanism: passwords.scram_keys(mechanism, password, salt) for mechanism, salt in salts.items()}
    return StoredUser(user.roles, passwords.hashed(password), keys)


def check_user_name(name: str) -> None:
    """Raises ValueError for an invalid name of a user or role."""
    if not name or len(name.encode("utf-8", "replace")) > NAME_BYTES_MAX or name != name.strip():
        raise ValueError(f"a name must have 1 to {NAME_BYTES_MAX} bytes, and no blanks at its ends")
    if not name.isprintable():
        raise ValueError("a name must have printable characters only")


def read_secret(path: Path, what: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The content of a file of secrets.  Raises UnusableFile if it cannot be read, or if other users can access it."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISREG(found.st_mode) and mode & (stat.S_IRWXO | stat.S_IWGRP):
                raise UnusableFile(f"{path}: other users can access {what} (mode {mode:04o}): chmod 600 {path}")
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise UnusableFile(f"{path}: {what} cannot be read: {error.strerror}: let the broker's user read it") from None
    if len(content) > bytes_max:
        raise UnusableFile(f"{path}: {what} has more than {bytes_max} bytes")
    return content


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """A value that changes when one of these files does."""
    return tuple(map(_stat, paths))


def _stat(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def read_users(path: Path) -> Users:
    """All users of a file, which must exist.  Raises UnusableFile."""
    try:
        tables = tomllib.loads(read_secret(path, "the users file").decode())
        return {name: read_table(name, table) for name, table in tables.items()}
    except UnicodeDecodeError:
        raise UnusableFile(f"{path}: the users file is not UTF-8") from None
    except RecursionError:
        raise UnusableFile(f"{path}: arrays within arrays: change users with `bartleby user`") from None
    except ValueError as error:  # TOML's own is one
        raise UnusableFile(f"{path}: {error}: change users with `bartleby user`") from None


def read_table(name: str, table: object) -> StoredUser:
    """Parse a user's table.  Raises ValueError, which never quotes a value: it may be a misplaced password."""
    try:
        check_user_name(name)
        if not isinstance(table, dict):
            raise ValueError("a user is a table")
        unknown = sorted(table.keys() - {"roles", "password", *_KEYS})
        if unknown:
            raise ValueError(f"there is no key {unknown[0]}")
        roles = table.get("roles", [])
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise ValueError("roles is a list of texts")
        texts = {key: table[key] for key in ("password", *_KEYS) if key in table}
        if not all(isinstance(text, str) for text in texts.values()):
            raise ValueError("password and keys are texts")
        password = texts.pop("password", "")
        if "password" in table:
            passwords.check_hash(password)
        scram = {_KEYS[key]: passwords.read_keys(_KEYS[key], text) for key, text in texts.items()}
    except ValueError as error:
        raise ValueError(f"user {name!r}: {error}") from None
    return StoredUser(frozenset(roles), password, scram)


def write_users(path: Path, users: Users) -> None:
    """Replace the file, readable only by its owner; it is on disk on return.  Raises OSError.

    A file written by root gets the owner of the old file, else of the directory, so that the broker can read it.
    """
    text = "# The users of the broker: change them with `bartleby user`.\n" + "".join(
        _table(name, users[name]) for name in sorted(users)
    )
    write_private(path, text.encode())


@contextmanager
def changing(path: Path) -> Iterator[dict[str, StoredUser]]:
    """The users, written back at the end; all who change them, commands and the broker, wait for each other.

    Raises UnusableFile, OSError.
    """
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        users = dict(read_users(path)) if path.exists() else {}
        yield users
        write_users(path, users)
    finally:
        os.close(descriptor)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file of secrets, readable only by its owner; it is on disk on return.  Raises OSError."""
    owner = (path if path.exists() else path.parent).stat()
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if os.geteuid() == 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def written_table(user: StoredUser) -> dict[str, str | list[str]]:
    """A user's table: the inverse of `read_table`."""
    table: dict[str, str | list[str]] = {"roles": sorted(user.roles)}
    if user.password:
        table["password"] = user.password
    return table | {m.lower(): passwords.written(keys) for m, keys in sorted(user.scram.items())}


def _table(name: str, user: StoredUser) -> str:
    lines = [f"{key} = {_quoted(value)}" for key, value in written_table(user).items()]
    return "\n" + "\n".join([f"[{_quoted(name)}]", *lines]) + "\n"


def _quoted(text: str | list[str]) -> str:
    """A TOML string, or an array of them: names are printable, so they look as in JSON."""
    return json.dumps(text, ensure_ascii=False)
