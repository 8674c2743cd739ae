"""<networkConnectors> of an ActiveMQ Classic activemq.xml: statically included destinations become routes of links.

Network connectors speak OpenWire and follow the demand of consumers.  Links speak AMQP, and forward what their routes
name.  So the destinations that a connector forwards without demand are taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final, NamedTuple

from broker.config.links import PORTS
from broker.importing.acceptors import Target
from broker.importing.classic_policies import match_of
from broker.importing.classic_tables import NETWORK, NOT_KNOWN
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.links import Login, connect, drop_without_routes, log_in, route
from broker.importing.report import place
from broker.importing.rules import apply
from broker.importing.targets import NoTarget, each_of, hosts_of, url_of
from broker.importing.xml import Element

_PLAIN: Final = ("tcp", "nio", "auto", "auto+nio")
_SECURE: Final = ("ssl", "nio+ssl", "auto+ssl", "auto+nio+ssl")

_OPENWIRE: Final = "it speaks OpenWire, a link AMQP: check that the other broker accepts AMQP on {}, or change the url"
_EACH: Final = "static: connects to each broker, so each gets its own link"
_DEMAND: Final = "it forwards what consumers at the other broker ask for: write a route for what a link shall forward"
_HELD_BACK: Final = "excludedDestinations excludes it or a part of it: write a route for the rest by hand"
_RELAY: Final = "the other broker needs an anonymous relay: Bartleby, Artemis or RabbitMQ 4"

#: The lists of a connector that are not translated to routes, and why.
_LISTS: Final[dict[str, str]] = {
    "dynamicallyIncludedDestinations": _DEMAND,
    "excludedDestinations": "a link forwards only what its routes name",
}

#: Parameters of the list of brokers that have a setting in a link.
_TIMES: Final = {"initialReconnectDelay": "retry-interval", "maxReconnectDelay": "retry-interval-max"}


class _Destination(NamedTuple):
    """A queue or topic that a connector names."""

    element: Element
    kind: str
    name: str


def network_connectors(element: Element, draft: Draft) -> None:
    """Translate all network connectors."""
    for connector in element.children:
        what = f"{connector.name} {connector.attributes.get('name', '')}".strip()
        try:
            if connector.name != "networkConnector":
                raise NoTarget("it does not name the brokers: they are only discovered at run time")
            groups, parameters = each_of(connector.attributes.get("uri", ""))
            if any(target.scheme not in (*_PLAIN, *_SECURE) for group in groups for target in group):
                raise NoTarget("only tcp, nio and ssl lead to a broker that may support AMQP")
        except NoTarget as error:
            _leave(connector, draft, what, f"{error}: write [links.NAME] by hand")
            continue
        first: Key | None = None
        for group in groups:
            change = f"{_OPENWIRE}; {_EACH}" if len(groups) > 1 else _OPENWIRE
            first = _link(connector, draft, what, group, change, first)
        _rest(connector, draft, what)
        asked = parameters.items() - {item for item in parameters.items() if item[0] in _TIMES}
        asked |= {item for group in groups for target in group for item in target.parameters.items()}
        for parameter, text in sorted(asked):
            draft.report.left(place(connector, f"{what}: {parameter}", text), "links have no such setting")


def _leave(connector: Element, draft: Draft, what: str, why: str) -> None:
    draft.report.left(place(connector, what, ""), why)
    for attribute, text in connector.attributes.items():
        if attribute not in ("name", "uri"):
            draft.report.left(place(connector, f"{what}: {attribute}", text), "the connector is left out")
    for each in (each for section in connector.children for each in _destinations(section)):
        found = place(each.element, f"{what}: {each.kind} {each.name}".strip(), "")
        draft.report.left(found, "the connector is left out")


def _link(
    connector: Element, draft: Draft, what: str, targets: Sequence[Target], change: str, first: Key | None
) -> Key:
    """Put one link; return the connector's first one.  Settings are reported only for that."""
    given, quiet = connector.attributes, first is not None
    secure = any(target.scheme in _SECURE for target in targets)
    port = PORTS["amqps" if secure else "amqp"]
    urls = [url_of(replace(target, port=0), secure=secure, port=port) for target in targets]
    found = place(connector, what, hosts_of(targets))
    link = connect(draft, found, given.get("name", ""), urls, change.format(f"port {port}"))
    user, password = _login(connector)
    login = Login(
        place(connector, f"{what}: {user}", given[user]) if user in given else None,
        given.get(user, ""),
        place(connector, f"{what}: {password}", given[password]) if password in given else None,
    )
    log_in(draft, link, login, first)
    if "autoStart" in given:
        found = place(connector, f"{what}: autoStart", given["autoStart"])
        draft.put_text(found, (*link, "enabled"), given["autoStart"], quiet=quiet)
    for parameter, text in each_of(given["uri"])[1].items():
        if parameter in _TIMES:
            found = place(connector, f"{what}: {parameter}", text)
            draft.put_text(found, (*link, _TIMES[parameter]), text, quiet=quiet)
    excluded = list(_listed(connector, "excludedDestinations"))
    for each in _listed(connector, "staticallyIncludedDestinations"):
        _route(draft, link, what, each, excluded, quiet=quiet)
    drop_without_routes(draft, link, _DEMAND)
    return first or link


