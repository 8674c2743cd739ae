"""Normalises the text that says why a message died, so that one cause has one text.

The consumer's name and network address become `a consumer`, and identifiers become `*`: UUIDs, hexadecimal numbers of
eight digits or more, IP addresses and ports.  Other numbers stay: a status or an error number tells causes apart.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: The replacement for an identifier.
ANY: Final = "*"

#: All repetitions are bounded: a text of a thousand colons must not take long.
_IPV6: Final = (
    "(?<!:)(?=(?:[0-9A-Fa-f]{1,4}:){0,6}:|(?:[0-9A-Fa-f]{1,4}:){7})"  # `::` or eight groups: no time of day
    "(?=[A-Fa-f:]{0,39}[0-9])"  # no `a::b`
    "(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}"
)

_IDENTIFIER: Final = re.compile(
    rf"""
    (?<![0-9A-Za-z])(?=[0-9A-Fa-f:\[])
    (?:
        [0-9A-Fa-f]{{8}}(?:-[0-9A-Fa-f]{{4}}){{3}}-[0-9A-Fa-f]{{12}}(?::[0-9]+)*  # UUID, also `ID:UUID:1:1` of Qpid
        | 0[xX][0-9A-Fa-f]+
        | (?=[A-Fa-f]*[0-9])[0-9A-Fa-f]{{8,}}
        | (?<=@)[0-9A-Fa-f]{{4,7}}  # `Object@1b2c3d`, as Java prints one
        | [0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}(?::[0-9]{{1,5}})?
        | \[{_IPV6}(?:%\w+)?\](?::[0-9]{{1,5}})?
        | {_IPV6}(?:%\w+)?
        | (?:(?<=[A-Za-z0-9]:)|(?<=port\ ))[0-9]{{4,5}}  # `host:port`
    )
    (?![0-9A-Za-z])
    """,
    re.VERBOSE,
)


def common_words(text: str, client: str, remote: str) -> str:
    """The text without identifiers; `client`, `remote`: the last consumer's client id and network address, if known."""
    if remote:
        text = text.replace(f" at {remote}", "", 1)
    if client:
        text = _unnamed(text, client)
    return _masked(text)


def _unnamed(text: str, client: str) -> str:
    """A text without a client's id: the broker names the consumer first, then follow the consumer's own words."""
    first, *others = text.split(client)
    said, instead = first, "a consumer"
    for part in others:
        if said[-1:].isalnum() or part[:1].isalnum():
            said += client + part
        else:
            said += instead + part
            instead = ANY
    return said


@lru_cache(maxsize=1024)
def _masked(text: str) -> str:
    return _IDENTIFIER.sub(ANY, text)
