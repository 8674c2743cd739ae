"""Logins against the users of the configuration."""

from __future__ import annotations

import pytest

from broker.sessions.sasl import SCRAMS
from broker.users import ConfiguredUsers

USERS = ConfiguredUsers({"bob": b"secret", "eve": b""}, b"x" * 32)


@pytest.mark.parametrize(
    ("name", "password", "right"),
    [
        ("bob", b"secret", True),
        ("bob", b"Secret", False),
        ("bob", b"", False),
        ("eve", b"", True),
        ("mallory", b"\0", False),
    ],
)
def test_passwords(name: str, password: bytes, right: bool) -> None:
    assert USERS.check(name, password) == right


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram_keys_are_the_same_each_time_and_known_users_look_like_others(mechanism: str) -> None:
    for name in ("bob", "mallory"):
        salt, stored, server, iterations = USERS.scram_keys(mechanism, name)
        assert USERS.scram_keys(mechanism, name) == (salt, stored, server, iterations)
        assert (len(salt), iterations) == (16, USERS.scram_keys(mechanism, "bob")[3])
    other = ConfiguredUsers({"bob": b"secret"}, b"y" * 32)
    assert other.scram_keys(mechanism, "bob")[0] != USERS.scram_keys(mechanism, "bob")[0]
