"""Links to other brokers and their routes, as the API shows them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from broker.engine import Engine, Queue
from broker.management.models.base import Body, Next, Shown, Total, model_of
from broker.sessions.links.model import Kind, Link, Route, RouteSettings

StateName = Literal["stopped", "starting", "running", "retrying", "paused", "in-doubt"]
KindName = Literal["send", "receive", "remote-queue", "topics", "mqtt"]

ErrorText = Annotated[
    str, Field(description="What is wrong, in the other broker's words if it gave any; empty: nothing.")
]
ErrorTime = Annotated[int, Field(description="When an error last occurred, even if it is over.")]


class RouteShown(Shown):
    """A route: what it joins, and what became of its messages.  Counters start at 0 with the broker."""

    name: str
    kind: KindName
    state: StateName
    since: int
    direction: Literal["out", "in", "both"] = Field(description="out: from this broker to the other one.")
    local: str = Field(description="The queue, address or topics on this broker.")
    remote: str = Field(description="The queue, address or topics on the other broker.")
    queue: str = Field(description="The queue that it reads on this broker; empty: none.")
    depth: int | None = Field(description="Messages on that queue; null: it reads none.")
    lag: int | None = Field(description="Age of the oldest of them, in ms; null: it reads none.")
    passed: int = Field(description="Messages that the other end has accepted, or sent.")
    refused: int = Field(description="Messages that the receiving end refused.")
    unsettled: int = Field(description="Messages in transit, not settled yet.")
    in_doubt: int = Field(description="Messages held because it is unknown whether the other end has them.")
    error: ErrorText
    error_at: ErrorTime


class LinkShown(Shown):
    """A link: where it leads, its state, and its routes."""

    name: str
    urls: list[str]
    enabled: bool = Field(description="Whether it starts with the broker.")
    state: StateName
    since: int
    pausing: bool = Field(description="Whether an operator has paused it; once connected, it will be `paused`.")
    connected: bool = Field(description="Whether it is connected and logged in.")
    remote: str = Field(description="The URL that it uses or last used.")
    peer: str = Field(description="The other broker, as it identifies itself.")
    client_id: str = Field(description="The client identifier of this broker at the other one; empty: over AMQP.")
    attempts: int = Field(description="Attempts to connect that have failed since the last success.")
    retry_at: int = Field(description="When it retries, while it is `retrying`; else 0.")
    error: ErrorText
    error_at: ErrorTime
    routes: list[RouteShown]


class LinkList(Shown):
    """Some of the links, by name."""

    links: list[LinkShown]
    next: Next
    total: Total


class Resolution(Body):
    """What to do with the messages that a route holds in doubt."""

    discard: bool = Field(description="true: the other end has them, so remove them; false: send them again.")


class Resolved(Shown):
    """What became of the messages that a route held in doubt."""

    messages: int
    discarded: bool
    link: LinkShown


def link_shown(engine: Engine, link: Link) -> LinkShown:
    """A link and its routes as they are now."""
    retrying = link.state.value == "retrying"
    return model_of(
        LinkShown,
        link,
        urls=list(link.settings.urls),
        enabled=link.settings.enabled,
        state=link.status.value,
        retry_at=link.retry_at if retrying else 0,
        routes=[route_shown(engine, route) for route in link.routes.values()],
    )


def route_shown(engine: Engine, route: Route) -> RouteShown:
    """A route as it is now."""
    settings = route.settings
    queue = engine.queues.get(settings.local) if settings.reads else None
    local, remote = _places(settings, queue)
    return model_of(
        RouteShown,
        route,
        kind=settings.kind.value,
        state=route.state.value,
        direction="in" if not settings.reads else "both" if settings.inward else "out",
        local=local,
        remote=remote,
        queue=settings.local if settings.reads else "",
        depth=queue.message_count if queue is not None else 0 if settings.reads else None,
        lag=engine.statistics.lag(queue) if queue is not None else 0 if settings.reads else None,
    )


def _places(settings: RouteSettings, queue: Queue | None) -> tuple[str, str]:
    """The local and the remote end of a route, as in the configuration."""
    match settings.kind:
        case Kind.MQTT:
            return settings.local_prefix + settings.topic, settings.remote_prefix + settings.topic
        case Kind.TOPICS:  # its queue is bound to the topics
            address = "" if queue is None else queue.address.name
            return address, address
    return settings.local, settings.remote
