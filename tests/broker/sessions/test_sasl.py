"""Logins by every mechanism, right and wrong."""

from __future__ import annotations

import pytest
from scramp import ScramClient, ScramMechanism

from broker.sessions.sasl import Exchange, LoginRefused, ScramKeys, begin, mechanisms


class OneUser:
    """bob, whose password is `secret`."""

    def check(self, name: str, password: bytes) -> bool:
        return (name, password) == ("bob", b"secret")

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        password = "secret" if name == "bob" else "?"
        keys: ScramKeys = ScramMechanism(mechanism).make_auth_info(password, salt=b"salt and more")
        return keys


def scram(exchange: Exchange, mechanism: str, name: str, password: str) -> str:
    client = ScramClient([mechanism], name, password)
    challenge = exchange.step(client.get_client_first().encode())
    assert challenge is not None
    client.set_server_first(challenge.decode())
    final = exchange.step(client.get_client_final().encode())
    assert final is not None
    client.set_server_final(final.decode())  # the client checks that the server knows the password
    assert exchange.done
    return exchange.user


def test_what_is_offered() -> None:
    assert mechanisms(None) == ("ANONYMOUS", "PLAIN")
    assert mechanisms(OneUser()) == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(mechanism: str) -> None:
    assert scram(begin(mechanism, OneUser()), mechanism, "bob", "secret") == "bob"
    for name, password in (("bob", "wrong"), ("eve", "secret")):
        with pytest.raises(LoginRefused, match=name):
            scram(begin(mechanism, OneUser()), mechanism, name, password)


@pytest.mark.parametrize("message", [b"", b"n,,", b"\xff", b"n,,n=bob", b"p=tls-unique,,n=bob,r=x"])
def test_a_scram_message_that_is_none(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        begin("SCRAM-SHA-256", OneUser()).step(message)


@pytest.mark.parametrize("message", [b"\0bob\0secret", b"bob\0bob\0secret"])
def test_plain(message: bytes) -> None:
    exchange = begin("PLAIN", OneUser())
    assert exchange.step(message) is None
    assert (exchange.done, exchange.user) == (True, "bob")


@pytest.mark.parametrize(
    "message",
    [b"", b"bob\0secret", b"\0bob\0wrong", b"\0eve\0secret", b"eve\0bob\0secret", b"\0\xff\0x", b"\0bob\0a\0b"],
)
def test_plain_refused(message: bytes) -> None:
    exchange = begin("PLAIN", OneUser())
    with pytest.raises(LoginRefused):
        exchange.step(message)
    assert (exchange.done, exchange.user) == (False, "")


def test_without_users_anybody_comes_in_and_nobody_is_known() -> None:
    for mechanism, message in (("PLAIN", b"\0bob\0anything"), ("ANONYMOUS", b""), ("ANONYMOUS", b"trace")):
        exchange = begin(mechanism, None)
        assert exchange.step(message) is None
        assert (exchange.done, exchange.user) == (True, "")


@pytest.mark.parametrize(
    ("mechanism", "users"), [("ANONYMOUS", OneUser()), ("SCRAM-SHA-256", None), ("GSSAPI", OneUser())]
)
def test_a_mechanism_that_is_not_offered(mechanism: str, users: OneUser | None) -> None:
    with pytest.raises(LoginRefused, match="not offered"):
        begin(mechanism, users)
