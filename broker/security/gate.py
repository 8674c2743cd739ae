"""The gate: whether a login is right, without ever keeping the event loop waiting.

    no users file                anybody is anonymous, whatever he says (the daemon sees to it that only this machine
                                 can connect, or that `anonymous = true`)
    a name and a password        argon2id beside the event loop; a password that was right is remembered by a keyed
                                 digest in memory, so that a thousand reconnecting clients are not a thousand hashes
    a token                      somebody else says who it is and what he may do, until the token expires (`tokens`); it
                                 comes by a mechanism of its own, or as a password
    neither                      the user of the client's certificate, or anonymous, if either may be
    a name without a password    refused, whoever it is

Unknown users cost what known ones do.  Failed logins of an origin slow it (`throttle`).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from broker.engine.access import Identity
from broker.engine.core import Report
from broker.security import passwords
from broker.security.certificates import Rule, user_of
from broker.security.throttle import Throttle
from broker.security.tokens import BadToken, Bearer, Tokens, UnknownKey, looks_like_token
from broker.security.users_file import StoredUser, Users
from broker.sessions.login import Peer, ScramKeys, Then
from broker.sessions.sasl import ANONYMOUS, EXTERNAL, OAUTHBEARER, PLAIN, SCRAMS, XOAUTH2

#: Logins that wait for a thread: five seconds of two threads' work.  More are refused, and may come back.
HASHES_WAITING_MAX: Final = 256

#: Passwords that are remembered as right.
REMEMBERED_MAX: Final = 1_000

Result = TypeVar("Result")


class Runner(Protocol):
    """Where slow things are done.  What it calls, it calls within a tick."""

    def run(self, work: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Do something on a thread and hand over what came of it."""

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """Call after some time."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may come in.

    `users`: None when there is no users file, so that everybody is anonymous.  `anonymous`: the roles of who has no
    credentials; None: he is refused.  `rules`: of client certificates.  `per_user`: connections of one user, -1: any;
    `allowed`: of users who may have other numbers.
    `tokens`: None if none are taken; `renew` gets newer keys for them, if it can, and calls then.
    """

    users: Users | None = None
    anonymous: frozenset[str] | None = None
    rules: Sequence[Rule] = ()
    per_user: int = -1
    allowed: Mapping[str, int] = field(default_factory=dict)
    tokens: Tokens | None = None
    renew: Callable[[Callable[[], None]], None] | None = None


