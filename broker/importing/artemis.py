"""An Artemis broker.xml, element by element of its <core>."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.config.diverts import WildcardsSection
from broker.importing.acceptors import acceptors, http_acceptor
from broker.importing.addresses import SETTINGS, address_settings, addresses, diverts, queues
from broker.importing.artemis_bridges import bridges, connectors
from broker.importing.artemis_connections import broker_connections
from broker.importing.artemis_tables import CORE
from broker.importing.draft import Draft
from broker.importing.report import Outcome, place
from broker.importing.rules import UNKNOWN, apply
from broker.importing.security import resource_limits, security_settings
from broker.importing.xml import Element

_UNIT_MS: Final = {"DAYS": 86_400_000, "HOURS": 3_600_000, "MINUTES": 60_000, "SECONDS": 1_000, "MILLISECONDS": 1}


def translate(root: Element, draft: Draft) -> None:
    """Translate everything into the draft, or into its report."""
    core = root if root.name == "core" else root.find("core")
    assert core is not None, "the file was recognised by its <core>"
    for other in root.children:
        if other is not core and root is not core:
            why = f"<{other.name}> is outside the broker's <core>: nothing in it is read"
            draft.report.left(place(other, f"<{other.name}>", ""), why)
    for element in core.children:
        if element.name in _APART:
            continue
        rule = CORE.get(element.name)
        found = place(element, element.name, _summary(element) if element.children else None)
        if rule is None:
            draft.report.left(
                found, "unknown to this importer: check whether docs/configuration.md has something similar"
            )
        else:
            apply(draft, rule, found, element.text)
    for name, translation in _APART.items():
        for element in core.all(name):
            translation(element, draft, core)
    http_acceptor(draft, "broker.xml has no web server")
    _defaults(core, draft)


def _defaults(core: Element, draft: Draft) -> None:
    """Put what the file does not set for all addresses: Bartleby's own settings, or Artemis's where nothing is lost."""
    key = (SETTINGS, _any_words(core))
    for name, value, why in (
        ("dead-letter-address", "DLQ", "Bartleby's own: without one, Artemis would drop dead messages"),
        ("expiry-address", "ExpiryQueue", "Bartleby's own: without one, Artemis would drop expired messages"),
        ("auto-delete-queues", True, "Artemis's own default"),
    ):
        if not draft.has((*key, name)):
            draft.put(place(core, f"no {name} for all addresses", ""), (*key, name), value, change=why)


def _any_words(core: Element) -> str:
    """The match for all addresses."""
    wildcards = core.find("wildcard-addresses")
    chosen = None if wildcards is None else wildcards.find("any-words")
    return WildcardsSection().any_words if chosen is None else chosen.text


def _summary(element: Element) -> str:
    """The names of an element's children."""
    return ", ".join(child.attributes.get("name", child.name) for child in element.children)


def _retention(element: Element, draft: Draft, _: Element) -> None:
    section = ("journal", "retention")
    draft.put(
        place(element, element.name),
        (*section, "enabled"),
        True,
        change="kept segments are in retention/ of broker.data-directory",
    )
    period = element.attributes.get("period")
    if period is not None:
        unit = element.attributes.get("unit", "DAYS").upper()
        found = place(element, f"{element.name} period", f"{period} {unit}")
        if unit in _UNIT_MS:
            draft.put_text(found, (*section, "max-age"), period, factor=_UNIT_MS[unit])
        else:
            draft.report.left(found, f"the unit {unit} is unknown: write journal.retention.max-age by hand")
    limit = element.attributes.get("storage-limit")
    if limit is not None:
        draft.put_text(place(element, f"{element.name} storage-limit", limit), (*section, "max-bytes"), limit)


def _persist_counts(element: Element, draft: Draft, core: Element) -> None:
    """Artemis has it for the broker, Bartleby for addresses, so it goes to `#`."""
    everything = _any_words(core)
    key = ("address-settings", everything, element.name)
    settings = core.find("address-settings")
    given = settings is not None and any(each.attributes.get("match") == everything for each in settings.children)
    if given or element.text.lower() == "true":
        draft.put_text(
            place(element, element.name),
            key,
            element.text,
            change=f'it is a setting of addresses, here of "{everything}"',
        )
    else:
        draft.report.add(
            place(element, element.name), Outcome.TAKEN, why="this applies unless an address setting says otherwise"
        )


def _security_enabled(element: Element, draft: Draft, _: Element) -> None:
    found = place(element, element.name)
    if element.text.lower() == "false":
        change = "all clients may connect, as in the file, until a user is created"
        draft.put(found, ("security", "anonymous"), True, change=change)
    else:
        draft.report.add(found, Outcome.TAKEN, why="this applies once a user exists")


def _wildcards(element: Element, draft: Draft, _: Element) -> None:
    for child in element.children:
        name = "routing-enabled" if child.name == "enabled" else child.name
        found = place(child, f"wildcard-addresses {child.name}")
        if name in ("routing-enabled", "delimiter", "any-words", "single-word"):
            draft.put_text(found, ("wildcard-addresses", name), child.text)
        else:
            draft.report.left(found, UNKNOWN)


#: Elements of <core> that a row of the table cannot translate.
_APART: Final[dict[str, Callable[[Element, Draft, Element], None]]] = {
    "security-enabled": _security_enabled,
    "journal-retention-directory": _retention,
    "wildcard-addresses": _wildcards,
    "address-settings": address_settings,
    "addresses": addresses,
    "queues": queues,
    "diverts": diverts,
    "acceptors": acceptors,
    "bridges": bridges,
    "broker-connections": broker_connections,
    "connectors": connectors,
    "security-settings": security_settings,
    "resource-limit-settings": resource_limits,
    "persist-delivery-count-before-delivery": _persist_counts,
}
