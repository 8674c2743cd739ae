"""Artemis's acceptors, each for several protocols; here each protocol has its own, and `also` shares the port."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.importing.doors import guard
from broker.importing.draft import Draft
from broker.importing.kinds import acceptor_keys
from broker.importing.report import Place, place
from broker.importing.rules import Leave, leave_all
from broker.importing.xml import Element

PORT: Final = 61_616
"""The port of Artemis and ActiveMQ if an address has none."""

#: The protocols of an Artemis acceptor that does not list any.
_ALL: Final = ("CORE", "AMQP", "STOMP", "HORNETQ", "MQTT", "OPENWIRE")
#: The order of protocols: the first one gets the section with the acceptor's own name.
_FIRST: Final = ("amqp", "stomp", "mqtt")

_ADDRESS: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://\(?(?P<host>\[[^]]*]|[^:/?#,()]*)(:(?P<port>[0-9]{1,5}))?[^?]*(\?(?P<query>.*))?",
    re.DOTALL,
)

#: Parameters with another name or unit in broker.toml: the name, and the factor.
_RENAMED: Final[dict[str, tuple[str, int]]] = {
    "handshake-timeout": ("handshake-timeout", 1000),
    "handshakeTimeout": ("handshake-timeout", 1000),
    "maxFrameSize": ("max-frame-size", 1),
    "stompConsumerCredits": ("stomp-consumer-window-size", 1),
}

_LEFT: Final = leave_all(
    {
        "sockets are left to the operating system": (
            "tcpNoDelay",
            "tcpReceiveBufferSize",
            "tcpSendBufferSize",
            "backlog",
            "useEpoll",
            "useKQueue",
            "useIOUring",
            "useNio",
            "nioRemotingThreads",
            "remotingThreads",
            "batchDelay",
            "directDeliver",
            "shutdownTimeout",
            "quietPeriod",
            "writeBufferLowWaterMark",
            "writeBufferHighWaterMark",
            "actorThresholdBytes",
            "readBufferSize",
        ),
        "messages of any size are in the journal: limits.body-bytes-max is the largest": (
            "mqttMinLargeMessageSize",
            "openWireMinLargeMessageSize",
        ),
        "duplicates are found for every protocol": ("amqpDuplicateDetection",),
        "Bartleby has no router or proxy protocol": ("router", "proxyProtocolEnabled"),
        "Bartleby offers SCRAM, PLAIN, EXTERNAL, OAUTHBEARER and, if anonymous clients may connect, ANONYMOUS": (
            "saslMechanisms",
            "saslLoginConfigScope",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where an acceptor listens, and the parameters of its address."""

    scheme: str
    host: str
    port: int
    parameters: Mapping[str, str]


def parse(text: str) -> Target | None:
    """Parse an address in the notation of Artemis and ActiveMQ, with parameters after `?`, separated by `;` or `&`."""
    found = _ADDRESS.fullmatch("".join(text.split()))
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    parameters: dict[str, str] = {}
    for part in re.split("[;&]", found["query"] or ""):
        name, _, value = part.partition("=")
        if name:
            parameters[name] = value
    return Target(found["scheme"].lower(), found["host"].strip("[]"), int(found["port"] or 0), parameters)


def acceptors(element: Element, draft: Draft, _: Element) -> None:
    """Translate all acceptors."""
    for number, acceptor in enumerate(element.all("acceptor"), 1):
        name = acceptor.attributes.get("name") or f"acceptor-{number}"
        target = parse(acceptor.text)
        if target is None or (target.scheme == "tcp" and "${" in acceptor.text.partition("?")[0]):
            why = "this is not an address of one host and port: write the acceptor by hand"
            draft.report.left(place(acceptor, f"acceptor {name}", acceptor.text.partition("?")[0]), why)
        elif target.scheme != "tcp":
            why = f"{target.scheme}:// is for clients inside Artemis's own process"
            draft.report.left(place(acceptor, f"acceptor {name}", acceptor.text.partition("?")[0]), why)
        else:
            _acceptor(acceptor, draft, name, target)


