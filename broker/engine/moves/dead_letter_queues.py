"""The queues that store dead and expired messages, created when the first one arrives."""

from __future__ import annotations

from dataclasses import replace

from broker.engine.filter import Filter, compile_filter
from broker.engine.model.errors import InvalidName
from broker.engine.model.message import ORIG_ADDRESS, RoutingType
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import registry


def _queue_name(state: State, source: str, *, expiry: bool) -> str:
    settings = state.settings(source)
    prefix = settings.expiry_queue_prefix if expiry else settings.dead_letter_queue_prefix
    suffix = settings.expiry_queue_suffix if expiry else settings.dead_letter_queue_suffix
    return f"{prefix}{source}{suffix}"


def is_missing(state: State, source: str, *, expiry: bool) -> bool:
    """Whether the queue for dead or expired messages of `source` has yet to be created."""
    return _queue_name(state, source, expiry=expiry) not in state.queues


def ensure_queue(state: State, target: Address, source: str, *, expiry: bool) -> None:
    """Create the queue on a dead-letter or expiry address for messages of `source`, unless it exists."""
    name = _queue_name(state, source, expiry=expiry)
    if name in state.queues:
        return
    literal = source.replace("'", "''")
    filter = compile_filter(f"{ORIG_ADDRESS} = '{literal}'")
    try:
        create_queue(state, target, name, target.settings.default_queue_routing_type, filter)
    except InvalidName as invalid:
        state.report("move.queue_refused", queue=name, error=str(invalid))


def create_queue(
    state: State, target: Address, name: str, routing_type: RoutingType, filter: Filter | None = None
) -> Queue:
    """Create a queue that keeps its messages even without consumers.  Raises InvalidName, AlreadyInUse."""
    attributes = replace(state.attributes(target, name), purge_on_no_consumers=False)
    return registry.create_queue(
        state, target, name, routing_type, durable=True, filter=filter, auto_created=True, attributes=attributes
    )
