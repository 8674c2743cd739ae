"""The logged-in peers, and whether their logins still hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.security.login_policy import Policy
from broker.security.tokens import Bearer, KeySet
from broker.sessions.login import LoginRestriction, Peer

#: How a client logged in, for the log.
CERTIFICATE: Final = "certificate"


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The user as whom a peer is logged in, and how; `bearer` is the token, if one was used."""

    user: str
    how: str
    bearer: Bearer | None


class LoggedInPeers:
    """The logged-in peers, the number of peers of each user, and the expiry of their tokens.

    `policy` says which logins are possible at present.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._restrictions: dict[Peer, LoginRestriction] = {}  # of peers at acceptors that restrict logins
        self._keys: KeySet | None = None  # at the last call of `any_withdrawn`
        self._peers: dict[Peer, LoggedIn] = {}
        self._expiries: dict[Peer, int] = {}  # of peers logged in by a token
        self._per_user: dict[str, int] = {}

    def restrict(self, peer: Peer, restriction: LoginRestriction) -> None:
        """Admit only the users of `restriction` from this peer, whose acceptor has it."""
        self._restrictions[peer] = restriction

    def admits(self, peer: Peer, user: str, roles: frozenset[str]) -> bool:
        """Whether a user may log in from this peer."""
        restriction = self._restrictions.get(peer)
        return restriction is None or restriction.admits(user, roles)

    def roles_of(self, user: str) -> frozenset[str] | None:
        """The roles that a user has now; None: there is no such user."""
        return self.policy.roles_of(user)

    def user_max(self, user: str) -> int:
        """How many peers may be logged in as a user; -1: no limit."""
        return self.policy.allowed.get(user, self.policy.per_user)

    def add(self, peer: Peer, logged_in: LoggedIn) -> bool:
        """Log a peer in, perhaps again as another user (HTTP); False if the user has too many peers."""
        user_max = self.user_max(logged_in.user)
        user, before = logged_in.user, self._peers.get(peer)
        if before is None or before.user != user:
            count = self._per_user.get(user, 0)
            if user and 0 <= user_max <= count:
                return False
            self._remove(peer)
            if user:
                self._per_user[user] = count + 1
        self._peers[peer] = logged_in
        self._expiries.pop(peer, None)
        if logged_in.bearer is not None:
            self._expiries[peer] = logged_in.bearer.expires
        return True

    def left(self, peer: Peer) -> None:
        """Forget a peer whose connection has ended."""
        self._restrictions.pop(peer, None)
        self._remove(peer)

    def _remove(self, peer: Peer) -> None:
        """Log a peer out, if it is logged in."""
        self._expiries.pop(peer, None)
        logged_in = self._peers.pop(peer, None)
        if logged_in is not None and logged_in.user:
            left = self._per_user[logged_in.user] - 1
            if left:
                self._per_user[logged_in.user] = left
            else:
                del self._per_user[logged_in.user]

    def gone(self, peer: Peer) -> bool:
        """Whether a logged-in peer could no longer log in.

        If so, its user, its certificate's rule, its token's key, or the role that its acceptor requires was removed.
        """
        inside, policy = self._peers.get(peer), self.policy
        if inside is None:
            return False
        if inside.bearer is not None:  # a token's roles do not change
            return policy.tokens is None or not policy.tokens.believes(inside.bearer)
        if inside.how == CERTIFICATE and policy.user_of(peer) != inside.user:
            return True
        roles = policy.roles_of(inside.user)
        return roles is None or not self.admits(peer, inside.user, roles)

    def any_withdrawn(self) -> bool:
        """Whether the keys of tokens have changed since the last call, so that a peer may be `gone`."""
        tokens = self.policy.tokens
        present = tokens.present if tokens is not None else None
        changed, self._keys = present is not self._keys, present
        return changed

    def expired(self, peer: Peer, now: int) -> bool:
        """Whether the token of a peer has expired; `now` in ms since the epoch."""
        return peer in self._expiries and self._expiries[peer] <= now

    def any_expired(self, now: int) -> bool:
        """Whether any peer's token has expired; `now` in ms since the epoch."""
        return any(expires <= now for expires in self._expiries.values())
