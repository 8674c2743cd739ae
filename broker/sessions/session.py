"""The interface of a session to the network, for every protocol."""

from __future__ import annotations

from typing import Final, Protocol

#: Sent to clients when another broker of the pair has taken over the journal.
MOVED: Final = "another broker has taken over: connect to that one"

#: Ends the connection of a client for whose unfinished messages there is no memory.
PARTIAL_FULL: Final = "The broker has no memory for {} bytes of messages that have not come whole."


class Session(Protocol):
    """One connection's protocol state.  Times are in milliseconds; all calls happen within a tick."""

    @property
    def established(self) -> bool:
        """Whether the peer has logged in; until then the handshake timeout applies."""

    @property
    def receive_timeout(self) -> int:
        """Time without input after which the peer counts as dead; 0: never."""

    @property
    def send_interval(self) -> int:
        """Longest time without output that the peer accepts; 0: unlimited."""

    @property
    def close_expected(self) -> bool:
        """Whether the connection is to be closed once all output is sent."""

    def receive_data(self, data: bytes) -> None:
        """Process bytes from the peer."""

    def receive_eof(self) -> None:
        """The peer will send no more."""

    def data_to_send(self) -> bytes:
        """Return the output since the last call."""

    def flushed(self) -> None:
        """The operating system has accepted all output so far."""

    def write_blocked(self) -> None:
        """The operating system has not accepted all output yet; `flushed` is called when it has."""

    def send_heartbeat(self) -> None:
        """Send something: the broker has been silent for `send_interval`."""

    def timed_out(self) -> None:
        """The peer has been silent for longer than `receive_timeout`."""

    def connection_lost(self) -> None:
        """The connection is gone."""

    def fail(self, why: str, *, moved: bool = False) -> None:
        """End the connection because of a fault of the broker: drop pending output, send the reason if possible.

        Unacknowledged messages return to their queues, as when the connection is lost.  Whatever the session was doing
        may have stopped halfway.  `moved`: another broker of the pair takes over; the peer is told where to find it.
        """

    def shut_down(self, *, moved: bool = False) -> None:
        """End the connection in good order: the broker is stopping.  `moved`: as for `fail`."""
