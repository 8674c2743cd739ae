"""Who may come in: the users of the configuration, and how a login is checked."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import lru_cache

from scramp import ScramMechanism

from broker.sessions.sasl import ScramKeys


class ConfiguredUsers:
    """Names with their passwords.  An unknown user costs what a known one does, and cannot be told from him.

    `secret` makes salts, the same for as long as the broker runs, so that asking twice tells nothing either.
    """

    def __init__(self, passwords: dict[str, bytes], secret: bytes) -> None:
        self._passwords = passwords
        self._secret = secret
        # What SCRAM computes from a password takes some milliseconds; unknown names must not push out known ones.
        self._known: Callable[[str, str], ScramKeys] = lru_cache(maxsize=2 * len(passwords))(self._keys)
        self._unknown: Callable[[str, str], ScramKeys] = lru_cache(maxsize=256)(self._keys)

    def check(self, name: str, password: bytes) -> bool:
        """Whether this is the user's password."""
        known = self._passwords.get(name)
        right = hmac.compare_digest(known if known is not None else b"\0", password)
        return right and known is not None

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        """See sasl.Users."""
        return (self._known if name in self._passwords else self._unknown)(mechanism, name)

    def _keys(self, mechanism: str, name: str) -> ScramKeys:
        salt = hmac.digest(self._secret, f"{mechanism} {name}".encode(), "sha256")[:16]
        password = self._passwords.get(name)
        text = password.decode() if password is not None else salt.hex()
        keys: ScramKeys = ScramMechanism(mechanism).make_auth_info(text, salt=salt)
        return keys
