"""What one connection may do: asked by every verb that a client's wish leads to, whatever its protocol.

A session makes an `Access` once it knows who its peer is, and hands it to the engine's verbs, which ask it before they
do anything, and before they look whether what was named exists: a denial says nothing about that.  Without one
(`UNRESTRICTED`) the broker itself acts: dead letters, expiry, what the configuration declares.

Decisions are kept by name, so that asking again costs one look in a dictionary.  When permissions or roles change,
`Security.change` makes what is kept void; each access notices by itself.  `version` says so to those
that keep something themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Final, NoReturn

from broker.engine.model.errors import Denied
from broker.engine.model.permissions import Permission, PermissionTable, Roles
from broker.engine.model.report import Report

#: Decisions that an access keeps: a connection uses some tens of names; one that invents names gains nothing.
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
}


@dataclass(slots=True, eq=False)
class Identity:
    """Who somebody is, once that is known: the user's name, empty for an anonymous one, and its roles.

    `lasting`: the roles are those of this login and not looked up again (they were in a token, say).
    """

    user: str
    roles: Roles
    _: KW_ONLY
    lasting: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and (self.user, self.roles) == (other.user, other.roles)

    def __hash__(self) -> int:
        return hash((self.user, self.roles))

    def __repr__(self) -> str:
        return f"Identity({self.user!r}, {sorted(self.roles)})"


#: Who has not logged in yet, and may do nothing.
NOBODY: Final = Identity("", frozenset(), lasting=True)


class Security:
    """The permissions in force, and which roles a user has now."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.table = PermissionTable([])
        self.version = 0
        self.roles_of: Callable[[str], Roles | None] = lambda _: None

    def change(self, table: PermissionTable | None = None) -> None:
        """Other permissions, or (None) other roles: nothing that was decided before counts any more."""
        if table is not None:
            self.table = table
        self.version += 1

    def access(self, identity: Identity, client_id: str) -> Access:
        """What a client that has logged in may do; its roles are those of now, the login may be a while ago."""
        return Access(self, self.of_now(identity), client_id)

    def returned(self, user: str, client_id: str) -> Access:
        """What a user may do whose session was restored: it logged in once, and has the roles of now."""
        return self.access(Identity(user, frozenset()), client_id)

    def of_now(self, identity: Identity) -> Identity:
        """Who somebody is, with the roles of now; the same object, if they are those of before."""
        if identity.lasting:
            return identity
        roles = self.roles_of(identity.user) or frozenset()
        return identity if roles == identity.roles else Identity(identity.user, roles)


class Access:
    """What one connection may do."""

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
        """The roles as of now."""
        self._renew()
        return self._identity.roles

    @property
    def version(self) -> int:
        """Changes when a decision may have changed."""
        return self._security.version

    def allows(self, permission: Permission, address: str, queue: str = "") -> bool:
        """Whether it is permitted; for a wildcard address that is read, on everything that it matches."""
        if self._version != self._security.version:
            self._renew()
        found = self._decisions.get((permission, address, queue))
        return self._decide(permission, address, queue) if found is None else found

    def might(self, permission: Permission, address: str, queue: str = "") -> bool:
        """As `allows`, for somebody who has not asked for it: a denial is not reported."""
        if self._version != self._security.version:
            self._renew()
        found = self._decisions.get((permission, address, queue))
        return self._decided(permission, address, queue) if found is None else found

    def everywhere(self, permission: Permission) -> bool:
        """Whether it is permitted whatever the address and queue."""
        self._renew()
        return self._security.table.rights(self.user, self.client_id).grants_everywhere(self.roles, permission)

    def chosen(self, permission: Permission, places: Iterable[tuple[str, str]]) -> list[bool]:
        """For each address and queue whether it is permitted; no denial is told, and nothing kept.

        Of 100,000 this takes a second: it may be done on another thread.
        """
        rights, roles = self._security.table.rights(self.user, self.client_id), self.roles
        return [rights.grants(roles, permission, address, queue) for address, queue in places]

    def sees(self, address: str, queue: str, *, durable: bool) -> bool:
        """Whether such a queue may be used in any way, and so be known of.  Nothing is reported."""
        permissions = (Permission.CONSUME, Permission.BROWSE, delete_permission(durable=durable))
        return any(self.might(permission, address, queue) for permission in permissions)

    def require(self, permission: Permission, address: str, queue: str = "", *, named: str = "") -> None:
        """Raises Denied, which names what the peer named: the address or full name, or `named` instead."""
        if not self.allows(permission, address, queue):
            _deny(permission, named or (f"{address}::{queue}" if queue else address))

    def _renew(self) -> None:
        if self._version == self._security.version:
            return
        self._version = self._security.version
        self._decisions.clear()
        self._identity = self._security.of_now(self._identity)

    def _decided(self, permission: Permission, address: str, queue: str) -> bool:
        rights = self._security.table.rights(self.user, self.client_id)
        reading = permission in (Permission.CONSUME, Permission.BROWSE)
        decide = rights.grants_reading if reading else rights.grants
        return decide(self._identity.roles, permission, address, queue)

    def _decide(self, permission: Permission, address: str, queue: str) -> bool:
        """Decide, tell of a denial, and keep the decision, so that each denial is told once."""
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

    def allows(self, permission: Permission, address: str, queue: str = "") -> bool:
        return True

    def might(self, permission: Permission, address: str, queue: str = "") -> bool:
        return True

    def everywhere(self, permission: Permission) -> bool:
        return True


def _silent(code: str, /, **fields: str | int) -> None:
    """Nobody is told."""


UNRESTRICTED: Final[Access] = _Unrestricted()


def unrestricted(client_id: str) -> Access:
    """The same, under a name, so that those who do not want what this one sends can say so."""
    return _Unrestricted(client_id)


def _deny(permission: Permission, named: str) -> NoReturn:
    shown = named if len(named) <= 200 else named[:200] + "..."
    raise Denied(f"permission denied: not allowed to {_VERBS[permission]} {shown} ({permission.value})")


def create_permission(*, durable: bool) -> Permission:
    """What making such a queue needs."""
    return Permission.CREATE_DURABLE_QUEUE if durable else Permission.CREATE_NON_DURABLE_QUEUE


def delete_permission(*, durable: bool) -> Permission:
    """What deleting such a queue needs."""
    return Permission.DELETE_DURABLE_QUEUE if durable else Permission.DELETE_NON_DURABLE_QUEUE
