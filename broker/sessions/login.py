"""Login: what a session knows about its peer, and the gate that authenticates it.

Checking a login may take a while: passwords are hashed outside the event loop, and an origin has to wait after failed
logins.  So the answer is passed to a callback: exactly once, immediately or later, always within a tick.  The session
reads nothing until then.  The connection may be gone by the time of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from broker.engine.model.access import Identity

#: A certificate's subject: attributes by their short names (CN, OU, O, ...), the most specific first (RFC 4514).
Subject = tuple[tuple[str, str], ...]

#: Called with the user's identity; None: refused.
Then = Callable[[Identity | None], None]

#: Salt, stored key, server key, iterations (RFC 5802, 3).
ScramKeys = tuple[bytes, bytes, bytes, int]


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """The other end of a connection; one object per connection.

    `remote`: its address and port, for logs; `origin`: the address by which connections and failed logins are counted;
    `secure`: whether the connection uses TLS; `subject`: that of its verified certificate, if it presented one.
    """

    remote: str
    origin: str = ""
    secure: bool = False
    subject: Subject = field(default=())


@dataclass(frozen=True, slots=True)
class LoginRestriction:
    """Users that may log in at an acceptor: those named, and those with one of the roles; if neither is given, all."""

    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()

    def admits(self, user: str, roles: frozenset[str]) -> bool:
        """Whether a user with these roles may log in; an anonymous user's name is empty."""
        return not (self.users or self.roles) or user in self.users or not self.roles.isdisjoint(roles)


def call_all(calls: Iterable[Callable[[], None]]) -> None:
    """Call all, then raise the first exception, if any."""
    faults: list[BaseException] = []
    for call in calls:
        try:
            call()
        except BaseException as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


class LoggedInPeers(Protocol):
    """The peers that are logged in."""

    def restrict(self, peer: Peer, restriction: LoginRestriction) -> None:
        """Admit only the users of `restriction` from this peer, whose acceptor has it."""

    def expired(self, peer: Peer, now: int) -> bool:
        """Whether the token with which a peer logged in has expired; `now` in ms since the epoch."""

    def gone(self, peer: Peer) -> bool:
        """Whether a peer's login would be refused today: its user, certificate or token is no longer accepted."""


class Gate(Protocol):
    """Authenticates peers, and logs what it refuses."""

    @property
    def peers(self) -> LoggedInPeers:
        """Those that are logged in."""

    @property
    def takes_tokens(self) -> bool:
        """Whether an issuer's tokens are accepted."""

    @property
    def version(self) -> int:
        """Changes when users or rules do."""

    def users(self) -> Mapping[str, frozenset[str]] | None:
        """Return all users and their roles; None: there is no users file."""

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """Return the SASL mechanisms for this peer, the best first."""

    def anonymous(self, peer: Peer) -> Identity | None:
        """Log in a peer without credentials.  None: refused."""

    def login(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        """Log in with a password.

        Without name and password: as the user of the peer's certificate or anonymously, if either is permitted.
        """

    def named(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        """As `login`, but a user's name and password are required."""

    def bearer(self, peer: Peer, name: str, token: bytes, then: Then) -> None:
        """Log in with a token; `name`, unless empty, must be its user."""

    def refuse(self, peer: Peer, name: str, reason: str, then: Then) -> None:
        """Refuse a login that was not checked.  It does not count as failed: the origin is not slowed."""

    def left(self, peer: Peer) -> None:
        """Forget a peer that has disconnected."""

    def external(self, peer: Peer, name: str) -> Identity | None:
        """Log in as the user of the peer's certificate; `name`, unless empty, must be that user's.  None: refused."""

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        """Return a user's keys for a SCRAM mechanism; for an unknown user, keys that no password fits."""

    def scram_done(self, peer: Peer, mechanism: str, name: str, proven: ScramKeys | None, then: Then) -> None:
        """End a SCRAM exchange: `proven` are the keys that the proof fits, None if it fits none.

        A wrong proof is delayed like a wrong password.  A proof for keys that the user no longer has is refused.
        """
