"""The sections [security], [[certificate-users]] and [[security-settings]]: logins and permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from broker.config.section import Section
from broker.config.units import Milliseconds

#: Artemis's permissions that Bartleby does not accept, each with the reason.
REFUSED_PERMISSIONS: Final[dict[str, str]] = {
    "deleteAddress": "clients cannot delete addresses, so this permission has no effect: remove it",
    "view": "management calls that only read also need manage: give that instead",
    "edit": "management calls that change something need manage: give that instead",
}

Roles = Annotated[tuple[str, ...], Field(strict=False)]


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_ALGORITHMS: Final[tuple[Algorithm, ...]] = get_args(Algorithm)


class JwtSection(Section):
    """Tokens (JWT, OpenID Connect) of another service, accepted once an issuer is given."""

    issuer: str = ""
    """The issuer of the tokens, their claim iss; empty: no tokens are accepted."""
    audience: str = ""
    """What their claim aud must contain; tokens for other services are not valid."""
    keys_file: Annotated[Path | None, Field(strict=False)] = None
    """The issuer's public keys, a JWKS in JSON, read again when it changes; only its owner may write it."""
    keys_url: str = ""
    """Or the URL to fetch them from: the jwks_uri of OpenID Connect, https (http only on this machine)."""
    ca_file: Annotated[Path | None, Field(strict=False)] = None
    """Authorities of that URL's certificate, in PEM; unset: those of the system."""
    keys_refresh: Annotated[Milliseconds, Field(ge=10_000)] = 300_000
    """How often to fetch the keys; for an unknown key also at once, but not twice in 30 s."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(strict=False, min_length=1)] = _ALGORITHMS
    """Accepted signature algorithms; those with a shared secret are never accepted."""
    leeway: Annotated[Milliseconds, Field(le=300_000)] = 30_000
    """How far apart the clocks of issuer and broker may be."""
    user_claim: Annotated[str, Field(min_length=1)] = "sub"
    """The claim with the user's name."""
    roles_claim: Annotated[str, Field(min_length=1)] = "roles"
    """The claim with the roles, a list or a space-separated text like scope; realm_access.roles is a nested claim."""


class SecuritySection(Section):
    """Which clients may log in."""

    anonymous: bool = False
    """true: accept clients without credentials, with anonymous-roles; always so on loopback without a users file."""
    anonymous_roles: Annotated[tuple[str, ...] | None, Field(strict=False)] = None
    """Roles of clients without credentials; unset: amq while there is no users file; required with one."""
    users_file: Annotated[Path | None, Field(strict=False)] = None
    """The file that `bartleby user` writes; unset: users.toml in the data directory.  Only its owner may write it."""
    login_failure_delay: Annotated[Milliseconds, Field(le=5_000)] = 250
    """How long an address waits after a failed login, doubled by each further one up to 5 s; 0: no wait."""
    jwt: JwtSection = JwtSection()
    audit_file: Annotated[Path | None, Field(strict=False)] = None
    """The audit log: logins, denials and operators' changes as JSON lines; unset: only the log has them."""


class CertificateUser(Section):
    """The user of a client certificate; the first entry that matches applies."""

    subject: Annotated[str, Field(min_length=1)]
    """The subject, most specific attribute first, as in "CN=orders,OU=services,O=Example"; * is any text."""
    user: Annotated[str, Field(min_length=1)]
    """The user's name in the users file; %cn in it is the certificate's common name."""


class ResourceLimit(Section):
    """Limits for one user, instead of the limits for all users."""

    match: Annotated[str, Field(min_length=1)]
    """The user's name, literally: there are no wildcards."""
    max_connections: Annotated[int | None, Field(ge=-1)] = None
    """Connections, over all acceptors; -1: any number; unset: limits.connections-per-user-max."""
    max_queues: Annotated[int | None, Field(ge=-1)] = None
    """Queues and subscriptions created for the user; -1: any number; unset: limits.queues-per-user-max."""


class SecuritySetting(Section):
    """What roles may do on addresses: the entry with the most specific match applies alone; without one, nothing."""

    match: Annotated[str, Field(min_length=1)]
    """Addresses, as in address-settings, or the full name of a queue; %u is the user's name, %c the client id."""
    send: Roles = ()
    """Roles that may send."""
    consume: Roles = ()
    """Roles that may consume."""
    browse: Roles = ()
    """Roles that may browse."""
    createAddress: Roles = ()  # spelled as in ActiveMQ Artemis
    """Roles that may create addresses, including automatically by sending or consuming."""
    createDurableQueue: Roles = ()
    """Roles that may create durable queues and subscriptions, including automatically by sending or consuming."""
    deleteDurableQueue: Roles = ()
    """Roles that may delete durable queues and subscriptions."""
    createNonDurableQueue: Roles = ()
    """Roles that may create temporary queues and non-durable subscriptions."""
    deleteNonDurableQueue: Roles = ()
    """Roles that may delete non-durable queues and subscriptions."""
    manage: Roles = ()
    """Roles that may inspect and change queues by HTTP and command line; activemq.management: the broker as a whole."""
    manageSessions: Roles = ()
    """Roles that may use other users' durable subscriptions; activemq.management: other users' MQTT sessions."""
