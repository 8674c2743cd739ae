"""The permissions of one connection, checked by every verb that serves a client's request, whatever its protocol.

A session makes an `Access` once its client has logged in, and passes it to the engine's verbs.  They ask it before they
do anything, even before they look whether the named thing exists: a denial does not reveal that.  `UNRESTRICTED` is for
the broker's own acts: dead letters, expiry, the definitions of the configuration.

Decisions are cached by name, so asking again costs one dictionary lookup.  When permissions or roles change,
`Security.change` raises the version, and each access drops its decisions when it next looks.  Callers that cache
decisions of their own compare `version`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.errors import Denied
from broker.engine.model.names import ESCAPE
from broker.engine.model.permissions import Permission, PermissionTable, Roles
from broker.engine.model.report import Report

#: Decisions that an access caches: a connection uses some tens of names; one that invents names gains nothing.
DECISIONS_MAX: Final = 256

_VERBS: Final = {
    Permission.SEND: "send to",
    Permission.CONSUME: "consume from",
    Permission.BROWSE: "browse",
    Permission.CREATE_ADDRESS: "create the address",
    Permission.CREATE_DURABLE_QUEUE: "create a durable queue on",
    Permission.DELETE_DURABLE_QUEUE: "delete the durable queue",
    Permission.CREATE_NON_DURABLE_QUEUE: "create a non-durable queue on",
    Permission.DELETE_NON_DURABLE_QUEUE: "delete the non-durable queue",
    Permission.MANAGE: "manage",
    Permission.MANAGE_SESSIONS: "use or end what another user has made on",
}


@dataclass(slots=True, frozen=True)
class Identity:
    """A logged-in user: its name, empty for an anonymous one, and its roles.

    `lasting`: the roles are fixed at login and never looked up again (they came in a token, say).
    """

    user: str
    roles: Roles
    lasting: bool = field(default=False, compare=False, kw_only=True)

    @classmethod
    def stored(cls, user: str, roles: Iterable[str] | None) -> Identity:
        """The identity of a stored user; `roles`: the `lasting_roles`, which cannot be looked up, None: it has none."""
        return cls(user, frozenset(roles or ()), lasting=roles is not None)

    @property
    def lasting_roles(self) -> list[str] | None:
        """What must be stored beside the user's name, so that `stored` has the same permissions; None: nothing."""
        return sorted(self.roles) if self.lasting else None


#: The identity before login, with no permissions.
NOT_LOGGED_IN: Final = Identity("", frozenset(), lasting=True)


