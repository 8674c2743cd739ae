"""A mosquitto.conf: its listeners become acceptors, its bridges links; and its settings of the whole broker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from broker.importing.acceptors import http_acceptor
from broker.importing.draft import Draft
from broker.importing.mosquitto_bridges import bridges
from broker.importing.mosquitto_file import Conf, Line, apply_rule, holding, read_conf
from broker.importing.mosquitto_listeners import Acceptor, listeners, put_number
from broker.importing.mosquitto_tables import EACH, GENERAL_RULES, OPTIONS, STRICTER
from broker.importing.report import Outcome, Place

_EXPIRATION: Final = re.compile(r"([0-9]{1,9})([shdwmy])")
_SECONDS: Final = {"s": 1, "h": 3_600, "d": 86_400, "w": 604_800, "m": 2_592_000, "y": 31_536_000}
_EXPIRES: Final = ("default-mqtt-session-expiry-interval", "max-session-expiry-interval")

_LOCAL_ONLY: Final = "clients must log in once a user exists; without users only clients of this machine may connect"
_UNRESTRICTED: Final = "they may do everything; once there are users, set anonymous-roles"
_RESTRICTED: Final = (
    "they were restricted by the acl_file or a plug-in: set security.anonymous = true once [[security-settings]] define"
    " what anonymous-roles may do"
)
_SOME: Final = (
    "all acceptors accept anonymous clients, or none: set security.anonymous = true, and allowed-users or allowed-roles"
    " of the acceptors that refuse them"
)


def translate(data: bytes, draft: Draft) -> None:
    """Translate everything into the draft, or into its report.  Raises InvalidFile."""
    conf = read_conf(data)
    acceptors = listeners(conf, draft)
    for line in holding(conf.general.lines, draft):
        _general(line, draft, acceptors)
    _anonymous(conf, acceptors, draft)
    bridges(conf.bridges, draft)
    for line in conf.stray:
        draft.report.left(line.place(), "it belongs to a bridge, but no connection precedes it")
    for line in conf.unknown:
        found = Place(line.number, line.name)  # the value may be a misspelt password
        draft.report.left(found, "unknown to this importer: check whether docs/configuration.md has something similar")
    http_acceptor(draft, "mosquitto.conf has none")


def _general(line: Line, draft: Draft, acceptors: Sequence[Acceptor]) -> None:
    found = line.place()
    if line.name in EACH:
        put_number(draft, line, found, acceptors, EACH[line.name])
        if not acceptors:
            draft.report.left(found, "no listener has become an acceptor")
    elif line.name == "persistent_client_expiration":
        _expiration(line, found, draft, acceptors)
    elif line.name in STRICTER:
        draft.report.add(found, Outcome.STRICTER, why=STRICTER[line.name])
    elif line.name.startswith(OPTIONS):
        draft.report.left(found, "it is for a plug-in")
    elif line.name != "allow_anonymous":
        apply_rule(draft, GENERAL_RULES[line.name], line, found)


def _expiration(line: Line, found: Place, draft: Draft, acceptors: Sequence[Acceptor]) -> None:
    given = _EXPIRATION.fullmatch(line.word)
    if given is None or not acceptors:
        draft.report.left(found, "it is a number with s, h, d, w, m or y, for acceptors")
        return
    for acceptor in acceptors:
        for name in _EXPIRES:
            quiet = (acceptor, name) != (acceptors[0], _EXPIRES[0])
            value = int(given[1]) * _SECONDS[given[2]] * 1_000
            draft.put(found, ("acceptors", acceptor.name, name), value, quiet=quiet)


def _anonymous(conf: Conf, acceptors: Sequence[Acceptor], draft: Draft) -> None:
    """Put whether anonymous clients may connect: by all acceptors or none, and only if nothing restricted them."""
    general = conf.general.get("allow_anonymous")
    default = general is not None and general.truth
    own: dict[Line, Acceptor] = {}
    allowed: list[bool] = []
    for acceptor in acceptors:
        line = acceptor.section.get("listener_allow_anonymous") or acceptor.section.get("allow_anonymous")
        allowed.append(default if line is None else line.truth)
        if line is not None:
            own[line] = acceptor
    lines = [*conf.general.lines, *(line for acceptor in acceptors for line in acceptor.section.lines)]
    bound = any(line.name in STRICTER for line in lines)
    given = [(general, general.place())] if general is not None else []
    given += [(line, line.place(acceptor.what)) for line, acceptor in own.items()]
    for line, found in given:
        if not line.truth:
            draft.report.add(found, Outcome.TAKEN, why=_LOCAL_ONLY)
        elif bound:
            draft.report.add(found, Outcome.STRICTER, why=_RESTRICTED)
        elif allowed and all(allowed):
            draft.put(found, ("security", "anonymous"), True, change=_UNRESTRICTED)
        else:
            draft.report.left(found, _SOME)
