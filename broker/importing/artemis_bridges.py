"""<bridges> and <connectors> of an Artemis broker.xml: each bridge becomes a link with a route, or is left out.

Bridges speak Artemis's core protocol, links AMQP.  A bridge with a filter or a transformer is left out completely: a
route without them would forward messages that it must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from broker.importing.acceptors import Target
from broker.importing.addresses import ConfiguredQueue, configured_queues
from broker.importing.connectors import connect_to
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.links import ALWAYS_TRIES, Login, log_in, put_retry_interval, route
from broker.importing.report import Outcome, Place, place
from broker.importing.rules import UNKNOWN, Always, Leave, Rule, apply, leave_all
from broker.importing.targets import NoTarget, one_of
from broker.importing.xml import Element

_CORE: Final = "a bridge speaks Artemis's core protocol, a link AMQP: the acceptor there must accept AMQP on this port"
_TWICE: Final = (
    "messages in transit when the connection is lost may arrive twice, unless a Bartleby is at the other end"
)

#: What prevents translating a bridge to a link, and what to do.
_VITAL: Final[dict[str, str]] = {
    "filter": "a route forwards everything in its queue: divert what matches the filter to a queue of its own",
    "transformer": "a route forwards messages unchanged: divert them to a queue, with add-headers if that is enough",
    "transformer-class-name": "a route forwards messages unchanged: Bartleby loads no Java code",
    "discovery-group-ref": "a link connects to named hosts: write [links.NAME] with the url of the other broker",
}

_SETTINGS: Final[dict[str, Rule]] = leave_all(
    {
        "links do not support clusters: name each server of the cluster in url": ("ha", "reconnect-attempts-same-node"),
        "the other broker says how long it waits; check-period is how long this one does": ("connection-ttl",),
        "bodies of any size are forwarded unchanged": ("min-large-message-size",),
        "window is the number of messages in transit": ("confirmation-window-size", "producer-window-size"),
        "a message that the other broker does not answer stays until the connection is lost": ("pending-ack-timeout",),
        "the link is BROKER.LINK at the other broker": ("client-id",),
        ALWAYS_TRIES: ("failover-on-server-shutdown",),
    }
) | {
    "reconnect-attempts": Always("-1", ALWAYS_TRIES),
    "initial-connect-attempts": Always("-1", ALWAYS_TRIES),
    "concurrency": Always("1", "a route is one connection: raise window, the number of messages in transit"),
    "use-duplicate-detection": Always("false", _TWICE),
}


def bridges(element: Element, draft: Draft, core: Element) -> None:
    """Translate all bridges."""
    for bridge in element.children:
        what = f"{bridge.name} {bridge.attributes.get('name', '')}".strip()
        culprit = _culprit(bridge, core)
        if culprit is not None:
            _leave(bridge, draft, what, *culprit)
        else:
            _bridge(bridge, draft, core, what)


def connectors(element: Element, draft: Draft, core: Element) -> None:
    """Report the connectors: whether they are used by bridges that become links."""
    every = [bridge for section in core.all("bridges") for bridge in section.children]
    used = {name for bridge in every if _culprit(bridge, core) is None for name, _ in _references(bridge)}
    for connector in element.children:
        name = connector.attributes.get("name", "")
        found = place(connector, f"connector {name}".strip(), "")
        if name in used:
            draft.report.add(found, Outcome.TAKEN, why="it is in the url of the links of its bridges")
        else:
            draft.report.left(found, "no bridge that becomes a link refers to it")


def _culprit(bridge: Element, core: Element) -> tuple[Element, str] | None:
    """What prevents translating the bridge to a link, and why."""
    if bridge.name != "bridge":
        return bridge, UNKNOWN
    for child in bridge.children:
        if child.name in _VITAL:
            return child, _VITAL[child.name]
    queue = bridge.find("queue-name")
    if queue is None or not queue.text:
        return bridge, "it names no queue"
    try:
        _targets(bridge, core)
    except NoTarget as error:
        return bridge.find("static-connectors") or bridge, f"{error}: write [links.NAME] by hand"
    return None


def _leave(bridge: Element, draft: Draft, what: str, culprit: Element, why: str) -> None:
    for child in (bridge, *bridge.children):
        found = place(child, what if child is bridge else f"{what}: {child.name}", _text(child))
        draft.report.left(found, why if child is culprit else "the bridge is left out")


def _text(element: Element) -> str:
    if element.name == "static-connectors":
        return ", ".join(each.text for each in element.children)
    return element.attributes.get("string", element.text)


def _references(bridge: Element) -> Iterator[tuple[str, Element]]:
    for references in bridge.all("static-connectors"):
        for each in references.children:
            yield each.text, each


def _targets(bridge: Element, core: Element) -> list[Target]:
    """The targets of a bridge's connectors.  Raises NoTarget."""
    known = {
        each.attributes.get("name", ""): each.text for section in core.all("connectors") for each in section.children
    }
    targets: list[Target] = []
    for name, _ in _references(bridge):
        if name not in known:
            raise NoTarget(f"there is no connector {name}")
        targets += one_of(known[name])
    if not targets:
        raise NoTarget("it refers to no connector")
    if any(target.scheme != "tcp" for target in targets):
        raise NoTarget("only tcp:// leads to another broker")
    return targets


