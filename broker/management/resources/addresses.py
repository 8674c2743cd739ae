"""The calls to list, show, create, pause and delete addresses, to send to them, and to show their settings."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from broker.engine.model.message import RoutingType
from broker.engine.model.row import kebab
from broker.engine.model.settings import as_mapping
from broker.management import sending
from broker.management.callers import managed, require_address, require_all_queues, require_destination
from broker.management.calls import CallerAccess, Calls, anybody
from broker.management.cursors import after_name
from broker.management.durable import durable, finished
from broker.management.models.addresses import (
    AddressChange,
    AddressDeleted,
    AddressList,
    AddressPaused,
    AddressShown,
    NewAddress,
    address_counts,
    address_shown,
)
from broker.management.models.base import LIMIT_DEFAULT, After, Force, Internal, Limit, Name, Search
from broker.management.models.messages import NewMessage, Sent
from broker.management.models.settings import EffectiveSetting, EffectiveSettings, deciding, plain
from broker.management.names import Names
from broker.management.operator_log import log_action
from broker.management.ports import Broker
from broker.management.problems import Refused
from broker.management.sending import Outgoing
from broker.management.turns import in_turns
from broker.sessions.stomp.format import CONTENT_LENGTH, encode_head
from broker.sessions.stomp.headers import is_application_header

#: Bytes of a message sent here, in JSON: parsed within some ms.  Larger messages are for clients of the protocols.
SEND_BYTES_MAX: Final = 1 << 20

#: The names of the headers in a STOMP message.
_HEADERS: Final = {
    "content_type": "content-type",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "type": "type",
    "group": "JMSXGroupID",
}


class AddressCalls:
    """The calls on one broker's addresses."""

    def __init__(self, broker: Broker, names: Names) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._names = names

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path = "/addresses/{name}"
        calls.add("GET", "/addresses", self.list, authorize=anybody)
        calls.add("GET", path, self.show, authorize=_authorize)
        calls.add("PUT", path, self.create, authorize=_authorize, status=201, problems=(409, 507))
        calls.add("PATCH", path, self.change, authorize=self._authorize_queues, problems=(507,))
        calls.add("DELETE", path, self.delete, authorize=self._authorize_queues, problems=(409,))
        calls.add("GET", f"{path}/settings", self.settings, authorize=_authorize)
        calls.add(
            "POST",
            f"{path}/messages",
            self.send,
            authorize=self._authorize_send,
            status=201,
            problems=(409, 507),
            body_bytes_max=SEND_BYTES_MAX,
        )

    async def _authorize_queues(self, name: Name, access: CallerAccess) -> None:
        await require_all_queues(access, self._engine, name)

    async def _authorize_send(self, name: Name, access: CallerAccess) -> None:
        require_destination(access, self._engine, name)

    async def list(
        self,
        access: CallerAccess,
        limit: Limit = LIMIT_DEFAULT,
        after: After = "",
        name: Search = "",
        internal: Internal = False,
    ) -> AddressList:
        """The addresses that the caller manages, by name."""
        engine, addresses, every = self._engine, self._engine.addresses, await self._names.addresses(internal=internal)
        every = [each for each in every if name in each] if name else every
        names = await managed(access, every, lambda name: (name, ""))
        chosen, next = after_name(names, "addresses", after, limit)
        shown = await in_turns(
            address_counts(engine, addresses[name]) if name in addresses else None for name in chosen
        )
        return AddressList(addresses=shown, next=next, total=len(names))

    async def show(self, name: Name, access: CallerAccess) -> AddressShown:
        """One address."""
        return address_shown(self._engine, self._broker.links, self._engine.operators.address(name), access)

    async def settings(self, name: Name) -> EffectiveSettings:
        """The settings that apply to an address, whether or not it exists, and the match that sets each."""
        operators = self._engine.operators
        layers = operators.setting_layers(name)
        settings = {
            kebab(field): EffectiveSetting(value=plain(value), match=deciding(layers, field))
            for field, value in as_mapping(operators.settings(name)).items()
        }
        return EffectiveSettings(name=name, matches=[match for match, _ in layers], settings=settings)

    async def create(
        self, request: Request, name: Name, access: CallerAccess, body: NewAddress | None = None
    ) -> AddressShown:
        """Create an address; answered once that is on disk."""
        types = {RoutingType[each] for each in (body.routing_types if body else ())}
        self._broker.tick.enter()
        address = self._engine.operators.make_address(name, types)
        log_action(request, "address.created", address=address.name)
        await durable(self._engine)
        return address_shown(self._engine, self._broker.links, address, access)

    async def change(self, request: Request, name: Name, body: AddressChange) -> AddressPaused:
        """Pause or resume all queues of an address; answered once that is on disk."""
        address, paused = self._engine.operators.address(name), body.paused
        self._broker.tick.enter()
        if paused is not None and self._engine.operators.pause_address(address, paused=paused):
            log_action(request, "address.paused" if paused else "address.resumed", address=address.name)
        await durable(self._engine)
        return AddressPaused(name=address.name, paused=address.paused, queues=len(self._engine.queues_of(address)))

    async def delete(self, request: Request, name: Name, force: Force = False) -> AddressDeleted:
        """Delete an address, with `force` even one that has queues; answered once that is on disk."""
        address = self._engine.operators.address(name)
        queues = len(self._engine.queues_of(address))
        self._broker.tick.enter()
        delete = self._engine.operators.delete_address
        await finished(lambda done: delete(address, with_queues=force, then=done))
        log_action(request, "address.deleted", address=address.name, queues=queues)
        await durable(self._engine)
        return AddressDeleted(name=address.name, queues=queues)

    async def send(self, request: Request, name: Name, body: NewMessage, access: CallerAccess) -> Sent:
        """Send a message to an address, or to a queue as ADDRESS::QUEUE; answered once it is on disk."""
        head, content = _encoded(body)
        outgoing = Outgoing(
            head=head,
            body=content,
            user=access.user,
            durable=body.durable,
            priority=body.priority,
            scheduled=body.scheduled,
            expiration=body.expiration,
            routing_type=None if body.routing_type is None else RoutingType[body.routing_type],
        )
        self._broker.tick.enter()
        sent = sending.send(self._engine, name, outgoing)
        log_action(
            request, "address.sent", address=sent.address.name, message=sent.message.id, messages=int(sent.taken)
        )
        await durable(self._engine)
        return Sent(address=sent.address.name, message=sent.message.id, taken=sent.taken)


async def _authorize(name: Name, access: CallerAccess) -> None:
    require_address(access, name)


def _encoded(body: NewMessage) -> tuple[bytes, bytes]:
    """Head and body of the STOMP message.  Raises Refused."""
    pairs: dict[bytes, bytes] = {}
    for field, name in _HEADERS.items():
        value = getattr(body.headers, field)
        if value:
            pairs[name.encode()] = value.encode()
    for name, value in body.properties.items():
        if not is_application_header(name.encode()):
            raise Refused("invalid-body", f"property {name[:100]!r} is set by the broker only")
        pairs.setdefault(name.encode(), value.encode())
    try:
        content = body.content
    except ValueError as error:
        raise Refused("invalid-body", str(error)) from None
    if body.base64 is not None:  # marks the body as bytes rather than text
        pairs[CONTENT_LENGTH] = b"%d" % len(content)
    return encode_head(list(pairs.items())), content
