"""Sessions of the console: who has logged in with a browser, and until when.

A session is known by a random id in a cookie, and kept here only: a restart ends all of them.  It ends

    idle         when nobody asked for a page for half an hour; what a page asks for by itself does not count
    expired      twelve hours after the login, a working day with room, or when the token of its login expires
    withdrawn    when users or their roles change: whoever may still come in logs in again
    replaced     when there are too many, of its user or in all: the one that was idle longest makes room
    logout       when its user says so

As long as it lasts it counts as one connection of its user.
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

#: Seconds without a page after which a session ends: a screen that nobody looks after.
IDLE_SECONDS_MAX: Final = 30 * 60

#: Seconds after the login: a working day with room, so that a copied cookie is worth nothing the next day.
SESSION_SECONDS_MAX: Final = 12 * 60 * 60

#: Sessions at once: more people than look at one broker, and little memory.
SESSIONS_MAX: Final = 100

#: Of these, sessions of one user: some browsers and machines, and no other user is driven out.
USER_SESSIONS_MAX: Final = 10

#: Bytes of randomness in an id: nobody guesses it.
ID_BYTES: Final = 32

#: Notices that wait to be shown on the next page.
NOTICES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Notice:
    """What came of a deed, shown once on the next page; `kind`: done, warning."""

    kind: str
    text: str


@dataclass(slots=True, eq=False)
class Session:
    """One login.  `id` is in the cookie, `csrf` in each form; times are seconds of the console's clock."""

    id: str
    csrf: str
    peer: Peer
    access: Access
    version: int  # of the users and roles by which it was let in
    begun: float
    used: float
    notices: list[Notice] = field(default_factory=list)

    def tell(self, kind: str, text: str) -> None:
        """Show this on the next page."""
        self.notices.append(Notice(kind, text))
        del self.notices[:-NOTICES_MAX]

    def told(self) -> list[Notice]:
        """What there is to show, once."""
        told, self.notices = self.notices, []
        return told

    @property
    def name(self) -> str:
        """Who it is, for the page."""
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
        """A peer has logged in, which the gate knows by this session from now on."""
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
        """The session of a cookie, None if it is over; `by_itself`: a page asks for news, and nobody may be there."""
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
        """A session is over."""
        if self._by_id.pop(session.id, None) is not None:
            self._gate().left(session.peer)
            self._report("console.logout", remote=session.peer.remote, reason=reason, **_who(session))

    def sweep(self) -> None:
        """End those that are over."""
        for session in list(self._by_id.values()):
            over = self._over(session)
            if over:
                self.end(session, over)

    def _over(self, session: Session) -> str:
        """Why a session is over; empty: it is not."""
        now, gate = self._now(), self._gate()
        if now - session.begun >= SESSION_SECONDS_MAX or gate.expired(session.peer, self._wall_ms()):
            return "expired"
        if now - session.used >= IDLE_SECONDS_MAX:
            return "idle"
        if gate.gone(session.peer) or (session.access is not UNRESTRICTED and session.version != gate.version):
            return "withdrawn"
        return ""


def _name(access: Access) -> str:
    return TOKEN_FILE if access is UNRESTRICTED else access.user


def _who(session: Session) -> dict[str, str]:
    return {"token": TOKEN_FILE} if session.access is UNRESTRICTED else {"user": session.access.user}
