"""The HTTP call by which messages come back from the journal, for `api`.

    POST /api/v1/messages:replay?name=NAME      {"messages": [MESSAGE, ...]}

A MESSAGE is as `bartleby journal export` writes it (docs/journal-export.md), with `queue`, the name of the queue that
it left, and perhaps `to`, an address or queue other than that.  They are taken in their order.  The answer says how
many came back; `stopped` is why the others after them were not looked at, empty if all were.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from broker.engine.engine import Engine
from broker.engine.errors import EngineError
from broker.engine.message import Facts, Format, Message, PropertyView, RoutingType, group_of
from broker.engine.replay import NAME_CHARS_MAX, Past, Replayed, replay
from broker.log import report

PATH: Final = "/api/v1/messages:replay"

#: Bytes of one such request: some of the largest messages that a broker takes unless it is told otherwise, in base64.
BODY_BYTES_MAX: Final = 64 << 20

#: Messages in one request: some 50 ms of the event loop, in which every client waits.
MESSAGES_MAX: Final = 1_000

Json = dict[str, object]


class BadReplay(EngineError):
    """A request that is no replay; the text says what is wrong."""

    code = "invalid-replay"


def read_replay(engine: Engine, body: bytes, name: str) -> list[Past]:
    """The messages of a request.  Raises BadReplay."""
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise BadReplay(f"name is the replay's name, of at most {NAME_CHARS_MAX} characters")
    formats = {format.name: format for format in engine.core.formats.values()}
    try:
        messages = json.loads(body)["messages"]
        if not isinstance(messages, list) or len(messages) > MESSAGES_MAX:
            raise BadReplay(f"messages is a list of at most {MESSAGES_MAX}")
        return [_past(formats, line) for line in messages]
    except KeyError as missing:
        raise BadReplay(f"{missing} is missing") from missing
    except (ValueError, TypeError, AttributeError) as wrong:
        raise BadReplay(str(wrong)) from wrong


def _past(formats: Mapping[str, Format], line: Mapping[str, Any]) -> Past:
    if line["protocol"] not in formats:
        raise BadReplay(f"protocol {line['protocol']!r} is not known")
    routing_type = line.get("routing-type")
    facts = Facts(
        str(line["address"]),
        formats[line["protocol"]],
        durable=True,
        priority=int(line["priority"]),
        timestamp=int(line["timestamp"]),
        routing_type=RoutingType[routing_type] if routing_type else None,
        user=str(line.get("user", "")),
        origin=str(line.get("origin", "")),
        annotations=_annotations(line.get("annotations") or {}),
    )
    message = Message(facts, b64decode(line["head"], validate=True), b64decode(line["body"], validate=True))
    message.id = int(line["id"])
    group, closes = group_of(PropertyView(message))
    if group:
        message.facts = facts.in_group(group, closes=closes)
    return Past(message, str(line["queue"]), str(line.get("to", "")))


def _annotations(given: Mapping[str, Any]) -> dict[str, str | int]:
    if not all(isinstance(value, str | int) for value in given.values()):
        raise BadReplay("annotations are texts and integers")
    return dict(given)


def perform(engine: Engine, name: str, past: list[Past]) -> Json:
    """Bring them back, as far as it goes; what the call answers when that is on disk."""
    done = Replayed()
    stopped = ""
    try:
        replay(engine.core, engine.router, name, past, done)
    except EngineError as refusal:
        stopped = str(refusal)
    report("journal.replayed", replay=name, messages=done.replayed, stopped=stopped)
    return {"replayed": done.replayed, "refused": done.refused, "stopped": stopped}
