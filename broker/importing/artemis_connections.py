"""<broker-connections> of an Artemis broker.xml: senders and receivers become the routes of a link.

A sender reads a queue here and sends to the address of that queue there; a receiver reads from that address there, into
the same address here.  Both are for one queue of this broker, or for all whose addresses match a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.config.diverts import WildcardsSection
from broker.engine.model.names import DEFAULT_SYNTAX, WildcardSyntax
from broker.engine.model.settings_match import InvalidMatch, matcher
from broker.importing.addresses import ConfiguredQueue, configured_queues
from broker.importing.connectors import connect_to
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.links import ALWAYS_TRIES, Login, drop_without_routes, log_in, put_retry_interval, route
from broker.importing.report import Place, place
from broker.importing.rules import Always, Leave, Rule, apply
from broker.importing.targets import NoTarget, one_of
from broker.importing.xml import Element

_NO_LINK: Final = "not without the addresses of its connection"
_UNKNOWN: Final = "unknown to this importer"

#: Children of a connection that are no routes, and what there is instead.
_LEFT: Final[dict[str, str]] = {
    "mirror": "links pass messages on: they do not copy queues and acknowledgements",
    "federation": "links follow no demand: a receive route with only-with-consumers = true and priority = -1 fetches"
    " from a queue there, a topics route of the broker there sends what is published",
    "bridge": "its policies follow demand: write send, receive or topics routes for what they pass on",
    "peer": "links do not say that they serve a router's waypoint: let the router connect here, with autoLinks",
}

#: Attributes of a connection that have no setting of their own.
_ATTRIBUTES: Final[dict[str, Rule]] = {
    "reconnect-attempts": Always("-1", ALWAYS_TRIES),
    "local-bind-port": Leave("the operating system chooses the port that a link connects from"),
}


def broker_connections(element: Element, draft: Draft, core: Element) -> None:
    """All of them."""
    for connection in element.children:
        name = connection.attributes.get("name", "")
        if connection.name == "amqp-connection":
            _connection(connection, draft, core, f"amqp-connection {name}".strip())
        else:
            draft.report.left(place(connection, f"{connection.name} {name}".strip(), ""), _UNKNOWN)


def _connection(connection: Element, draft: Draft, core: Element, what: str) -> None:
    given = connection.attributes
    try:
        targets = one_of(given.get("uri", ""))
        if any(target.scheme != "tcp" for target in targets):
            raise NoTarget("only tcp:// leads to another broker")
    except NoTarget as error:
        draft.report.left(place(connection, what, ""), f"{error}: write [links.NAME] by hand")
        for each in _parts(connection, draft, what):
            draft.report.left(each, _NO_LINK)
        return
    link = connect_to(draft, connection, what, given.get("name", ""), targets)
    _attributes(connection, draft, link, what)
    seen: dict[tuple[str, str], int] = {}
    for child in connection.children:
        if child.name in ("sender", "receiver"):
            _route(child, draft, link, f"{what}: {child.name}", core, seen)
        else:
            _left(child, draft, what)
    drop_without_routes(draft, link)


def _parts(connection: Element, draft: Draft, what: str) -> Iterator[Place]:
    """What a connection says besides where it goes, as far as that is not told already."""
    for name, text in connection.attributes.items():
        if name not in ("name", "uri"):
            yield place(connection, f"{what}: {name}", text)
    for child in connection.children:
        if child.name in _LEFT:
            _left(child, draft, what)
        else:
            yield place(child, f"{what}: {child.name}", _pattern(child))


def _attributes(connection: Element, draft: Draft, link: Key, what: str) -> None:
    given = connection.attributes
    places = {name: place(connection, f"{what}: {name}", text) for name, text in given.items()}
    log_in(draft, link, Login(places.get("user"), given.get("user", ""), places.get("password")))
    for name, found in places.items():
        if name == "retry-interval":
            put_retry_interval(draft, found, link, given[name], constant=True)
        elif name == "auto-start":
            draft.put_text(found, (*link, "enabled"), given[name])
        elif name not in ("name", "uri", "user", "password"):
            apply(draft, _ATTRIBUTES.get(name, Leave(_UNKNOWN)), found, given[name])


def _left(child: Element, draft: Draft, what: str) -> None:
    """Something that is no route, with the policies in it."""
    why = _LEFT.get(child.name, _UNKNOWN)
    draft.report.left(place(child, f"{what}: {child.name}", _pattern(child)), why)
    for policy in child.children:
        name = policy.attributes.get("name", policy.attributes.get("key", ""))
        inner = ", ".join(f"{each.name} {_pattern(each)}".strip() for each in policy.children)
        found = place(policy, f"{what}: {policy.name} {name}".strip(), inner)
        draft.report.left(found, f"it is of a {child.name}, which has no counterpart")


def _pattern(element: Element) -> str:
    """What a route, or a part of a policy, is for."""
    names = ("queue-name", "address-match", "queue-match", "address-filter")
    return " ".join(element.attributes[name] for name in names if name in element.attributes)


def _route(child: Element, draft: Draft, link: Key, what: str, core: Element, seen: dict[tuple[str, str], int]) -> None:
    """A route for each queue that it is for; one that another is for already stays that one's, as in Artemis."""
    name, pattern = child.attributes.get("queue-name"), child.attributes.get("address-match")
    for other, text in child.attributes.items():
        if other not in ("queue-name", "address-match"):
            draft.report.left(place(child, f"{what}: {other}", text), _UNKNOWN)
    queues = configured_queues(core)
    if name is not None:
        change = (
            "" if name in queues else "the file has no such queue: one on an anycast address of its name is assumed"
        )
        wanted = [queues.get(name, ConfiguredQueue(name, name, "ANYCAST"))]
    else:
        wanted = [queue for queue in queues.values() if _matches(pattern or "", queue.address, core)]
        change = "it is for the queues of the file alone: write a route for each other one that clients make"
    for queue in wanted:
        found = place(child, f"{what} {queue.name}", pattern if name is None else "")
        first = seen.setdefault((child.name, queue.name), child.line)
        if first != child.line:
            draft.report.left(found, f"line {first} passes on what is in it already")
        elif child.name == "sender":
            _send(draft, found, link, queue, change)
        else:
            _receive(draft, found, link, queue, change)
    if not wanted:
        draft.report.left(place(child, what, _pattern(child)), "no queue of the file is on such an address")


