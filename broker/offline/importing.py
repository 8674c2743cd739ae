"""Import: the lines of an export into the journal of a stopped broker, empty or not.

What exists already by its name stays as it is; messages are added, under new ids, to the queues that they were on.  A
line is taken or refused whole.  After a refusal what came before it is in the journal: a second run would add those
messages again, so the error says which line it was, and the command can begin there.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from broker.engine import arrival
from broker.engine.bodies import PENDING_BYTES_MAX
from broker.engine.configured import add_divert
from broker.engine.definitions import address_record, queue_record, read_address, read_queue
from broker.engine.diverts import read_divert
from broker.engine.errors import EngineError
from broker.engine.filter import compile_filter
from broker.engine.message import Facts, Format, Message, PropertyView, RoutingType, group_of
from broker.engine.queue import DeliveryState, Queue
from broker.offline.exporting import VERSION
from broker.offline.parts import Stopped
from store import record
from store.bodies import Upload
from store.body import LargeBody

#: Messages between two waits for the disk.
SETTLE_EVERY: Final = 1_000


class BadLine(Exception):
    """A line that cannot be imported; `number` counts from 1."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"line {number}: {what}")
        self.number = number


@dataclass(slots=True)
class Imported:
    """How many of each were made, and how many were there already."""

    addresses: int = 0
    queues: int = 0
    diverts: int = 0
    sessions: int = 0
    messages: int = 0
    present: int = 0


