"""The calls to list, start, stop and pause links to other brokers, and to resolve routes in doubt."""

from __future__ import annotations

from starlette.requests import Request

from broker.management.calls import Calls, authorize_whole
from broker.management.cursors import after_name
from broker.management.durable import durable
from broker.management.models.base import LIMIT_DEFAULT, After, Limit, Name
from broker.management.models.links import LinkList, LinkShown, Resolution, Resolved, link_shown
from broker.management.operator_log import log_action
from broker.management.ports import Broker


class LinkCalls:
    """The calls on one broker's links, for callers who manage the broker as a whole."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        path = "/links/{name:bare}"
        calls.add("GET", "/links", self.list, authorize=authorize_whole)
        calls.add("GET", path, self.show, authorize=authorize_whole)
        calls.add("POST", f"{path}:start", self.start, authorize=authorize_whole, problems=(409,))
        calls.add("POST", f"{path}:stop", self.stop, authorize=authorize_whole, problems=(409,))
        calls.add("POST", f"{path}:pause", self.pause, authorize=authorize_whole, problems=(409,))
        calls.add(
            "POST",
            f"{path}/routes/{{route:bare}}:resolve",
            self.resolve,
            authorize=authorize_whole,
            problems=(409, 503),
        )

    async def list(self, limit: Limit = LIMIT_DEFAULT, after: After = "") -> LinkList:
        """The links by name, with their routes."""
        self._broker.tick.enter()
        links = self._broker.links.by_name
        names = sorted(links)
        chosen, next = after_name(names, "links", after, limit)
        shown = [link_shown(self._engine, links[name]) for name in chosen]
        return LinkList(links=shown, next=next, total=len(names))

    async def show(self, name: Name) -> LinkShown:
        """One link, with its routes."""
        self._broker.tick.enter()
        return link_shown(self._engine, self._broker.links.find(name))

    async def start(self, request: Request, name: Name) -> LinkShown:
        """Start a stopped link, reconnect a waiting one at once, or resume a paused one."""
        self._broker.tick.enter()
        self._broker.links.start(name)
        return self._steered(request, name, "start")

    async def stop(self, request: Request, name: Name) -> LinkShown:
        """Close a link's connection until the link is started or the broker restarts."""
        self._broker.tick.enter()
        self._broker.links.stop(name)
        return self._steered(request, name, "stop")

    async def pause(self, request: Request, name: Name) -> LinkShown:
        """Let a link stay connected but transfer nothing until it is started or the broker restarts."""
        self._broker.tick.enter()
        self._broker.links.pause(name)
        return self._steered(request, name, "pause")

    def _steered(self, request: Request, name: str, verb: str) -> LinkShown:
        log_action(request, "link.operated", link=name, verb=verb)
        return link_shown(self._engine, self._broker.links.find(name))

    async def resolve(self, request: Request, name: Name, route: Name, body: Resolution) -> Resolved:
        """Send the messages that a route holds in doubt again, or remove them; answered once that is on disk."""
        self._broker.tick.enter()
        messages = self._broker.links.resolve(name, route, discard=body.discard)
        verb = "discard" if body.discard else "resend"
        log_action(request, "link.operated", link=name, route=route, verb=verb, messages=messages)
        await durable(self._engine)
        link = link_shown(self._engine, self._broker.links.find(name))
        return Resolved(messages=messages, discarded=body.discard, link=link)