class UserGate:
    """See Gate."""

    def __init__(self, policy: Policy, *, runner: Runner, throttle: Throttle, report: Report, secret: bytes) -> None:
        self._policy = policy
        self._runner = runner
        self._throttle = throttle
        self._report = report
        self._secret = secret
        self._remembered: dict[bytes, str] = {}
        self._checking: dict[bytes, list[Callable[[bool], None]]] = {}
        self._inside: dict[Peer, str] = {}
        self._per_user: dict[str, int] = {}
        self._tokens_waiting = 0
        self._expiries: dict[Peer, int] = {}

    def change(self, policy: Policy) -> None:
        """Other users and rules; those who are in stay, as far as there still is such a user (`gone`)."""
        self._policy = policy
        self._remembered.clear()

    # -- who is in ---------------------------------------------------------------------------------------------------

    def roles_of(self, user: str) -> frozenset[str] | None:
        """The roles that a user has now; None: there is no such user."""
        if not user:
            return self._policy.anonymous
        stored = (self._policy.users or {}).get(user)
        return None if stored is None else stored.roles

    def gone(self, peer: Peer) -> bool:
        """Whether a peer that came in could not any more, because its user was taken away."""
        user = self._inside.get(peer)
        return user is not None and peer not in self._expiries and self.roles_of(user) is None

    def expired(self, peer: Peer, now: int) -> bool:
        """Whether the token of a peer counts no more; `now` in ms since the epoch."""
        return self._expiries.get(peer, now + 1) <= now

    def any_expired(self, now: int) -> bool:
        """Whether that is so of any peer."""
        return any(expires <= now for expires in self._expiries.values())

    def left(self, peer: Peer) -> None:
        """A connection is over."""
        self._expiries.pop(peer, None)
        user = self._inside.pop(peer, None)
        if user:
            left = self._per_user[user] - 1
            if left:
                self._per_user[user] = left
            else:
                del self._per_user[user]

    def _enter(self, peer: Peer, identity: Identity, then: Then, how: str) -> None:
        user = identity.user
        if user:
            most, have = self._policy.allowed.get(user, self._policy.per_user), self._per_user.get(user, 0)
            if peer not in self._inside:
                if 0 <= most <= have:
                    self._report("login.too_many", remote=peer.remote, user=user, allowed=most)
                    then(None)
                    return
                self._per_user[user] = have + 1
        self._inside.setdefault(peer, user)
        self._report("login.accepted", remote=peer.remote, user=user, how=how)
        then(identity)

    # -- Gate ----------------------------------------------------------------------------------------------------------

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        """See Gate."""
        policy = self._policy
        if policy.users is None:
            return (ANONYMOUS, PLAIN)
        offered = [*SCRAMS, PLAIN]
        if peer.subject and policy.rules:
            offered.insert(0, EXTERNAL)
        if policy.tokens is not None:
            offered += (OAUTHBEARER, XOAUTH2)
        if policy.anonymous is not None:
            offered.append(ANONYMOUS)
        return tuple(offered)

    def anonymous(self, peer: Peer) -> Identity | None:
        """See Gate."""
        found: list[Identity | None] = []
        roles = self._policy.anonymous
        if roles is None:
            self._refuse(peer, "", "no credentials", found.append)
            return None
        self._enter(peer, Identity("", roles), found.append, "anonymous")
        return found[0]

    def external(self, peer: Peer, name: str) -> Identity | None:
        """See Gate."""
        user = user_of(self._policy.rules, peer.subject) if peer.subject else None
        stored = None if user is None else (self._policy.users or {}).get(user)
        if user is None or stored is None or name not in ("", user):
            shown = ",".join(f"{key}={value}" for key, value in peer.subject)
            reason = "no rule for the certificate" if user is None else "the certificate is of another user, or of none"
            self._report("login.refused", remote=peer.remote, user=name or user or "", reason=reason, subject=shown)
            return None
        found: list[Identity | None] = []
        self._enter(peer, Identity(user, stored.roles), found.append, "certificate")
        return found[0]

    def login(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        """See Gate."""
        policy = self._policy
        if policy.users is None:
            then(self.anonymous(peer))
        elif not name and not password:
            certified = peer.subject and policy.rules
            then(self.external(peer, "") if certified else self.anonymous(peer))
        elif policy.tokens is not None and looks_like_token(password):
            self.bearer(peer, name, password, then)
        elif not name or not password:
            self._refuse(peer, name, "no password" if name else "no name", then)
        else:
            self._in_turn(peer, name, then, lambda: self._check(peer, name, password, then))

    def named(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        """See Gate."""
        if self._policy.users is None:
            self._refuse(peer, name, "there is no users file", then)
        else:
            self.login(peer, name or "\0", password, then)

    def bearer(self, peer: Peer, name: str, token: bytes, then: Then) -> None:
        """See Gate."""
        if self._policy.tokens is None:
            self._refuse(peer, name, "tokens are not taken here", then)
        else:
            self._in_turn(peer, name, then, lambda: self._check_token(peer, name, token, then, again=True))

    def _check_token(self, peer: Peer, name: str, token: bytes, then: Then, *, again: bool) -> None:
        policy = self._policy
        tokens = policy.tokens
        if tokens is None or self._tokens_waiting >= HASHES_WAITING_MAX:
            self._report("login.refused", remote=peer.remote, user=name, reason="too many logins at once")
            then(None)
            return
        self._tokens_waiting += 1

        def checked(found: Bearer | BadToken) -> None:
            self._tokens_waiting -= 1
            if isinstance(found, UnknownKey) and again and policy.renew is not None:
                policy.renew(lambda: self._check_token(peer, name, token, then, again=False))
            elif isinstance(found, BadToken):
                self._refuse(peer, name, f"token: {found}", then)
            elif name not in ("", found.user):
                self._refuse(peer, name, "the token is of another user", then)
            else:
                self._throttle.succeeded(peer.origin)
                self._expiries[peer] = found.expires
                self._enter(peer, Identity(found.user, found.roles, lasting=True), then, "token")

        self._runner.run(lambda: _checked(tokens, token), checked)

    def _in_turn(self, peer: Peer, name: str, then: Then, attempt: Callable[[], None]) -> None:
        wait = self._throttle.reserve(peer.origin)
        if wait is None:
            self._report("login.refused", remote=peer.remote, user=name, reason="too many failed logins")
            then(None)
        elif wait:
            self._runner.later(wait, attempt)
        else:
            attempt()

    def _check(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        stored = (self._policy.users or {}).get(name)
        hash = stored.password if stored is not None else ""
        key = hmac.digest(self._secret, name.encode("utf-8", "replace") + b"\0" + password, "sha256")

        def checked(right: bool) -> None:
            if right and hash:
                self._remember(key, hash)
                self._let_in(peer, name, hash, then)
            else:
                self._refuse(peer, name, "wrong password" if hash else "no such user, or none with a password", then)

        if hash and self._remembered.get(key) == hash:
            self._let_in(peer, name, hash, then)
        elif key in self._checking:
            self._checking[key].append(checked)
        elif len(self._checking) >= HASHES_WAITING_MAX:
            self._report("login.refused", remote=peer.remote, user=name, reason="too many logins at once")
            then(None)
        else:
            self._checking[key] = [checked]
            self._runner.run(lambda: passwords.fits(password, hash or passwords.DECOY), lambda r: self._tell(key, r))

    def _tell(self, key: bytes, right: bool) -> None:
        for checked in self._checking.pop(key):
            checked(right)

    def _remember(self, key: bytes, hash: str) -> None:
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = hash

    def _let_in(self, peer: Peer, name: str, hash: str | None, then: Then) -> None:
        """The password, or the proof, was right; unless the user changed while that was found out."""
        stored = self._present(name, hash)
        if stored is None:
            self._refuse(peer, name, "the user was changed meanwhile", then)
            return
        self._throttle.succeeded(peer.origin)
        self._enter(peer, Identity(name, stored.roles), then, "password" if hash else "scram")

    def _present(self, name: str, hash: str | None) -> StoredUser | None:
        stored = (self._policy.users or {}).get(name)
        return stored if stored is not None and hash in (None, stored.password) else None

    def _refuse(self, peer: Peer, name: str, reason: str, then: Then) -> None:
        """Say no, after a while."""
        self._report("login.refused", remote=peer.remote, user=name, reason=reason)
        wait = self._throttle.failed(peer.origin)
        if wait:
            self._runner.later(wait, lambda: then(None))
        else:
            then(None)

    # -- SCRAM ---------------------------------------------------------------------------------------------------------

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        """See Gate."""
        stored = (self._policy.users or {}).get(name)
        keys = None if stored is None else stored.scram.get(mechanism)
        return keys if keys is not None else passwords.decoy_keys(mechanism, name, self._secret)

    def scram_done(self, peer: Peer, name: str, right: bool, then: Then) -> None:
        """See Gate."""

        def attempt() -> None:
            if right:
                self._let_in(peer, name, None, then)
            else:
                self._refuse(peer, name, "a SCRAM proof that does not fit", then)

        self._in_turn(peer, name, then, attempt)


def _checked(tokens: Tokens, token: bytes) -> Bearer | BadToken:
    try:
        return tokens.check(token)
    except BadToken as bad:
        return bad
