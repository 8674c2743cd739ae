"""The security of a running broker: logins, permissions and the acceptors' certificates, and their reloading.

Everything is read and checked before anything changes: if a file is missing, empty where it must not be, readable for
others or invalid, the old state stays in force, and that is logged (`security.refused`).  A file that disappears never
loosens what was in force.
"""

from __future__ import annotations

import secrets
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from broker.config import Config
from broker.config.acceptors import TlsSection
from broker.config.security import JwtSection
from broker.engine import Engine
from broker.engine.model.notes import noting
from broker.engine.model.permissions import PermissionTable
from broker.engine.model.report import Report
from broker.net.fetch import fetch
from broker.net.runner import LoopRunner
from broker.net.tls import TlsSettings, TlsUnusable, make_context
from broker.security.decoys import stored_secret
from broker.security.keys import FetchedKeys
from broker.security.login import UserGate
from broker.security.login_policy import Policy
from broker.security.passwords import SALT_BYTES
from broker.security.policy import SHIPPED_ROLE, allot, load_policy, permission_table, users_path
from broker.security.throttle import Throttle
from broker.security.tokens import KEYS_BYTES_MAX, KeySet, TokenRules, Tokens
from broker.security.upgrades import KeyUpgrades
from broker.security.users_file import (
    Stamp,
    StoredUser,
    UnusableFile,
    read_secret,
    stamp_of,
    with_password,
    write_users,
)
from broker.sessions.sasl import SCRAMS

#: The first user, who may do everything, and the random bytes in the password.
ADMIN: Final = "admin"
PASSWORD_BYTES: Final = 18

#: Ms between checks of the files for changes: certificates are renewed days before they expire.
LOOK_PERIOD_MS: Final = 5_000

#: Bytes of a key file.
KEY_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Prepared:
    """The security state of a configuration and its files, read and checked.

    `certificate_ends`: when the first certificate of an acceptor's file expires, in ms since the epoch; 0: unknown.
    """

    config: Config
    policy: Policy
    table: PermissionTable
    contexts: dict[str, ssl.SSLContext]
    certificate_ends: dict[str, int]
    keys: KeySet | None
    stamp: Stamp


class BrokerSecurity:
    """The security of one broker.  `now` is the monotonic time in ms.  Raises UnusableFile, OSError."""

    def __init__(
        self, config: Config, engine: Engine, runner: LoopRunner, *, report: Report, now: Callable[[], int]
    ) -> None:
        self.first_password = _first_password(config)
        self._engine = engine
        self._report = report
        self._now = now
        self._looked_at = now()
        self._reading = False  # a thread reads changed files
        self._reported = ""  # why the files cannot be used, to report it once
        self._runner = runner
        self._fetched: FetchedKeys | None = None
        self._fetched_by: JwtSection | None = None
        self._prepared = prepare(config, known=False)
        self._throttle = Throttle(now, config.security.login_failure_delay)
        self.gate = UserGate(
            self._with_tokens(self._prepared),
            runner=runner,
            throttle=self._throttle,
            report=noting(report, engine.notes),
            secret=secrets.token_bytes(32),
            upgrades=KeyUpgrades(lambda: users_path(self._prepared.config), runner, report),
        )
        engine.security.roles_of = self.gate.peers.roles_of
        engine.security.change(self._prepared.table)

    def context(self, acceptor: str) -> Callable[[], ssl.SSLContext] | None:
        """A function that returns an acceptor's current TLS context; None if it does not use TLS."""
        return (lambda: self._prepared.contexts[acceptor]) if acceptor in self._prepared.contexts else None

    def certificate_end(self, acceptor: str) -> int:
        """When an acceptor's certificate expires, in ms since the epoch; 0 without one."""
        return self._prepared.certificate_ends.get(acceptor, 0)

    def prepare(self, config: Config) -> Prepared:
        """Read and check another configuration.  Raises UnusableFile, InvalidMatch."""
        return prepare(config, known=self._prepared.policy.users is not None)

    def apply(self, prepared: Prepared) -> None:
        """Apply what was prepared, within a tick; removed permissions end what was created with them."""
        self._prepared = prepared
        self._throttle.delay = prepared.config.security.login_failure_delay
        self.gate.change(self._with_tokens(prepared))
        allot(prepared.config, self._engine.quotas)
        self._engine.secure(prepared.table, lambda ended: self._report("security.changed", ended=ended))

    def look(self, changed: Callable[[], None]) -> None:
        """Read files that have changed since they were read, on a thread: 20,000 users take seconds.

        `changed` is called once they are applied, within the same tick.  Unusable files change nothing, and are tried
        again each time.
        """
        if self._now() - self._looked_at < LOOK_PERIOD_MS or self._reading:
            return
        self._looked_at = self._now()
        if self._fetched is not None:
            self._fetched.look()
        config = self._prepared.config
        if _stamp(config) == self._prepared.stamp:
            self._reported = ""
            return
        self._reading = True
        self._runner.run(partial(self.prepare, config), partial(self._read, self._prepared, changed))

    def _read(self, before: Prepared, changed: Callable[[], None], found: Prepared | BaseException) -> None:
        """Apply what was read, unless a reload has come first; `before`: what was in force when reading began."""
        self._reading = False
        if isinstance(found, UnusableFile | OSError):
            if str(found) != self._reported:
                self._reported = str(found)
                self._report("security.refused", error=self._reported)
            return
        if isinstance(found, BaseException):
            raise found
        self._reported = ""
        if self._prepared is before:
            self.apply(found)
            changed()

    def _with_tokens(self, prepared: Prepared) -> Policy:
        """The policy with the rules for tokens; fetched keys stay if their URL does."""
        section = prepared.config.security.jwt
        if not section.issuer or section.keys_url != (self._fetched_by or section).keys_url:
            self._fetched = None
        if not section.issuer:
            return prepared.policy
        rules = TokenRules(
            section.issuer,
            section.audience,
            section.algorithms,
            section.leeway,
            section.user_claim,
            section.roles_claim,
        )
        if prepared.keys is not None:
            return replace(prepared.policy, tokens=Tokens(rules, lambda: prepared.keys, lambda: self._engine.now))
        if self._fetched is None or self._fetched_by != section:
            fetched = FetchedKeys(
                partial(fetch, section.keys_url, section.ca_file, bytes_max=KEYS_BYTES_MAX, now=self._now),
                self._runner,
                report=self._report,
                now=self._now,
                refresh=section.keys_refresh,
            )
            fetched.present = self._fetched.present if self._fetched is not None else None
            fetched.look()
            self._fetched, self._fetched_by = fetched, section
        keys = self._fetched
        tokens = Tokens(rules, lambda: keys.present, lambda: self._engine.now)
        return replace(prepared.policy, tokens=tokens, renew=keys.renew)


