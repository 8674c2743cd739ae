"""The draft of a broker.toml: its values, their places in the source, and the models' verdict.

Values that the models refuse are removed and reported with the models' own reason, so that `bartleby config check`
always accepts the result, and a version with more settings takes over more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from broker.config.explain import place as place_of
from broker.config.explain import problem, refused
from broker.config.model import SHIPPED, Config, with_shipped_entries
from broker.config.relations import clashes
from broker.config.schema import dotted
from broker.importing.kinds import LISTS, Key, format_value, kind_of, known, value_of, written
from broker.importing.report import Outcome, Place, Report
from broker.importing.toml import toml_text

NO_SUCH_SETTING: Final = "this version of Bartleby has no such setting"


@dataclass(slots=True)
class _Claim:
    """A value, its place in the source, and what to report about it."""

    place: Place
    value: object
    change: str = ""
    quiet: bool = False
    vital: bool = False


class Draft:
    """The tables of a broker.toml, by key."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._claims: dict[Key, _Claim] = {}
        self._tables: dict[Key, dict[Key, None]] = {}  # the keys at and below each key, in order

    def has(self, key: Key) -> bool:
        """Whether the key, or one below it, was put."""
        return bool(self._tables.get(key))

    def put_text(
        self,
        place: Place,
        key: Key,
        text: str,
        *,
        change: str = "",
        factor: int = 1,
        quiet: bool = False,
        vital: bool = False,
    ) -> None:
        """Put a text of XML, converted to the kind of value of the key; `factor` converts units."""
        try:
            value = value_of(kind_of(key), text)
        except ValueError as error:
            self.report.left(place, f"{error}: write {name(key)} by hand")
            return
        if factor != 1 and isinstance(value, int) and value > 0:
            value *= factor
        self.put(place, key, value, change=change, quiet=quiet, vital=vital)

    def put(
        self,
        place: Place,
        key: Key,
        value: object,
        *,
        change: str = "",
        quiet: bool = False,
        vital: bool = False,
    ) -> None:
        """Put a value.

        change: why it differs from the file; quiet: it is not in the file, so there is no finding; vital: without it
        the rest of its table would do harm, and is removed with it.
        """
        if isinstance(value, str) and "${" in value:
            self.report.left(place, f"the system property has no default here: write {name(key)} by hand")
            return
        taken = self._claims.get(key)
        if taken is not None and not taken.quiet:
            first = f"line {taken.place.line} already gives {name(key)}"
            if taken.value == value:
                self.report.add(place, Outcome.TAKEN, name(key), first)
            else:
                self.report.left(place, f"{first}, as {format_value(taken.value)}, which stays")
            return
        self._claims[key] = _Claim(place, value, change, quiet, vital)
        for end in range(1, len(key) + 1):
            self._tables.setdefault(key[:end], {})[key] = None

    def drop(self, key: Key, why: str) -> None:
        """Remove everything at or below a key, and report why."""
        for other in list(self._tables.get(key, ())):
            claim = self._remove(other)
            if not claim.quiet:
                self.report.left(claim.place, why)

    def refine(self, prune: Callable[[Draft], None]) -> None:
        """Remove what the models refuse, then what is useless without it, and report all claims."""
        while True:
            raw = self.raw()
            merged = with_shipped_entries(copy.deepcopy(SHIPPED) | raw, raw)
            try:
                config = Config.model_validate(merged)
            except ValidationError as error:
                for wrong in error.errors(include_url=False):
                    self._refuse(self._key(place_of(wrong), raw), _reason(wrong, raw))
                continue
            if not self._without_clashes(config, raw):
                break
        prune(self)
        for key, claim in self._claims.items():
            if not claim.quiet:
                self._report(key, claim)

    def raw(self) -> dict[str, object]:
        """The tables of the file."""
        tables: dict[str, object] = {}
        for key, claim in self._claims.items():
            _set(tables, key, claim.value)
        return _listed(tables)

    def text(self) -> str:
        """The file, without its head."""
        tables: dict[str, object] = {}
        for key, claim in self._claims.items():
            _set(tables, key, written(key, claim.value))
        return toml_text(_listed(tables))

    def _report(self, key: Key, claim: _Claim) -> None:
        why = [claim.change] if claim.change else []
        why += [f"the default of the system property {name} is taken" for name in claim.place.properties]
        outcome = Outcome.CHANGED if why else Outcome.TAKEN
        self.report.add(claim.place, outcome, name(key), "; ".join(why))

    def _without_clashes(self, config: Config, raw: dict[str, object]) -> bool:
        """Remove values that clash with others; return whether there were any."""
        found = list(clashes(config))
        if not found:
            return False
        indexes = _indexes(raw)
        names = {dotted(_path(key, indexes), raw): key for key, below in self._tables.items() if below}
        claimed = {text for text, key in names.items() if key in self._claims}
        refused = False
        for clash in found:
            # a clash whose cause was just removed is resolved, or will be found again
            if all(text not in claimed or names[text] in self._claims for text in clash.keys):
                refused = self._refuse_first(clash.keys, names, clash.fix) or refused
        assert refused, f"nothing of the file is to blame for {found}"
        return True

    def _refuse_first(self, keys: Sequence[str], names: dict[str, Key], why: str) -> bool:
        """Remove the first of clashing keys that is in the draft."""
        for text in keys:
            if names.get(text) in self._claims:
                return self._refuse(names[text], why if text == keys[0] else f"it clashes with {keys[0]}, {why}")
        for text in (key.removesuffix(".match") for key in keys):
            if text in names:
                return any([self._refuse(key, why, whole=True) for key in list(self._tables[names[text]])])
        return False

    def _refuse(self, key: Key, why: str, *, whole: bool = False) -> bool:
        """Remove the values at or below a key; if there are none, the one above it, else its table.

        whole: remove the whole table, so that no default replaces the value.
        """
        found = [key] if key in self._claims else list(self._tables.get(key, ()))
        found = found or [key[:end] for end in range(1, len(key)) if key[:end] in self._claims]
        found = found or list(self._tables.get(key[:-1], ()))
        for other in found:
            claim = self._claims.get(other)
            if claim is None:  # removed with something vital
                continue
            self._remove(other)
            if whole and other[0] == "security-settings":
                shut = f"{why}: until it is written by hand a broader match applies there"
                self.report.add(claim.place, Outcome.STRICTER, why=shut)
            elif not claim.quiet:
                stays = known(other) and other == key and not (claim.vital or whole)
                note = f"{why}; the default stays" if stays else why
                self.report.left(claim.place, note)
            if claim.vital:
                without = f"not without {claim.place.what}, which has no counterpart"
                self.drop(other[:-1], why if claim.quiet else without)
        return bool(found)

    def _remove(self, key: Key) -> _Claim:
        for end in range(1, len(key) + 1):
            del self._tables[key[:end]][key]
        return self._claims.pop(key)

    def _key(self, path: Sequence[str | int], raw: dict[str, object]) -> Key:
        entries = raw.get(str(path[0]))
        if isinstance(entries, list) and len(path) > 1:
            match = entries[int(path[1])]["match"]
            return (str(path[0]), match, *map(str, path[2:]))
        return tuple(map(str, path))


