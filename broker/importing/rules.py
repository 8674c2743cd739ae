"""The rules that translate single settings: the rows of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.report import Outcome, Place


@dataclass(frozen=True, slots=True)
class Take:
    """Put to a key.  change: how the meaning differs; factor: converts units."""

    key: Key
    change: str = ""
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Always:
    """Fixed in Bartleby, without a setting.  value: the fixed value; why: the report for any other value."""

    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Without counterpart."""

    why: str


Rule = Take | Always | Leave

#: Why a part of a file that no table has is left out.
UNKNOWN: Final = "unknown to this importer"


def leave_all(reasons: Mapping[str, tuple[str, ...]]) -> dict[str, Rule]:
    """Rows for names without counterpart, from reasons with their names."""
    return {name: Leave(why) for why, names in reasons.items() for name in names}


def apply(draft: Draft, rule: Rule, place: Place, text: str) -> None:
    """Translate one setting."""
    if isinstance(rule, Take):
        draft.put_text(place, rule.key, text, change=rule.change, factor=rule.factor)
    elif isinstance(rule, Leave):
        draft.report.left(place, rule.why)
    elif text.lower() == rule.value:
        draft.report.add(place, Outcome.TAKEN, why="Bartleby always does this")
    else:
        draft.report.left(place, rule.why)
