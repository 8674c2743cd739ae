"""Which clients may log in, and how: what the configuration and the users file say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.security.certificates import Rule, user_of
from broker.security.tokens import Tokens
from broker.security.users_file import StoredUser, Users
from broker.sessions.login import Peer
from broker.sessions.sasl import ANONYMOUS, EXTERNAL, OAUTHBEARER, PLAIN, SCRAMS, XOAUTH2


@dataclass(frozen=True, slots=True)
class Policy:
    """Which clients may log in.

    `users`: None if there is no users file: every client is anonymous.  `anonymous`: the roles of clients without
    credentials; None: refused.  `rules`: of client certificates.  `per_user`: the most connections of one user, -1: no
    limit; `allowed`: exceptions to it, by user.
    `secret`: from which the keys of unknown users are made (`decoys`).
    `tokens`: None if tokens are not accepted; `renew` fetches newer keys for them, if it can, and then calls back.
    """

    users: Users | None = None
    anonymous: frozenset[str] | None = None
    rules: Sequence[Rule] = ()
    per_user: int = -1
    allowed: Mapping[str, int] = field(default_factory=dict)
    secret: bytes = b""
    tokens: Tokens | None = None
    renew: Callable[[Callable[[], None]], None] | None = None

    def stored(self, user: str) -> StoredUser | None:
        """A user as the users file has it."""
        return None if self.users is None else self.users.get(user)

    def roles_of(self, user: str) -> frozenset[str] | None:
        """The roles of a user, an empty name: of anonymous clients; None: there is no such user."""
        if not user:
            return self.anonymous
        stored = self.stored(user)
        return None if stored is None else stored.roles

    def user_of(self, peer: Peer) -> str | None:
        """The user of a peer's certificate; None: it has none, or no rule fits."""
        return user_of(self.rules, peer.subject) if peer.subject else None

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """The SASL mechanisms for a peer, the best first."""
        if self.users is None:
            return (ANONYMOUS, PLAIN)
        offered = [*SCRAMS, PLAIN]
        if peer.subject and self.rules:
            offered.insert(0, EXTERNAL)
        if self.tokens is not None:
            offered += (OAUTHBEARER, XOAUTH2)
        if self.anonymous is not None:
            offered.append(ANONYMOUS)
        return tuple(offered)
