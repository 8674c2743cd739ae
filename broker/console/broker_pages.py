"""The pages of the broker as a whole: users and permissions, health, and audit reports."""

from __future__ import annotations

import asyncio
import re
import stat
from pathlib import Path
from typing import Final

from starlette.responses import Response

from broker.console.desk import Desk, Pages, Routes, authorize_whole
from broker.console.visit import Visit
from broker.engine.model.errors import NotFound
from broker.engine.model.permissions import Permission
from broker.log_events import EVENTS
from broker.management.models.broker import status
from broker.management.turns import in_turns

#: Users shown; a file may have 20,000.
USERS_SHOWN_MAX: Final = 1_000

#: The directory names of `nightly-audit`, and its reports.
_NIGHT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ")
_REPORTS: Final = ("ledger", "dlq", "expiry")

#: Nights shown, the latest first: as many as are kept by default.
NIGHTS_MAX: Final = 90

#: Bytes of one report: the audits limit their tables.
REPORT_BYTES_MAX: Final = 32 << 20

#: What a report may do in a browser: only use its own style, sandboxed from the console's site.
_REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; sandbox"


class BrokerPages(Pages):
    """These pages for one broker; `reports`: the directory of its audit reports, None: there is none."""

    def __init__(self, desk: Desk, reports: Path | None) -> None:
        super().__init__(desk)
        self._reports = reports

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/users", self.users, authorize_whole),
            ("GET", "/health", self.health, authorize_whole),
            ("GET", "/reports", self.reports, authorize_whole),
            ("GET", "/report", self.report, authorize_whole),
        ]

    async def users(self, visit: Visit) -> Response:
        """The users, and what each role may do where."""
        users = self._desk.broker.gate.users()
        entries = self._desk.engine.security.table.entries
        context = {
            "users": None if users is None else [(name, sorted(users[name])) for name in sorted(users)],
            "most": USERS_SHOWN_MAX,
            "permissions": [permission.value for permission in Permission],
            "entries": [
                (match, [sorted(roles.get(permission, ())) for permission in Permission]) for match, roles in entries
            ],
        }
        return self._desk.page(visit, "users.html", context)

    async def health(self, visit: Visit) -> Response:
        """Whether the broker is ready, why not, and what went wrong since the start."""
        broker = self._desk.broker
        [figures] = await in_turns(broker.engine.statistics.figures())
        self._desk.enter()
        bad = ("warning", "error", "critical")
        events = [
            (code, count, EVENTS[code]) for code, count in sorted(broker.events.items()) if count and code in EVENTS
        ]
        context = {
            "status": status(broker, figures),
            "events": sorted(
                [each for each in events if each[2].level in bad],
                key=lambda each: bad.index(each[2].level),
                reverse=True,
            ),
        }
        return self._desk.page(visit, "health.html", context)

    async def reports(self, visit: Visit) -> Response:
        """The nights that have reports."""
        nights, why = await asyncio.to_thread(self._nights)
        return self._desk.page(visit, "reports.html", {"nights": nights, "why": why, "directory": self._reports})

    def _nights(self) -> tuple[list[tuple[str, list[str]]], str]:
        """Each night with its reports, the latest first; and why there are none."""
        if self._reports is None:
            return [], "no directory is configured"
        try:
            found = [path for path in self._reports.iterdir() if _NIGHT.fullmatch(path.name)]
            nights = sorted(found, reverse=True)[:NIGHTS_MAX]
            reports = {
                night.name: [name for name in _REPORTS if _is_report(night / f"{name}.html")] for night in nights
            }
            return [*reports.items()], ""
        except OSError as error:
            return [], error.strerror or str(error)

    async def report(self, visit: Visit) -> Response:
        """One report, as the audit wrote it."""
        night, name = visit.text("night"), visit.text("name")
        content = None
        if self._reports is not None and _NIGHT.fullmatch(night) and name in _REPORTS:
            content = await asyncio.to_thread(_read, self._reports / night / f"{name}.html")
        if content is None:
            raise NotFound(
                f"there is no such report of at most {REPORT_BYTES_MAX >> 20} MiB that the broker's user can read"
            )
        headers = {"content-security-policy": _REPORT_POLICY, "content-type": "text/html; charset=utf-8"}
        return Response(content, headers=headers)


def _is_report(path: Path) -> bool:
    """Whether it is a regular file: not a link to another file, nor a pipe, which would block its reader for ever."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    """A report; None if it cannot be read or is too large."""
    try:
        if not _is_report(path):
            return None
        with path.open("rb") as file:
            content = file.read(REPORT_BYTES_MAX + 1)
    except OSError:
        return None
    return content if len(content) <= REPORT_BYTES_MAX else None
