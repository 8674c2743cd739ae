"""The base of all pages: the broker, the limits on a page's cost, and how a page is rendered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment
from starlette.responses import HTMLResponse, Response

from broker.console.render import page
from broker.console.visit import Visit
from broker.engine import Engine
from broker.engine.model.access import Access
from broker.engine.model.names import WHOLE_BROKER
from broker.engine.model.permissions import Permission
from broker.management.callers import require_whole
from broker.management.limits import Limits
from broker.management.ports import Broker
from broker.management.shared import Shared

#: The pages in the menu: path, title, and whether they need `manage` on the broker as a whole.
MENU: Final = (
    ("/", "Overview", True),
    ("/queues", "Queues", False),
    ("/addresses", "Addresses", False),
    ("/dead-letters", "Dead letters", False),
    ("/tasks", "Tasks", False),
    ("/trail", "Message trail", True),
    ("/connections", "Connections", True),
    ("/consumers", "Consumers", False),
    ("/diverts", "Diverts", False),
    ("/links", "Links", True),
    ("/users", "Users", True),
    ("/health", "Health", True),
    ("/reports", "Audit reports", True),
    ("/explain", "What it means", False),
)


@dataclass(frozen=True, slots=True)
class Desk:
    """The broker, as its pages see it."""

    broker: Broker
    shared: Shared
    limits: Limits
    templates: Environment

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.broker.engine

    def enter(self) -> Engine:
        """Begin a tick, in which verbs may be called, and return the engine."""
        self.broker.tick.enter()
        return self.broker.engine

    def page(self, visit: Visit, template: str, context: Context, *, status: int = 200) -> HTMLResponse:
        """Render a page; notices are kept back if the request takes only a part of it, where they would not be seen."""
        notices = [] if "hx-request" in visit.request.headers else visit.session.take_notices()
        return self.part(visit, template, {**context, "notices": notices}, status=status)

    def part(self, visit: Visit, template: str, context: Context, *, status: int = 200) -> HTMLResponse:
        """Render a page, or a part that is refreshed."""
        whole = manages_all(visit.access)
        context = {
            **context,
            "broker": self.broker,
            "visit": visit,
            "csrf": visit.session.csrf,
            "now": self.engine.now,
            "menu": [(path, title) for path, title, needs_all in MENU if whole or not needs_all],
            "here": visit.request.url.path,
            "whole": whole,
            "unready": self.broker.unready(),
        }
        return HTMLResponse(page(self.templates, template, context), status)


class Pages:
    """The pages of one subject, for one broker; its `routes` say where each is, and whom it is for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk


#: The variables of a template.
Context = Mapping[str, object]

Page = Callable[[Visit], Awaitable[Response]]

#: Checks the permission to see a page: raises Denied, or NotFound for what is hidden from the visitor.
Authorize = Callable[[Visit], Awaitable[None] | None]

#: Method, path, page, and the check of its permission; None: any logged-in user.
Routes = list[tuple[str, str, Page, Authorize | None]]


def authorize_whole(visit: Visit) -> None:
    """Require `manage` on the broker as a whole."""
    require_whole(visit.access)


def manages_all(access: Access) -> bool:
    """Whether the user manages the broker as a whole."""
    return access.might(Permission.MANAGE, WHOLE_BROKER)
