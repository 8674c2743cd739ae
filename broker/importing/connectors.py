"""Translates the targets of Artemis's connectors and AMQP connections, with their TLS, to those of a link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.importing.acceptors import PORT, Target
from broker.importing.doors import STORE_LEFT, STORES
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.links import connect
from broker.importing.report import Outcome, Place, place
from broker.importing.rules import Always, Leave, Rule, apply
from broker.importing.targets import hosts_of, url_of
from broker.importing.xml import Element

_PEM: Final = "a PEM file with {}: Java's key stores are not read, and without the file the broker does not start"
_CHECKED: Final = "the certificate of the other broker is always checked, and must name the host in the url"

_RULES: Final[dict[str, Rule]] = {
    "verifyHost": Always("true", _CHECKED),
    "trustAll": Always("false", _CHECKED),
    "saslMechanisms": Leave("a link with a user logs in by SCRAM or PLAIN, else by EXTERNAL or ANONYMOUS"),
}


def connect_to(
    draft: Draft, element: Element, what: str, wanted: str, targets: Sequence[Target], change: str = ""
) -> Key:
    """Put a link that connects to one of these targets, over TLS if Artemis did; return its key."""
    secure = any(target.parameters.get("sslEnabled", "").lower() == "true" for target in targets)
    urls = [url_of(target, secure=secure, port=PORT) for target in targets]
    link = connect(draft, place(element, what, hosts_of(targets)), wanted, urls, change)
    given = {name: text for target in targets for name, text in target.parameters.items()}
    for parameter, text in given.items():
        found = place(element, f"{what}: {parameter}", text)
        if secure and parameter in ("trustStorePath", "keyStorePath"):
            _certificates(draft, found, link, given.get(parameter.replace("Path", "Type"), ""), text)
        elif parameter == "sslEnabled":
            draft.report.add(found, Outcome.TAKEN, why="it is in the url of the link")
        elif secure and parameter == "trustStoreType" and text.upper() == "PEM":
            draft.report.add(found, Outcome.TAKEN, why="ca is always a PEM file")
        else:
            other = Leave(STORE_LEFT if STORES.match(parameter) else "links have no such setting")
            apply(draft, _RULES.get(parameter, other), found, text)
    return link


def _certificates(draft: Draft, found: Place, link: Key, kind: str, text: str) -> None:
    path = f"/etc/bartleby/{link[-1]}"
    if found.what.endswith("keyStorePath"):
        change = f"{_PEM.format('the certificate')}; its key goes where key says"
        draft.put(found, (*link, "certificate"), f"{path}.pem", change=change)
        draft.put(found, (*link, "key"), f"{path}.key", quiet=True)
    elif kind.upper() == "PEM":
        draft.put(found, (*link, "ca"), text)
    else:
        draft.put(found, (*link, "ca"), f"{path}-ca.pem", change=_PEM.format("the other broker's authorities"))
