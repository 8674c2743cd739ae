"""<addresses>, <queues>, <address-settings> and <diverts> of an Artemis broker.xml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.engine.model.attributes import ATTRIBUTES
from broker.engine.model.row import kebab
from broker.importing.draft import Draft
from broker.importing.kinds import Key, Kind, kind_of, known
from broker.importing.report import Outcome, Place, place
from broker.importing.rules import UNKNOWN
from broker.importing.xml import Element

SETTINGS: Final = "address-settings"

#: Artemis's older names of address settings.
_RENAMED: Final = {
    "auto-create-jms-queues": "auto-create-queues",
    "auto-delete-jms-queues": "auto-delete-queues",
    "auto-create-jms-topics": "auto-create-addresses",
    "auto-delete-jms-topics": "auto-delete-addresses",
    "last-value-queue": "default-last-value-queue",
}

#: Settings that Artemis has in seconds and Bartleby as a duration.
_SECONDS: Final = frozenset({"slow-consumer-check-period"})

#: The defaults of a <queue> in Artemis, whatever the address settings say.
_QUEUE_EXPLICIT: Final[dict[str, object]] = {"ring-size": -1, "purge-on-no-consumers": False}

#: The values of queue attributes that are the defaults here, even in a version without such an attribute.
_QUEUE_PLAIN: Final = {
    kebab(name): str(each.default).lower() for name, each in ATTRIBUTES.items() if each.default != ""
}


def address_settings(element: Element, draft: Draft, _: Element) -> None:
    """Translate all address settings.  Of several with one match the first applies, as in Artemis."""
    seen: set[str] = set()
    for setting in element.all("address-setting"):
        match = setting.attributes.get("match", "")
        label = f'address-setting "{match}"'
        if match in seen:
            draft.report.left(place(setting, label, ""), "this match appeared before: the first applies, as in Artemis")
            continue
        seen.add(match)
        names = {child.name for child in setting.children}
        for child in setting.children:
            name = _RENAMED.get(child.name, child.name)
            found = place(child, f"{label}: {child.name}")
            if name != child.name and name in names:
                draft.report.left(found, f"{name} is given too, and applies; this is its older name")
                continue
            change = f"{child.name} is an older name" if name != child.name else ""
            key = (SETTINGS, match, name)
            factor = 1000 if name in _SECONDS and kind_of(key) is Kind.DURATION else 1
            draft.put_text(found, key, child.text, change=change, factor=factor)
        if not setting.children:
            draft.report.left(place(setting, label, ""), "it sets nothing")


def addresses(element: Element, draft: Draft, core: Element) -> None:
    """Translate the addresses with their queues."""
    for address in element.children:
        name = address.attributes.get("name", "")
        kinds = [child for child in address.children if child.name in ("anycast", "multicast")]
        if not kinds:
            draft.report.left(
                place(address, f"address {name}", ""), "it has no routing type, which Artemis refuses too"
            )
            continue
        _routing_types(address, kinds, draft, name)
        for kind in kinds:
            for queue in kind.all("queue"):
                _queue(queue, draft, address=name, routing_type=kind.name.upper(), core=core)
        for other in address.children:
            if other not in kinds:
                draft.report.left(place(other, f"address {name}: {other.name}"), UNKNOWN)


def _routing_types(address: Element, kinds: list[Element], draft: Draft, name: str) -> None:
    """Put the routing types of an address, except those of its queues, which are implied."""
    bare = sorted({kind.name.upper() for kind in kinds if kind.find("queue") is None})
    if bare:
        draft.put(place(address, f"address {name}", ", ".join(bare)), ("addresses", name, "routing-types"), bare)


@dataclass(frozen=True, slots=True)
class ConfiguredQueue:
    """A queue of the file."""

    name: str
    address: str
    routing_type: str


def configured_queues(core: Element) -> dict[str, ConfiguredQueue]:
    """The queues of the file, by name."""
    found: dict[str, ConfiguredQueue] = {}
    for section in core.all("addresses"):
        for address in section.children:
            for kind in ("anycast", "multicast"):
                for queue in (queue for each in address.all(kind) for queue in each.all("queue")):
                    name = queue.attributes.get("name", "")
                    each = ConfiguredQueue(name, address.attributes.get("name", ""), kind.upper())
                    found.setdefault(name, each)
    for queue in (queue for section in core.all("queues") for queue in section.all("queue")):
        name = queue.attributes.get("name", "")
        found.setdefault(name, ConfiguredQueue(name, queue.get("address") or name, "MULTICAST"))
    return found


def queues(element: Element, draft: Draft, core: Element) -> None:
    """Translate the older form: queues that name their address, multicast by Artemis's default."""
    for queue in element.all("queue"):
        name = queue.attributes.get("name", "")
        address = queue.get("address") or name
        _queue(queue, draft, address=address, routing_type="MULTICAST", core=core)