class Security:
    """The permissions in force, and the present roles of each user."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.table = PermissionTable([])
        self.version = 0
        self.roles_of: Callable[[str], Roles | None] = lambda _: None

    def change(self, table: PermissionTable | None = None) -> None:
        """Replace the permissions or, with None, note that roles changed: all earlier decisions become void."""
        if table is not None:
            self.table = table
        self.version += 1

    def access(self, identity: Identity, client_id: str) -> Access:
        """The access of a client that has logged in, with its present roles: the login may be a while ago."""
        return Access(self, self.of_now(identity), client_id)

    def of_now(self, identity: Identity) -> Identity:
        """The identity with its present roles; the same object if they have not changed."""
        if identity.lasting:
            return identity
        roles = self.roles_of(identity.user) or frozenset()
        return identity if roles == identity.roles else Identity(identity.user, roles)


class Access:
    """The permissions of one connection."""

    __slots__ = ("_decisions", "_identity", "_security", "_version", "client_id", "user")

    def __init__(self, security: Security, identity: Identity, client_id: str) -> None:
        self.user = identity.user
        self.client_id = client_id
        self._identity = identity
        self._security = security
        self._version = security.version
        self._decisions: dict[tuple[Permission, str, str], bool] = {}

    @property
    def roles(self) -> Roles:
        """The present roles."""
        self._renew()
        return self._identity.roles

    @property
    def identity(self) -> Identity | None:
        """Whose permissions these are; None: unrestricted."""
        return self._identity

    @property
    def version(self) -> int:
        """Changes when a decision may have changed."""
        return self._security.version

    def allows(self, permission: Permission, address: str, queue: str = "") -> bool:
        """Whether it is permitted; to read or manage a wildcard address, on everything that it matches."""
        if self._version != self._security.version:
            self._renew()
        found = self._decisions.get((permission, address, queue))
        return self._decide(permission, address, queue) if found is None else found

    def might(self, permission: Permission, address: str, queue: str = "") -> bool:
        """As `allows`, when the client did not ask for it: a denial is not reported."""
        if self._version != self._security.version:
            self._renew()
        found = self._decisions.get((permission, address, queue))
        return self._decided(permission, address, queue) if found is None else found

    def owns(self, user: str) -> bool:
        """Whether what this user made belongs to the client: it is the same user, or nobody any more.

        Anonymous clients are one user.  Once they may not log in, what they made belongs to the first who asks for it.
        """
        return user == self.user or (not user and self._security.roles_of("") is None)

    def everywhere(self, permission: Permission) -> bool:
        """Whether it is permitted on every address and queue."""
        self._renew()
        return self._security.table.rights(self.user, self.client_id).grants_everywhere(self.roles, permission)

    def anywhere(self, permission: Permission) -> bool:
        """Whether it is permitted on any address or queue."""
        self._renew()
        return self._security.table.rights(self.user, self.client_id).grants_somewhere(self.roles, permission)

    def chosen(self, permission: Permission, places: Iterable[tuple[str, str]]) -> list[bool]:
        """Whether it is permitted, for each address and queue; nothing is reported or cached.

        100,000 places take a second; the caller may use another thread.
        """
        rights, roles = self._security.table.rights(self.user, self.client_id), self.roles
        return [rights.allows(roles, permission, address, queue) for address, queue in places]

    def sees(self, address: str, queue: str, *, durable: bool) -> bool:
        """Whether the client may use such a queue in any way, and so know of it.  Nothing is reported."""
        permissions = (Permission.CONSUME, Permission.BROWSE, delete_permission(durable=durable))
        return any(self.might(permission, address, queue) for permission in permissions)

    def require(self, permission: Permission, address: str, queue: str = "", *, named: str = "") -> None:
        """Raises Denied, with the name that the peer gave: the address or full name, or `named` instead.

        Without escapes: what exists decides whether `a::b` of MQTT is a full name or an address that needs them.
        """
        if not self.allows(permission, address, queue):
            named = (named or (f"{address}::{queue}" if queue else address)).replace(ESCAPE, "")
            shown = named if len(named) <= 200 else named[:200] + "..."
            raise Denied(f"permission denied: not allowed to {_VERBS[permission]} {shown} ({permission.value})")

    def _renew(self) -> None:
        if self._version == self._security.version:
            return
        self._version = self._security.version
        self._decisions.clear()
        self._identity = self._security.of_now(self._identity)

    def _decided(self, permission: Permission, address: str, queue: str) -> bool:
        rights = self._security.table.rights(self.user, self.client_id)
        return rights.allows(self._identity.roles, permission, address, queue)

    def _decide(self, permission: Permission, address: str, queue: str) -> bool:
        """Decide, report a denial, and cache the decision, so that each denial is reported once."""
        decision = self._decided(permission, address, queue)
        if not decision:
            self._security.report(
                "access.denied",
                user=self.user,
                client=self.client_id,
                permission=permission.value,
                address=address,
                queue=queue,
            )
        decisions = self._decisions
        if len(decisions) >= DECISIONS_MAX:
            del decisions[next(iter(decisions))]
        decisions[permission, address, queue] = decision
        return decision


class _Unrestricted(Access):
    """The broker's own acts."""

    __slots__ = ()

    def __init__(self, client_id: str = "") -> None:
        super().__init__(Security(_silent), Identity("", frozenset()), client_id)

    @property
    def identity(self) -> Identity | None:
        return None

    def allows(self, permission: Permission, address: str, queue: str = "") -> bool:
        return True

    def might(self, permission: Permission, address: str, queue: str = "") -> bool:
        return True

    def everywhere(self, permission: Permission) -> bool:
        return True

    def anywhere(self, permission: Permission) -> bool:
        return True


def _silent(code: str, /, **fields: str | int) -> None:
    """Report nothing."""


UNRESTRICTED: Final[Access] = _Unrestricted()

#: Has no rights at all.
NOBODY: Final = Access(Security(_silent), NOT_LOGGED_IN, "")


def unrestricted(client_id: str) -> Access:
    """Unrestricted access with a client id, so that consumers can opt out of this client's messages."""
    return _Unrestricted(client_id)


def create_permission(*, durable: bool) -> Permission:
    """The permission to create such a queue."""
    return Permission.CREATE_DURABLE_QUEUE if durable else Permission.CREATE_NON_DURABLE_QUEUE


def delete_permission(*, durable: bool) -> Permission:
    """The permission to delete such a queue."""
    return Permission.DELETE_DURABLE_QUEUE if durable else Permission.DELETE_NON_DURABLE_QUEUE
