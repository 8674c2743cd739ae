"""The interface of a session to the WebSocket around it."""

from __future__ import annotations

from typing import Protocol

from broker.sessions.read_steps import Stepping
from broker.sessions.session import Session


class InnerSession(Session, Stepping, Protocol):
    """A session of any protocol."""

    def refuse_before_login(self, nbytes: int, most: int) -> None:
        """End the connection: around its login the client has sent `nbytes` bytes, `most` (connect-bytes-max) may be.

        It is told what one is whose login is too large.
        """
