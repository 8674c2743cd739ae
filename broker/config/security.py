"""The sections [security], [[certificate-users]] and [[security-settings]]: who may log in, and what each may do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from broker.config.section import Section
from broker.config.units import Milliseconds

#: Artemis's permissions that Bartleby does not take, each with the reason.
REFUSED_PERMISSIONS: Final[dict[str, str]] = {
    "deleteAddress": "no client can delete an address, so there is nobody to permit it to: remove it",
    "view": "looking at something by the management calls needs manage: give that instead",
    "edit": "changing something by the management calls needs manage: give that instead",
}

Roles = Annotated[tuple[str, ...], Field(strict=False)]


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)


class JwtSection(Section):
    """Tokens (JWT, OpenID Connect) that somebody else issues: taken once there is an issuer."""

    issuer: str = ""
    """Who issues the tokens: their claim iss; empty: none are taken."""
    audience: str = ""
    """For whom they are: what their claim aud has to name, so that a token for something else opens nothing here."""
    keys_file: Annotated[Path | None, Field(strict=False)] = None
    """The issuer's public keys, a JWKS in JSON, read again when it changes; only its owner may write it."""
    keys_url: str = ""
    """Or where they are fetched: the jwks_uri of OpenID Connect, https (http on this machine)."""
    ca_file: Annotated[Path | None, Field(strict=False)] = None
    """Authorities of that URL's certificate, in PEM; unset: those that the system knows."""
    keys_refresh: Annotated[Milliseconds, Field(ge=10_000)] = 300_000
    """How often the keys are fetched; for a key that is not known at once, though not twice in 30 s."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(strict=False, min_length=1)] = _ALGORITHMS
    """Algorithms of signatures that count; none with a shared secret is among them."""
    leeway: Annotated[Milliseconds, Field(le=300_000)] = 30_000
    """How far the clocks of issuer and broker may be apart."""
    user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim with the user's name."""
    roles_claim: Annotated[str, Field(min_length=1)] = "roles"
    """The claim with the roles, a list or a text with blanks, as scope is; realm_access.roles is one within another."""


class SecuritySection(Section):
    """Who may come in."""

    anonymous: bool = False
    """true lets in who has no credentials, with anonymous-roles; on loopback that is so until there is a users file."""
    anonymous_roles: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Roles of who has no credentials; unset: amq as long as there is no users file, needed beside one."""
    users_file: Annotated[Path | None, Field(strict=False)] = None
    """The file that `bartleby user` writes; unset: users.toml in the data directory.  Only its owner may write it."""
    login_failure_delay: Annotated[Milliseconds, Field(le=5_000)] = 250
    """Wait of an address after a failed login, doubled by each further one up to 5 s: guessing gets slow; 0: none."""
    jwt: JwtSection = JwtSection()
    audit_file: Annotated[Path | None, Field(strict=False)] = None
    """Where logins, denials and what operators do are written as JSON lines; unset: nowhere but the log."""


class CertificateUser(Section):
    """Which user a client certificate stands for; the first entry that fits decides."""

    subject: Annotated[str, Field(min_length=1)]
    """Its subject, the most specific attribute first, as "CN=orders,OU=services,O=Example"; * is any text."""
    user: Annotated[str, Field(min_length=1)]
    """The user's name in the users file; %cn in it is the certificate's common name."""


class ResourceLimit(Section):
    """What one user may have at once, instead of what [limits] says for all."""

    match: Annotated[str, Field(min_length=1)]
    """The user's name, as it is: no characters stand for others."""
    max_connections: Annotated[int | None, Field(ge=-1)] = None
    """Connections, over all acceptors; -1: any number; unset: limits.connections-per-user-max."""
    max_queues: Annotated[int | None, Field(ge=-1)] = None
    """Queues and subscriptions made by sending or consuming; -1: any number; unset: limits.queues-per-user-max."""


class SecuritySetting(Section):
    """What roles may do on addresses: the entry with the most specific match decides alone; none: nothing."""

    match: Annotated[str, Field(min_length=1)]
    """Addresses, as in address-settings, or the full name of a queue; %u is the user's name, %c the client id."""
    send: Roles = ()
    """Roles that may send."""
    consume: Roles = ()
    """Roles that may consume."""
    browse: Roles = ()
    """Roles that may look at messages without consuming them."""
    createAddress: Roles = ()  # as ActiveMQ Artemis writes them: so do the journals and tools of its users
    """Roles for which addresses are made, also by sending or consuming."""
    createDurableQueue: Roles = ()
    """Roles for which durable queues and subscriptions are made, also by sending or consuming."""
    deleteDurableQueue: Roles = ()
    """Roles that may delete durable queues and subscriptions."""
    createNonDurableQueue: Roles = ()
    """Roles for which temporary queues and non-durable subscriptions are made."""
    deleteNonDurableQueue: Roles = ()
    """Roles that may delete non-durable queues and subscriptions."""
    manage: Roles = ()
    """Roles that may look at and change queues by HTTP and the command line; activemq.management is the broker."""
