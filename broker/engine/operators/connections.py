"""The connected clients, for operators, who may disconnect them, and for notifications.

A session enters its client once that has logged in, and removes it when the connection ends, for any reason.
Artemis has sessions within a connection; here each connection counts as one session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.engine.model.notes import Note

if TYPE_CHECKING:
    from broker.engine.model.access import Access
    from broker.engine.queues.state import State

#: Disconnects a client, with a sentence that says why.
Dismiss = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Connected:
    """A connected client.  `protocol`: its display name; `since`: ms since the epoch; `number` rises per login."""

    id: str
    protocol: str
    remote: str
    access: Access
    since: int
    dismiss: Dismiss
    number: int


class Connections:
    """The connected clients by connection id, in the order in which they logged in."""

    __slots__ = ("_came", "_state", "by_id")

    def __init__(self, state: State) -> None:
        self.by_id: dict[str, Connected] = {}
        self._state = state
        self._came = 0

    def opened(self, id: str, protocol: str, remote: str, access: Access, dismiss: Dismiss) -> None:
        """Enter a client that has logged in."""
        self._came += 1
        connected = self.by_id[id] = Connected(id, protocol, remote, access, self._state.now, dismiss, self._came)
        notes = self._state.notes
        if notes.listening:
            note = _note(connected)
            notes.add("CONNECTION_CREATED", note)
            notes.add("SESSION_CREATED", note | {"_AMQ_SessionName": id})

    def closed(self, id: str) -> None:
        """Remove the client of a connection that has ended; no effect if it never logged in."""
        connected = self.by_id.pop(id, None)
        notes = self._state.notes
        if connected is not None and notes.listening:
            note = _note(connected)
            notes.add("SESSION_CLOSED", note | {"_AMQ_SessionName": id})
            notes.add("CONNECTION_DESTROYED", note)


def _note(connected: Connected) -> Note:
    return {
        "_AMQ_ConnectionName": connected.id,
        "_AMQ_RemoteAddress": connected.remote,
        "_AMQ_Protocol_Name": connected.protocol,
        "_AMQ_Client_ID": connected.access.client_id,
        "_AMQ_User": connected.access.user,
        "_AMQ_ValidatedUser": connected.access.user,
    }
