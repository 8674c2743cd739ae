"""The workbench for dead letters: groups of them, which can be shown, retried, moved and removed."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from broker.console.desk import Pages, Routes, manages_all
from broker.console.groups import TITLES, group_fields, values
from broker.console.visit import Visit
from broker.management.callers import managed, require_queue

#: Groups on one page: the largest; a page with more is not read.
GROUPS_SHOWN_MAX: Final = 200

#: The default grouping: by what explains why messages died.
_BY_DEFAULT: Final = ("reason", "origin", "words")


class DeadLetterPages(Pages):
    """The dead-letter page of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [("GET", "/dead-letters", self.show, self._authorize)]

    def _authorize(self, visit: Visit) -> None:
        if visit.text("queue"):
            require_queue(visit.access, self._desk.engine, visit.text("queue"))

    async def show(self, visit: Visit) -> Response:
        """The dead letters of the queues that the visitor manages, or of one, in groups."""
        engine, queues = self._desk.engine, self._desk.engine.queues
        names = [queue.name for queue in engine.messages.dead_letter_queues()]
        names = await managed(visit.access, names, lambda name: (queues[name].address.name, name))
        only, rules = visit.text("queue"), engine.dead_letter_rules
        by = [name for name in TITLES if name in visit.every("by")] or list(_BY_DEFAULT)
        chosen = [only] if only else [name for name in names if name in queues]
        rows = []
        if chosen:
            counted = await self._desk.shared.groups.count(chosen, ["queue", *by])
            rows = [
                {"queue": group.queue, "values": values(group), "fields": group_fields(group), "count": count}
                for group, count in counted.groups()
            ]
        context = {
            "queues": [(name, queues[name].message_count) for name in names if name in queues],
            "only": only,
            "by": by,
            "titles": TITLES,
            "rows": rows[:GROUPS_SHOWN_MAX],
            "hidden": max(len(rows) - GROUPS_SHOWN_MAX, 0),
            "total": counted.total if chosen else None,
            "others": counted.others.count if chosen else 0,
            "unreadable": counted.unreadable if chosen else 0,
            "rules": [(rule, rules.done[rule.name]) for rule in rules.rules] if manages_all(visit.access) else [],
        }
        return self._desk.page(visit, "dead_letters.html", context)
