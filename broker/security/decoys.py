"""SCRAM keys for users that do not exist, so that nobody can find out by them who does.

They look like those of a user, and stay the same, after a restart and on both brokers of a pair too: they come from a
secret in a file, beside the users file or, where that directory cannot be written, in the data directory.  A name gets
a number of iterations that users have, as often as they have it: while old keys are upgraded one by one, neither the
old nor the new number shows that a user exists.  As a user's salt changes with its upgrade, so does a decoy's.
"""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from broker.security.login_policy import Policy
from broker.security.passwords import SCRAM_ITERATIONS, decoy_keys
from broker.security.users_file import UnusableFile, read_secret, write_private
from broker.sessions.login import ScramKeys
from broker.sessions.sasl import SCRAMS

NAME: Final = "users.secret"
SECRET_BYTES: Final = 32


class Decoys:
    """The decoys of a policy."""

    def __init__(self, policy: Policy) -> None:
        self._secret = policy.secret
        users = (policy.users or {}).values()
        self._iterations: dict[str, Counter[int]] = {
            mechanism: Counter(each.scram[mechanism][3] for each in users if mechanism in each.scram)
            for mechanism in SCRAMS
        }

    def keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return keys that no password matches."""
        return decoy_keys(mechanism, name, self._secret, self._iterations_for(mechanism, name))

    def _iterations_for(self, mechanism: str, name: str) -> int:
        counts = self._iterations[mechanism]
        lot = hmac.digest(self._secret, f"iterations {name}".encode("utf-8", "surrogatepass"), "sha256")
        place = int.from_bytes(lot) * counts.total() >> 8 * len(lot)
        for iterations, users in sorted(counts.items(), reverse=True):  # an upgrade only ever raises a name's number
            if place < users:
                return iterations
            place -= users
        return SCRAM_ITERATIONS[mechanism]


def stored_secret(*directories: Path) -> bytes:
    """Return the secret of the first of these directories that has one, else a new one, stored in the first that can.

    If none can be written, the secret lasts until the restart.  Raises UnusableFile.
    """
    for directory in directories:
        if (directory / NAME).exists():
            return _read(directory / NAME)
    for directory in directories:
        with suppress(OSError):
            return make_secret(directory)
    return secrets.token_bytes(SECRET_BYTES)


def make_secret(directory: Path) -> bytes:
    """Return the secret in a directory, which is made if there is none.  Raises OSError, UnusableFile."""
    path = directory / NAME
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_private(path, secrets.token_hex(SECRET_BYTES).encode() + b"\n")
    return _read(path)


def _read(path: Path) -> bytes:
    what = "the secret of the users file"
    try:
        secret = bytes.fromhex(read_secret(path, what, 1_024).decode())
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise UnusableFile(f"{path}: {what} must be {2 * SECRET_BYTES} hexadecimal digits: remove it for a new one")
    return secret