def prepare(config: Config, *, known: bool) -> Prepared:
    """Read and check everything; `known`: there was a users file before, so there must be one.

    Raises UnusableFile, InvalidMatch.
    """
    stamp = _stamp(config)
    policy = load_policy(config)
    if policy.users is not None:
        policy = replace(policy, secret=stored_secret(users_path(config).parent, config.broker.data_directory))
    if known and policy.users is None:
        raise UnusableFile(f"{users_path(config)}: the users file is missing: put it back, or restart the broker")
    sections = {name: each.tls for name, each in config.enabled_acceptors.items() if each.tls}
    contexts = {name: _context(name, tls) for name, tls in sections.items()}
    ends = {name: _certificate_end(tls) for name, tls in sections.items()}
    keys = read_keys(config.security.jwt.keys_file) if config.security.jwt.issuer else None
    return Prepared(config, policy, permission_table(config), contexts, ends, keys, stamp)


def read_keys(path: Path | None) -> KeySet | None:
    """The key set in a file, if there is one.  Raises UnusableFile."""
    if path is None:
        return None
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnusableFile(f"{path}: other users can change the key set: chmod 644 {path}")
        with path.open("rb") as file:
            return KeySet(file.read(KEYS_BYTES_MAX + 1))
    except OSError as error:
        raise UnusableFile(
            f"{path}: the key set cannot be read: {error.strerror}: let the broker's user read it"
        ) from None
    except ValueError as error:
        raise UnusableFile(f"{path}: {error}") from None


def tls_settings(tls: TlsSection) -> TlsSettings:
    """The TLS settings of a section."""
    asked = tls.need_client_auth or tls.want_client_auth
    return TlsSettings(
        tls.certificate,
        tls.key,
        clients=tls.client_ca if asked else None,
        required=tls.need_client_auth,
        versions=tls.versions,
        ciphers=tls.ciphers,
        revoked=tls.crl if asked else None,
        hosts=tls.sni_hosts,
    )


def acceptor_context(tls: TlsSection) -> ssl.SSLContext:
    """The TLS context of a section, with its files read.  Raises UnusableFile."""
    read_secret(tls.key, "the key", KEY_BYTES_MAX)
    try:
        return make_context(tls_settings(tls))
    except TlsUnusable as error:
        raise UnusableFile(str(error)) from None


def lasting_context(name: str, tls: TlsSection | None) -> Callable[[], ssl.SSLContext] | None:
    """A function that returns an acceptor's TLS context, fixed to its present files; None if it does not use TLS.

    Raises UnusableFile.
    """
    if tls is None:
        return None
    context = _context(name, tls)
    return lambda: context


def _context(name: str, tls: TlsSection) -> ssl.SSLContext:
    try:
        return acceptor_context(tls)
    except UnusableFile as error:
        raise UnusableFile(f"acceptors.{name}.tls: {error}") from None


def _certificate_end(tls: TlsSection) -> int:
    from broker.security.validity import first_end  # imported here: it is large, and only needed with TLS

    return first_end(tls.certificate)


def _stamp(config: Config) -> Stamp:
    """A value that changes when one of the files does."""
    paths = [users_path(config)]
    if config.security.jwt.keys_file is not None:
        paths.append(config.security.jwt.keys_file)
    for acceptor in config.enabled_acceptors.values():
        if acceptor.tls:
            paths += tls_settings(acceptor.tls).files
    return stamp_of(paths)


def _first_password(config: Config) -> str:
    """Create the first user if other machines can connect and there are no users; return its password, else empty."""
    path = users_path(config)
    open_to_others = not all(acceptor.is_loopback for acceptor in config.messaging_acceptors.values())
    security = config.security
    chosen = security.anonymous or security.users_file is not None or security.jwt.issuer
    if chosen or not open_to_others or path.exists():
        return ""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    salts = {mechanism: secrets.token_bytes(SALT_BYTES) for mechanism in SCRAMS}
    user = with_password(StoredUser(frozenset({SHIPPED_ROLE})), password, salts=salts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_users(path, {ADMIN: user})
    return password
