"""Who is connected: for operators, who may send somebody away, and for those who listen to notifications.

A session enters its peer once that has introduced itself and may come in, and takes it out when the connection is
over, whatever ended it.  Artemis knows sessions within a connection; here each connection counts as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.engine.model.notes import Note

if TYPE_CHECKING:
    from broker.engine.model.access import Access
    from broker.engine.queues.state import State

#: Says goodbye to a peer, with a sentence that says why.
Dismiss = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Connected:
    """A peer.  `protocol` is what people call it; `since`: ms since the epoch; `number` rises with each that comes."""

    id: str
    protocol: str
    remote: str
    access: Access
    since: int
    dismiss: Dismiss
    number: int


class Connections:
    """Everybody who is connected, by the connection's id, in the order in which they came."""

    __slots__ = ("_came", "_state", "by_id")

    def __init__(self, state: State) -> None:
        self.by_id: dict[str, Connected] = {}
        self._state = state
        self._came = 0

    def opened(self, id: str, protocol: str, remote: str, access: Access, dismiss: Dismiss) -> None:
        """A peer has introduced itself, and may do what it may."""
        self._came += 1
        connected = self.by_id[id] = Connected(id, protocol, remote, access, self._state.now, dismiss, self._came)
        notes = self._state.notes
        if notes.listening:
            about = _note(connected)
            notes.add("CONNECTION_CREATED", about)
            notes.add("SESSION_CREATED", about | {"_AMQ_SessionName": id})

    def closed(self, id: str) -> None:
        """A connection is over; harmless if its peer never came in."""
        connected = self.by_id.pop(id, None)
        notes = self._state.notes
        if connected is not None and notes.listening:
            about = _note(connected)
            notes.add("SESSION_CLOSED", about | {"_AMQ_SessionName": id})
            notes.add("CONNECTION_DESTROYED", about)


def _note(connected: Connected) -> Note:
    return {
        "_AMQ_ConnectionName": connected.id,
        "_AMQ_RemoteAddress": connected.remote,
        "_AMQ_Protocol_Name": connected.protocol,
        "_AMQ_Client_ID": connected.access.client_id,
        "_AMQ_User": connected.access.user,
        "_AMQ_ValidatedUser": connected.access.user,
    }
