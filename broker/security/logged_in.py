"""The logged-in peers."""

from __future__ import annotations

from dataclasses import dataclass

from broker.security.tokens import Bearer
from broker.sessions.login import Peer


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The user as whom a peer is logged in, and how; `bearer` is the token, if one was used."""

    user: str
    how: str
    bearer: Bearer | None


class LoggedInPeers:
    """The logged-in peers, the number of peers of each user, and the expiry of their tokens."""

    def __init__(self) -> None:
        self._peers: dict[Peer, LoggedIn] = {}
        self._expiries: dict[Peer, int] = {}  # of peers logged in by a token
        self._per_user: dict[str, int] = {}

    def get(self, peer: Peer) -> LoggedIn | None:
        """How a peer is logged in; None if it is not."""
        return self._peers.get(peer)

    def add(self, peer: Peer, logged_in: LoggedIn, user_max: int) -> bool:
        """Log a peer in, perhaps again as another user (HTTP); False if the user has `user_max` peers, -1: no limit."""
        user, before = logged_in.user, self._peers.get(peer)
        if before is None or before.user != user:
            count = self._per_user.get(user, 0)
            if user and 0 <= user_max <= count:
                return False
            self.remove(peer)
            if user:
                self._per_user[user] = count + 1
        self._peers[peer] = logged_in
        self._expiries.pop(peer, None)
        if logged_in.bearer is not None:
            self._expiries[peer] = logged_in.bearer.expires
        return True

    def remove(self, peer: Peer) -> None:
        """Log a peer out, if it is logged in."""
        self._expiries.pop(peer, None)
        logged_in = self._peers.pop(peer, None)
        if logged_in is not None and logged_in.user:
            left = self._per_user[logged_in.user] - 1
            if left:
                self._per_user[logged_in.user] = left
            else:
                del self._per_user[logged_in.user]

    def any_expired(self, now: int) -> bool:
        """Whether any peer's token has expired; `now` in ms since the epoch."""
        return any(expires <= now for expires in self._expiries.values())
