"""Maps the subject of a client certificate to a user, by rules.

A rule is a subject in the notation of RFC 4514, the most specific attribute first, and the user it stands for:

    subject = "CN=orders-service,OU=services,O=Example"       user = "orders"
    subject = "CN=*,OU=devices,O=Example"                     user = "device-%cn"

A certificate must have exactly these attributes, in this order; `*` in a value matches any text.  `%cn` is the
certificate's common name.  The first rule that matches applies.  Values are compared one by one, never as one text, so
that a name with a comma in it cannot pose as two attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.engine.model.pattern import Pattern, Token, Wild
from broker.sessions.login import Subject

COMMON_NAME: Final = "%cn"

#: A character, with its escape if it has one.
_CHARACTER: Final = re.compile(r"\\?.", re.DOTALL)

#: The short names of RFC 4514, and two more that certificates have.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def subject_of(certificate: Mapping[str, Any] | None) -> Subject:
    """The subject of a certificate as the ssl module shows it; empty without one."""
    if not certificate:
        return ()
    pairs = [pair for relative in certificate.get("subject", ()) for pair in relative]
    return tuple((_SHORT.get(name, name).upper(), value) for name, value in reversed(pairs))


class Rule:
    """One rule.  Raises ValueError for an invalid subject."""

    def __init__(self, subject: str, user: str) -> None:
        self._user = user
        self._wanted = [(name, Pattern(value)) for name, value in _attributes(subject)]
        self._named = COMMON_NAME in user
        if self._named and [name for name, _ in self._wanted].count("CN") != 1:
            raise ValueError(f"a user with {COMMON_NAME} needs one CN in the subject")

    def user(self, subject: Subject) -> str | None:
        """The user of a certificate with this subject; None: the rule does not match."""
        if len(subject) != len(self._wanted):
            return None
        for (name, value), (wanted, pattern) in zip(subject, self._wanted, strict=True):
            if name != wanted or not pattern.matches(value):
                return None
        if not self._named:
            return self._user
        return self._user.replace(COMMON_NAME, next(value for name, value in subject if name == "CN"))


def user_of(rules: Iterable[Rule], subject: Subject) -> str | None:
    """The user of the first matching rule."""
    return next((user for rule in rules if (user := rule.user(subject)) is not None), None)


def _attributes(text: str) -> list[tuple[str, list[Token]]]:
    """The attributes of a subject in text.  Raises ValueError."""
    characters = _CHARACTER.findall(text)
    if characters[-1:] == ["\\"]:
        raise ValueError("the subject ends with an escape")
    parts: list[list[str]] = [[]]
    for character in characters:
        if character == ",":
            parts.append([])
        else:
            parts[-1].append(character)
    found: list[tuple[str, list[Token]]] = []
    for part in parts:
        if "=" not in part:
            raise ValueError('write a subject as "CN=name,OU=unit,O=organisation"')
        at = part.index("=")
        name = "".join(part[:at]).strip().upper()
        value = part[at + 1 :]
        if not name or not value:
            raise ValueError("an attribute of the subject has no name or no value")
        found.append((name, [Wild.RUN if character == "*" else character[-1] for character in value]))
    return found
