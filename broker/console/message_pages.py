"""Messages: one with all that is known of it; chosen ones or all that fit, brought back, moved, removed; a new one."""

from __future__ import annotations

from starlette.responses import Response

from broker.console.asking import Refused, routing_type_of
from broker.console.desk import Desk, Routes
from broker.console.groups import chosen_group, group_fields, values
from broker.console.messages import body_of
from broker.console.reasons import reason
from broker.console.task_pages import stays, summary
from broker.console.visit import Visit, go_to, number
from broker.engine import Queue, Send
from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.message import (
    DL_ATTEMPTS,
    DL_CLIENT,
    DL_CLIENT_ADDRESS,
    DL_COUNT,
    DL_FIRST_QUEUE,
    DL_FIRST_REASON,
    DL_FIRST_TIME,
    DL_REASON,
    DL_TEXT,
    DL_TIME,
    ORIG_ADDRESS,
    ORIG_QUEUE,
    PRIORITY_DEFAULT,
    Message,
    MessageHeader,
    PropertyView,
    group_of,
)
from broker.engine.model.task import TaskKind, TaskRequest
from broker.management.callers import require_queue, require_target
from broker.management.deeds import who
from broker.management.durable import durable
from broker.management.looking import whole_body
from broker.management.models.messages import message_shown
from broker.reasons.reason import Kind
from broker.sessions.stomp.format import STOMP_FORMAT, encode_head
from broker.sessions.stomp.headers import is_application_header


