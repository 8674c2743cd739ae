"""The gate: checks logins, without ever blocking the event loop.

    no users file                every client is anonymous, whatever it sends (the daemon ensures that only this machine
                                 can connect, or that `anonymous = true`)
    a name and a password        argon2id outside the event loop (`password_checks`)
    a token                      its issuer names the user and the roles, until it expires (`tokens`); it is sent by a
                                 mechanism of its own, or as a password
    neither                      the user of the client's certificate, or anonymous, if either is allowed
    a name without a password    refused

A login takes as long for an unknown user as for a known one.  Failed logins of an origin slow it (`throttle`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.access import Identity
from broker.engine.model.report import Report
from broker.security import passwords
from broker.security.certificates import Rule, user_of
from broker.security.logged_in import LoggedIn, LoggedInPeers
from broker.security.password_checks import HASHES_WAITING_MAX, PasswordChecks, Runner
from broker.security.throttle import Throttle
from broker.security.tokens import BadToken, Bearer, KeySet, Tokens, UnknownKey, looks_like_token
from broker.security.users_file import StoredUser, Users
from broker.sessions.login import LoginRestriction, Peer, ScramKeys, Then
from broker.sessions.sasl import ANONYMOUS, EXTERNAL, OAUTHBEARER, PLAIN, SCRAMS, XOAUTH2

#: How a client logged in, for the log.
CERTIFICATE: Final = "certificate"

_FAULT: Final = "a fault of the broker"


@dataclass(frozen=True, slots=True)
class Policy:
    """Which clients may log in.

    `users`: None if there is no users file: every client is anonymous.  `anonymous`: the roles of clients without
    credentials; None: refused.  `rules`: of client certificates.  `per_user`: the most connections of one user, -1: no
    limit; `allowed`: exceptions to it, by user.
    `tokens`: None if tokens are not accepted; `renew` fetches newer keys for them, if it can, and then calls back.
    """

    users: Users | None = None
    anonymous: frozenset[str] | None = None
    rules: Sequence[Rule] = ()
    per_user: int = -1
    allowed: Mapping[str, int] = field(default_factory=dict)
    tokens: Tokens | None = None
    renew: Callable[[Callable[[], None]], None] | None = None


class UserGate:
    """Logs clients in as the users of a policy; the Gate of sessions."""

    def __init__(self, policy: Policy, *, runner: Runner, throttle: Throttle, report: Report, secret: bytes) -> None:
        self._use(policy)
        self._runner = runner
        self._throttle = throttle
        self._report = report
        self._secret = secret
        self._passwords = PasswordChecks(runner, secret, self._fail)
        self._asking: set[Peer] = set()  # connected peers whose login is or was deferred
        self._peers = LoggedInPeers()
        self._restrictions: dict[Peer, LoginRestriction] = {}  # of peers at acceptors that restrict logins
        self._tokens_waiting = 0
        self._keys: KeySet | None = None  # at the last call of `any_withdrawn`
        #: Counts changes of the policy: results found under an earlier one are checked again.
        self.version = 0

    def change(self, policy: Policy) -> None:
        """Replace the policy; a connection stays open if its login would still succeed (`gone`)."""
        self._use(policy)
        self._passwords.forget()
        self.version += 1

    def _use(self, policy: Policy) -> None:
        self._policy = policy
        self._anonymous = None if policy.anonymous is None else Identity("", policy.anonymous)

    def restrict(self, peer: Peer, restriction: LoginRestriction) -> None:
        self._restrictions[peer] = restriction

    def _admits(self, peer: Peer, user: str, roles: frozenset[str]) -> bool:
        restriction = self._restrictions.get(peer)
        return restriction is None or restriction.admits(user, roles)

    # -- logged-in peers ---------------------------------------------------------------------------------------------

    def users(self) -> dict[str, frozenset[str]] | None:
        """Return the users of the users file and their roles; None: there is no file."""
        users = self._policy.users
        return None if users is None else {name: stored.roles for name, stored in users.items()}

    def roles_of(self, user: str) -> frozenset[str] | None:
        """Return the roles that a user has now; None: there is no such user."""
        if not user:
            return self._policy.anonymous
        stored = (self._policy.users or {}).get(user)
        return None if stored is None else stored.roles

    def gone(self, peer: Peer) -> bool:
        """Whether a logged-in peer could no longer log in.

        If so, its user, its certificate's rule, its token's key, or the role that its acceptor requires was removed.
        """
        inside = self._peers.get(peer)
        if inside is None:
            return False
        policy = self._policy
        if inside.bearer is not None:  # a token's roles do not change
            return policy.tokens is None or not policy.tokens.believes(inside.bearer)
        if inside.how == CERTIFICATE and user_of(policy.rules, peer.subject) != inside.user:
            return True
        roles = self.roles_of(inside.user)
        return roles is None or not self._admits(peer, inside.user, roles)

    def any_withdrawn(self) -> bool:
        """Whether the keys of tokens have changed since the last call, so that a peer may be `gone`."""
        tokens = self._policy.tokens
        present = tokens.present if tokens is not None else None
        changed, self._keys = present is not self._keys, present
        return changed

    def expired(self, peer: Peer, now: int) -> bool:
        """Whether the token of a peer has expired; `now` in ms since the epoch."""
        inside = self._peers.get(peer)
        return inside is not None and inside.bearer is not None and inside.bearer.expires <= now

    def any_expired(self, now: int) -> bool:
        """Whether the token of any peer has expired."""
        return self._peers.any_expired(now)

    def left(self, peer: Peer) -> None:
        """Forget a peer whose connection has ended."""
        self._asking.discard(peer)
        self._restrictions.pop(peer, None)
        self._peers.remove(peer)

    def _enter_if_there(
        self, peer: Peer, identity: Identity, then: Then, how: str, bearer: Bearer | None = None
    ) -> None:
        """Log a peer in as `_enter` does, unless its connection has ended meanwhile."""
        if peer in self._asking:
            self._enter(peer, identity, then, how, bearer)
        else:
            then(None)

    def _enter(self, peer: Peer, identity: Identity, then: Then, how: str, bearer: Bearer | None = None) -> None:
        """Log a peer in, maybe again and as another user (HTTP)."""
        user = identity.user
        if not self._admits(peer, user, identity.roles):
            self._refuse(peer, user, "may not log in at this acceptor", then)
            return
        user_max = self._policy.allowed.get(user, self._policy.per_user)
        if not self._peers.add(peer, LoggedIn(user, how, bearer), user_max):
            self._report("login.too_many", remote=peer.remote, user=user, allowed=user_max)
            then(None)
            return
        self._report("login.accepted", remote=peer.remote, user=user, how=how)
        then(identity)

    # -- Gate ----------------------------------------------------------------------------------------------------------

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
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
        found: list[Identity | None] = []
        if self._anonymous is None:
            self._refuse(peer, "", "no credentials", found.append)
            return None
        self._enter(peer, self._anonymous, found.append, "anonymous")
        return found[0] if found else None  # a refusal may be reported later

    def external(self, peer: Peer, name: str) -> Identity | None:
        user = user_of(self._policy.rules, peer.subject) if peer.subject else None
        stored = None if user is None else (self._policy.users or {}).get(user)
        if user is None or stored is None or name not in ("", user):
            shown = ",".join(f"{key}={value}" for key, value in peer.subject)
            of_another = "the certificate belongs to another user, or to none"
            reason = "no rule for the certificate" if user is None else of_another
            self._report("login.refused", remote=peer.remote, user=name or user or "", reason=reason, subject=shown)
            return None
        found: list[Identity | None] = []
        self._enter(peer, Identity(user, stored.roles), found.append, CERTIFICATE)
        return found[0] if found else None

    def login(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
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
        if self._policy.users is None:
            self._refuse(peer, name, "there is no users file", then)
        else:
            self.login(peer, name or "\0", password, then)

    def bearer(self, peer: Peer, name: str, token: bytes, then: Then) -> None:
        if self._policy.tokens is None:
            self._refuse(peer, name, "tokens are not accepted here", then)
        else:
            self._in_turn(peer, name, then, lambda: self._check_token(peer, name, token, then, again=True))

    def _check_token(self, peer: Peer, name: str, token: bytes, then: Then, *, again: bool) -> None:
        policy = self._policy
        tokens = policy.tokens
        if tokens is None or self._tokens_waiting >= HASHES_WAITING_MAX:
            self._refuse_unchecked(peer, name, "too many logins at once", then)
            return
        self._tokens_waiting += 1
        version = self.version

        def checked(found: Bearer | BaseException) -> None:
            self._tokens_waiting -= 1
            if version != self.version or (isinstance(found, Bearer) and not tokens.believes(found)):
                self._check_token(peer, name, token, then, again=again)
            elif isinstance(found, UnknownKey) and again and policy.renew is not None:
                policy.renew(lambda: self._check_token(peer, name, token, then, again=False))
            elif isinstance(found, BadToken):
                self._refuse(peer, name, f"token: {found}", then)
            elif isinstance(found, BaseException):
                self._fail(found)
                self._refuse_unchecked(peer, name, _FAULT, then)
            elif name not in ("", found.user):
                self._refuse(peer, name, "the token belongs to another user", then)
            else:
                self._throttle.succeeded(peer.origin)
                identity = Identity(found.user, found.roles, lasting=True)
                self._enter_if_there(peer, identity, then, "token", found)

        self._runner.run(lambda: tokens.check(token), checked)

    def _in_turn(self, peer: Peer, name: str, then: Then, attempt: Callable[[], None]) -> None:
        self._asking.add(peer)
        wait = self._throttle.reserve(peer.origin)
        if wait is None:
            self._refuse_unchecked(peer, name, "too many failed logins", then)
        elif wait:
            self._runner.later(wait, attempt)
        else:
            attempt()

    def _check(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        stored = (self._policy.users or {}).get(name)
        hash = stored.password if stored is not None else ""

        def checked(right: bool | None) -> None:
            if right is None:
                self._refuse_unchecked(peer, name, _FAULT, then)
            elif right:
                self._let_in(peer, name, lambda stored: stored.password == hash, then, "password")
            else:
                self._refuse(peer, name, "wrong password" if hash else "no such user, or none with a password", then)

        if not self._passwords.check(name, password, hash, checked):
            self._refuse_unchecked(peer, name, "too many logins at once", then)

    def _fail(self, fault: BaseException) -> None:
        """Report that a password or a token could not be checked, by a fault of the broker."""
        self._report("login.failed", error=f"{type(fault).__name__}: {fault}")

    def _refuse_unchecked(self, peer: Peer, name: str, reason: str, then: Then) -> None:
        """Refuse a login that was not checked.  It does not count as failed: the origin is not slowed."""
        self._report("login.refused", remote=peer.remote, user=name, reason=reason)
        then(None)

    def _let_in(self, peer: Peer, name: str, unchanged: Callable[[StoredUser], bool], then: Then, how: str) -> None:
        """Log in a user whose password or proof was right, if the user is still `unchanged`."""
        stored = (self._policy.users or {}).get(name)
        if stored is None or not unchanged(stored):
            self._refuse(peer, name, "the user was changed meanwhile", then)
            return
        self._throttle.succeeded(peer.origin)
        self._enter_if_there(peer, Identity(name, stored.roles), then, how)

    def _refuse(self, peer: Peer, name: str, reason: str, then: Then) -> None:
        """Refuse a login, after the origin's delay."""
        self._report("login.refused", remote=peer.remote, user=name, reason=reason)
        wait = self._throttle.failed(peer.origin)
        if wait:
            self._runner.later(wait, lambda: then(None))
        else:
            then(None)

    # -- SCRAM ---------------------------------------------------------------------------------------------------------

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        stored = (self._policy.users or {}).get(name)
        keys = None if stored is None else stored.scram.get(mechanism)
        return keys if keys is not None else passwords.decoy_keys(mechanism, name, self._secret)

    def scram_done(self, peer: Peer, mechanism: str, name: str, proven: ScramKeys | None, then: Then) -> None:

        def attempt() -> None:
            if proven is not None:
                self._let_in(peer, name, lambda stored: stored.scram.get(mechanism) == proven, then, "scram")
            else:
                self._refuse(peer, name, "wrong SCRAM proof", then)

        self._in_turn(peer, name, then, attempt)
