"""Sessions of the console: the logged-in browsers, and until when they are valid.

A session is identified by a random id in a cookie and kept only in memory: a restart ends all of them.  It ends as

    idle         when the user requested no page for half an hour; requests that a page makes on its own do not count
    expired      twelve hours after the login, more than a working day, or when the token of its login expires
    withdrawn    when users or their roles change: users who are still allowed log in again
    replaced     when there are too many, of its user or in all: the one idle longest makes room
    logout       when its user logs out

While it lasts, it counts as one connection of its user.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.report import Report
from broker.management.runtime import TOKEN_FILE
from broker.sessions.login import Gate, Peer

#: Seconds without a page after which a session ends: the screen is unattended.
IDLE_SECONDS_MAX: Final = 30 * 60

#: Seconds after the login: more than a working day, but a copied cookie is worthless the next day.
SESSION_SECONDS_MAX: Final = 12 * 60 * 60

#: Sessions at once: more than one broker has operators, and little memory.
SESSIONS_MAX: Final = 100

#: Sessions of one user: enough for some browsers and machines, without displacing other users.
USER_SESSIONS_MAX: Final = 10

#: Bytes of randomness in an id, so that it cannot be guessed.
ID_BYTES: Final = 32

#: Notices that wait to be shown on the next page.
NOTICES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Notice:
    """The result of an action, shown once on the next page; `kind`: done, warning."""

    kind: str
    text: str


@dataclass(slots=True, eq=False)
class Session:
    """One login.  `id` is in the cookie, `csrf` in each form; times are seconds of the console's clock."""

    id: str
    csrf: str
    peer: Peer
    access: Access
    version: int  # of the users and roles at its login
    begun: float
    used: float
    notices: list[Notice] = field(default_factory=list)

    def notify(self, kind: str, text: str) -> None:
        """Add a notice for the next page."""
        self.notices.append(Notice(kind, text))
        del self.notices[:-NOTICES_MAX]

    def take_notices(self) -> list[Notice]:
        """Return the notices to show, and forget them."""
        notices, self.notices = self.notices, []
        return notices

    @property
    def name(self) -> str:
        """The user's name, for the page."""
        return _name(self.access)


class Sessions:
    """The sessions of one broker; `now`: seconds of a clock that never jumps."""

    def __init__(
        self,
        gate: Callable[[], Gate],
        report: Report,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        most: int = SESSIONS_MAX,
    ) -> None:
        self._gate = gate
        self._report = report
        self._now = now
        self._wall_ms = wall_ms
        self._most = most
        self._by_id: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, peer: Peer, access: Access) -> Session:
        """Begin the session of a peer that has logged in."""
        self.sweep()
        everybody = list(self._by_id.values())
        own = [each for each in everybody if each.name == _name(access)]
        too_many = own if len(own) >= USER_SESSIONS_MAX else everybody if len(everybody) >= self._most else []
        if too_many:
            self.end(min(too_many, key=lambda each: each.used), "replaced")
        now = self._now()
        session = Session(
            secrets.token_urlsafe(ID_BYTES),
            secrets.token_urlsafe(ID_BYTES),
            peer,
            access,
            self._gate().version,
            now,
            now,
        )
        self._by_id[session.id] = session
        self._report("console.login", remote=peer.remote, **_who(session))
        return session

    def find(self, id: str, *, by_itself: bool = False) -> Session | None:
        """The session of a cookie, None if it is over; `by_itself`: the page asks on its own, without the user."""
        session = self._by_id.get(id)
        if session is None:
            return None
        over = self._over(session)
        if over:
            self.end(session, over)
            return None
        if not by_itself:
            session.used = self._now()
        return session

    def end(self, session: Session, reason: str) -> None:
        """End a session."""
        if self._by_id.pop(session.id, None) is not None:
            self._gate().left(session.peer)
            self._report("console.logout", remote=session.peer.remote, reason=reason, **_who(session))

    def sweep(self) -> None:
        """End all sessions that are over."""
        for session in list(self._by_id.values()):
            over = self._over(session)
            if over:
                self.end(session, over)

    def _over(self, session: Session) -> str:
        """Why a session is over; empty: it is not."""
        now, gate = self._now(), self._gate()
        if now - session.begun >= SESSION_SECONDS_MAX or gate.peers.expired(session.peer, self._wall_ms()):
            return "expired"
        if now - session.used >= IDLE_SECONDS_MAX:
            return "idle"
        if gate.peers.gone(session.peer) or (session.access is not UNRESTRICTED and session.version != gate.version):
            return "withdrawn"
        return ""


def _name(access: Access) -> str:
    return TOKEN_FILE if access is UNRESTRICTED else access.user


def _who(session: Session) -> dict[str, str]:
    return {"token": TOKEN_FILE} if session.access is UNRESTRICTED else {"user": session.access.user}
