"""The requests of a route: its ATTACH to the other broker, and its consumer on the local queue."""

from __future__ import annotations

from typing import Final

from broker.engine import AckMode, Engine, LinkTarget, Reserve, SubscribeRequest
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.message import RoutingType
from broker.engine.model.names import LINK_SESSIONS
from broker.sessions.amqp.link_id import LINK_CAPABILITY
from broker.sessions.amqp.terms import QUEUE, TOPIC
from broker.sessions.links.model import Route, RouteSettings
from protocols.amqp.performatives import SenderSettleMode, Source, Target, TerminusDurability
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.types import Described

#: The durability of termini: without it RabbitMQ creates a queue that does not survive a restart.
_KEPT: Final = TerminusDurability.UNSETTLED_STATE

#: A source's filter by a selector (apache.org registry).
_SELECTOR: Final = "apache.org:selector-filter:string"

_OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


def attach_sender(sender: Sender, settings: RouteSettings) -> None:
    """Send the ATTACH of a route that reads a local queue."""
    kind = QUEUE if settings.routing_type is RoutingType.ANYCAST else TOPIC
    sender.send_attach(
        source=Source(settings.local, outcomes=_OUTCOMES),
        target=Target(settings.remote or None, _KEPT, capabilities=(kind,)),
        snd_settle_mode=SenderSettleMode.MIXED,
        desired_capabilities=(LINK_CAPABILITY,),
    )


def attach_receiver(
    receiver: Receiver, settings: RouteSettings, properties: dict[str, object], selector: str = ""
) -> None:
    """Send the ATTACH of a route that fills a local address."""
    filters: dict[str, object] = {}
    asked = [each for each in (settings.selector, selector) if each]
    if asked:
        filters["selector"] = Described(_SELECTOR, asked[0] if len(asked) == 1 else "({}) AND ({})".format(*asked))
    receiver.streams = receiver.session.limits.streamed_bytes_max > 0
    receiver.send_attach(
        source=Source(settings.remote, _KEPT, filter=filters or None, outcomes=_OUTCOMES, capabilities=(QUEUE,)),
        target=Target(settings.local),
        snd_settle_mode=SenderSettleMode.UNSETTLED,
        desired_capabilities=(LINK_CAPABILITY,),
        properties=properties or None,
    )


def request(engine: Engine, route: Route, broker: str, *, forwards: bool) -> SubscribeRequest:
    """The subscription of a route that reads a local queue; `forwards`: the other `broker` is a Bartleby."""
    settings, link = route.settings, route.link
    queue = engine.queues.get(settings.local)
    selector = f"AMQAddress = '{settings.origin.replace(chr(39), chr(39) * 2)}'" if settings.origin else ""
    reserve = None
    if forwards and settings.reserve:
        reserve = Reserve(f"{LINK_SESSIONS}out/{link.name}/{settings.name}", settings.reserve)
    return SubscribeRequest(
        settings.local if queue is None else f"{queue.address.name}::{queue.name}",
        RoutingType.ANYCAST if queue is None else None,
        selector=selector,
        ack_mode=AckMode.INDIVIDUAL,
        counted=True,
        client_id=f"link {link.name}",
        remote=link.remote,
        access=UNRESTRICTED,
        forwards=forwards,
        link=LinkTarget(link.name, settings.remote, broker),
        reserve=reserve,
    )
