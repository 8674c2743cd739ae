"""The listeners of a mosquitto.conf as acceptors for MQTT, also over WebSocket and TLS.

A restriction of clients without a counterpart keeps the acceptor disabled, as in doors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.config.acceptors import topic_prefix
from broker.importing.doors import shut
from broker.importing.draft import Draft
from broker.importing.mosquitto_file import Conf, Line, Section, apply_rule, holding
from broker.importing.mosquitto_tables import (
    EACH,
    GENERAL_RULES,
    LISTENER_RULES,
    OF_LISTENER,
    OPTIONS,
    STRICTER,
    TLS,
    Number,
)
from broker.importing.mosquitto_tls import tls
from broker.importing.report import Outcome, Place

_TRUTHS: Final = ("allow-zero-length-clientid", "retain-available")

#: Protocols of listeners that cannot become MQTT acceptors.
_OTHERS: Final = {
    "http_api": "the acceptor for HTTP has the console, the management calls and /metrics",
    "mqttsn": "MQTT-SN is not supported",
}


class Acceptor(NamedTuple):
    """The acceptor made from a listener: its name, and its name in the report."""

    name: str
    what: str
    section: Section


def listeners(conf: Conf, draft: Draft) -> list[Acceptor]:
    """Translate all listeners."""
    if conf.default not in conf.every_listener:
        for line in conf.default.lines:
            draft.report.left(
                line.place(), "it is for the default listener, which does not exist when others are given"
            )
    found = [_listener(section, draft) for section in conf.every_listener]
    return [acceptor for acceptor in found if acceptor is not None]


def put_number(
    draft: Draft, line: Line, found: Place, acceptors: Sequence[Acceptor], numbers: Sequence[Number]
) -> None:
    """Put a number or a boolean to acceptors; only the first is reported."""
    reported = False
    for acceptor in acceptors:
        for number in numbers:
            key = ("acceptors", acceptor.name, number.key)
            text = number.zero if line.word == "0" else line.word
            if number.key in _TRUTHS:
                text = {"0": "false", "1": "true"}.get(text, text)
            draft.put_text(found, key, text, factor=number.factor, change=number.change, quiet=reported)
            if not draft.has(key):
                return
            reported = True


def _listener(section: Section, draft: Draft) -> Acceptor | None:
    """Translate one listener; None if it cannot be translated."""
    port, host = _endpoint(section)
    what = f"listener {port}"
    why = _impossible(section, port)
    if why:
        for line in (section.head, *section.lines):
            if line is not None:
                draft.report.left(line.place() if line is section.head else line.place(what), why)
        return None
    acceptor = Acceptor(_name(draft, port), what, section)
    key = ("acceptors", acceptor.name)
    draft.put(Place(0, what), (*key, "protocol"), "mqtt", quiet=True)
    bound, given = section.get("bind_address"), section.head or section.get("port")
    found = bound.place() if bound is not None else Place(0, what)
    draft.put(found, (*key, "host"), host, quiet=bound is None)
    if given is not None:
        draft.put(given.place(), (*key, "port"), int(port), vital=True)
    else:
        change = "" if bound is not None else "as in Mosquitto, only for clients of this machine"
        draft.put(Place(0, "no listener"), (*key, "port"), int(port), change=change, quiet=bound is not None)
    for line in holding(section.lines, draft, what):
        _setting(draft, line, acceptor)
    tls(draft, section, what, acceptor.name)
    return acceptor


def _endpoint(section: Section) -> tuple[str, str]:
    """The port and the address of a listener."""
    domain, port, bound = (section.get(name) for name in ("socket_domain", "port", "bind_address"))
    anywhere = "::" if domain is not None and domain.word == "ipv6" else "0.0.0.0"
    if section.head is not None:
        number, address, *_ = [*section.head.value.split(), "", ""]
        return number, address if address and not address.startswith("#") else anywhere
    if bound is not None:
        return port.word if port is not None else "1883", bound.value
    return ("1883", "127.0.0.1") if port is None else (port.word, anywhere)


def _impossible(section: Section, port: str) -> str:
    """Why a listener cannot become an acceptor; empty if it can."""
    protocol = section.get("protocol")
    if port == "0":
        return "there are no acceptors on Unix sockets"
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535):
        return "a listener has a port from 1 to 65535"
    return "" if protocol is None else _OTHERS.get(protocol.word, "")


def _name(draft: Draft, port: str) -> str:
    name, number = "mqtt", 1
    while draft.has(("acceptors", name)):
        name = f"mqtt-{port}" if number == 1 else f"mqtt-{port}-{number}"
        number += 1
    return name


def _setting(draft: Draft, line: Line, acceptor: Acceptor) -> None:
    found = line.place(acceptor.what)
    special = _SPECIAL.get(line.name)
    if special is not None:
        special(draft, line, found, acceptor)
    elif line.name in OF_LISTENER or line.name in EACH:
        put_number(draft, line, found, [acceptor], OF_LISTENER.get(line.name) or EACH[line.name])
    elif line.name in STRICTER:
        shut(draft, found, acceptor.name, STRICTER[line.name])
    elif line.name.startswith(OPTIONS):
        draft.report.left(found, "it is for a plug-in")
    elif line.name not in _ELSEWHERE:
        rules = LISTENER_RULES | GENERAL_RULES
        apply_rule(draft, rules[line.name], line, found)


#: Handled elsewhere.
_ELSEWHERE: Final = TLS | {"allow_anonymous", "bind_address", "listener_allow_anonymous", "port"}


def _protocol(draft: Draft, line: Line, found: Place, acceptor: Acceptor) -> None:
    if line.word == "websockets":
        draft.put(found, ("acceptors", acceptor.name, "websocket"), True)
    elif line.word == "mqtt":
        draft.report.add(found, Outcome.TAKEN)
    else:
        draft.report.left(found, "a listener speaks mqtt, websockets or http_api")


def _origin(draft: Draft, line: Line, found: Place, acceptor: Acceptor) -> None:
    origins = [each.value for each in acceptor.section.lines if each.name == line.name]
    key = ("acceptors", acceptor.name, "websocket-origins")
    if draft.has(key):
        draft.report.add(found, Outcome.TAKEN, ".".join(key))
    else:
        draft.put(found, key, origins)


def _mount_point(draft: Draft, line: Line, found: Place, acceptor: Acceptor) -> None:
    try:
        topic_prefix(line.value)
    except ValueError as error:
        shut(
            draft,
            found,
            acceptor.name,
            f"its clients saw only topics below it, but mount-point cannot have this value: {error}",
        )
    else:
        change = "client identifiers get it too, but $SYS does not"
        draft.put(found, ("acceptors", acceptor.name, "mount-point"), line.value, change=change)


def _interface(draft: Draft, line: Line, found: Place, acceptor: Acceptor) -> None:
    shut(draft, found, acceptor.name, "give the address of that interface as host")


def _proxied(draft: Draft, line: Line, found: Place, acceptor: Acceptor) -> None:
    if line.truth:
        shut(draft, found, acceptor.name, "an acceptor does not learn from proxies whether a client uses TLS")
    else:
        draft.report.add(found, Outcome.TAKEN)


def _domain(draft: Draft, line: Line, found: Place, acceptor: Acceptor) -> None:
    draft.report.add(found, Outcome.TAKEN, f"acceptors.{acceptor.name}.host")


_SPECIAL: Final[dict[str, Callable[[Draft, Line, Place, Acceptor], None]]] = {
    "bind_interface": _interface,
    "mount_point": _mount_point,
    "protocol": _protocol,
    "proxy_protocol_v2_require_tls": _proxied,
    "socket_domain": _domain,
    "websockets_origin": _origin,
}
