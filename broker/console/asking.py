"""Refusals of the console, and values common to several forms."""

from __future__ import annotations

from broker.engine.model.message import RoutingType


class Refused(Exception):
    """Raised to refuse a request."""

    def __init__(self, status: int, error: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.error = error
        self.detail = detail


def routing_type_of(text: str) -> RoutingType:
    """A routing type by its name.  Raises Refused."""
    try:
        return RoutingType[text.upper()]
    except KeyError:
        raise Refused(400, "invalid-parameter", f"routing-type is ANYCAST or MULTICAST, not {text[:100]!r}") from None
