"""Links as management sees them, and the other broker as far as that goes: it lets them in, refuses, is lost."""

from __future__ import annotations

from typing import Final

from broker.sessions.links.links import Links
from broker.sessions.links.model import Kind, Link, LinkSettings, Route, RouteSettings
from tests.broker.management.harness import TestBroker

PARIS: Final = LinkSettings(
    "paris",
    ("amqp://paris:5672", "amqp://paris-2:5672"),
    (
        RouteSettings("orders", Kind.SEND, "orders.out", "orders", holds=True),
        RouteSettings("invoices", Kind.RECEIVE, "invoices.in", "invoices"),
    ),
)

#: Not to be connected until somebody says so.
ROME: Final = LinkSettings("rome", ("amqps://rome:5671",), (), enabled=False)


class Session:
    """The session of a link, whose routes do at once what they are told."""

    def __init__(self, broker: TestBroker, name: str = "paris") -> None:
        self.ended: list[str] = []
        self._broker = broker
        self._link: Link = broker.links.find(name)

    def open(self) -> Session:
        """The other broker lets it in."""
        links = self._broker.links
        self._broker.tick.enter()
        links.due()
        links.connections[self._link.name] = self
        self._link.remote = self._link.settings.urls[0]
        links.opened(self._link, self, "Bartleby 1.0, container paris")
        return self

    def lose(self, why: str) -> None:
        """The connection ends, or cannot be made."""
        self._broker.tick.enter()
        self._broker.links.due()
        self._broker.links.lost(self._link, why)

    def refuse(self, words: str) -> None:
        """The other broker does not take what the first route has for it."""
        self._broker.tick.enter()
        self._link.routes["orders"].move("refused", words)

    def doubt(self, *ids: int) -> Route:
        """The connection is lost before it is known what became of these messages, and made again."""
        route = self._link.routes["orders"]
        self._broker.tick.enter()
        route.doubtful = set(ids)
        route.move("doubt")
        return route

    # -- of LinkConnection -----------------------------------------------------------------------------------------

    def check(self) -> None:
        pass

    def pause_routes(self) -> None:
        for route in self._link.routes.values():
            route.move("pause")

    def start_routes(self) -> None:
        for route in self._link.routes.values():
            route.move("attach")
            route.move("attached")

    def shut_down(self, why: str = "", *, moved: bool = False) -> None:
        self.ended.append(why)
        for route in self._link.routes.values():
            route.move("lost")


def linked(broker: TestBroker, *settings: LinkSettings) -> Links:
    """The broker has these links; unless they are given, to Paris and Rome."""
    broker.tick.enter()
    broker.links = Links(broker.engine, settings or (ROME, PARIS))
    return broker.links
