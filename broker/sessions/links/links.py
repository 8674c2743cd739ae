"""All links: operators' actions on them, and what happens when a connection is opened or lost.

The network asks `due` which links to connect now, and says what came of it by `failed`, or by a session, which says
`opened` and `lost`.  Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from broker.engine import Engine, MessageRange
from broker.engine.model.errors import DiskFull, NotFound, WrongState
from broker.sessions.links.model import Link, LinkSettings, Route, State, is_due
from store.counted import counted

#: The error if a connection ends without a reason, after the login and before.
_LOST: Final = "the connection was lost"
_NOT_LOGGED_IN: Final = "the other broker closed the connection or did not answer during login: check the port, and TLS"


class LinkConnection(Protocol):
    """The session of a link that is connected, or on its way; called within a tick."""

    def check(self) -> None:
        """Do everything that is due."""

    def pause_routes(self) -> None:
        """Stop forwarding; messages in flight are still settled."""

    def start_routes(self) -> None:
        """Start the routes that do not run, as far as permitted."""

    def shut_down(self, why: str = "", *, moved: bool = False) -> None:
        """End the connection in good order; `moved` has no meaning for the other broker."""


class Links:
    """The links by name."""

    def __init__(self, engine: Engine, settings: Iterable[LinkSettings]) -> None:
        self._engine = engine
        self.by_name: Mapping[str, Link] = {
            each.name: Link(each, lambda: engine.now, self._notify) for each in settings
        }
        self.connections: dict[str, LinkConnection] = {}
        self.closing = False  # the broker stops: lost connections are not reported
        for link in self.by_name.values():
            if link.settings.enabled:
                link.move("start")

    def find(self, name: str) -> Link:
        """Return a link.  Raises NotFound."""
        link = self.by_name.get(name)
        if link is None:
            raise NotFound(f"there is no link {name}")
        return link

    def start(self, name: str) -> None:
        """Start a link, or resume it.  Raises NotFound, WrongState."""
        link = self.find(name)
        link.pausing = False
        if link.state is State.STARTING:
            return
        if link.state is State.RUNNING:
            raise WrongState(f"link {name} is running already")
        going_on = link.state is State.PAUSED
        link.retry_at = 0
        link.move("start")
        if going_on:
            self.connections[name].start_routes()

    def stop(self, name: str) -> None:
        """End a link's connection in good order, until it is started.  Raises NotFound, WrongState."""
        link = self.find(name)
        if not link.can("stop"):
            raise WrongState(f"link {name} is {link.state}")
        link.pausing = False
        link.move("stop")
        connection = self.connections.pop(name, None)
        if connection is not None:
            connection.shut_down("the link is stopped by an operator")

    def pause(self, name: str) -> None:
        """Pause a link: it stays connected and forwards nothing until it is started.  Raises NotFound, WrongState."""
        link = self.find(name)
        if link.state in (State.STOPPED, State.PAUSED):
            raise WrongState(f"link {name} is {link.state}")
        link.pausing = True
        if link.state is State.RUNNING:
            link.move("pause")
            self.connections[name].pause_routes()

    def resolve(self, name: str, route_name: str, *, discard: bool) -> int:
        """End the doubt of a route: send what is held again, or `discard` it as delivered; how many messages it was.

        Raises NotFound, WrongState; NotReadable or DiskFull: the disk cannot be read or written for now, and the rest
        stays in doubt.
        """
        link = self.find(name)
        route = link.routes.get(route_name)
        if route is None:
            raise NotFound(f"link {name} has no route {route_name}")
        if route.state is not State.IN_DOUBT:
            raise WrongState(f"route {route_name} of link {name} is {route.state}, not in doubt")
        messages = self._discard(route) if discard else len(route.doubtful)
        route.doubtful = set()
        route.move("resolve")
        if link.state is State.RUNNING and name in self.connections:
            self.connections[name].start_routes()
        return messages

    def _discard(self, route: Route) -> int:
        """Remove the messages that a route holds, at most its window.  Returns how many there still were.

        Raises DiskFull.
        """
        queue, held = self._engine.queues.get(route.settings.local), tuple(sorted(route.doubtful))
        removed = 0
        while queue is not None and held:
            step = self._engine.messages.discard(queue, MessageRange(ids=held))
            removed, held = removed + step.moved, held[step.looked_at :]
            if DiskFull.code in step.refused:
                raise DiskFull(f"the journal has no room: {counted(removed, 'message')} removed, not all: try again")
        return removed

    def due(self) -> list[Link]:
        """Return the links to connect now; they are starting."""
        found = []
        now = self._engine.now
        for link in self.by_name.values():
            if link.state is State.RETRYING and is_due(link.retry_at, now, link.settings.retry_interval_max):
                link.move("due")
            if link.state is State.STARTING and link.name not in self.connections:
                found.append(link)
        return found

    def wanted(self, link: Link) -> bool:
        """Whether a connection that was opened for a link is still needed."""
        return link.state is State.STARTING and link.name not in self.connections

    def connected(self, link: Link, connection: LinkConnection) -> None:
        """Set the connection of a link, on which it logs in."""
        self.connections[link.name] = connection

    def check(self) -> None:
        """Let connections do what is due; called every quarter of a second."""
        for connection in list(self.connections.values()):
            connection.check()

    def opened(self, link: Link, connection: LinkConnection, peer: str) -> None:
        """Note that a link has logged in, and start or pause its routes."""
        link.attempts_before, link.opened_at = link.attempts, self._engine.now
        link.peer, link.attempts, link.error = peer, 0, ""
        link.move("opened")
        self._engine.report("link.connected", link=link.name, remote=link.remote, peer=peer)
        if link.pausing:
            link.move("pause")
            connection.pause_routes()
        else:
            connection.start_routes()

    def lost(self, link: Link, why: str = "") -> None:
        """Retry after a while: a link's connection could not be opened, was refused, or has ended.

        A connection that ends at once does not count as a success: the retry interval continues to grow.  `why`: empty
        if the other broker gave no reason.
        """
        why = why or (_LOST if link.connected else _NOT_LOGGED_IN)
        self.connections.pop(link.name, None)
        for route in link.routes.values():
            route.move("lost")
        if not link.can("lost") or self.closing:
            return
        settings = link.settings
        if link.connected and self._engine.now - link.opened_at < settings.retry_interval:
            link.attempts = link.attempts_before
        wait = min(settings.retry_interval << min(link.attempts, 30), settings.retry_interval_max)
        wait -= self._engine.random.randrange(wait // 2 + 1)  # many links to one broker do not come back at once
        link.attempts += 1
        link.retry_at = self._engine.now + wait
        link.move("lost", why)
        self._engine.report("link.lost", link=link.name, remote=link.remote, error=why, milliseconds=wait)

    def _notify(self, link: Link, route: Route | None) -> None:
        """Send a notification of a changed state."""
        notes = self._engine.notes
        if notes.listening:
            properties: dict[str, str | int] = {
                "_BARTLEBY_Link": link.name,
                "_BARTLEBY_State": (link.state if route is None else route.state).value,
                "_BARTLEBY_Error": link.error if route is None else route.error,
            }
            if route is not None:
                properties["_BARTLEBY_Route"] = route.name
            notes.add("LINK_STATE" if route is None else "ROUTE_STATE", properties)
