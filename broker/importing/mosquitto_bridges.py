"""A mosquitto.conf's bridges: each `connection` becomes a link over MQTT, each `topic` one of its routes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from broker.importing.acceptors import Target
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.links import Login, connect, drop_without_routes, log_in, put_retry_interval, route
from broker.importing.mosquitto_file import Line, Section, apply_rule, holding
from broker.importing.mosquitto_tables import BRIDGE_RULES, OF_BRIDGE, START
from broker.importing.report import Outcome, Place
from broker.importing.rules import Leave
from broker.importing.targets import url_of

PORT: Final = 1_883
"""The port of an address that has none, also with TLS."""

_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]/?#@,$%:]+)(:(?P<port>[0-9]{1,5}))?")
_WORD: Final = re.compile(r'\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^\s"]\S*))(?=\s|$)')
_LEFT_OUT: Final = "the connection is left out"
_DIRECTIONS: Final = ("out", "in", "both")


def bridges(sections: list[Section], draft: Draft) -> None:
    """Translate all bridges."""
    for section in sections:
        assert section.head is not None, "a bridge begins with its connection"
        _bridge(section, section.head, draft)


def _bridge(section: Section, head: Line, draft: Draft) -> None:
    what = f"connection {head.word}"
    held = holding(section.lines, draft, what)
    address = section.get("address")
    urls = [] if address is None else _urls(address.value, secure=_secure(section))
    shared = section.get("bridge_psk") or section.get("bridge_identity")
    if shared is not None or not urls:
        why = "TLS with keys shared in advance is not supported: write the link with a certificate by hand"
        if shared is None:
            why = "it has no list of hosts and ports as address: write [links.NAME] by hand"
        draft.report.left(Place(head.number, what), why)
        for line in held:
            found = line.place(what)
            draft.report.left(replace(found, value="") if line is address else found, _LEFT_OUT)
        return
    link = connect(draft, Place(head.number, what), head.word, urls)
    user, password = section.get("remote_username"), section.get("remote_password")
    login = Login(
        None if user is None else user.place(what),
        "" if user is None else user.value,
        None if password is None else password.place(what),
    )
    log_in(draft, link, login)
    for line in held:
        _setting(section, line, line.place(what), draft, link)
    drop_without_routes(draft, link)


def _secure(section: Section) -> bool:
    authorities = section.get("bridge_cafile") or section.get("bridge_capath")
    return authorities is not None or section.truth("bridge_tls_use_os_certs")


def _urls(text: str, *, secure: bool) -> list[str]:
    """The URLs of all addresses; empty if one of them is not a host and port."""
    urls: list[str] = []
    for word in text.split():
        if word.startswith("#"):
            break
        # in an IPv6 address the last colon precedes the port
        host, port = (f"[{word.rpartition(':')[0]}]", word.rpartition(":")[2]) if word.count(":") > 1 else ("", "")
        found = _HOST.fullmatch(f"{host}:{port}" if host and not word.startswith("[") else word)
        if found is None or not 1 <= int(found["port"] or PORT) <= 65_535:
            return []
        target = Target("", found["host"].strip("[]"), int(found["port"] or PORT), {})
        urls.append(url_of(target, mqtt=True, secure=secure))
    return urls


def _setting(section: Section, line: Line, found: Place, draft: Draft, link: Key) -> None:
    if line.name == "topic":
        _topic(line, found, draft, link)
    elif line.name in ("address", "addresses"):
        _addresses(line, found, draft, link, in_turn=section.truth("round_robin"))
    elif line.name in OF_BRIDGE:
        number = OF_BRIDGE[line.name]
        text = line.value if number.factor == 1 else line.word
        draft.put_text(found, (*link, number.key), text, factor=number.factor, change=number.change)
    elif line.name == "restart_timeout":
        _restart(line, found, draft, link)
    elif line.name == "start_type" and line.word == "manual":
        draft.put(found, (*link, "enabled"), False)
    elif line.name == "start_type":
        apply_rule(draft, START.get(line.word, Leave("it is automatic, lazy or once")), line, found)
    elif line.name == "bridge_protocol_version":
        _version(line, found, draft)
    elif line.name == "bridge_tls_use_os_certs":
        if line.truth and section.get("bridge_cafile") is not None:
            draft.report.left(found, "ca replaces the system's authorities")
        else:
            draft.report.add(found, Outcome.TAKEN)
    elif line.name == "bridge_require_ocsp":
        _revoked(line, found, draft, link)
    elif line.name in BRIDGE_RULES:
        apply_rule(draft, BRIDGE_RULES[line.name], line, found)


def _addresses(line: Line, found: Place, draft: Draft, link: Key, *, in_turn: bool) -> None:
    if len(_urls(line.value, secure=False)) > 1 and not in_turn:
        why = "they are tried in turn: the link stays where it is connected, and does not return to the first"
        draft.report.add(found, Outcome.CHANGED, ".".join((*link, "url")), why)
    else:
        draft.report.add(found, Outcome.TAKEN, ".".join((*link, "url")))


def _restart(line: Line, found: Place, draft: Draft, link: Key) -> None:
    """`restart_timeout CONSTANT`, or `restart_timeout BASE CAP [STABLE]`, in seconds."""
    base, cap, stable, *_ = [*line.value.split(), "", "", ""]
    put_retry_interval(draft, found, link, base, constant=not cap, factor=1_000)
    if cap:
        change = "the time between attempts doubles; Mosquitto chooses it at random"
        longest = Place(found.line, f"{found.what}, the longest", cap)
        draft.put_text(longest, (*link, "retry-interval-max"), cap, factor=1_000, change=change)
    if stable:
        why = "a link that has logged in begins with retry-interval again"
        draft.report.left(Place(found.line, f"{found.what}, until stable", stable), why)


def _version(line: Line, found: Place, draft: Draft) -> None:
    if line.word in ("mqttv311", "mqttv50"):
        draft.report.add(found, Outcome.TAKEN, why="MQTT 5 is tried first, then 3.1.1")
    else:
        draft.report.left(found, "MQTT 5 is tried first, then 3.1.1; links speak no other version")


def _revoked(line: Line, found: Place, draft: Draft, link: Key) -> None:
    if line.truth:
        why = "links do not check whether a certificate has been revoked: the link is disabled until you enable it"
        draft.report.add(found, Outcome.STRICTER, why=why)
        draft.put(found, (*link, "enabled"), False, quiet=True)
    else:
        draft.report.add(found, Outcome.TAKEN)


def _topic(line: Line, found: Place, draft: Draft, link: Key) -> None:
    """`topic PATTERN [out | in | both [QOS [LOCAL-PREFIX REMOTE-PREFIX]]]`."""
    words = _words(line.value)
    topic, direction, qos, local, remote = (*words[:5], *("", "out", "0", "", "")[len(words) :])
    direction = direction.lower()
    why = ""
    if not words or direction not in _DIRECTIONS or qos not in ("0", "1", "2"):
        why = "it is not PATTERN, then out, in or both, a QoS of 0, 1 or 2, and two prefixes: write the route by hand"
    elif not topic:  # a topic here maps to another one there
        topic = _common_end(local, remote)
        topic = topic.removeprefix("/") or topic
        local, remote = local.removesuffix(topic), remote.removesuffix(topic)
        why = "" if topic else "a route's topics must have the same ending on both sides: these do not"
    if why:
        draft.report.left(found, why)
        return
    key = route(draft, link, "mqtt", topic)
    draft.put(found, (*key, "topic"), topic, vital=True)
    draft.put(found, (*key, "direction"), direction, quiet=True, vital=True)
    draft.put(found, (*key, "qos"), int(qos), quiet=True, vital=True)
    for setting, prefix in (("local-prefix", local), ("remote-prefix", remote)):
        if prefix:
            draft.put(found, (*key, setting), prefix, quiet=True, vital=True)


def _common_end(one: str, other: str) -> str:
    same = 0
    while same < min(len(one), len(other)) and one[-1 - same] == other[-1 - same]:
        same += 1
    return one[len(one) - same :]


def _words(text: str) -> list[str]:
    """The words of a topic line; quoted words may have spaces; empty if quotes are unbalanced."""
    words: list[str] = []
    at = 0
    while text[at:].strip():
        found = _WORD.match(text, at)
        if found is None:
            return []
        if words and (found["plain"] or "").startswith("#"):  # a comment
            break
        words.append(found["quoted"] if found["plain"] is None else found["plain"])
        at = found.end()
    return words
