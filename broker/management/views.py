"""Engine objects as JSON: what an operator reads.

Times are milliseconds since the epoch (0: none), sizes bytes.  Everything a client chose is bounded: properties are
cut, bodies are previews.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from shutil import disk_usage
from typing import Final

from broker.build import COMPILED
from broker.engine import COUNTED, Consumer, GroupedBacklog, MoveResult, Queue, Unreadable, read_body
from broker.engine.model.message import Body, Format, Message, Value
from broker.log import cut
from broker.management.ports import AcceptorState, Broker

Json = dict[str, object]

#: Bytes of a body that are shown: enough to recognise a message.
BODY_PREVIEW_BYTES: Final = 1_024

#: Bytes of a body that is decoded to be shown; of a longer one only text and data are shown as such.
BODY_DECODED_BYTES_MAX: Final = 1 << 16

#: Characters of one property that are shown whatever the settings say, and properties of one message: a page of 1,000
#: messages stays below some MiB as long as management-message-attribute-size-limit has its default, 256.
PROPERTY_CHARS_MAX: Final = 1 << 16
PROPERTIES_MAX: Final = 64

#: Consumers of one queue that are shown one by one; more are only counted.
CONSUMERS_SHOWN_MAX: Final = 100

#: Control characters that text may have.
_TEXT_CONTROLS: Final = "\t\n\r"


def queue_counts(queue: Queue) -> Json:
    """A queue in a list: what it is and how many messages are where."""
    return {
        "name": queue.name,
        "address": queue.address.name,
        "routing_type": queue.routing_type.name,
        "durable": queue.durable,
        "temporary": queue.temporary,
        "paused": queue.stopped,
        "messages": queue.message_count,
        "ready": queue.ready,
        "paged": queue.paged,
        "scheduled": len(queue.scheduled),
        "delivering": queue.delivering,
        "consumers": len(queue.consumers),
    }


def queue_view(queue: Queue) -> Json:
    """A queue on its own: also its consumers, its counters since the start, and the settings that apply to it."""
    counters, settings = queue.counters, queue.address.settings
    return queue_counts(queue) | {
        "id": queue.id,
        "filter": queue.filter.text if queue.filter else "",
        "auto_created": queue.auto_created,
        "configured": queue.configured,
        "paused_itself": queue.paused,
        "address_paused": queue.address.paused,
        "groups": queue.selective.groups if isinstance(queue.selective, GroupedBacklog) else 0,
        "attributes": asdict(queue.attributes),
        "counters": {name: getattr(counters, name) for name in COUNTED},
        "settings": {
            "dead_letter_address": settings.dead_letter_address,
            "expiry_address": settings.expiry_address,
            "max_delivery_attempts": settings.max_delivery_attempts,
            "redelivery_delay": settings.redelivery_delay,
            "max_size_bytes": settings.max_size_bytes,
            "max_size_messages": settings.max_size_messages,
            "address_full_policy": settings.address_full_policy.value,
        },
        "address_bytes": queue.address.size_bytes,
        "address_messages": queue.address.size_messages,
        "address_full": queue.address.full,
        "consumer_list": [consumer_view(consumer) for consumer in queue.consumers[:CONSUMERS_SHOWN_MAX]],
    }


def consumer_view(consumer: Consumer) -> Json:
    """A consumer: who it is, and what it has."""
    return {
        "id": consumer.id,
        "client_id": consumer.client_id,
        "user": consumer.user,
        "remote": consumer.remote,
        "selector": cut(consumer.selector),
        "ack_mode": consumer.ack_mode.value,
        "unacknowledged": len(consumer.unacked),
        "paused": consumer.paused,
    }


def message_view(message: Message, queue: Queue, state: str) -> Json:
    """One message on a queue: header, application properties, what the broker noted on it, the body's beginning."""
    header = message.header
    properties = header.format.properties(message.head)
    limit = queue.address.settings.management_message_attribute_size_limit
    chars = PROPERTY_CHARS_MAX if limit < 0 else min(limit, PROPERTY_CHARS_MAX)
    return {
        "id": message.id,
        "state": state,
        "address": header.address,
        "durable": header.durable,
        "priority": header.priority,
        "timestamp": header.timestamp,
        "expiration": header.expiration,
        "scheduled": queue.scheduled[message.id][0] if state == "scheduled" else 0,
        "redelivered": message.id in queue.states,
        "failed_deliveries": queue.delivery_count(message.id),
        "size": len(message.head) + len(message.body),
        "protocol": header.format.name,
        "user": header.user,
        "origin": header.origin,
        "properties": {cut(name): _value(properties[name], chars) for name in list(properties)[:PROPERTIES_MAX]},
        "properties_omitted": max(len(properties) - PROPERTIES_MAX, 0),
        "annotations": header.annotations or {},
        "body": body_view(message.body, header.format),
    }


