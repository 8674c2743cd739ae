"""<broker-connections> of an Artemis broker.xml: senders and receivers become the routes of a link.

A sender reads a queue here and sends to the address of that queue on the other broker; a receiver reads from that
address there, to the same address here.  Both are for one queue of this broker, or for all whose addresses match a
pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.config.diverts import WildcardsSection
from broker.engine.model.names import DEFAULT_SYNTAX, WildcardSyntax
from broker.engine.model.settings_match import InvalidMatch, matcher
from broker.importing.addresses import ConfiguredQueue, configured_queues
from broker.importing.connectors import connect_to
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.links import ALWAYS_TRIES, Login, drop_without_routes, log_in, put_retry_interval, route
from broker.importing.report import Place, place
from broker.importing.rules import UNKNOWN, Always, Leave, Rule, apply
from broker.importing.targets import NoTarget, one_of
from broker.importing.xml import Element

_NO_LINK: Final = "not without the addresses of its connection"

#: Children of a connection that are not routes, and what to use instead.
_LEFT: Final[dict[str, str]] = {
    "mirror": "links forward messages: they do not copy queues and acknowledgements",
    "federation": "links do not follow demand: a receive route with only-with-consumers = true and priority = -1"
    " fetches from a queue there, a topics route of the broker there sends what is published",
    "bridge": "its policies follow demand: write send, receive or topics routes for what they forward",
    "peer": "links do not announce that they serve a router's waypoint: let the router connect here, with autoLinks",
}

#: Attributes of a connection without a setting.
_ATTRIBUTES: Final[dict[str, Rule]] = {
    "reconnect-attempts": Always("-1", ALWAYS_TRIES),
    "local-bind-port": Leave("the operating system chooses the port that a link connects from"),
}


def broker_connections(element: Element, draft: Draft, core: Element) -> None:
    """Translate all broker connections."""
    queues, syntax = configured_queues(core), _syntax(core)
    for connection in element.children:
        name = connection.attributes.get("name", "")
        if connection.name == "amqp-connection":
            _connection(connection, draft, f"amqp-connection {name}".strip(), queues, syntax)
        else:
            draft.report.left(place(connection, f"{connection.name} {name}".strip(), ""), UNKNOWN)


def _connection(
    connection: Element, draft: Draft, what: str, queues: Mapping[str, ConfiguredQueue], syntax: WildcardSyntax
) -> None:
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
    seen: dict[tuple[str, str], Element] = {}
    for child in connection.children:
        if child.name in ("sender", "receiver"):
            _routes(child, draft, link, f"{what}: {child.name}", _Wanted(queues, syntax, seen))
        else:
            _left(child, draft, what)
    drop_without_routes(draft, link)


def _parts(connection: Element, draft: Draft, what: str) -> Iterator[Place]:
    """The attributes and children of a connection other than its target that are not reported yet."""
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
            apply(draft, _ATTRIBUTES.get(name, Leave(UNKNOWN)), found, given[name])


def _left(child: Element, draft: Draft, what: str) -> None:
    """Report a child that is not a route, with its policies."""
    why = _LEFT.get(child.name, UNKNOWN)
    draft.report.left(place(child, f"{what}: {child.name}", _pattern(child)), why)
    for policy in child.children:
        name = policy.attributes.get("name", policy.attributes.get("key", ""))
        inner = ", ".join(f"{each.name} {_pattern(each)}".strip() for each in policy.children)
        found = place(policy, f"{what}: {policy.name} {name}".strip(), inner)
        draft.report.left(found, f"it is of a {child.name}, which has no counterpart")


def _pattern(element: Element) -> str:
    """The queues or addresses that a route, or a part of a policy, is for."""
    names = ("queue-name", "address-match", "queue-match", "address-filter")
    return " ".join(element.attributes[name] for name in names if name in element.attributes)


class _Wanted(NamedTuple):
    """The queues of the file, the wildcard syntax, and the sender or receiver that each queue already has."""

    queues: Mapping[str, ConfiguredQueue]
    syntax: WildcardSyntax
    seen: dict[tuple[str, str], Element]

    def of(self, child: Element) -> tuple[list[ConfiguredQueue], str]:
        """The queues that a sender or receiver is for, and a remark for the report."""
        name, pattern = child.attributes.get("queue-name"), child.attributes.get("address-match", "")
        if name is not None and name in self.queues:
            return [self.queues[name]], ""
        if name is not None:
            assumed = "the file has no such queue: one on an anycast address of its name is assumed"
            return [ConfiguredQueue(name, name, "ANYCAST")], assumed
        try:
            matches = matcher(pattern, syntax=self.syntax)
        except InvalidMatch:
            return [], ""
        found = [queue for queue in self.queues.values() if matches(queue.address)]
        return found, "it covers only the queues in the file: write a route for each queue that clients create"


def _routes(child: Element, draft: Draft, link: Key, what: str, wanted: _Wanted) -> None:
    """Put a route for each queue; a queue that already has a route keeps it, as in Artemis."""
    for name, text in child.attributes.items():
        if name not in ("queue-name", "address-match"):
            draft.report.left(place(child, f"{what}: {name}", text), UNKNOWN)
    queues, change = wanted.of(child)
    for queue in queues:
        found = place(child, f"{what} {queue.name}", "" if "queue-name" in child.attributes else _pattern(child))
        first = wanted.seen.setdefault((child.name, queue.name), child)
        if first is not child:
            draft.report.left(found, f"line {first.line} already forwards its messages")
        elif child.name == "sender":
            _send(draft, found, link, queue, change)
        else:
            _receive(draft, found, link, queue, change)
    if not queues:
        draft.report.left(place(child, what, _pattern(child)), "no queue of the file is on such an address")


def _send(draft: Draft, found: Place, link: Key, queue: ConfiguredQueue, change: str) -> None:
    key = route(draft, link, "send", queue.name)
    draft.put(found, (*key, "queue"), queue.name, change=change, vital=True)
    draft.put(found, (*key, "address"), queue.address, quiet=True, vital=True)
    draft.put(found, (*key, "routing-type"), queue.routing_type, quiet=True)


def _receive(draft: Draft, found: Place, link: Key, queue: ConfiguredQueue, change: str) -> None:
    if queue.routing_type == "MULTICAST":
        why = "it reads a topic there, but receive routes read queues: create one on that topic and name it"
        draft.report.left(found, why)
        return
    key = route(draft, link, "receive", queue.name)
    draft.put(found, (*key, "queue"), queue.address, change=change, vital=True)
    draft.put(found, (*key, "address"), queue.address, quiet=True, vital=True)


def _syntax(core: Element) -> WildcardSyntax:
    section = core.find("wildcard-addresses")
    wanted = ("delimiter", "any-words", "single-word")
    given = {each.name: each.text for each in (section.children if section else ()) if each.name in wanted}
    try:
        return WildcardsSection.model_validate(given).syntax()
    except ValueError:
        return DEFAULT_SYNTAX
