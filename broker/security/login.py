"""The gate: checks logins, without ever blocking the event loop.

    no users file                every client is anonymous, whatever it sends (the daemon ensures that only this machine
                                 can connect, or that `anonymous = true`)
    a name and a password        argon2id outside the event loop (`password_checks`)
    a token                      its issuer names the user and the roles, until it expires (`tokens`); it is sent by a
                                 mechanism of its own, or as a password
    neither                      the user of the client's certificate, or anonymous, if either is allowed
    a name without a password    refused

A login takes as long for an unknown user as for a known one.  Failed logins slow those
that follow (`throttle`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.model.access import Identity
from broker.engine.model.report import Report
from broker.security.decoys import Decoys
from broker.security.logged_in import CERTIFICATE, LoggedIn, LoggedInPeers
from broker.security.login_policy import Policy
from broker.security.password_checks import HASHES_WAITING_MAX, PasswordChecks, Runner, Verdict
from broker.security.throttle import Throttle
from broker.security.tokens import BadToken, Bearer, UnknownKey, looks_like_token
from broker.security.upgrades import KeyUpgrades
from broker.security.users_file import StoredUser
from broker.sessions.login import Peer, ScramKeys, Then

_FAULT: Final = "a fault of the broker"
_TOO_MANY: Final = "too many logins at once"


class UserGate:
    """Logs clients in as the users of a policy; the Gate of sessions.

    `peers` are those that are in.  `secret`: the key of remembered passwords; `upgrades`: None without a users file.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        runner: Runner,
        throttle: Throttle,
        report: Report,
        secret: bytes,
        upgrades: KeyUpgrades | None = None,
    ) -> None:
        self.peers = LoggedInPeers(policy)
        self._runner = runner
        self._throttle = throttle
        self._report = report
        self._decoys = Decoys(policy)
        self._upgrades = upgrades
        self._passwords = PasswordChecks(runner, secret, self._fail)
        self._asking: set[Peer] = set()  # connected peers whose login is or was deferred
        self._tokens_waiting = 0
        #: Counts changes of the policy: results found under an earlier one are checked again.
        self.version = 0

    def change(self, policy: Policy) -> None:
        """Replace the policy; a connection stays open if its login would still succeed (`LoggedInPeers.gone`)."""
        self.peers.policy = policy
        self._passwords.forget()
        self._decoys = Decoys(policy)
        self.version += 1

    def users(self) -> dict[str, frozenset[str]] | None:
        users = self.peers.policy.users
        return None if users is None else {name: stored.roles for name, stored in users.items()}

    def left(self, peer: Peer) -> None:
        self._asking.discard(peer)
        self.peers.left(peer)

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
        if not self.peers.admits(peer, user, identity.roles):
            self._refuse(peer, user, "may not log in at this acceptor", then)
            return
        if not self.peers.add(peer, LoggedIn(user, how, bearer)):
            self._report("login.too_many", remote=peer.remote, user=user, allowed=self.peers.user_max(user))
            then(None)
            return
        self._report("login.accepted", remote=peer.remote, user=user, how=how)
        then(identity)

    # -- Gate ----------------------------------------------------------------------------------------------------------

    @property
    def takes_tokens(self) -> bool:
        return self.peers.policy.tokens is not None

    def mechanisms(self, peer: Peer) -> tuple[str, ...]:
        return self.peers.policy.mechanisms(peer)

    def anonymous(self, peer: Peer) -> Identity | None:
        found: list[Identity | None] = []
        roles = self.peers.policy.anonymous
        if roles is None:
            self._refuse(peer, "", "no credentials", found.append)
            return None
        self._enter(peer, Identity("", roles), found.append, "anonymous")
        return found[0] if found else None  # a refusal may be reported later

    def external(self, peer: Peer, name: str) -> Identity | None:
        policy = self.peers.policy
        user = policy.user_of(peer)
        stored = None if user is None else policy.stored(user)
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
        policy = self.peers.policy
        if policy.users is None:
            then(self.anonymous(peer))
        elif not name and not password:
            certified = peer.subject and policy.rules
            then(self.external(peer, "") if certified else self.anonymous(peer))
        elif policy.tokens is not None and looks_like_token(password):
            self.bearer(peer, name, password, then)
        elif not name or not password:
            self._refuse(peer, name, "no password" if name else "no name", then, guessed=False)
        else:
            self._in_turn(peer, name, then, lambda: self._check(peer, name, password, then))

    def named(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        if self.peers.policy.users is None:
            self._refuse(peer, name, "there is no users file", then, guessed=False)
        else:
            self.login(peer, name or "\0", password, then)

    def bearer(self, peer: Peer, name: str, token: bytes, then: Then) -> None:
        self._asking.add(peer)
        self._check_token(peer, name, token, then, again=True)  # not in turn: nobody guesses a signature

    def _check_token(self, peer: Peer, name: str, token: bytes, then: Then, *, again: bool) -> None:
        policy = self.peers.policy
        tokens = policy.tokens
        if tokens is None:
            self._refuse(peer, name, "tokens are not accepted here", then, guessed=False)
            return
        if self._tokens_waiting >= HASHES_WAITING_MAX:
            self.refuse(peer, name, _TOO_MANY, then)
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
                self.refuse(peer, name, _FAULT, then)
            elif name not in ("", found.user):
                self._refuse(peer, name, "the token belongs to another user", then)
            else:
                identity = Identity(found.user, found.roles, lasting=True)
                self._enter_if_there(peer, identity, then, "token", found)

        self._runner.run(lambda: tokens.check(token), checked)

    def _in_turn(self, peer: Peer, name: str, then: Then, attempt: Callable[[], None]) -> None:
        self._asking.add(peer)
        wait = self._throttle.reserve(peer.origin, name)
        if wait is None:
            self.refuse(peer, name, "too many failed logins", then)
        elif wait:
            self._runner.later(wait, attempt)
        else:
            attempt()

    def _check(self, peer: Peer, name: str, password: bytes, then: Then) -> None:
        stored = self.peers.policy.stored(name)
        hash = stored.password if stored is not None else ""

        def checked(verdict: Verdict) -> None:
            if verdict is Verdict.FAULT:
                self.refuse(peer, name, _FAULT, then)
            elif verdict is Verdict.TOO_MANY:
                self.refuse(peer, name, _TOO_MANY, then)
            elif verdict is Verdict.RIGHT:
                self._let_in(peer, name, lambda stored: stored.password == hash, then, "password")
                if self._upgrades is not None and stored is not None:
                    self._upgrades.ask(name, stored, password)
            else:
                self._refuse(peer, name, "wrong password" if hash else "no such user, or none with a password", then)

        self._passwords.check(peer.origin, name, password, hash, checked)

    def _fail(self, fault: BaseException) -> None:
        """Report that a password or a token could not be checked, by a fault of the broker."""
        self._report("login.failed", error=f"{type(fault).__name__}: {fault}")

    def refuse(self, peer: Peer, name: str, reason: str, then: Then) -> None:
        self._report("login.refused", remote=peer.remote, user=name, reason=reason)
        then(None)

    def _let_in(self, peer: Peer, name: str, unchanged: Callable[[StoredUser], bool], then: Then, how: str) -> None:
        """Log in a user whose password or proof was right, if the user is still `unchanged`."""
        stored = self.peers.policy.stored(name)
        if stored is None or not unchanged(stored):
            self._refuse(peer, name, "the user was changed meanwhile", then)
            return
        self._throttle.succeeded(peer.origin, name)
        self._enter_if_there(peer, Identity(name, stored.roles), then, how)

    def _refuse(self, peer: Peer, name: str, reason: str, then: Then, *, guessed: bool = True) -> None:
        """Refuse a login, after the origin's delay; `guessed`: it may have been a guess of the user's password."""
        self._report("login.refused", remote=peer.remote, user=name, reason=reason)
        wait = self._throttle.failed(peer.origin, name if guessed else "")
        if wait:
            self._runner.later(wait, lambda: then(None))
        else:
            then(None)

    # -- SCRAM ---------------------------------------------------------------------------------------------------------

    def scram_keys(self, mechanism: str, name: str) -> ScramKeys:
        stored = self.peers.policy.stored(name)
        keys = None if stored is None else stored.scram.get(mechanism)
        return keys if keys is not None else self._decoys.keys(mechanism, name)

    def scram_done(self, peer: Peer, mechanism: str, name: str, proven: ScramKeys | None, then: Then) -> None:

        def unchanged(stored: StoredUser) -> bool:
            upgraded = self._upgrades is not None and self._upgrades.has_replaced(proven, stored)
            return upgraded or stored.scram.get(mechanism) == proven

        def attempt() -> None:
            if proven is not None:
                self._let_in(peer, name, unchanged, then, "scram")
            else:
                self._refuse(peer, name, "wrong SCRAM proof", then)

        self._in_turn(peer, name, then, attempt)
