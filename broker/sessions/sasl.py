"""SASL on the server's side: from a mechanism's messages to a user, or a refusal.

    ANONYMOUS (RFC 4505)      one message, whatever it says; only where anybody may come in
    PLAIN (RFC 4616)          one message: NUL user NUL password, an authorization identity before them being the user's
    SCRAM-SHA-256, -512       two messages each way (RFC 5802, 7677); the computation is `scramp`'s

A refusal never says what was wrong: neither whether the user exists nor whether the message was well-formed.
"""

from __future__ import annotations

from typing import Final, Protocol

from scramp import ScramException, ScramMechanism

ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
SCRAMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")

#: Salt, stored key, server key, iterations (RFC 5802, 3).
ScramKeys = tuple[bytes, bytes, bytes, int]


class Users(Protocol):
    """Who may come in."""

    def check(self, name: str, password: bytes) -> bool:
        """Whether this is the user's password; an unknown user costs the same time."""

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        """What the server knows for a SCRAM mechanism; for an unknown user something that no password fits."""


class LoginRefused(Exception):
    """The peer may not come in; the text, for the log, has the user's name if there is one."""


class Exchange(Protocol):
    """One login.  `user` is known when `step` returns no challenge, or one that is final."""

    user: str
    done: bool

    def step(self, message: bytes) -> bytes | None:
        """The answer to the peer's message: a challenge, or data that goes with success.  Raises LoginRefused."""


def mechanisms(users: Users | None) -> tuple[str, ...]:
    """What is offered, the best first; without users anybody may come in, with any name."""
    return (*SCRAMS, PLAIN) if users is not None else (ANONYMOUS, PLAIN)


def begin(mechanism: str, users: Users | None) -> Exchange:
    """The server's side of a login with one of `mechanisms`.  Raises LoginRefused."""
    if mechanism == PLAIN:
        return _Plain(users)
    if mechanism == ANONYMOUS and users is None:
        return _Anonymous()
    if mechanism in SCRAMS and users is not None:
        return _Scram(mechanism, users)
    raise LoginRefused(f"the mechanism {mechanism[:40]!r} is not offered")


class _Anonymous:
    user = ""
    done = True

    def step(self, message: bytes) -> bytes | None:
        return None


class _Plain:
    def __init__(self, users: Users | None) -> None:
        self.user = ""
        self.done = False
        self._users = users

    def step(self, message: bytes) -> bytes | None:
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise LoginRefused("a PLAIN message has two NULs")
        authorize, name, password = parts
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise LoginRefused("the user's name is not UTF-8") from None
        if authorize not in (b"", name):
            raise LoginRefused(f"{user} may not act for somebody else")
        if self._users is not None:
            if not self._users.check(user, password):
                raise LoginRefused(user)
            self.user = user
        self.done = True
        return None


class _Scram:
    def __init__(self, mechanism: str, users: Users) -> None:
        self.user = ""
        self.done = False
        self._name = ""
        self._first = True

        def keys(name: str) -> ScramKeys:
            self._name = name
            return users.scram_keys(mechanism, name)

        self._server = ScramMechanism(mechanism).make_server(keys)

    def step(self, message: bytes) -> bytes | None:
        try:
            text = message.decode()
            if self._first:
                self._first = False
                self._server.set_client_first(text)
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(text)
            answer = str(self._server.get_server_final()).encode()
        except (ScramException, UnicodeDecodeError):
            raise LoginRefused(self._name or "a SCRAM message that is none") from None
        self.user = self._name
        self.done = True
        return answer
