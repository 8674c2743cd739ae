"""Events for notifications, gathered until the tick ends (see `notifications`).

Without a consumer of notifications nothing is gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.report import Report

Note = dict[str, str | int]

#: The address of notifications.
NOTIFICATIONS: Final = "activemq.notifications"

#: The most notes of one tick; further ones are only counted.  Notifications are for people and dashboards, and a tick
#: in which ten thousand messages die must not cost twice as much for it.
NOTES_MAX: Final = 4096


@dataclass(slots=True, eq=False)
class Notes:
    """The notes of the open tick: type and properties of each."""

    listening: bool = False
    pending: list[tuple[str, Note]] = field(default_factory=list)
    left_out: int = 0

    def add(self, type: str, note: Note) -> None:
        """Record an event, if anything consumes notifications."""
        if self.listening:
            if len(self.pending) < NOTES_MAX:
                self.pending.append((type, note))
            else:
                self.left_out += 1


#: Reports that are also sent as notifications: the type, and the property for each field that is included.
_NOTIFIED: Final = {
    "access.denied": (
        "SECURITY_PERMISSION_VIOLATION",
        {"address": "_AMQ_Address", "permission": "_AMQ_CheckType", "user": "_AMQ_User", "client": "_AMQ_Client_ID"},
    ),
    "login.refused": (
        "SECURITY_AUTHENTICATION_VIOLATION",
        {"user": "_AMQ_User", "remote": "_AMQ_RemoteAddress", "subject": "_AMQ_CertSubjectDN"},
    ),
}


def noting(report: Report, notes: Notes) -> Report:
    """A report function that also adds the notes for notifications."""

    def reporting(code: str, /, **fields: str | int) -> None:
        report(code, **fields)
        notified = _NOTIFIED.get(code)
        if notified is not None:
            notes.add(notified[0], {notified[1][name]: value for name, value in fields.items() if name in notified[1]})

    return reporting
