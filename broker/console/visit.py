"""One request for a page: who asks, with what.

Names are parameters, never parts of a path: a queue may be called `..`, which a browser takes for a step up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse

from broker.console.asking import Refused
from broker.console.sessions import Session
from broker.engine.model.access import Access
from broker.engine.model.report import Report
from broker.management.deeds import who
from broker.management.models.base import DIGITS_MAX, ID_MAX

#: Bytes of a form: a message of some 300 KiB, however its characters are encoded.
FORM_BYTES_MAX: Final = 1 << 20

#: Bytes of a form of somebody who has not logged in: a name and a password, or a token of an issuer.
LOGIN_BYTES_MAX: Final = 16 << 10

#: Fields of a form: all messages of a page, and the others.
FIELDS_MAX: Final = 2_000

#: Rows of a table on one page.
ROWS: Final = 50

Fields = Mapping[str, list[str]]

_NOTHING: Final[Mapping[str, str | int]] = {}


@dataclass(slots=True)
class Visit:
    """One request.  `form` has the fields of a form that was sent, `query` those of the address."""

    request: Request
    session: Session
    report: Report
    form: Fields = field(default_factory=dict)
    query: Fields = field(default_factory=dict)

    @property
    def access(self) -> Access:
        """What the visitor may do."""
        return self.session.access

    def every(self, name: str) -> list[str]:
        """All values of a field of the form, or of the address."""
        return self.form.get(name) or self.query.get(name) or []

    def text(self, name: str, default: str = "") -> str:
        """A field of the form, or of the address."""
        found = self.every(name)
        return found[0] if found else default

    def lines(self, name: str) -> bytes:
        """A text of several lines, as it was typed."""
        return self.text(name).replace("\r\n", "\n").encode()

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) in ("true", "on", "1")

    def number(self, name: str, default: int = 0, largest: int = ID_MAX) -> int:
        """A number.  Raises Refused."""
        return number(self.text(name), name, default, largest)

    @property
    def id(self) -> int:
        """The id of a message or a task, which need not be there; 0: none.  Raises Refused."""
        return number(self.text("id"), "id", largest=None)

    @property
    def page(self) -> int:
        """Which page of a table, from 1."""
        return max(self.number("page", 1, 1 << 31), 1)

    def tell(self, code: str, **fields: str | int) -> None:
        """Tell the log of a deed: its own fields, and who did it."""
        self.report(code, **fields, **who(self.request, self.access))

    def done(self, text: str) -> None:
        """Say on the next page what came of it."""
        self.session.tell("done", text)

    def warn(self, text: str) -> None:
        """The same of something that is not as it should be."""
        self.session.tell("warning", text)


def number(text: str, name: str, default: int = 0, largest: int | None = ID_MAX) -> int:
    """A number of a form, `default` without one; `largest` None: it may be as large as it likes.  Raises Refused."""
    text = text.strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        raise Refused(400, "invalid-parameter", f"{name} must be a whole number of at most {DIGITS_MAX} digits")
    found = int(text)
    if largest is not None and found > largest:
        raise Refused(400, "invalid-parameter", f"{name} must be a number from 0 to {largest}")
    return found


def fields(text: str) -> Fields:
    """The fields of a form or of an address as it was sent.  Raises Refused."""
    try:
        return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise Refused(400, "invalid-form", "these are not the fields of a form of this console") from None


def link(path: str, given: Mapping[str, str | int] = _NOTHING, /, **more: str | int) -> str:
    """The address of a page: with all that is `given`, and what else is not empty."""
    chosen = {**given, **{name: value for name, value in more.items() if value not in ("", None)}}
    return f"{path}?{urlencode(chosen)}" if chosen else path


def go_to(path: str, given: Mapping[str, str | int] = _NOTHING, /, **more: str | int) -> RedirectResponse:
    """On to another page, which is asked for anew."""
    return RedirectResponse(link(path, given, **more), 303)