def _route(
    draft: Draft, link: Key, what: str, each: _Destination, excluded: Sequence[_Destination], *, quiet: bool
) -> None:
    found = place(each.element, f"{what}: {each.kind} {each.name}", "")
    why = ""
    if each.kind not in ("queue", "topic") or not each.name or set(each.name) & set(",?"):
        why = "it is not the name of one queue or topic: write a route by hand"
    elif any(other.kind == each.kind and _overlap(other.name, each.name) for other in excluded):
        why = _HELD_BACK
    elif each.kind == "queue" and set(each.name) & set("*>"):
        why = "a route reads one queue: write one for each"
    if why:
        if not quiet:
            draft.report.left(found, why)
    elif each.kind == "queue":
        key = route(draft, link, "send", each.name)
        change = "everything in it is forwarded, whether or not a consumer here waits"
        draft.put(found, (*key, "queue"), each.name, change=change, quiet=quiet, vital=True)
        draft.put(found, (*key, "address"), each.name, quiet=True, vital=True)
    else:
        key = route(draft, link, "topics", each.name)
        draft.put(found, (*key, "address"), match_of(each.name), change=_RELAY, quiet=quiet, vital=True)


def _rest(connector: Element, draft: Draft, what: str) -> None:
    """Report the remaining settings of a connector."""
    handled = ("name", "uri", "autoStart", *_login(connector))
    for attribute, text in connector.attributes.items():
        if attribute not in handled:
            apply(draft, NETWORK.get(attribute, NOT_KNOWN), place(connector, f"{what}: {attribute}", text), text)
    for section in connector.children:
        if section.name in _LISTS:
            for each in _destinations(section):
                found = place(each.element, f"{what}: {section.name} {each.kind} {each.name}".strip(), "")
                draft.report.left(found, _LISTS[section.name])
        elif section.name != "staticallyIncludedDestinations":
            found = place(section, f"{what}: {section.name}", "")
            apply(draft, NETWORK.get(section.name, NOT_KNOWN), found, "")


def _login(connector: Element) -> tuple[str, str]:
    """The attributes with the user and the password for the other broker."""
    remote = "remoteUserName" in connector.attributes
    return ("remoteUserName", "remotePassword") if remote else ("userName", "password")


def _listed(connector: Element, name: str) -> Iterator[_Destination]:
    return (each for section in connector.all(name) for each in _destinations(section))


def _destinations(section: Element) -> Iterator[_Destination]:
    return (_Destination(each, each.name, each.attributes.get("physicalName", "")) for each in section.children)


def _overlap(one: str, other: str) -> bool:
    """Whether a destination may match both of two Classic patterns."""
    for words in zip_longest(one.split("."), other.split(".")):
        if ">" in words:
            return True
        if None in words or (words[0] != words[1] and "*" not in words):
            return False
    return True
