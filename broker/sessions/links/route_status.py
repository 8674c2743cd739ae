"""The state of a route while its link is connected: running, waiting or in doubt, and which of its messages may die."""

from __future__ import annotations

from broker.engine.model.message import Message
from broker.sessions.base import BaseSession
from broker.sessions.links.model import Route, is_same_reason


class RouteStatus:
    """The state of one route on one connection; `where` names the destination of its messages, for people."""

    def __init__(self, session: BaseSession, route: Route) -> None:
        self.route = route
        self.where = route.settings.remote or "an address of the same name"  # reports name the link too
        self._session = session
        self._engine = session.engine

    def run(self) -> None:
        """Report that the route passes messages on, and that nothing is wrong with it."""
        self.route.error = ""
        self._report("link.route_running")

    def retry_later(self, text: str) -> None:
        """Pass nothing on for the retry interval; the log has each reason once, whatever its figures."""
        route = self.route
        route.retry_at = self._engine.now + route.link.settings.retry_interval
        again = is_same_reason(text, route.error)
        route.move("refused", text)
        if not again:
            self._report("link.route_waiting", error=text)

    def hold(self, ids: set[int]) -> None:
        """Hold messages that may have arrived or not, until an operator decides."""
        self.route.doubtful |= ids
        self.route.move("doubt")
        self._report("link.route_doubtful", messages=len(ids))

    def _report(self, code: str, **fields: str | int) -> None:
        self._session.report(code, link=self.route.link.name, route=self.route.name, **fields)

    def look_back(self) -> bool:
        """Hold the messages that were in flight when this broker last stopped; whether there were any.

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
            self.hold(left)
        return bool(left)

    def left_under_way(self, ids: set[int]) -> None:
        """Hold messages that were in flight when the AMQP link ended, unless the other end recognises them."""
        if self.route.settings.holds and not self.route.bartleby:
            self.hold(ids)

    def may_die(self, message: Message) -> bool:
        """Whether a message becomes a dead letter here if the other end refuses it."""
        return self.route.settings.use_dead_letter and self.loses_nothing(message)

    def loses_nothing(self, message: Message) -> bool:
        """Whether nothing durable is lost if a message dies here."""
        queue = self._engine.queues.get(self.route.settings.local)
        return not message.header.durable or (queue is not None and self._engine.messages.may_die(queue, message))
