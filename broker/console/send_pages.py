"""The page to write and send a message."""

from __future__ import annotations

from starlette.responses import Response

from broker.console.desk import Pages, Routes
from broker.console.visit import Refused, Visit, go_to
from broker.engine.model.message import PRIORITY_DEFAULT
from broker.management.callers import require_destination
from broker.management.durable import durable
from broker.management.sending import Outgoing, send
from broker.sessions.stomp.format import encode_head
from broker.sessions.stomp.headers import is_application_header


class SendPages(Pages):
    """The send page of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [("GET", "/send", self.compose, None), ("POST", "/send", self.send, self._authorize)]

    def _authorize(self, visit: Visit) -> None:
        require_destination(visit.access, self._desk.engine, visit.text("to").strip())

    async def compose(self, visit: Visit) -> Response:
        """The form for a new message."""
        return self._desk.page(visit, "send.html", {"to": visit.text("to")})

    async def send(self, visit: Visit) -> Response:
        """Send the message; answered once it is on disk."""
        to = visit.text("to").strip()
        outgoing = Outgoing(
            head=encode_head(
                [(name.encode(), value.encode()) for name, value in properties(visit, "properties").items()]
            ),
            body=visit.lines("text"),
            user=visit.access.user,
            durable=not visit.flag("transient"),
            priority=visit.number("priority", PRIORITY_DEFAULT, 9),
            routing_type=next(iter(visit.routing_types()), None),
        )
        sent = send(self._desk.enter(), to, outgoing)
        visit.log_action("address.sent", address=sent.address.name, message=sent.message.id, messages=int(sent.taken))
        await durable(self._desk.engine)
        if sent.taken:
            visit.done(f"Message {sent.message.id} was sent to {sent.address.name}.")
        else:
            visit.warn(f"No queue of {sent.address.name} took the message.")
        return go_to("/queue", name=sent.queue.name) if sent.queue is not None else go_to("/send", to=to)


def properties(visit: Visit, field: str) -> dict[str, str]:
    """The properties in a field of a form, one per line as `name: value`.  Raises Refused."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, visit.text(field).splitlines())):
        name, separator, value = line.partition(":")
        name = name.strip()
        if not (separator and name):
            raise Refused(f"a property is NAME: VALUE, not {line[:100]!r}")
        if not is_application_header(name.encode()):
            raise Refused(f"property {name[:100]!r} is set by the broker only")
        found[name] = value.strip()
    return found
