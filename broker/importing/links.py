"""Functions for the links of all importers: names, targets, logins and routes.

Each connection of the file gets its own link, even if another has the same name: their routes must not be merged. Names
may have letters, digits, `_`, `-` and, for links, `.`: they become parts of the names of queues and password files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.config.link_rules import NAME_CHARS_MAX
from broker.importing.draft import Draft
from broker.importing.kinds import Key
from broker.importing.report import Place

SECTION: Final = "links"

ALWAYS_TRIES: Final = "a link retries until it is stopped: `bartleby link stop`"
NO_ROUTE: Final = "nothing in it translates to a route, so there is no link"
_KINDS: Final = ("send", "receive", "topics", "mqtt")
_MASKED: Final = "ENC("


class Login(NamedTuple):
    """The login at the other broker: the user, and the places of user and password in the file."""

    user: Place | None = None
    name: str = ""
    password: Place | None = None


def connect(draft: Draft, found: Place, wanted: str, urls: Sequence[str], change: str = "") -> Key:
    """Put a link to these URLs, which are tried in turn; return its key."""
    name = _fresh(re.sub(r"[^\w.-]+", "-", wanted) or "link", lambda name: draft.has((SECTION, name)))
    if wanted and name != wanted:
        renamed = f"it is named {name}: a link's name is unique, of letters, digits, _ - and ."
        change = f"{change}; {renamed}" if change else renamed
    link = (SECTION, name)
    draft.put(found, (*link, "url"), urls[0] if len(urls) == 1 else list(urls), change=change, vital=True)
    return link


def route(draft: Draft, link: Key, kind: str, wanted: str) -> Key:
    """The key of a new route, named after what it carries."""
    clean = re.sub(r"[^\w-]+", "-", wanted).strip("-") or "all"
    return (*link, kind, _fresh(clean, lambda name: any(draft.has((*link, each, name)) for each in _KINDS)))


def log_in(draft: Draft, link: Key, login: Login, like: Key | None = None) -> None:
    """Put the user and the path of the password file; the password itself is not copied.

    like: another link of the same connection, already reported; both use one password file.
    """
    quiet = like is not None
    if login.user is not None and login.name.startswith(_MASKED):
        if not quiet:
            draft.report.left(login.user, "it is encrypted: write user and password-file by hand")
    elif login.user is not None and login.name:
        draft.put(login.user, (*link, "user"), login.name, quiet=quiet)
    if login.password is None:
        return
    if draft.has((*link, "user")):
        path = f"/etc/bartleby/{(like or link)[-1]}.password"
        why = "write the password to the first line of that file: the broker does not start without it"
        draft.put(login.password, (*link, "password-file"), path, change=why, quiet=quiet)
    elif not quiet:
        draft.report.left(login.password, "a password needs a user")


def put_retry_interval(draft: Draft, found: Place, link: Key, text: str, *, constant: bool, factor: int = 1) -> None:
    """Put the time between attempts.  constant: keep it from doubling."""
    key = (*link, "retry-interval")
    draft.put_text(found, key, text, factor=factor)
    if constant and draft.has(key):
        draft.put_text(found, (*link, "retry-interval-max"), text, factor=factor, quiet=True)


def drop_without_routes(draft: Draft, link: Key, why: str = NO_ROUTE) -> None:
    """Remove the link if it has no routes."""
    if not any(draft.has((*link, kind)) for kind in _KINDS):
        draft.drop(link, why)


def drop_idle(draft: Draft) -> None:
    """Remove links whose routes were all refused."""
    links = draft.raw().get(SECTION)
    for name in links if isinstance(links, dict) else ():
        drop_without_routes(draft, (SECTION, name))


def _fresh(wanted: str, taken: Callable[[str], bool]) -> str:
    """The name, or the name with the first free number: numbers are used in order, so a binary search finds it."""

    def numbered(number: int) -> str:
        end = f"-{number}" if number > 1 else ""
        return wanted[: NAME_CHARS_MAX - len(end)] + end

    free = 1
    while taken(numbered(free)):
        free *= 2
    low = free // 2
    while free - low > 1:
        middle = (low + free) // 2
        low, free = (middle, free) if taken(numbered(middle)) else (low, middle)
    return numbered(free)