def _send(draft: Draft, found: Place, link: Key, queue: ConfiguredQueue, change: str) -> None:
    key = route(draft, link, "send", queue.name)
    draft.put(found, (*key, "queue"), queue.name, change=change, vital=True)
    draft.put(found, (*key, "address"), queue.address, quiet=True, vital=True)
    draft.put(found, (*key, "routing-type"), queue.routing_type, quiet=True)


def _receive(draft: Draft, found: Place, link: Key, queue: ConfiguredQueue, change: str) -> None:
    if queue.routing_type == "MULTICAST":
        why = "it reads a topic there, but a receive route a queue: make one on that topic, and name it in the route"
        draft.report.left(found, why)
        return
    key = route(draft, link, "receive", queue.name)
    draft.put(found, (*key, "queue"), queue.address, change=change, vital=True)
    draft.put(found, (*key, "address"), queue.address, quiet=True, vital=True)


def _matches(pattern: str, address: str, core: Element) -> bool:
    try:
        return matcher(pattern, syntax=_syntax(core))(address)
    except InvalidMatch:
        return False


def _syntax(core: Element) -> WildcardSyntax:
    section = core.find("wildcard-addresses")
    wanted = ("delimiter", "any-words", "single-word")
    given = {each.name: each.text for each in (section.children if section else ()) if each.name in wanted}
    try:
        return WildcardsSection.model_validate(given).syntax()
    except ValueError:
        return DEFAULT_SYNTAX
