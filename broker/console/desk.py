"""What all pages work with: the broker, what it may cost to look at it, and how a page is made."""

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
from broker.engine.model.permissions import Permission
from broker.management.callers import WHOLE_BROKER, require_whole
from broker.management.limits import Limits
from broker.management.ports import Broker
from broker.management.shared import Shared

#: The pages in the menu: address, title, and whether they are for those who manage the broker as a whole.
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
    """One broker's."""

    broker: Broker
    shared: Shared
    limits: Limits
    templates: Environment

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.broker.engine

    def enter(self) -> Engine:
        """Begin a tick, in which verbs may be called: the engine."""
        self.broker.tick.enter()
        return self.broker.engine

    def page(self, visit: Visit, template: str, about: Context, *, status: int = 200) -> HTMLResponse:
        """A whole page `about` something; of one that takes only a part of it, nobody would see the notices."""
        notices = [] if "hx-request" in visit.request.headers else visit.session.told()
        return self.part(visit, template, {**about, "notices": notices}, status=status)

    def part(self, visit: Visit, template: str, about: Context, *, status: int = 200) -> HTMLResponse:
        """A page, or the part of one that is shown anew."""
        whole = manages_all(visit.access)
        context = {
            **about,
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


#: What a template is given.
Context = Mapping[str, object]

Page = Callable[[Visit], Awaitable[Response]]

#: What is needed to see a page: raises Denied, or NotFound for what is hidden from the visitor.
About = Callable[[Visit], None]

#: Method, path, page, and what is needed to see it; None: a login.
Routes = list[tuple[str, str, Page, About | None]]


def about_whole(visit: Visit) -> None:
    """For a page about the broker as a whole."""
    require_whole(visit.access)


def manages_all(access: Access) -> bool:
    """Whether somebody manages the broker as a whole."""
    return access.might(Permission.MANAGE, WHOLE_BROKER)