def _acceptor(element: Element, draft: Draft, name: str, target: Target) -> None:
    said = target.parameters.get("protocols")
    protocols = [each.upper() for each in said.split(",") if each] if said else list(_ALL)
    spoken, foreign = split(protocols)
    what = f"acceptor {name}"
    if foreign:
        why = "Bartleby does not speak these: their clients must use AMQP or another of Bartleby's protocols"
        draft.report.left(place(element, f"{what}: protocols", ", ".join(foreign)), why)
    if not spoken:
        return
    names = listen(draft, place(element, what, f"{target.host}:{target.port}"), name, target, spoken)
    if len(spoken) > 1:
        found = place(element, f"{what}: protocols", ", ".join(spoken))
        change = "each protocol has its own section, and all share the port of the first"
        draft.put(found, ("acceptors", name, "also"), ", ".join(list(names)[1:]), change=change)
    given = target.parameters
    guarded = guard(draft, element, what, name, given, tls=given.get("sslEnabled", "").lower() == "true")
    parameters(draft, element, what, names, {name: text for name, text in given.items() if name not in guarded})


def split(protocols: Iterable[str]) -> tuple[list[str], list[str]]:
    """The protocols that this version speaks, in the order of their sections, and the others."""
    known = [each for each in _FIRST if each in acceptor_keys()]
    wanted = [each.lower() for each in protocols]
    return [each for each in known if each in wanted], [each for each in wanted if each not in known]


def listen(draft: Draft, found: Place, name: str, target: Target, protocols: list[str]) -> dict[str, str]:
    """Put the sections of an acceptor; return their names with their protocols."""
    first, *others = protocols
    names = {name: first} | {f"{name}-{each}": each for each in others}
    for section, protocol in names.items():
        key = ("acceptors", section)
        draft.put(found, (*key, "protocol"), protocol, quiet=True)
        if section != name:
            draft.put(found, (*key, "enabled"), False, quiet=True)
            continue
        draft.put(found, (*key, "host"), target.host or "0.0.0.0", quiet=True)
        draft.put(found, (*key, "port"), target.port or PORT, vital=True)
    return names


def parameters(draft: Draft, element: Element, what: str, names: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Put the parameters of an acceptor's address other than its protocols."""
    for parameter, text in given.items():
        if parameter == "protocols":
            continue
        found = place(element, f"{what}: {parameter}", text)
        rule = _LEFT.get(parameter)
        if isinstance(rule, Leave):
            draft.report.left(found, rule.why)
        else:
            _parameter(draft, found, names, parameter, text)
    # Artemis has no prefixes unless they are given; here each protocol has default ones.
    for section, protocol in names.items():
        for key in ("anycast-prefix", "multicast-prefix"):
            if _from_camel(key) in acceptor_keys()[protocol] and not draft.has(("acceptors", section, key)):
                draft.put(place(element, what), ("acceptors", section, key), "", quiet=True)


def _parameter(draft: Draft, found: Place, names: Mapping[str, str], parameter: str, text: str) -> None:
    key, factor = _RENAMED.get(parameter, (_from_camel(parameter), 1))
    why = "acceptors of this version of Bartleby have no such setting"
    put_to_all(draft, found, names, key, text, factor=factor, why=why)


def put_to_all(
    draft: Draft, found: Place, names: Mapping[str, str], key: str, text: str, *, factor: int = 1, why: str
) -> None:
    """Put a setting to the acceptors whose protocols have it; `why`: there is none."""
    takers = [section for section, protocol in names.items() if key in acceptor_keys()[protocol]]
    if not takers:
        draft.report.left(found, why)
    for section in takers:
        draft.put_text(found, ("acceptors", section, key), text, factor=factor)


def _from_camel(name: str) -> str:
    """Convert camelCase to the style of broker.toml."""
    return re.sub("(?<=[a-z0-9])([A-Z])", r"-\1", name).lower()


def http_acceptor(draft: Draft, why: str) -> None:
    """Add an acceptor for HTTP, which the command line needs: the file's acceptors replace all shipped ones."""
    if draft.has(("acceptors",)):
        found = Place(0, "no acceptor for HTTP")
        draft.put(found, ("acceptors", "http", "protocol"), "http", change=f"{why}: Bartleby's own is kept")