def _queue(queue: Element, draft: Draft, *, address: str, routing_type: str, core: Element) -> None:
    name = queue.attributes.get("name", "")
    label = f"queue {name}"
    key = ("addresses", address, "queues", name)
    if draft.has(key):
        draft.report.left(place(queue, label, ""), "the address already has this queue")
        return
    draft.put(place(queue, label, f"{routing_type} on {address}"), (*key, "routing-type"), routing_type)
    values = {child.name: child for child in queue.children if child.name not in ("filter", "address")}
    for attribute, text in queue.attributes.items():
        if attribute != "name" and attribute not in values:
            _attribute(place(queue, f"{label}: {attribute}", text), draft, (*key, attribute), text)
    for child in values.values():
        _attribute(place(child, f"{label}: {child.name}"), draft, (*key, child.name), child.text)
    _filter(queue, draft, label, (*key, "filter"))
    _not_inherited(queue, draft, key, core)


def _attribute(found: Place, draft: Draft, key: Key, text: str) -> None:
    if not known(key) and _QUEUE_PLAIN.get(key[-1]) == text.lower():
        draft.report.add(found, Outcome.TAKEN, why="Bartleby always does this")
    else:
        draft.put_text(found, key, text)


def _filter(queue: Element, draft: Draft, label: str, key: Key) -> None:
    element = queue.find("filter")
    text = None if element is None else element.attributes.get("string", element.text)
    if element is not None and text:
        draft.put(place(element, f"{label}: filter", text), key, text)


def _not_inherited(queue: Element, draft: Draft, key: Key, core: Element) -> None:
    """Put the defaults that Artemis uses for a configured queue even if an address setting has another default."""
    for name, value in _QUEUE_EXPLICIT.items():
        default = f"default-{name}"
        if queue.get(name) is None and known((*key, name)) and _is_set(core, default):
            what = f"queue {key[-1]}: no {name}"
            why = f"{default} does not reach queues of broker.xml"
            draft.put(place(queue, what, ""), (*key, name), value, change=why)


def _is_set(core: Element, setting: str) -> bool:
    settings = core.find(SETTINGS)
    return settings is not None and any(each.find(setting) is not None for each in settings.children)


def diverts(element: Element, draft: Draft, _: Element) -> None:
    """Translate the diverts, each completely or not at all."""
    for divert in element.all("divert"):
        name = divert.attributes.get("name") or divert.get("routing-name") or ""
        label = f"divert {name}"
        for child in divert.children:
            found = place(child, f"{label}: {child.name}", child.attributes.get("string", child.text))
            if child.name == "routing-name":
                if child.text != name:
                    draft.report.left(found, "a divert only has its name")
            elif child.name in ("transformer", "transformer-class-name"):
                _transformer(child, draft, name)
            elif child.name == "filter":
                draft.put(found, ("diverts", name, "filter"), child.attributes.get("string", child.text), vital=True)
            else:
                vital = child.name in ("address", "forwarding-address")
                draft.put_text(found, ("diverts", name, child.name), child.text, vital=vital)


def _transformer(element: Element, draft: Draft, divert: str) -> None:
    """Translate Artemis's own transformer, which adds headers; others are Java code."""
    class_name = element.text if element.name == "transformer-class-name" else element.get("class-name") or ""
    found = place(element, f"divert {divert}: transformer", class_name)
    if class_name.rpartition(".")[2] == "AddHeadersTransformer":
        headers = [f"{each.get('key')}: {each.get('value')}" for each in element.all("property")]
        draft.put(found, ("diverts", divert, "add-headers"), headers, vital=True)
    else:
        # Without it the divert would forward messages that its receivers do not expect.
        draft.put(found, ("diverts", divert, "transformer"), class_name, vital=True)
