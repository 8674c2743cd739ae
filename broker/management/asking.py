"""What a call asks for: names, pages, numbers and messages, read from a request.

Names are percent-encoded: they may hold `/`, `::`, `#` and anything else, so paths are routed before they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request

from broker.engine import MessageRange, parse_selector
from broker.engine.model.access import Access
from broker.engine.model.message import RoutingType
from broker.management.callers import ACCESS

#: Things on a page, and the most that may be asked for: a page is made within some ms.
PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MAX: Final = 1_000

#: The largest message id.
ID_MAX: Final = (1 << 63) - 1


class Refused(Exception):
    """A request that cannot be answered as asked."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.detail = detail


def access_of(request: Request) -> Access:
    """What the caller may do."""
    access: Access = getattr(request.state, ACCESS)
    return access


def anybody(request: Request, access: Access) -> None:
    """For a list, which shows what the caller manages: there is nothing to require."""


def name_of(request: Request) -> str:
    """The name in a path."""
    try:
        return unquote(request.path_params["name"], errors="strict")
    except UnicodeDecodeError:
        raise Refused(400, "invalid-name", "the name is not percent-encoded UTF-8") from None


def page_of(request: Request, size_default: int = PAGE_SIZE_DEFAULT) -> tuple[int, int]:
    """Number (from 1) and size of the page that is asked for."""
    return (
        number_of(request, "page", 1, 1 << 31),
        number_of(request, "size", min(size_default, PAGE_SIZE_MAX), PAGE_SIZE_MAX),
    )


def number_of(request: Request, name: str, default: int, largest: int) -> int:
    """A parameter that is a number from 1 on."""
    value = request.query_params.get(name, "")
    if not value:
        return default
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(largest))
    if not (digits and 1 <= int(value) <= largest):
        raise Refused(400, "invalid-parameter", f"{name} must be a number from 1 to {largest}")
    return int(value)


def flag_of(request: Request, name: str, *, default: bool = False) -> bool:
    """A parameter that is true or false."""
    value = request.query_params.get(name, "true" if default else "false")
    if value not in ("true", "false"):
        raise Refused(400, "invalid-parameter", f"{name} must be true or false, not {value[:100]!r}")
    return value == "true"


def check_known(request: Request, known: Iterable[str]) -> None:
    """Raises Refused for a parameter that the call does not have."""
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        listed = ", ".join(sorted(known)) or "none"
        raise Refused(400, "invalid-parameter", f"there is no parameter {unknown[0][:100]!r}; there are {listed}")


def selection_of(request: Request) -> MessageRange:
    """Which messages a call is about."""
    filter = parse_selector(request.query_params.get("filter", ""))
    id, after, below = (number_of(request, name, 0, ID_MAX) for name in ("id", "after", "below"))
    if id and (filter or after or below):
        raise Refused(400, "invalid-parameter", "id names one message: give no filter with it")
    return MessageRange(filter, id, after, below)


def routing_type_of(text: str) -> RoutingType:
    """A routing type by its name.  Raises Refused."""
    try:
        return RoutingType[text.upper()]
    except KeyError:
        raise Refused(400, "invalid-parameter", f"routing-type is ANYCAST or MULTICAST, not {text[:100]!r}") from None
