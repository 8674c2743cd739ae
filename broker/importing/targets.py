"""Parses the addresses of other brokers, in the many list notations of Artemis and ActiveMQ Classic.

| form                                        | whose   | means                                   |
|---------------------------------------------|---------|-----------------------------------------|
| `tcp://a:1?q#tcp://b:2,tcp://c:3`           | Artemis | one of them, tried in turn              |
| `(tcp://a:1,tcp://b:2)?q`, `tcp://(a:1,b:2)`| Artemis | the same; `q` is for all of them        |
| `static:(tcp://a:1,tcp://b:2)`              | Classic | a connection to each                    |
| `masterslave:(...)`, `failover:(...)`       | Classic | one of them, also within `static:(...)` |

Anything but a host with an optional port is an error: a link to only half of a list would lose messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from broker.config.links import LinkUrl
from broker.importing.acceptors import Target, parse

LIST_CHARS_MAX: Final = 4_096
"""Characters of a list: a hundred hosts, and a bound on the work for a malicious one."""

_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*://"
_BRACKETS: Final = re.compile(rf"(?P<scheme>{_SCHEME})?\((?P<inner>[^()]*)\)?(?P<query>\?.*)?")
_NEXT: Final = re.compile(rf",(?={_SCHEME})")
_COMPOSITE: Final = re.compile(r"(?P<kind>[a-z]+):(//)?(\((?P<inner>.*)\)|(?P<bare>[a-z+]+:.*?))(\?(?P<query>[^()]*))?")
_EACH: Final = ("static", "simple")
_ONE_OF: Final = ("failover", "masterslave")


class NoTarget(ValueError):
    """A text that names no hosts; the sentence says why."""

    def __init__(self, why: str = "this is not a list of hosts and ports") -> None:
        super().__init__(why)


def one_of(text: str) -> list[Target]:
    """The addresses in an Artemis list, each with the common parameters.  Raises NoTarget."""
    text = _compact(text)
    found = _BRACKETS.fullmatch(text)
    if found is None:
        head, _, backups = text.partition("#")
        parts, query = [*_NEXT.split(head), *_split(backups)], ""
    else:
        parts = [f"{found['scheme'] or ''}{part}" for part in _split(found["inner"])]
        query = (found["query"] or "")[1:]
    targets = [_target(part) for part in parts if part]
    if not targets:
        raise NoTarget
    shared = _target(f"tcp://all?{query}").parameters if query else {}
    first = dict(shared) | dict(targets[0].parameters)
    return [replace(target, parameters=first | dict(target.parameters)) for target in targets]


def each_of(text: str) -> tuple[list[list[Target]], dict[str, str]]:
    """The connections of a Classic network connector, each to one of some addresses; and the common parameters.

    Raises NoTarget.
    """
    found = _COMPOSITE.fullmatch(_compact(text))
    if found is None or found["kind"] not in (*_EACH, *_ONE_OF):
        raise NoTarget("it does not name the brokers: they are only discovered at run time")
    groups = [_members(part) for part in _parts(found)]
    if not groups:
        raise NoTarget
    if found["kind"] in _ONE_OF:
        groups = [[target for group in groups for target in group]]
    return groups, dict(_target(f"tcp://all?{found['query'] or ''}").parameters)


def url_of(target: Target, *, mqtt: bool = False, secure: bool = False, port: int = 0) -> str:
    """The URL of a link to a target.  port: used if it has none."""
    scheme = ("mqtt" if mqtt else "amqp") + ("s" if secure else "")
    return str(LinkUrl(scheme, target.host, target.port or port))


def hosts_of(targets: Sequence[Target]) -> str:
    """The targets for the report, without parameters that might be secret."""
    return ", ".join(str(LinkUrl(each.scheme, each.host, each.port)).removesuffix(":0") for each in targets)


def _members(part: str) -> list[Target]:
    found = _COMPOSITE.fullmatch(part)
    nested = found is not None and found["kind"] in (*_EACH, *_ONE_OF)
    return [_target(each) for each in (_parts(found) if found is not None and nested else [part])]


def _parts(found: re.Match[str]) -> list[str]:
    return [part for part in _outermost(found["inner"] if found["bare"] is None else found["bare"]) if part]


def _compact(text: str) -> str:
    if len(text) > LIST_CHARS_MAX:
        raise NoTarget(f"it is longer than {LIST_CHARS_MAX} characters")
    if "${" in text.partition("?")[0]:
        raise NoTarget("the system property has no default here")
    return "".join(text.split())


def _split(text: str) -> list[str]:
    """Split a list; if addresses have schemes, their parameters may contain commas."""
    return _NEXT.split(text) if "://" in text else text.split(",")


def _outermost(text: str) -> Iterator[str]:
    """The parts of a list between commas outside brackets."""
    depth = begin = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _target(text: str) -> Target:
    """Parse one address.  Raises NoTarget."""
    target = parse(text)
    if target is None or not target.host or any(c in target.host for c in "@%$ "):
        raise NoTarget
    host = f"[{target.host}]" if ":" in target.host else target.host
    written = f"{target.scheme}://{host}" + (f":{target.port}" if target.port else "")
    if text.partition("?")[0].rstrip("/").lower() != written.lower():
        raise NoTarget
    return target
