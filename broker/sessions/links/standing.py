"""How a route of a connected link stands: it passes messages on, waits, or is in doubt; and what may become of them."""

from __future__ import annotations

from broker.engine.model.message import Message
from broker.sessions.base import BaseSession
from broker.sessions.links.model import Route


class Standing:
    """That of one route on one connection; `where` is where its messages go, for people."""

    def __init__(self, session: BaseSession, route: Route) -> None:
        self.route = route
        self.where = route.settings.remote or "an address of the same name"  # the link is told beside it
        self._session = session
        self._engine = session.engine

    def well(self) -> None:
        """It passes messages on, and nothing is wrong with it."""
        self.route.error = ""
        self._report("link.route_running")

    def wait(self, text: str) -> None:
        """It passes nothing on for a while."""
        route = self.route
        route.retry_at = self._engine.now + route.link.settings.retry_interval
        again = text == route.error
        route.move("refused", text)
        if not again:
            self._report("link.route_waiting", error=text)

    def doubt(self, ids: set[int]) -> None:
        """Nobody knows of these messages whether they have arrived: they are held until an operator decides."""
        self.route.doubtful |= ids
        self.route.move("doubt")
        self._report("link.route_doubtful", messages=len(ids))

    def _report(self, code: str, **facts: str | int) -> None:
        self._session.report(code, link=self.route.link.name, route=self.route.name, **facts)

    def look_back(self) -> bool:
        """Whether this broker, when it ran before, died with messages of the route under way, which are in doubt now.

        Raises NotReadable.
        """
        route, messages = self.route, self._engine.messages
        if route.looked_back:
            return False
        queue, origin = self._engine.queues.get(route.settings.local), route.settings.origin
        left = set() if queue is None else set(queue.states)  # strict mode counts a delivery before it leaves
        if queue is not None and origin:  # others share its transmission queue
            left = {id for id in left if messages.find(queue, id)[0].header.address == origin}
        route.looked_back = True
        if left:
            self.doubt(left)
        return bool(left)

    def left_under_way(self, ids: set[int]) -> None:
        """These were under way when the AMQP link went."""
        if self.route.settings.holds and not self.route.bartleby:
            self.doubt(ids)

    def may_die(self, message: Message) -> bool:
        """Whether what the other end refuses becomes a dead letter here."""
        return self.route.settings.use_dead_letter and self.is_kept(message)

    def is_kept(self, message: Message) -> bool:
        """Whether nothing durable is lost if a message dies here."""
        queue = self._engine.queues.get(self.route.settings.local)
        return not message.header.durable or (queue is not None and self._engine.messages.may_die(queue, message))
