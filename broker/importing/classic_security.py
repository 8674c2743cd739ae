"""ActiveMQ Classic's users and authorisation entries."""

from __future__ import annotations

from typing import Final

from broker.importing.classic_policies import match_of
from broker.importing.classic_tables import NOT_KNOWN
from broker.importing.draft import Draft
from broker.importing.report import place
from broker.importing.security import SECTION, deny, permission_key
from broker.importing.xml import Element

#: The permissions for each right of Classic.
_RIGHTS: Final[dict[str, tuple[str, ...]]] = {
    "read": ("consume", "browse"),
    "write": ("send",),
    "admin": (
        "createAddress",
        "createDurableQueue",
        "deleteDurableQueue",
        "createNonDurableQueue",
        "deleteNonDurableQueue",
    ),
}

_OTHERS: Final = {
    "tempDestinationAuthorizationEntry": "temporary queues have their own names: set permissions on a match for them",
    "cachedLDAPAuthorizationMap": "roles come from Bartleby's own users",
    "lDAPAuthorizationMap": "roles come from Bartleby's own users",
}
#: Elements that only hold others.
_FRAME: Final = ("map", "authorizationMap", "authorizationEntries")


def simple_users(plugin: Element, draft: Draft) -> None:
    """Report the users with plain passwords: names and roles, but passwords are not carried over."""
    for attribute, text in plugin.attributes.items():
        found = place(plugin, f"{plugin.name} {attribute}", text)
        draft.report.left(found, "without users only clients of this machine may connect; with users all must log in")
    for group in plugin.all("users"):
        for user in group.children:
            who = user.attributes.get("username", "")
            roles = user.attributes.get("groups", "")
            why = "passwords are not carried over: create the user again, with these roles, docs/security.md"
            draft.report.left(place(user, f"user {who}", f"roles {roles}"), why)


def authorization(plugin: Element, draft: Draft) -> None:
    """Translate the roles that may read, write and administer destinations."""
    for element in plugin.below():
        if element.name == "authorizationEntry":
            _entry(element, draft)
        elif element.name in _OTHERS and not element.children:
            draft.report.left(place(element, f"authorization: {element.name}", ""), _OTHERS[element.name])
        elif element.name not in _FRAME and element.name not in _OTHERS:
            draft.report.left(place(element, f"authorization: {element.name}", ""), NOT_KNOWN.why)


def _entry(entry: Element, draft: Draft) -> None:
    destination = entry.get("queue") or entry.get("topic") or ""
    if destination.startswith("ActiveMQ.Advisory"):
        draft.report.left(place(entry, f'authorizationEntry "{destination}"', ""), "there are no advisory topics")
        return
    if not destination:
        why = "only matches of names are supported"
        draft.report.left(place(entry, "authorizationEntry", ""), why)
        return
    if not draft.has((SECTION, match_of(destination))):
        deny(draft, place(entry, f'authorizationEntry "{destination}"', ""), match_of(destination))
    for right, permissions in _RIGHTS.items():
        roles = entry.attributes.get(right)
        if roles is None:
            continue
        found = place(entry, f'authorizationEntry "{destination}": {right}', roles)
        for number, permission in enumerate(permissions):
            key = (SECTION, match_of(destination), permission_key(permission))
            names = [role.strip() for role in roles.split(",") if role.strip()]
            change = f"{right} is {', '.join(permissions)}" if not number and len(permissions) > 1 else ""
            draft.put(found, key, names, change=change, quiet=bool(number))
