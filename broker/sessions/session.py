"""What the network asks of a session, whatever its protocol."""

from __future__ import annotations

from typing import Final, Protocol

#: What a client is told when another broker of a pair has its journal.
MOVED: Final = "another broker has taken over: connect to that"


class Session(Protocol):
    """One connection's protocol state.  Times are in milliseconds; all calls happen within a tick."""

    @property
    def established(self) -> bool:
        """Whether the peer has introduced itself; until then the handshake timeout applies."""

    @property
    def receive_timeout(self) -> int:
        """Silence after which the peer counts as dead; 0: never."""

    @property
    def send_interval(self) -> int:
        """Longest silence that the peer allows the broker; 0: any."""

    @property
    def close_expected(self) -> bool:
        """Whether the connection is to be closed once everything to send is sent."""

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer."""

    def receive_eof(self) -> None:
        """The peer will send no more."""

    def data_to_send(self) -> bytes:
        """Bytes for the peer since the last call."""

    def flushed(self) -> None:
        """The operating system has taken all bytes handed out so far."""

    def write_blocked(self) -> None:
        """It has not yet taken them; `flushed` will say when."""

    def send_heartbeat(self) -> None:
        """Break the broker's silence."""

    def timed_out(self) -> None:
        """The peer fell silent for too long."""

    def connection_lost(self) -> None:
        """The connection is gone."""

    def fail(self, why: str, *, moved: bool = False) -> None:
        """The connection has to end by the broker's fault: nothing that waits is sent, but why, if there is a way.

        What the peer holds goes back as if the connection had been lost.  What came before may have been left
        anywhere in the middle.  `moved`: another broker of the pair goes on, and the peer is told where it may be.
        """

    def shut_down(self, *, moved: bool = False) -> None:
        """The broker stops: say goodbye.  `moved`: as for `fail`."""
