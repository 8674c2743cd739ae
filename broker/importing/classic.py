"""An ActiveMQ Classic activemq.xml: the <broker> among Spring's beans."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker.importing.acceptors import http_acceptor, listen, parse, put_to_all, split
from broker.importing.classic_links import network_connectors
from broker.importing.classic_policies import policies, redelivery, time_stamps
from broker.importing.classic_security import authorization, simple_users
from broker.importing.classic_tables import BROKER, BROKER_ELEMENTS, NOT_KNOWN, PLUGINS, TRANSPORT
from broker.importing.doors import guard
from broker.importing.draft import Draft
from broker.importing.kinds import acceptor_keys
from broker.importing.report import Outcome, Place, place
from broker.importing.rules import apply
from broker.importing.xml import Element

_NAMESPACE: Final = "http://activemq.apache.org/schema/core"

#: The protocol that each scheme of a transport connector speaks, and whether it does so over TLS.
_SCHEMES: Final[dict[str, tuple[str, bool]]] = {
    f"{protocol}{suffix}": (protocol, tls)
    for protocol in ("amqp", "stomp", "mqtt")
    for suffix, tls in (("", False), ("+nio", False), ("+ssl", True), ("+nio+ssl", True))
}
#: What other schemes speak.
_FOREIGN: Final = dict.fromkeys(("tcp", "nio", "ssl", "nio+ssl", "http", "https", "vm"), "OpenWire")
#: The prefixes that parameters of TLS may have.
_TRANSPORT: Final = re.compile(r"^(transport|socket)\.(?=(need|want)ClientAuth|enabled|verifyHost|sni)")
_DEAD_LETTERS: Final = "ActiveMQ.DLQ"


def broker_of(root: Element) -> Element | None:
    """The <broker> of a file, or None."""
    if root.name == "broker":
        return root if root.namespace in (_NAMESPACE, "") else None
    return next((child for child in root.all("broker") if child.namespace == _NAMESPACE), None)


def translate(root: Element, draft: Draft) -> None:
    """Translate everything into the draft, or into its report."""
    broker = broker_of(root)
    assert broker is not None, "the file was recognised by its <broker>"
    for other in root.children if root is not broker else ():
        if other is not broker:
            what = f"<{other.name}> {other.attributes.get('resource', other.attributes.get('id', ''))}".strip()
            draft.report.left(place(other, what, ""), "only the <broker> is read")
    for attribute, text in broker.attributes.items():
        apply(draft, BROKER.get(attribute, NOT_KNOWN), place(broker, f"broker {attribute}", text), text)
    for element in broker.children:
        translation = _ELEMENTS.get(element.name)
        if translation is not None:
            translation(element, draft)
        else:
            apply(draft, BROKER_ELEMENTS.get(element.name, NOT_KNOWN), place(element, element.name, ""), "")
    _defaults(broker, draft)
    http_acceptor(draft, "activemq.xml leaves it to jetty.xml")


def _defaults(broker: Element, draft: Draft) -> None:
    """Put Classic's defaults for all destinations where the file does not override them."""
    key = ("address-settings", "#")
    for name, value, why in (
        ("dead-letter-address", _DEAD_LETTERS, ""),
        ("expiry-address", _DEAD_LETTERS, ""),
        ("auto-delete-queues", False, "Classic deletes only with gcInactiveDestinations"),
        ("auto-delete-addresses", False, "Classic deletes only with gcInactiveDestinations"),
    ):
        if not draft.has((*key, name)):
            draft.put(place(broker, "Classic's own default", ""), (*key, name), value, change=why)
    draft.report.add(
        place(broker, "redelivery", ""),
        Outcome.CHANGED,
        "max-delivery-attempts",
        "Classic's clients count redeliveries (6 by default), here the broker does (10 attempts by default, set by"
        " match)",
    )


def _destinations(element: Element, draft: Draft) -> None:
    for each in element.children:
        name = each.attributes.get("physicalName", "")
        found = place(each, f"{each.name} {name}", "")
        if each.name == "queue":
            draft.put(found, ("addresses", name, "queues", name, "routing-type"), "ANYCAST")
        elif each.name == "topic":
            draft.put(found, ("addresses", name, "routing-types"), ["MULTICAST"])
        else:
            draft.report.left(found, NOT_KNOWN.why)


def _connectors(element: Element, draft: Draft) -> None:
    for number, connector in enumerate(element.all("transportConnector"), 1):
        uri = connector.attributes.get("uri", "")
        name = connector.attributes.get("name", f"connector-{number}")
        what = f"transportConnector {name}"
        found = place(connector, what, uri.partition("?")[0])
        target = parse(uri)
        if target is None or not target.port or "${" in uri.partition("?")[0]:
            draft.report.left(found, "this is not an address of one host and port: write the acceptor by hand")
            continue
        protocol, tls = _SCHEMES.get(target.scheme, ("", False))
        protocols, _ = split(["amqp", "stomp", "mqtt"] if target.scheme.startswith("auto") else [protocol])
        if target.scheme in ("ws", "wss"):
            why = "STOMP and MQTT over WebSocket need an acceptor written by hand, docs/configuration.md"
            draft.report.left(found, why)
        elif not protocols:
            spoken = ", ".join(sorted(set(acceptor_keys()) - {"http"}))
            language = protocol or _FOREIGN.get(target.scheme, target.scheme)
            draft.report.left(found, f"Bartleby does not speak {language}: its clients must use one of {spoken}")
        else:
            names = listen(draft, found, name, target, protocols)
            _shared(draft, connector, what, list(names))
            given = {_TRANSPORT.sub("", parameter): text for parameter, text in target.parameters.items()}
            guarded = guard(draft, connector, what, name, given, tls=tls or "ssl" in target.scheme)
            for parameter, text in target.parameters.items():
                if _TRANSPORT.sub("", parameter) not in guarded:
                    key, why = TRANSPORT.get(parameter, ("", NOT_KNOWN.why))
                    why = why or "not applicable to the protocols of this acceptor"
                    put_to_all(draft, place(connector, f"{what}: {parameter}", text), names, key, text, why=why)


