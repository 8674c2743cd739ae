"""Coming in: what a session knows about its peer, and whom it asks who that is.

Whether a login is right may take a while (hashing is done beside the event loop, and after failed logins an origin has
to wait), so the answer comes by a callback: exactly once, at once or in a later tick, always within a tick.  A session
that waits reads nothing; when it is told, its connection may be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from broker.engine.model.access import Identity

#: A certificate's subject: attributes by their short names (CN, OU, O, ...), the most specific first (RFC 4514).
Subject = tuple[tuple[str, str], ...]

#: Told who it is; None: refused.
Then = Callable[[Identity | None], None]

#: Salt, stored key, server key, iterations (RFC 5802, 3).
ScramKeys = tuple[bytes, bytes, bytes, int]


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """The other end of a connection; each connection has one of its own.

    `remote` is its address and port, for logs; `origin` the address by which it is counted and slowed; `secure` whether
    TLS is spoken; `subject` that of its verified certificate, if it showed one.
    """

    remote: str
    origin: str = ""
    secure: bool = False
    subject: Subject = field(default=())


@dataclass(frozen=True, slots=True)
class Door:
    """Who may come in by an acceptor: these users, and everybody with one of these roles; neither given: all."""

    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()

    def admits(self, user: str, roles: frozenset[str]) -> bool:
        """Whether a user with these roles may; an anonymous one has no name."""
        return not (self.users or self.roles) or user in self.users or not self.roles.isdisjoint(roles)


def tell_all(told: Iterable[Callable[[], None]]) -> None:
    """Call them all, and raise what came out of the first that failed only then."""
    faults: list[BaseException] = []
    for tell in told:
        try:
            tell()
        except BaseException as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


class Gate(Protocol):
    """Who may come in.  It logs what it refuses."""

    def restrict(self, peer: Peer, door: Door) -> None:
        """A peer has come to a door by which not everybody may come in."""

    @property
    def version(self) -> int:
        """Changes when users or rules do."""

    def users(self) -> Mapping[str, frozenset[str]] | None:
        """The users that there are, and their roles; None: there is no users file."""

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """The SASL mechanisms for this peer, the best first."""

    def anonymous(self, peer: Peer) -> Identity | None:
        """Who somebody without any credentials is; None: refused."""

    def login(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        """Whether this is the user's password.

        Without name and password it is the user of the peer's certificate, or anonymous, if either may be.
        """

    def named(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        """As `login`, at a door that nobody passes without a user's name and password."""

    def bearer(self, peer: Peer, name: str, token: bytes, then: Then) -> None:
        """Whether this token counts; `name`, unless empty, must be its user."""

    def expired(self, peer: Peer, now: int) -> bool:
        """Whether a peer came in by a token that has expired since; `now` in ms since the epoch."""

    def gone(self, peer: Peer) -> bool:
        """Whether a peer could not come in any more by what it came in by."""

    def left(self, peer: Peer) -> None:
        """A peer is gone."""

    def external(self, peer: Peer, name: str) -> Identity | None:
        """The user of the peer's certificate; `name`, unless empty, must be that user's.  None: refused."""

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        """What the server knows for a SCRAM mechanism; for an unknown user something that no password fits."""

    def scram_done(self, peer: Peer, mechanism: str, name: str, proven: ScramKeys | None, then: Then) -> None:
        """A SCRAM exchange has ended: `proven` are the keys that the proof fits, None if it fits none.

        A wrong one is slowed as a wrong password is; one for keys that the user has no longer is refused.
        """
