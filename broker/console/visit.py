"""One request for a page: its session, form and query.

Names are parameters, never parts of a path: a queue may be called `..`, which a browser would resolve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse

from broker.console.sessions import Session
from broker.engine.model.access import Access
from broker.engine.model.message import RoutingType
from broker.engine.model.report import Report
from broker.management.models.base import DIGITS_MAX, ID_MAX
from broker.management.operator_log import caller_fields

#: Bytes of a form: a message of some 300 KiB, whatever its characters encode to.
FORM_BYTES_MAX: Final = 1 << 20

#: Bytes of the login form: a name and a password, or a token of an issuer.
LOGIN_BYTES_MAX: Final = 16 << 10

#: Fields of a form: all messages of a page, and the rest.
FIELDS_MAX: Final = 2_000

#: Rows of a table on one page.
ROWS: Final = 50

Fields = Mapping[str, list[str]]

_NOTHING: Final[Mapping[str, str | int]] = {}


class Refused(Exception):
    """Raised to refuse a request."""

    def __init__(self, detail: str, status: int = 400) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(slots=True)
class Visit:
    """One request.  `form` has the fields of a submitted form, `query` those of the URL."""

    request: Request
    session: Session
    report: Report
    form: Fields = field(default_factory=dict)
    query: Fields = field(default_factory=dict)

    @property
    def access(self) -> Access:
        """The visitor's permissions."""
        return self.session.access

    def every(self, name: str) -> list[str]:
        """All values of a field of the form, or of the query."""
        return self.form.get(name) or self.query.get(name) or []

    def text(self, name: str) -> str:
        """A field of the form, or of the query."""
        return next(iter(self.every(name)), "")

    def lines(self, name: str) -> bytes:
        """A text of several lines, as typed."""
        return self.text(name).replace("\r\n", "\n").encode()

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) in ("true", "on", "1")

    def number(self, name: str, default: int = 0, largest: int = ID_MAX) -> int:
        """A number.  Raises Refused."""
        return number(self.text(name), name, default, largest)

    def routing_types(self) -> list[RoutingType]:
        """The chosen routing types.  Raises Refused."""
        chosen = list(filter(None, self.every("routing-type")))
        for text in chosen:
            if text.upper() not in RoutingType.__members__:
                raise Refused(f"routing-type is ANYCAST or MULTICAST, not {text[:100]!r}")
        return [RoutingType[text.upper()] for text in chosen]

    @property
    def id(self) -> int:
        """The id of a message or a task, which need not exist; 0: none was given.  Raises Refused."""
        return number(self.text("id"), "id", largest=None)

    @property
    def page(self) -> int:
        """The page of a table, from 1."""
        return max(self.number("page", 1, 1 << 31), 1)

    def log_action(self, code: str, **fields: str | int) -> None:
        """Log an action, with the fields of the caller."""
        self.report(code, **fields, **caller_fields(self.request, self.access))

    def done(self, text: str) -> None:
        """Show a result on the next page."""
        self.session.notify("done", text)

    def warn(self, text: str) -> None:
        """Show a warning on the next page."""
        self.session.notify("warning", text)


def number(text: str, name: str, default: int = 0, largest: int | None = ID_MAX) -> int:
    """A number in a form, `default` without one; `largest` None: of any size.  Raises Refused."""
    text = text.strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise Refused(f"{name} must be a whole number of at most {DIGITS_MAX} digits")
    found = int(text)
    if largest is not None and found > largest:
        raise Refused(f"{name} must be a number from 0 to {largest}")
    return found


def fields(text: str) -> Fields:
    """Parse the fields of a form or a query.  Raises Refused."""
    try:
        return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise Refused("these are not the fields of a form of this console") from None


def link(path: str, given: Mapping[str, str | int] = _NOTHING, /, **more: str | int) -> str:
    """The URL of a page, with all parameters in `given`, and those in `more` that are not empty."""
    chosen = {**given, **{name: value for name, value in more.items() if value not in ("", None)}}
    return f"{path}?{urlencode(chosen)}" if chosen else path


def go_to(path: str, given: Mapping[str, str | int] = _NOTHING, /, **more: str | int) -> RedirectResponse:
    """Redirect to another page."""
    return RedirectResponse(link(path, given, **more), 303)
