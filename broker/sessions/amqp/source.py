"""A receiver's source: what it asks to consume, and what the broker grants (compatible with Artemis).

source                               queue
capability queue, prefix, FQQN       that queue
capability topic, prefix             a subscription of its own
durable                              <container>.<link name>, durable
shared                               the same up to the first `|`, shared; if not durable, with :shared-volatile
global                               without the container, with :global
copy                                 none: a browser
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.engine import AckMode, Queue, Reserve, SubscribeRequest
from broker.engine.model.access import Access
from broker.engine.model.message import RoutingType
from broker.engine.model.names import LINK_SESSIONS
from broker.engine.model.query import split_query
from broker.sessions.amqp.dynamic import COPY, MOVE, lasting, properties
from broker.sessions.amqp.link_id import LINK_CAPABILITY, ON_DEMAND, RESERVE_MS, RESERVE_NAME, RESERVE_PART
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.terms import GLOBAL, SHARED, TOPIC, offered, stated_routing
from protocols.amqp.errors import INVALID_FIELD, format_value, link_error
from protocols.amqp.performatives import LINK_DETACH, NEVER, Attach, SenderSettleMode, Source, TerminusDurability
from protocols.amqp.types import Described, ULong

#: Supported filters, by both forms of their descriptor (apache.org registry).
_SELECTOR: Final = (0x0000_468C_0000_0004, "apache.org:selector-filter:string")
_NO_LOCAL: Final = (0x0000_468C_0000_0003, "apache.org:no-local-filter:list")

#: Outcomes that receivers may choose.
_OUTCOMES: Final = frozenset(f"amqp:{name}:list" for name in ("accepted", "rejected", "released", "modified"))
#: The longest name of a link's reservation, in characters; it names a route and its broker.
RESERVE_NAME_MAX: Final = 1_024

#: Separates a suffix of the link name, to use a shared subscription more than once on a connection: `name|1`.
_SEPARATOR: Final = "|"


@dataclass(slots=True)
class Filters:
    """The granted part of a filter map: the selector, no-local, and the entries to echo."""

    selector: str = ""
    no_local: bool = False
    granted: dict[str, object] | None = None


def read_filters(filters: dict[str, object] | None) -> Filters:
    """Return the supported filters; others are not granted, and so missing in the answer.  Raises AmqpError."""
    found = Filters()
    granted: dict[str, object] = {}
    for name, value in (filters or {}).items():
        if not isinstance(value, Described):
            continue
        if value.descriptor in _SELECTOR:
            if not isinstance(value.value, str):
                raise link_error(INVALID_FIELD, f"The selector {format_value(name)} is a string.")
            found.selector = value.value
        elif value.descriptor in _NO_LOCAL:
            found.no_local = True
        else:
            continue
        granted[name] = value
    found.granted = granted or None
    return found


def subscription_name(attach: Attach, source: Source, container: str) -> str:
    """Return the name of a durable or shared subscription; empty for one that is neither."""
    shared, everywhere = SHARED in source.capabilities, GLOBAL in source.capabilities
    durable = source.durable != TerminusDurability.NONE
    if not (shared or durable):
        return ""
    name = attach.name.partition(_SEPARATOR)[0] if shared else attach.name
    if container and not everywhere:
        name = f"{container}.{name}"
    if shared and not durable:
        name += ":shared-volatile"
    return f"{name}:global" if everywhere else name


def request(attach: Attach, source: Source, filters: Filters, owner: LinkOwner) -> SubscribeRequest:
    """Return the request to the engine.  Raises AmqpError, InvalidAttribute."""
    assert source.address is not None
    address, stated = owner.options.split(source.address)
    address, query = split_query(address)
    routing = stated_routing(source.capabilities)
    if routing is None:
        routing = query.routing_type
    name = subscription_name(attach, source, owner.container)
    if name and routing is None and stated is None:
        routing = RoutingType.MULTICAST
    shared = SHARED in source.capabilities
    requested = attach.properties or {}
    priority = requested.get("priority", query.priority)
    settled = attach.snd_settle_mode == SenderSettleMode.SETTLED
    forwards = LINK_CAPABILITY in attach.desired_capabilities and not settled
    return SubscribeRequest(
        address,
        routing if stated is None else stated,
        name=name,
        durable=source.durable != TerminusDurability.NONE,
        shared=shared,
        common=shared and GLOBAL in source.capabilities,
        exclusive=bool(name) and not shared,
        renewable=True,
        selector=filters.selector,
        no_local=owner.origin if filters.no_local else "",
        ack_mode=AckMode.AUTO if settled else AckMode.INDIVIDUAL,  # settled ones count as consumed once flushed
        counted=True,
        priority=int(priority) if isinstance(priority, int) else 0,
        client_id=owner.container,
        remote=owner.remote,
        user=owner.access.user,
        access=owner.access,
        asked=query.asked,
        forwards=forwards,
        reserve=_reserve(requested, owner.access) if forwards else None,
        on_demand=requested.get(ON_DEMAND) is True,
    )


def _reserve(requested: dict[str, object], access: Access) -> Reserve | None:
    """Return the reservation that a link asks for, None if it asks for none.  Raises AmqpError."""
    name, ms = requested.get(RESERVE_NAME), requested.get(RESERVE_MS)
    if name is None:
        return None
    if not isinstance(name, str) or len(name) > RESERVE_NAME_MAX or not isinstance(ms, int) or ms <= 0:
        raise link_error(INVALID_FIELD, f"attach: {RESERVE_NAME} is a short text, with {RESERVE_MS} above 0.")
    # A user `a/b` has a link `c`: it is not the link `b/c` of a user `a`.
    user = access.user.replace("%", "%25").replace("/", "%2F")
    return Reserve(f"{LINK_SESSIONS}in/{user}/{name}", int(ms), part=requested.get(RESERVE_PART) is True)


def granted(source: Source, filters: Filters, *, copies: bool, stays: bool) -> Source:
    """Return the source for the answer: the actual properties, not the requested ones (3.5.3).

    `copies`: the receiver gets copies of its own; `stays`: it is a durable subscription.
    """
    expiry = lasting(source) if source.dynamic else NEVER if stays else LINK_DETACH
    return Source(
        source.address,
        source.durable,
        expiry,
        0,
        source.dynamic,
        properties(topic=copies) if source.dynamic else None,
        None if source.distribution_mode is None else COPY if copies else MOVE,
        filters.granted,
        source.default_outcome,
        tuple(outcome for outcome in source.outcomes if outcome in _OUTCOMES),
        offered(source.capabilities),
    )


def found_again(queue: Queue, asked: tuple[str, ...]) -> Source:
    """Return the source of a subscription that a receiver looks up by attaching without one.

    `asked`: the capabilities by which it was found.
    """
    filters: dict[str, object] = {}
    if queue.filter is not None:
        filters["jms-selector"] = Described(ULong(_SELECTOR[0]), queue.filter.text)
    if queue.no_local:
        filters["no-local"] = Described(ULong(_NO_LOCAL[0]), [])
    return Source(
        queue.address.name,
        TerminusDurability.UNSETTLED_STATE if queue.durable else TerminusDurability.NONE,
        NEVER if queue.durable else LINK_DETACH,
        distribution_mode=COPY,
        filter=filters or None,
        capabilities=(TOPIC, *(each for each in (SHARED, GLOBAL) if each in asked)),
    )