def _bridge(bridge: Element, draft: Draft, core: Element, what: str) -> None:
    given = {child.name: child for child in reversed(bridge.children)}
    for child in bridge.children:
        if given[child.name] is not child:
            draft.report.left(
                place(child, f"{what}: {child.name}", _text(child)), "it is given twice: the first applies"
            )
    places = {name: place(child, f"{what}: {name}", _text(child)) for name, child in given.items()}
    change = _CORE
    if "use-duplicate-detection" not in given:
        change += f"; {_TWICE}"
    if "user" not in given:
        change += "; it has no user, and cluster-user is not carried over"
    link = connect_to(draft, bridge, what, bridge.attributes.get("name", ""), _targets(bridge, core), change)
    user = given["user"].text if "user" in given else ""
    log_in(draft, link, Login(places.get("user"), user, places.get("password")))
    _route(given, draft, link, core, places)
    _times(given, draft, link, places)
    for name, found in places.items():
        if name == "static-connectors":
            draft.report.add(found, Outcome.TAKEN, why="the url of the link says it")
        elif name not in _ELSEWHERE:
            apply(draft, _SETTINGS.get(name, Leave(UNKNOWN)), found, given[name].text)
    for name, text in bridge.attributes.items():
        if name != "name":
            draft.report.left(place(bridge, f"{what}: {name}", text), UNKNOWN)


def _route(given: dict[str, Element], draft: Draft, link: Key, core: Element, places: dict[str, Place]) -> None:
    name, address, kind = (
        given[each].text if each in given else "" for each in ("queue-name", "forwarding-address", "routing-type")
    )
    known = configured_queues(core).get(name)
    queue = known or ConfiguredQueue(name, name, "ANYCAST")
    key = route(draft, link, "send", name)
    source = places["queue-name"]
    draft.put(source, (*key, "queue"), name, vital=True)
    if address:
        draft.put(places["forwarding-address"], (*key, "address"), address, vital=True)
    else:
        bare = replace(source, what=f"{source.what}, no forwarding-address", value="")
        found = places.get("forwarding-address", bare)
        change = "messages kept their own addresses; here all go to the address of the queue"
        draft.put(found, (*key, "address"), queue.address, change=change, vital=True)
    if kind in ("ANYCAST", "MULTICAST"):
        draft.put(places["routing-type"], (*key, "routing-type"), kind)
    else:
        found = places.get("routing-type", replace(source, what=f"{source.what}, no routing-type", value=""))
        change = "messages kept their own type; here all have that of the queue"
        change += "" if known else ", which the file does not have: an anycast one is assumed"
        draft.put(found, (*key, "routing-type"), queue.routing_type, change=change)


def _times(given: dict[str, Element], draft: Draft, link: Key, places: dict[str, Place]) -> None:
    """Put the intervals: Artemis multiplies the time between attempts, by 1 by default, a link by 2."""
    if "check-period" in given:
        text = given["check-period"].text
        draft.put_text(places["check-period"], (*link, "idle-timeout"), "0" if text == "-1" else text)
    multiplier = given["retry-interval-multiplier"].text if "retry-interval-multiplier" in given else "1"
    constant = multiplier in ("1", "1.0")
    if "retry-interval" in given:
        put_retry_interval(draft, places["retry-interval"], link, given["retry-interval"].text, constant=constant)
    if "retry-interval-multiplier" in given:
        found = places["retry-interval-multiplier"]
        if constant or multiplier in ("2", "2.0"):
            draft.report.add(found, Outcome.TAKEN, why="retry-interval and retry-interval-max say it")
        else:
            draft.report.left(found, "the time between attempts doubles, up to retry-interval-max")
    if "max-retry-interval" in given and constant:
        draft.report.left(places["max-retry-interval"], "without a multiplier the time between attempts stays")
    elif "max-retry-interval" in given:
        draft.put_text(places["max-retry-interval"], (*link, "retry-interval-max"), given["max-retry-interval"].text)


#: Elements that _bridge does not translate by the table.
_ELSEWHERE: Final = (
    "check-period",
    "forwarding-address",
    "max-retry-interval",
    "password",
    "queue-name",
    "retry-interval",
    "retry-interval-multiplier",
    "routing-type",
    "user",
)
