"""Queues and consumers as the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, create_model

from broker.engine import COUNTED, Consumer, GroupedBacklog, Queue, is_full
from broker.engine.model.row import kebab
from broker.engine.model.settings import SETTINGS
from broker.log import cut
from broker.management.models.base import Body, Next, RoutingTypeName, Shown, Total, model_of
from broker.management.models.settings import (
    OF_QUEUES,
    AskedAttributes,
    Attributes,
    attributes_of,
    plain,
    shown_model,
)

#: Consumers of one queue that are listed; more are only counted.
CONSUMERS_SHOWN_MAX: Final = 100

if TYPE_CHECKING:
    Counters = Shown
    QueueSettings = Shown
else:
    Counters = create_model(
        "QueueCounters",
        __base__=Shown,
        __doc__="How many messages entered the queue and left it since the start, by how they left.",
        **{name: (int, ...) for name in COUNTED},
    )
    QueueSettings = shown_model(
        "QueueSettings", [SETTINGS[name] for name in OF_QUEUES], "Settings of its address that apply to the queue."
    )


class QueueCounts(Shown):
    """A queue in a list: what it is, and its messages by state."""

    name: str
    address: str
    routing_type: RoutingTypeName
    durable: bool
    temporary: bool
    paused: bool = Field(description="Whether its deliveries are paused, by itself or with its address.")
    enabled: bool = Field(description="Whether it accepts messages; else sends to it are refused.")
    address_full: bool
    messages: int
    ready: int
    paged: int
    scheduled: int
    delivering: int
    consumers: int = Field(description="Consumers whose clients are connected.")
    offline: int = Field(
        description="MQTT sessions that keep their subscription while their clients are not connected."
    )


class ConsumerShown(Shown):
    """A consumer."""

    id: int
    queue: str
    address: str
    client_id: str
    user: str
    remote: str
    selector: str
    ack_mode: str
    unacknowledged: int
    paused: bool = Field(description="Whether nothing is sent to it now: its client is slow or disconnected.")
    away: bool = Field(description="Whether its client is disconnected: its messages are kept for when it returns.")


class QueueShown(QueueCounts):
    """A queue in detail."""

    id: int
    filter: str
    auto_created: bool
    configured: bool
    paused_itself: bool
    address_paused: bool
    groups: int = Field(description="Message groups that have a consumer.")
    attributes: Attributes
    counters: Counters
    settings: QueueSettings
    address_bytes: int
    address_messages: int
    keeps_dead: bool = Field(description="Whether its address is a dead-letter or expiry address.")
    consumer_list: list[ConsumerShown] = Field(description=f"The first {CONSUMERS_SHOWN_MAX} consumers.")


class QueueList(Shown):
    """Some of the queues, by name."""

    queues: list[QueueCounts]
    next: Next
    total: Total


class ConsumerList(Shown):
    """Some of the consumers, by ascending id."""

    consumers: list[ConsumerShown]
    next: Next
    total: Total


class NewQueue(Body):
    """A queue to create."""

    address: Annotated[str, Field(description="Its address; empty: the address of the same name.")] = ""
    routing_type: RoutingTypeName | None = Field(None, description="null: a type of the address.")
    durable: bool = Field(True, description="false: the queue and its messages do not survive a restart.")
    filter: str = Field("", description="Only messages that match this selector enter the queue; empty: all.")
    make_address: bool = Field(False, description="Create the address, or add the routing type to it, if missing.")
    attributes: AskedAttributes | None = None


class QueueChange(Body):
    """Changes to a queue; omitted fields stay as they are."""

    paused: bool | None = Field(None, description="true: pause its deliveries; false: resume them.")
    attributes: AskedAttributes | None = None


class QueueDeleted(Shown):
    """A deleted queue."""

    queue: str
    messages: int = Field(description="How many messages it had.")


def _counts(queue: Queue) -> dict[str, object]:
    attached = queue.attached
    return {
        "name": queue.name,
        "address": queue.address.name,
        "routing_type": queue.routing_type.name,
        "durable": queue.durable,
        "temporary": queue.temporary,
        "paused": queue.stopped,
        "enabled": queue.attributes.enabled,
        "address_full": is_full(queue.address),
        "messages": queue.message_count,
        "ready": queue.ready,
        "paged": queue.paged,
        "scheduled": queue.scheduled_count,
        "delivering": queue.delivering,
        "consumers": attached,
        "offline": len(queue.consumers) - attached,
    }


def queue_counts(queue: Queue) -> QueueCounts:
    """A queue in a list, of which there may be very many: named field by field, which takes half the time."""
    return QueueCounts.model_validate(_counts(queue))


def queue_shown(queue: Queue, *, keeps_dead: bool) -> QueueShown:
    """A queue in detail."""
    settings = queue.address.settings
    return model_of(
        QueueShown,
        queue,
        **_counts(queue),
        filter=queue.filter.text if queue.filter else "",
        paused_itself=queue.paused,
        address_paused=queue.address.paused,
        groups=queue.backlog.groups if isinstance(queue.backlog, GroupedBacklog) else 0,
        attributes=attributes_of(queue.attributes),
        counters=Counters(**queue.counts),
        settings=QueueSettings(**{kebab(name): plain(getattr(settings, name)) for name in OF_QUEUES}),
        address_bytes=queue.address.size_bytes,
        address_messages=queue.address.size_messages,
        keeps_dead=keeps_dead,
        consumer_list=[consumer_shown(consumer) for consumer in queue.holders()[:CONSUMERS_SHOWN_MAX]],
    )


def consumer_shown(consumer: Consumer) -> ConsumerShown:
    """A consumer."""
    return model_of(
        ConsumerShown,
        consumer,
        queue=consumer.queue.name,
        address=consumer.queue.address.name,
        selector=cut(consumer.selector),
        ack_mode=consumer.ack_mode.value,
        unacknowledged=len(consumer.unacked),
    )