def _value(value: Value, chars: int) -> object:
    if isinstance(value, str):
        return cut(value, chars)
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value[:chars]).decode(), "bytes": len(value)}
    if isinstance(value, float) and not isfinite(value):  # JSON has no such numbers
        return str(value)
    return value


def body_view(body: Body, format: Format) -> Json:
    """The beginning of a body: as text or JSON if it is that, else in base64.  `bytes` is the whole length, encoded."""
    try:
        if isinstance(body, bytes):
            raw = body if len(body) <= BODY_DECODED_BYTES_MAX else body[: 2 * BODY_PREVIEW_BYTES]
        else:
            raw = read_body(body, 0, 2 * BODY_PREVIEW_BYTES)
    except Unreadable as error:
        return {"encoding": "text", "data": f"({error})", "bytes": len(body), "truncated": True}
    content = format.content(raw)
    part = content[:BODY_PREVIEW_BYTES]
    truncated = len(part) < len(content) or len(raw) < len(body)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(part, final=not truncated)
    except UnicodeDecodeError:
        text = "\0"
    if any(ord(c) < 32 and c not in _TEXT_CONTROLS for c in text):
        return {
            "encoding": "base64",
            "data": base64.b64encode(part).decode(),
            "bytes": len(body),
            "truncated": truncated,
        }
    return {"encoding": "text", "data": text, "bytes": len(body), "truncated": truncated}


def status_view(broker: Broker, now: int) -> Json:
    """The broker as a whole; `now` in ms since the epoch."""
    engine = broker.engine
    reasons = broker.unready()
    return {
        "name": broker.name,
        "version": broker.version,
        "compiled": COMPILED,
        "started": broker.started,
        "uptime": now - broker.started,
        "ready": not reasons,
        "reasons": reasons,
        "addresses": len(engine.addresses),
        "queues": len(engine.queues),
        "paused_queues": sum(queue.stopped for queue in engine.queues.values()),
        "consumers": sum(len(queue.consumers) for queue in engine.queues.values()),
        "messages": engine.usage.messages,
        "paged": engine.statistics.paged_messages,
        "memory_bytes": engine.usage.bytes,
        "memory_bytes_max": engine.usage.bytes_max,
        "acceptors": _acceptors(broker.acceptors()),
        "journal": _journal(broker),
    }


def step_view(step: MoveResult, queue: Queue) -> Json:
    """What a retry or a move has done, and where the next one goes on."""
    return {
        "queue": queue.name,
        "moved": step.moved,
        "refused": step.refused,
        "delivering": queue.delivering,
        "complete": step.complete,
        "last": step.last,
        "below": step.below,
    }


def balance_view(broker_id: bytes, position: int, counts: Sequence[tuple[Queue, int]]) -> Json:
    """How many messages the journal has of each queue, before a position.  What it reads of a queue never changes."""
    return {
        "broker_id": broker_id.hex(),
        "position": position,
        "queues": [
            {
                "id": queue.id,
                "name": queue.name,
                "address": queue.address.name,
                "durable": queue.durable,
                "journalled": count,
            }
            for queue, count in counts
        ],
    }


def _journal(broker: Broker) -> Json:
    journal, counters = broker.engine.journal, broker.counters
    return {
        "accepting": journal.accepting,
        "segments": len(journal.space.segments),
        "segment": journal.segment,
        "pending_bytes": journal.pending_bytes,
        "written_bytes": counters.bytes,
        "syncs": counters.syncs,
        "slow_syncs": counters.slow_syncs,
        "disk_free_bytes": disk_usage(broker.data_directory).free,
        "disk_full": broker.engine.usage.disk.full,
    }


def _acceptors(acceptors: Sequence[AcceptorState]) -> list[Json]:
    return [asdict(acceptor) for acceptor in acceptors]
