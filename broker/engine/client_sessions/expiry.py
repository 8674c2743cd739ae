"""Times the end of absent clients' sessions, and their wills."""

from __future__ import annotations

from typing import Final

from broker.engine.client_sessions.client import NEVER_EXPIRES, Client
from broker.engine.queues.alarms import Call
from broker.engine.queues.state import State

_SECOND_MS: Final = 1_000


class SessionExpiry:
    """The sessions whose clients are away."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def begin(self, client: Client, expired: Call, will_delay: int | None, will_due: Call) -> None:
        """Begin for a client that has disconnected: call `expired` when its session ends, `will_due` before that.

        `will_delay` in seconds, None: it has no will.  A will that would be due later goes with the session.
        """
        alarms, expiry = self._state.alarms, client.expiry
        since = min(client.disconnected, self._state.now)  # the clock may have been set back meanwhile
        if expiry != NEVER_EXPIRES:
            alarms.at(("session", client.id), since + expiry * _SECOND_MS, expired)
        if will_delay is not None and (expiry == NEVER_EXPIRES or will_delay < expiry):
            alarms.at(("will", client.id), since + will_delay * _SECOND_MS, will_due)

    def stop(self, client: Client) -> None:
        """Stop for a client that has returned or whose session has ended; no effect if it was not away."""
        self._state.alarms.cancel(("session", client.id))
        self._state.alarms.cancel(("will", client.id))