class _Importer:
    """Takes lines in, one after the other."""

    def __init__(self, broker: Stopped) -> None:
        self.broker = broker
        self.engine = broker.parts.engine
        self.made = Imported()
        self._formats: dict[str, Format] = {f.name: f for f in self.engine.core.formats.values()}
        self._facts: dict[str, Facts] = {}
        self._waiting: dict[str, Any] | None = None  # a message whose body comes in the lines behind it
        self._upload: Upload | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """One line.  Raises KeyError, ValueError, TypeError, EngineError for one that is not right."""
        kind = line.get("kind")
        definition = {name: value for name, value in line.items() if name != "kind"}
        if (self._waiting is not None) != (kind == "body"):
            raise ValueError("the lines behind a message with body-bytes have its body, others have none")
        match kind:
            case "address":
                self._address(definition)
            case "queue":
                self._queue(definition)
            case "divert":
                self._divert(definition)
            case "session":
                self._session(definition)
            case "session-part":
                self._session_part(definition)
            case "message" if "body-bytes" in definition:
                self._begin_body(definition)
            case "message":
                self._message(definition)
            case "body":
                self._more_body(definition)
            case _:
                raise ValueError(f"kind {kind!r} is not known: it is written by newer software, or no export")

    def _address(self, definition: dict[str, Any]) -> None:
        router, journal = self.engine.router, self.engine.core.journal
        if definition["name"] in router.addresses:
            self.made.present += 1
            return
        read = read_address(0, definition)
        address = router.restore_address(read_address(journal.allocate_ids(1), definition))
        journal.define(address.id, address_record(address))
        self.made.addresses += read.name in router.addresses

    def _queue(self, definition: dict[str, Any]) -> None:
        router, journal = self.engine.router, self.engine.core.journal
        if definition["name"] in router.queues:
            self.made.present += 1
            return
        read = read_queue(0, definition)
        if read.address not in router.addresses:
            raise ValueError(f"queue {read.name} is on address {read.address}, which no line before defines")
        filter = compile_filter(read.filter)
        queue = router.restore_queue(read_queue(journal.allocate_ids(1), definition), filter)
        journal.define(queue.id, queue_record(queue))
        router.refresh()
        self.made.queues += 1

    def _divert(self, definition: dict[str, Any]) -> None:
        if definition["name"] in self.engine.router.diverts.by_name:
            self.made.present += 1
            return
        add_divert(self.engine.router, read_divert(0, definition))
        self.made.diverts += 1

    def _session(self, definition: dict[str, Any]) -> None:
        if self.engine.sessions.get(definition["name"]) is not None:
            self.made.present += 1
            return
        self.engine.sessions.open(str(definition["name"]), definition["session"])
        self.made.sessions += 1

    def _session_part(self, definition: dict[str, Any]) -> None:
        session = self.engine.sessions.get(definition["session"])
        if session is None:
            raise ValueError(f"no line before defines the session {definition['session']}")
        if definition["name"] not in session.parts:
            self.engine.sessions.put(session, str(definition["name"]), definition["part"])

    # -- messages --------------------------------------------------------------------------------------------------

    def _begin_body(self, line: dict[str, Any]) -> None:
        if int(line["body-bytes"]) <= 0:
            raise ValueError("body-bytes is the length of a body that follows")
        self._waiting = line
        self._upload = self.engine.uploads.begin(lambda: None, durable=True)

    def _more_body(self, line: dict[str, Any]) -> None:
        upload, waiting = self._upload, self._waiting
        assert upload is not None
        assert waiting is not None
        data = b64decode(line["data"], validate=True)
        wanted = int(waiting["body-bytes"]) - upload.nbytes
        if not 0 < len(data) <= wanted:
            raise ValueError(f"{len(data)} bytes of a body of which {wanted} are missing")
        self.engine.uploads.write(upload, data, last=len(data) == wanted)
        if upload.pending > PENDING_BYTES_MAX or len(data) == wanted:
            self._settle()
        if upload.refusal or len(data) == wanted:
            self._waiting = self._upload = None
            self._message(waiting, self.engine.uploads.finished(upload))

    def abandon(self) -> None:
        """No more lines come: a body that is not whole is none."""
        if self._upload is not None:
            self.engine.uploads.abort(self._upload)
            raise ValueError("the last message has only a part of its body")

    def _settle(self) -> None:
        self.broker.settle()
        self.broker.parts.turn.enter()

    def _message(self, line: dict[str, Any], body: LargeBody | None = None) -> None:
        core, router = self.engine.core, self.engine.router
        places = {self._named(place["name"]): place for place in line["queues"]}
        if not places:
            raise ValueError("a message on no queue")
        facts = self._common(line)
        head = b64decode(line["head"], validate=True)
        if body is None:
            message = Message(facts, head, b64decode(line["body"], validate=True))
        else:
            message = Message.of(copy(facts), head, body)
        group, closes = group_of(PropertyView(message))
        if group:
            message.facts = message.facts.in_group(group, closes=closes)
        address = router.addresses.get(message.facts.address) or next(iter(places)).address
        anycast = [queue for queue in places if queue.routing_type is RoutingType.ANYCAST]
        multicast = [queue for queue in places if queue.routing_type is RoutingType.MULTICAST]
        arrival.publish(core, address, [message], (anycast, multicast))
        for queue, place in places.items():
            count = int(place.get("delivery-count", 0))
            if count:
                queue.states[message.id] = DeliveryState(count, core.now)
                core.journal.mention(queue.id)
                core.journal.add(record.counts(queue.id, count, [message.id]))
        self.made.messages += 1
        if self.made.messages % SETTLE_EVERY == 0:
            self._settle()

    def _named(self, name: str) -> Queue:
        queue = self.engine.router.queues.get(name)
        if queue is None:
            raise ValueError(f"the message is on queue {name}, which no line before defines")
        return queue

    def _common(self, line: dict[str, Any]) -> Facts:
        """The facts of a message, one object for all messages that agree in them."""
        due = max((int(place.get("due", 0)) for place in line["queues"]), default=0)
        key = json.dumps([line.get(name) for name in _COMMON] + [due])
        facts = self._facts.get(key)
        if facts is None:
            format = self._formats.get(line["protocol"])
            if format is None:
                raise ValueError(f"protocol {line['protocol']!r} is not known")
            routing_type = line.get("routing-type")
            facts = Facts(
                str(line["address"]),
                format,
                durable=True,
                priority=int(line["priority"]),
                timestamp=int(line["timestamp"]),
                expiration=int(line.get("expiration", 0)),
                expiry_source=int(line.get("expiry-source", 0)),
                scheduled=due or int(line.get("scheduled", 0)),
                routing_type=RoutingType[routing_type] if routing_type else None,
                user=str(line.get("user", "")),
                origin=str(line.get("origin", "")),
                annotations=line.get("annotations"),
            )
            self._facts = {key: facts}
        return facts


_COMMON: Final = (
    "address",
    "protocol",
    "timestamp",
    "priority",
    "expiration",
    "expiry-source",
    "scheduled",
    "routing-type",
    "user",
    "origin",
    "annotations",
)


def import_lines(broker: Stopped, lines: Iterable[bytes], *, first: int = 1) -> Imported:
    """Take in the lines of an export, the messages from line `first` on.  All of it is on disk on return.

    Raises BadLine, LogError; what came before is in the journal then.
    """
    importer = _Importer(broker)
    number = 0
    try:
        for number, text in enumerate(lines, 1):
            line = json.loads(text)
            if number == 1:
                if not isinstance(line, dict) or (line.get("kind"), line.get("version")) != ("journal", VERSION):
                    raise ValueError(f"this is no export of version {VERSION}: the first line says so")
                continue
            if number < first and line.get("kind") in ("message", "body"):
                continue
            broker.parts.turn.enter()
            importer.take(line)
        importer.abandon()
    except KeyError as missing:
        raise BadLine(number, f"{missing} is missing") from missing
    except (ValueError, TypeError, AttributeError, BadBase64, EngineError) as wrong:
        raise BadLine(number, str(wrong)) from wrong
    finally:
        broker.settle()
    return importer.made
