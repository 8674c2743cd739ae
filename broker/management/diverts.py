"""The HTTP calls on diverts, for `api`.

    GET    /api/v1/diverts
    PUT    /api/v1/diverts/NAME?address=&forwarding-address=&exclusive=&filter=&routing-type=&add-header=&remove-header=
    DELETE /api/v1/diverts/NAME

A divert that is made so stays until it is deleted; one of the configuration is made anew at each start.  `add-header`
(as `name:value`) and `remove-header` may be given several times.
"""

from __future__ import annotations

from starlette.requests import Request

from broker.engine import Divert, DivertRouting, parse_selector
from broker.engine.model.errors import InvalidName
from broker.engine.model.names import WildcardSyntax, check_name, check_sendable

Json = dict[str, object]

_ALLOWED = frozenset(
    {"address", "forwarding-address", "exclusive", "filter", "routing-type", "add-header", "remove-header"}
)


def places(request: Request) -> list[str]:
    """The addresses that a request to make a divert names."""
    given = request.query_params
    return [given.get("address", ""), *_forwarding(request)]


def _forwarding(request: Request) -> tuple[str, ...]:
    text = request.query_params.get("forwarding-address", "")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def divert_view(divert: Divert) -> Json:
    """A divert, and how many messages it took since the start."""
    return divert.definition() | {"id": divert.id, "taken": divert.taken}


def new_divert(name: str, request: Request, syntax: WildcardSyntax) -> Divert:
    """The divert that a request describes.  Raises InvalidName, InvalidSelector."""
    given = request.query_params
    unknown = sorted(set(given) - _ALLOWED)
    if unknown:
        raise InvalidName(f"there is no such parameter: {unknown[0]}; known are {', '.join(sorted(_ALLOWED))}")
    check_name(name)
    address = given.get("address", "")
    check_name(address)
    forwarding = _forwarding(request)
    for forward in forwarding:
        check_sendable(forward, syntax)
    exclusive = given.get("exclusive", "false")
    if exclusive not in ("true", "false"):
        raise InvalidName(f"exclusive must be true or false, not {exclusive!r}")
    routing = given.get("routing-type", DivertRouting.STRIP.value)
    if routing not in list(DivertRouting):
        raise InvalidName(f"routing-type must be one of {', '.join(DivertRouting)}, not {routing!r}")
    added: dict[str, str] = {}
    for header in given.getlist("add-header"):
        key, separator, value = header.partition(":")
        if not (separator and key.strip()):
            raise InvalidName(f"add-header must be name:value, not {header!r}")
        added[key.strip()] = value.strip()
    return Divert(
        name,
        address,
        forwarding,
        exclusive=exclusive == "true",
        filter=parse_selector(given.get("filter", "")),
        routing=DivertRouting(routing),
        add=added,
        remove=given.getlist("remove-header"),
    )
