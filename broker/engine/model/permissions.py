"""Permissions: the entries of `[[security-settings]]`, and which one decides (Artemis semantics 7).

An entry has a match, written like that of an address setting, and the roles that have each permission.

1. Of the entries whose match fits a name, the most specific one decides alone; nothing is merged.  No entry: denied.
2. The full name of a queue (`address::queue`) is looked up before its address.
3. `%u` and `%c` in a match stand for the user's name and the client id, literally.  If the name is empty or contains a
   wildcard character, an escape or `::`, the entry fits nothing: a client cannot widen a match by its choice of name.
   An entry written out in full comes before one that becomes the same text.
4. Reading from a wildcard address, or managing it, means reading from all addresses that it matches.  So each entry
   that could decide for one of them must grant it (`grants_reading`): from the most specific on, every entry that has
   an address in common with the wildcard, until one fits all of them.  Artemis looks up the wildcard's own text, and so
   hands out `orders.secret` to a user that may read `orders.#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from broker.engine.model.names import DEFAULT_SYNTAX, ESCAPE, FQQN_SEPARATOR, WildcardSyntax
from broker.engine.model.settings_match import SettingsTable
from broker.engine.model.span import Span


class Permission(StrEnum):
    """An action that a role may be allowed; the values are the names in the configuration."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE_ADDRESS = "createAddress"
    CREATE_DURABLE_QUEUE = "createDurableQueue"
    DELETE_DURABLE_QUEUE = "deleteDurableQueue"
    CREATE_NON_DURABLE_QUEUE = "createNonDurableQueue"
    DELETE_NON_DURABLE_QUEUE = "deleteNonDurableQueue"
    MANAGE = "manage"
    MANAGE_SESSIONS = "manageSessions"


#: Permissions to see messages; an operator can browse and divert what reaches a queue or address.
_READING: Final = frozenset({Permission.CONSUME, Permission.BROWSE, Permission.MANAGE})

Roles = frozenset[str]
Entry = tuple[str, Mapping[Permission, Roles]]

USER: Final = "%u"
CLIENT: Final = "%c"
_MARKS: Final = re.compile(f"{USER}|{CLIENT}")

#: Tables cached for matches with `%u` or `%c`, one for each user and client id: a few KiB each.
TABLES_MAX: Final = 1_000


class PermissionTable:
    """All entries.  Raises InvalidMatch for a match that is invalid or given twice."""

    def __init__(self, entries: Iterable[Entry], *, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
        self._syntax = syntax
        self._plain: list[Entry] = []
        self._templates: list[Entry] = []
        for entry in entries:
            (self._templates if USER in entry[0] or CLIENT in entry[0] else self._plain).append(entry)
        self._shared = _Rights(self._plain, syntax)
        _Rights([(match.replace("%", "_"), roles) for match, roles in self._templates], syntax)  # only to check them
        self._tables: dict[tuple[str, str], _Rights] = {}

    @property
    def entries(self) -> list[Entry]:
        """All entries as written, those with `%u` or `%c` last."""
        return [*self._plain, *self._templates]

    def rights(self, user: str, client_id: str) -> _Rights:
        """The table for one user and client."""
        if not self._templates:
            return self._shared
        key = (user, client_id)
        found = self._tables.get(key)
        if found is None:
            found = _Rights(self._filled_in(user, client_id), self._syntax)
            if len(self._tables) >= TABLES_MAX:
                del self._tables[next(iter(self._tables))]
            self._tables[key] = found
        return found

    def _filled_in(self, user: str, client_id: str) -> list[Entry]:
        entries = list(self._plain)
        taken = {match for match, _ in entries}
        for template, roles in self._templates:
            match = self._fill_in(template, user, client_id)
            if match is not None and match not in taken:
                taken.add(match)
                entries.append((match, roles))
        return entries

    def _fill_in(self, template: str, user: str, client_id: str) -> str | None:
        names = {USER: user, CLIENT: client_id}
        if any(mark in template and not self._is_literal(name) for mark, name in names.items()):
            return None
        return _MARKS.sub(lambda mark: names[mark[0]], template)

    def _is_literal(self, name: str) -> bool:
        special = (self._syntax.any_words, self._syntax.single_word, ESCAPE, FQQN_SEPARATOR)
        return bool(name) and not any(text in name for text in special)


class _Rights:
    """The entries of one user and client, without `%u` and `%c`."""

    def __init__(self, entries: Iterable[Entry], syntax: WildcardSyntax) -> None:
        entries = list(entries)
        self._syntax = syntax
        self._table = SettingsTable(
            [(match, {str(permission): roles for permission, roles in granted.items()}) for match, granted in entries],
            {},
            syntax=syntax,
        )
        self._full_names = {match for match, _ in entries if FQQN_SEPARATOR in match}
        self._spans = {match: Span(match, syntax) for match, _ in entries if FQQN_SEPARATOR not in match}

    def allows(self, roles: Roles, permission: Permission, address: str, queue: str = "") -> bool:
        """Whether the permission is granted by all rules."""
        decide = self.grants_reading if permission in _READING else self.grants
        return decide(roles, permission, address, queue)

    def grants(self, roles: Roles, permission: Permission, address: str, queue: str = "") -> bool:
        """Whether the entry that decides for an address, or for a queue on it, grants the permission (rules 1, 2)."""
        found = self._table.matching(f"{address}{FQQN_SEPARATOR}{queue}" if queue else address)
        return bool(found) and _has(found[0][1], permission, roles)

    def grants_everywhere(self, roles: Roles, permission: Permission) -> bool:
        """Whether the permission is granted on every name: every entry grants it, and one fits all names."""
        everything = self._spans.get(self._syntax.any_words)
        return everything is not None and all(_has(fields, permission, roles) for _, fields in self._table.in_order())

    def grants_somewhere(self, roles: Roles, permission: Permission) -> bool:
        """Whether the permission is granted on any name."""
        return any(_has(fields, permission, roles) for _, fields in self._table.in_order())

    def grants_reading(self, roles: Roles, permission: Permission, wildcard: str, queue: str = "") -> bool:
        """Whether it is granted on all addresses that a wildcard address matches (rule 4); otherwise as `grants`."""
        if not self._syntax.is_wildcard(wildcard) or f"{wildcard}{FQQN_SEPARATOR}{queue}" in self._full_names:
            return self.grants(roles, permission, wildcard, queue)
        words = self._syntax.words(wildcard)
        for match, fields in self._table.in_order():
            span = self._spans.get(match)
            if span is None or not span.overlaps(words):
                continue
            if not _has(fields, permission, roles):
                return False
            if span.covers(words):
                return True
        return False


def _has(fields: Mapping[str, object], permission: Permission, roles: Roles) -> bool:
    granted = fields.get(permission)
    return isinstance(granted, frozenset) and not granted.isdisjoint(roles)