def name(key: Key) -> str:
    """The key in the notation of the documentation."""
    if key[0] in LISTS and len(key) > 1:
        return ".".join([f'{key[0]}["{key[1]}"]', *key[2:]])
    return ".".join(key)


def _indexes(raw: dict[str, object]) -> dict[tuple[str, str], int]:
    """The index in its list of each entry, by match."""
    return {
        (section, entry["match"]): index
        for section, entries in raw.items()
        if isinstance(entries, list)
        for index, entry in enumerate(entries)
    }


def _path(key: Key, indexes: dict[tuple[str, str], int]) -> list[str | int]:
    path: list[str | int] = list(key)
    if len(key) > 1 and key[:2] in indexes:
        path[1] = indexes[key[0], key[1]]
    return path


def _reason(wrong: ErrorDetails, raw: dict[str, object]) -> str:
    path = place_of(wrong)
    if wrong["type"] == "extra_forbidden":
        return (refused(path) or NO_SUCH_SETTING).removesuffix(": remove it")
    found = problem(wrong, raw, lambda _: "")
    return f"Bartleby does not accept {found.value}: {found.fix}" if found.value else found.fix


def _set(tables: dict[str, object], key: Key, value: object) -> None:
    for part in key[:-1]:
        inner = tables.setdefault(part, {})
        assert isinstance(inner, dict), f"{key} is below a value"
        tables = inner
    tables[key[-1]] = value


def _listed(tables: dict[str, object]) -> dict[str, object]:
    """Convert the entries of lists, stored by match, to lists."""
    for section in LISTS:
        entries = tables.get(section)
        if isinstance(entries, dict):
            tables[section] = [{"match": match} | fields for match, fields in entries.items()]
    return tables
