"""The pages of links: their state and routes; start, stop and pause them, and resolve routes in doubt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from broker.console.desk import Pages, Routes, authorize_whole
from broker.console.listing import table
from broker.console.visit import Refused, Visit, go_to
from broker.management.durable import durable
from broker.management.models.links import LinkShown, link_shown
from broker.sessions.links.links import Links
from store.counted import counted

#: What a button does, and the notice after it.
_VERBS: Final = {
    "/link/start": (Links.start, "start", "Started: it connects or continues."),
    "/link/stop": (Links.stop, "stop", "Stopped: its messages wait on this broker until you start it."),
    "/link/pause": (Links.pause, "pause", "Paused: it stays connected but transfers nothing until you start it."),
}

#: How to resolve messages in doubt: whether to remove them, and the notice for one and for several.
_VERDICTS: Final[Mapping[str, tuple[bool, str, str]]] = {
    "discard": (
        True,
        "message was removed from this broker: the other one has it.",
        "messages were removed from this broker: the other one has them.",
    ),
    "resend": (False, "message is sent again.", "messages are sent again."),
}


class LinkPages(Pages):
    """The link pages of one broker, for users who manage it as a whole."""

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/links", self.show_all, authorize_whole),
            ("GET", "/link", self.show, authorize_whole),
            *(("POST", path, self.steer, authorize_whole) for path in _VERBS),
            ("POST", "/link/resolve", self.resolve, authorize_whole),
        ]

    async def show_all(self, visit: Visit) -> Response:
        """All links, by name."""
        self._desk.enter()
        links = self._desk.broker.links.by_name
        found = await table(visit, sorted(links), links, {})
        rows = [self._shown(name) for name in found.names]
        return self._desk.page(visit, "links.html", {"table": found, "rows": rows})

    async def show(self, visit: Visit) -> Response:
        """One link, with its routes."""
        self._desk.enter()
        return self._desk.page(visit, "link.html", {"each": self._shown(visit.text("name"))})

    def _shown(self, name: str) -> LinkShown:
        return link_shown(self._desk.engine, self._desk.broker.links.find(name))

    async def steer(self, visit: Visit) -> Response:
        """Start, stop or pause a link."""
        name, (verb, word, said) = visit.text("name"), _VERBS[visit.request.url.path]
        self._desk.enter()
        verb(self._desk.broker.links, name)
        visit.log_action("link.operated", link=name, verb=word)
        visit.done(said)
        return go_to("/link", name=name)

    async def resolve(self, visit: Visit) -> Response:
        """Resolve a route in doubt, one way or the other."""
        name, route, word = visit.text("name"), visit.text("route"), visit.text("do")
        if word not in _VERDICTS:
            raise Refused("choose whether to send the messages again or to remove them")
        discard, *said = _VERDICTS[word]
        self._desk.enter()
        messages = self._desk.broker.links.resolve(name, route, discard=discard)
        visit.log_action("link.operated", link=name, route=route, verb=word, messages=messages)
        await durable(self._desk.engine)
        visit.done(counted(messages, *said))
        return go_to("/link", name=name)