def _shared(draft: Draft, connector: Element, what: str, names: list[str]) -> None:
    if len(names) > 1:
        change = "OpenWire is not supported; each protocol has its own section, and all share the port of the first"
        found = place(connector, f"{what}: auto", "")
        draft.put(found, ("acceptors", names[0], "also"), ", ".join(names[1:]), change=change)


def _persistence(element: Element, draft: Draft) -> None:
    """Translate rewriteOnRedelivery of a store; the store itself has no counterpart."""
    apply(draft, BROKER_ELEMENTS[element.name], place(element, element.name, ""), "")
    for store in element.below():
        text = store.attributes.get("rewriteOnRedelivery")
        if text is None:
            continue
        found = place(store, f"{store.name} rewriteOnRedelivery", text)
        if text.lower() == "true":
            key = ("address-settings", "#", "delivery-count-persistence")
            draft.put(found, key, "strict", change="counts are on disk before a message is delivered, by match")
        else:
            why = "counts are written when a delivery comes back: delivery-count-persistence is on-return"
            draft.report.add(found, Outcome.TAKEN, why=why)


def _usage(element: Element, draft: Draft) -> None:
    for usage in element.children[0].children if element.find("systemUsage") else element.children:
        inner = usage.find(usage.name) or usage
        for attribute, text in inner.attributes.items():
            found = place(inner, f"{usage.name} {attribute}", text)
            if usage.name == "memoryUsage" and attribute == "limit":
                draft.put_text(found, ("broker", "global-max-size"), text)
            elif usage.name == "memoryUsage" and attribute == "percentOfJvmHeap":
                change = "of the machine's or container's memory: there is no JVM"
                draft.put_text(found, ("broker", "global-max-size-percent"), text, change=change)
            else:
                draft.report.left(
                    found, "a full disk stops producers automatically; journal.reserve is kept for consumers"
                )


def _interceptors(element: Element, draft: Draft) -> None:
    for interceptor in element.children:
        composites = [each for list_ in interceptor.all("virtualDestinations") for each in list_.children]
        for each in composites:
            if each.name in ("compositeQueue", "compositeTopic"):
                _composite(each, draft)
            else:
                found = place(each, f"{each.name} {each.attributes.get('name', '')}".strip(), "")
                why = (
                    "instead of a virtual topic's consumer queue, use a queue on a multicast address: docs/migrating.md"
                )
                draft.report.left(found, why)
        if not composites:
            draft.report.left(place(interceptor, interceptor.name, ""), NOT_KNOWN.why)


def _composite(composite: Element, draft: Draft) -> None:
    """Put one divert for all its targets, or one for each if they have their own selectors."""
    name = composite.attributes.get("name", "")
    only = composite.attributes.get("forwardOnly", "true").lower() == "true"
    targets = [target for each in composite.all("forwardTo") for target in each.children]
    what = f"{composite.name} {name}"
    if not any(target.name == "filteredDestination" for target in targets):
        _divert(draft, place(composite, what, ""), name, name, [_forwarded(target) for target in targets], only)
        return
    for target in targets:
        found = place(target, what, f"to {_forwarded(target)}")
        if only and len(targets) > 1:
            # An exclusive divert would take a message from the others too.
            draft.report.left(
                found, "exclusive diverts with different filters cannot all see each message: write them by hand"
            )
            continue
        selector = target.attributes.get("selector", "")
        _divert(draft, found, f"{name}-to-{_forwarded(target)}", name, [_forwarded(target)], only, selector)


def _forwarded(target: Element) -> str:
    given = target.attributes
    return given.get("physicalName") or given.get("queue") or given.get("topic") or ""


def _divert(
    draft: Draft, found: Place, name: str, address: str, targets: list[str], only: bool, selector: str = ""
) -> None:
    key = ("diverts", name)
    draft.put(found, (*key, "address"), address, vital=True)
    draft.put(found, (*key, "forwarding-address"), ", ".join(targets), quiet=True, vital=True)
    draft.put(found, (*key, "exclusive"), only, quiet=True)
    if selector:
        draft.put(found, (*key, "filter"), selector, quiet=True, vital=True)


def _plugins(element: Element, draft: Draft) -> None:
    for plugin in element.children:
        translation = _PLUGINS.get(plugin.name)
        if translation is not None:
            translation(plugin, draft)
        else:
            apply(draft, PLUGINS.get(plugin.name, NOT_KNOWN), place(plugin, plugin.name, ""), "")


_PLUGINS: Final[dict[str, Callable[[Element, Draft], None]]] = {
    "authorizationPlugin": authorization,
    "redeliveryPlugin": redelivery,
    "simpleAuthenticationPlugin": simple_users,
    "timeStampingBrokerPlugin": time_stamps,
}

_ELEMENTS: Final[dict[str, Callable[[Element, Draft], None]]] = {
    "destinationInterceptors": _interceptors,
    "destinationPolicy": policies,
    "destinations": _destinations,
    "networkConnectors": network_connectors,
    "persistenceAdapter": _persistence,
    "plugins": _plugins,
    "systemUsage": _usage,
    "transportConnectors": _connectors,
}
