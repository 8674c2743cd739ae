"""The version of MQTT that a link speaks: the newest that the other broker accepts.

A broker that does not speak a version says so, which is remembered, or only closes the connection, as one that is
starting does.  So MQTT 5 is tried once more before a link stays with an earlier version:

    evidence      the other broker refuses   it closes before CONNACK      it accepts an earlier version
    ------------- -------------------------- ----------------------------- ------------------------------------
    NONE          REFUSED, next version      next version                  RETRYING: MQTT 5 is tried once more
    RETRYING      REFUSED, next version      CLOSED, the accepted version  RETRYING: MQTT 5 is tried once more
    CLOSED        REFUSED, next version      next version                  stay
    REFUSED       next version               next version                  stay

Once it accepts MQTT 5, only REFUSED is remembered.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from protocols.mqtt.codes import V5, V311

#: The versions that a link tries in turn, and whether it connects as a bridge: the next one if one is refused.
VERSIONS_TRIED: Final = ((V5, False), (V311, True), (V311, False))


class Evidence(Enum):
    """What is known about the newest version."""

    NONE = "no answer to it yet, or it was accepted"
    RETRYING = "the other broker has accepted an earlier version: it may have been starting before"
    CLOSED = "it closes the connection although it is running"
    REFUSED = "it has answered that it does not speak the version"


class VersionNegotiation:
    """Which version to connect with, over all connections of a link."""

    def __init__(self) -> None:
        self._tried = 0
        self._accepted = 0  # while RETRYING: the earlier version that was accepted
        self._evidence = Evidence.NONE

    @property
    def attempt(self) -> tuple[int, bool]:
        """The version to connect with, and whether as a bridge."""
        return VERSIONS_TRIED[self._tried]

    def refused(self) -> None:
        """The other broker has answered that it does not speak this version."""
        self._evidence = Evidence.REFUSED
        self._try_next()

    def closed(self) -> None:
        """The other broker has closed the connection without an answer."""
        if self._evidence is Evidence.RETRYING:
            self._evidence = Evidence.CLOSED
            self._tried = self._accepted
        else:
            self._try_next()

    def accepted(self) -> bool:
        """The other broker has accepted this version: return whether to stay with it."""
        if self._evidence is Evidence.REFUSED:
            return True
        if not self._tried:
            self._evidence = Evidence.NONE
            return True
        if self._evidence is Evidence.CLOSED:
            return True
        self._evidence = Evidence.RETRYING
        self._accepted, self._tried = self._tried, 0
        return False

    def disconnected(self) -> None:
        """A connection has ended: the next one tries the newest version first, unless it was refused."""
        if self._evidence is not Evidence.REFUSED:
            self._tried = 0

    def _try_next(self) -> None:
        self._tried = (self._tried + 1) % len(VERSIONS_TRIED)
