"""Upgrades SCRAM keys with too few iterations, when their user logs in with the password itself.

    ask      the password was right; it waits, one among few
    keys     made on a thread, one user after the other, so that at most one of the threads is busy
    write    at most once a minute, as each change of the users file makes the broker read it again

Keys that are lost before they are written are made at the next login.  A users file that cannot be written keeps its
keys; the log says so once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from scramp import ScramException

from broker.engine.model.report import Report
from broker.security import passwords
from broker.security.password_checks import Runner
from broker.security.users_file import StoredUser, UnusableFile, changing
from broker.sessions.login import ScramKeys

#: Users whose passwords wait in memory; others are upgraded at a later login.
WAITING_MAX: Final = 16

#: Ms from the first new keys to writing them.
WRITE_DELAY_MS: Final = 60_000

_Upgrade = tuple[StoredUser, Mapping[str, ScramKeys]]


class KeyUpgrades:
    """Upgrades of the users file at `path`."""

    def __init__(self, path: Callable[[], Path], runner: Runner, report: Report) -> None:
        self._path = path
        self._runner = runner
        self._report = report
        self._waiting: dict[str, tuple[StoredUser, bytes]] = {}
        self._busy = False
        self._made: dict[str, _Upgrade] = {}
        self._replaced: dict[ScramKeys, str] = {}  # keys of the last write, with the hash of the same password
        self._failed = False

    def ask(self, name: str, stored: StoredUser, password: bytes) -> None:
        """Upgrade a user's keys if they need it; the password is right."""
        if self._failed or not any(passwords.is_outdated(*each) for each in stored.scram.items()):
            return
        made = self._made.get(name)
        if (made is not None and made[0] == stored) or name in self._waiting or len(self._waiting) >= WAITING_MAX:
            return
        self._waiting[name] = stored, password
        if not self._busy:
            self._next()

    def has_replaced(self, keys: ScramKeys | None, stored: StoredUser) -> bool:
        """Whether an upgrade has replaced these keys of a user, whose password is the same, since a login began."""
        return keys is not None and bool(stored.password) and self._replaced.get(keys) == stored.password

    def _next(self) -> None:
        if not self._waiting:
            return
        name = next(iter(self._waiting))
        stored, password = self._waiting[name]
        self._busy = True

        def done(keys: Mapping[str, ScramKeys] | BaseException) -> None:
            self._busy = False
            self._waiting.pop(name, None)
            if not isinstance(keys, BaseException):
                if not self._made:
                    self._runner.later(WRITE_DELAY_MS, self._write)
                self._made[name] = stored, keys
            elif not isinstance(keys, (ScramException, UnicodeDecodeError)):  # a password that SCRAM does not know
                self._fail(keys)
            self._next()

        self._runner.run(lambda: _new_keys(stored, password), done)

    def _write(self) -> None:
        made, self._made = self._made, {}

        def done(result: BaseException | None) -> None:
            if result is not None:
                self._fail(result)

        path = self._path()
        # Before the file changes: from then on a login may find the new keys.
        self._replaced = {keys: stored.password for stored, _ in made.values() for keys in stored.scram.values()}
        self._runner.run(lambda: _write(path, made), done)

    def _fail(self, fault: BaseException) -> None:
        self._failed = True
        self._waiting.clear()
        self._report("security.keys_outdated", error=str(fault) or type(fault).__name__)


def _new_keys(stored: StoredUser, password: bytes) -> dict[str, ScramKeys]:
    """Make the keys of a user anew.  Raises ScramException, UnicodeDecodeError."""
    text = password.decode()
    return {
        mechanism: passwords.scram_keys(mechanism, text, secrets.token_bytes(passwords.SALT_BYTES))
        for mechanism in stored.scram
    }


def _write(path: Path, made: Mapping[str, _Upgrade]) -> None:
    """Replace the keys of users who have not been changed meanwhile.  Raises OSError, UnusableFile."""
    if not path.exists():
        raise UnusableFile(f"{path}: the users file is missing")
    with changing(path) as users:
        for name, (stored, keys) in made.items():
            now = users.get(name)
            if now is not None and (now.password, now.scram) == (stored.password, stored.scram):
                users[name] = replace(now, scram=keys)
