"""<security-settings> and <resource-limit-settings> of an Artemis broker.xml."""

from __future__ import annotations

from typing import Final

from broker.importing.draft import Draft
from broker.importing.kinds import known
from broker.importing.report import Outcome, Place, place
from broker.importing.rules import UNKNOWN
from broker.importing.xml import Element

SECTION: Final = "security-settings"
LIMITS: Final = "resource-limit-settings"

_ELEMENTS: Final = {
    "security-setting-plugin": "roles come from Bartleby's own users",
    "role-mapping": "roles of directory services are not mapped: name the roles themselves",
}


def security_settings(element: Element, draft: Draft, _: Element) -> None:
    """Translate all security settings.  Of several with one match the first applies, as in Artemis."""
    for child in element.children:
        if child.name == "security-setting":
            _setting(child, draft)
        else:
            value = child.attributes.get("from", child.attributes.get("class-name", ""))
            why = _ELEMENTS.get(child.name, UNKNOWN)
            draft.report.left(place(child, child.name, value), why)


def _setting(setting: Element, draft: Draft) -> None:
    match = setting.attributes.get("match", "")
    label = f'security-setting "{match}"'
    if draft.has((SECTION, match)):
        draft.report.left(place(setting, label, ""), "this match appeared before: the first applies")
        return
    deny(draft, place(setting, label, ""), match)
    if not setting.children:
        draft.report.add(place(setting, label, ""), Outcome.TAKEN, why="it permits nothing")
    for permission in setting.children:
        kind = permission.attributes.get("type", "")
        roles = permission.attributes.get("roles", "")
        found = place(permission, f"{label}: {kind}", roles)
        key = (SECTION, match, permission_key(kind))
        if permission.name != "permission" or not kind:
            draft.report.left(found, "not a permission with a type")
        else:
            draft.put(found, key, [role.strip() for role in roles.split(",") if role.strip()])


def deny(draft: Draft, found: Place, match: str) -> None:
    """Put an entry that permits nothing yet: without it a broader one, which permits more, would apply."""
    draft.put(found, (SECTION, match, "send"), [], quiet=True)


def resource_limits(element: Element, draft: Draft, _: Element) -> None:
    """Translate <resource-limit-settings>: the limits of single users."""
    for child in element.children:
        user = child.attributes.get("match", "")
        label = f'resource-limit-setting "{user}"'
        if child.name != "resource-limit-setting" or not user:
            draft.report.left(place(child, child.name, user), "not a resource-limit-setting with a match")
        elif draft.has((LIMITS, user)):
            draft.report.left(place(child, label, ""), "this user appeared before: the first applies")
        else:
            for limit in child.children:
                found = place(limit, f"{label}: {limit.name}")
                if known((LIMITS, "", limit.name)):
                    draft.put_text(found, (LIMITS, user, limit.name), limit.text)
                else:
                    draft.report.left(found, UNKNOWN)


def permission_key(kind: str) -> str:
    """The name of a permission as spelled in the models: Artemis's own, or with hyphens."""
    hyphens = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind)
    return hyphens if known((SECTION, "", hyphens)) else kind
