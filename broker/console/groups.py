"""Groups of dead letters in URLs and forms: `group-reason`, `group-origin` ..., one field for each value."""

from __future__ import annotations

from typing import Final

from broker.console.visit import Visit, number
from broker.engine import GROUPED_BY, DeadLetterGroup

_PREFIX: Final = "group-"

#: What dead letters can be grouped by besides their queue, as titles on a page.
TITLES: Final = {
    "reason": "reason",
    "origin": "died on",
    "first-origin": "first died on",
    "words": "what was said",
    "link": "link",
    "remote-address": "address there",
    "remote-broker": "broker there",
    "hour": "hour",
}

assert {"queue", *TITLES} == set(GROUPED_BY)


def chosen_group(visit: Visit) -> DeadLetterGroup | None:
    """The group in a request; None: no group.  Raises Refused."""
    given: dict[str, str | int] = {}
    for name in TITLES:
        found = visit.every(_PREFIX + name)
        if found:
            given[name.replace("-", "_")] = number(found[0], "hour") if name == "hour" else found[0]
    return DeadLetterGroup(**given) if given else None  # type: ignore[arg-type]


def group_fields(group: DeadLetterGroup | None) -> dict[str, str | int]:
    """The fields from which `chosen_group` makes the group."""
    return {} if group is None else {_PREFIX + name: value for name, value in values(group).items()}


def values(group: DeadLetterGroup) -> dict[str, str | int]:
    """What its dead letters have in common besides their queue."""
    found = {name: getattr(group, name.replace("-", "_")) for name in TITLES}
    return {name: value for name, value in found.items() if value is not None}