class MessagePages:
    """The pages of one broker's."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/message", self.show, self._about),
            ("GET", "/message/body", self.download, self._about),
            ("POST", "/messages", self.act, self._about_act),
            ("GET", "/send", self.compose, None),
            ("POST", "/send", self.send, self._about_target),
        ]

    def _about(self, visit: Visit) -> None:
        require_queue(visit.access, self._desk.engine, visit.text("queue"))

    def _about_act(self, visit: Visit) -> None:
        self._about(visit)
        if visit.text("do") == "move":
            require_target(visit.access, self._desk.engine, visit.text("to").strip())

    def _about_target(self, visit: Visit) -> None:
        require_target(visit.access, self._desk.engine, visit.text("to").strip())

    async def show(self, visit: Visit) -> Response:
        """One message."""
        desk, queue = self._desk, self._desk.engine.queue(visit.text("queue"))
        desk.enter()
        message, state = desk.engine.messages.find(queue, visit.number("id"))
        found = message_shown(message, queue, state).model_dump()
        context = {"queue": queue, "message": found, "body": body_of(message), "death": _death_of(message)}
        return desk.page(visit, "message.html", context)

    async def download(self, visit: Visit) -> Response:
        """The body of one message, all of it, to be saved."""
        queue = self._desk.engine.queue(visit.text("queue"))
        message, _ = self._desk.enter().messages.find(queue, visit.number("id"))
        return whole_body(message)

    # -- what is done with messages --------------------------------------------------------------------------------

    async def act(self, visit: Visit) -> Response:
        """Bring back, move or remove messages: those that were ticked, or all that the filter fits; as a task."""
        queue, engine = self._desk.engine.queue(visit.text("queue")), self._desk.engine
        request = self._request(visit, queue)
        task = self._desk.enter().tasks.start(request)
        await durable(engine)
        if not task.state.ended or request.dry_run:
            return go_to("/task", id=task.id)
        visit.done(summary(task))
        for told in stays(task):
            visit.warn(told)
        if queue.delivering and not request.ids:
            visit.warn(f"{queue.delivering:,} messages are with consumers and were left alone.")
        back = visit.text("back")
        if back == "message" and not task.progress.moved:
            return go_to("/message", queue=queue.name, id=request.ids[0])
        if back == "dead-letters":
            return go_to("/dead-letters")
        return go_to("/queue", group_fields(chosen_group(visit)), name=queue.name, filter=visit.text("filter").strip())

    def _request(self, visit: Visit, queue: Queue) -> TaskRequest:
        """The task that a form asks for.  Raises Refused."""
        do, to = visit.text("do"), visit.text("to").strip()
        kinds = {"retry": TaskKind.RETRY, "move": TaskKind.MOVE, "remove": TaskKind.PURGE}
        if do not in kinds:
            raise Refused(400, "invalid-parameter", "do is retry, move or remove")
        if do == "move" and not to:
            raise Refused(400, "invalid-parameter", "say to which address or queue the messages go")
        ids, everything = [number(text, "id") for text in visit.every("id")], visit.flag("all")
        if not (ids or everything):
            raise Refused(400, "nothing-chosen", "choose messages first, or all that the filter fits")
        group = chosen_group(visit) if everything else None
        return TaskRequest(
            kind=kinds[do],
            queue=queue.name,
            filter=visit.text("filter").strip() if everything else "",
            ids=() if everything else tuple(ids),
            group={} if group is None else {name.replace("-", "_"): value for name, value in values(group).items()},
            target=to if do == "move" else "",
            first_origin=do == "retry" and visit.flag("first-origin"),
            edit=_edit(visit) if do != "remove" else UNCHANGED,
            dry_run=visit.flag("dry-run"),
            rate=visit.number("rate"),
            by=who(visit.request, visit.access),
        )

    # -- a new message ---------------------------------------------------------------------------------------------

    async def compose(self, visit: Visit) -> Response:
        """The form for a new message."""
        return self._desk.page(visit, "send.html", {"to": visit.text("to")})

    async def send(self, visit: Visit) -> Response:
        """Send a message, as a client that tries whether all is well."""
        engine, to = self._desk.enter(), visit.text("to").strip()
        named = visit.text("routing-type")
        routing_type = routing_type_of(named) if named else None
        head = encode_head(_properties(visit.text("properties")))
        priority = visit.number("priority", PRIORITY_DEFAULT, 9)
        address, queue = engine.destination(to, routing_type)
        header = MessageHeader(
            address.name,
            engine.formats[STOMP_FORMAT],
            durable=not visit.flag("transient"),
            priority=priority,
            timestamp=engine.now,
            routing_type=routing_type,
            user=visit.access.user,
        )
        header.expiration, header.expiry_source = address.settings.expiration(0, engine.now)
        message = Message(header, head, visit.text("text").replace("\r\n", "\n").encode())
        group, closes = group_of(PropertyView(message))
        if group:
            message.header = header.in_group(group, closes=closes)
        send = Send(address, queue, routing_type, [message])
        engine.publish([send]).check()
        taken = send.routed > 0
        visit.tell("address.sent", address=address.name, message=message.id, messages=int(taken))
        await durable(engine)
        if taken:
            visit.done(f"Message {message.id} was sent to {address.name}.")
        else:
            visit.warn(f"No queue of {address.name} took the message.")
        return go_to("/queue", name=queue.name) if queue is not None else go_to("/send", to=to)


def _edit(visit: Visit) -> Edit:
    """What a form changes in the messages.  Raises Refused."""
    removed = tuple(filter(None, map(str.strip, visit.text("unset").split(","))))
    added = {name.decode(): value.decode() for name, value in _properties(visit.text("set"))}
    body = visit.text("body").replace("\r\n", "\n").encode() if visit.flag("new-body") else None
    return Edit(removed, added, body)


def _death_of(message: Message) -> dict[str, object] | None:
    """What is noted of a message's death, and what its reason means; None: it did not die."""
    notes = message.header.annotations or {}
    word = notes.get(DL_REASON)
    if not isinstance(word, str):
        return None
    return {
        "reason": word,
        "about": reason(Kind.DEAD_LETTER, word),
        "words": notes.get(DL_TEXT, ""),
        "time": _number(notes.get(DL_TIME)),
        "attempts": notes.get(DL_ATTEMPTS, 0),
        "deaths": notes.get(DL_COUNT, 1),
        "queue": notes.get(ORIG_QUEUE, ""),
        "address": notes.get(ORIG_ADDRESS, ""),
        "client": notes.get(DL_CLIENT, ""),
        "remote": notes.get(DL_CLIENT_ADDRESS, ""),
        "first_queue": notes.get(DL_FIRST_QUEUE, ""),
        "first_reason": notes.get(DL_FIRST_REASON, ""),
        "first_time": _number(notes.get(DL_FIRST_TIME)),
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _properties(text: str) -> list[tuple[bytes, bytes]]:
    """Properties, one a line as `name: value`.  Raises Refused."""
    found: dict[bytes, bytes] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition(":")
        if not (separator and name.strip()):
            raise Refused(400, "invalid-parameter", f"a property is NAME: VALUE, not {line[:100]!r}")
        if not is_application_header(name.strip().encode()):
            raise Refused(400, "invalid-parameter", f"property {name[:100]!r} is set by the broker only")
        found[name.strip().encode()] = value.strip().encode()
    return list(found.items())
