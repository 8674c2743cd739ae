"""A session around another one that is made later: the base of protocol detection and WebSocket."""

from __future__ import annotations

from broker.sessions.session import Session


class WrappingSession:
    """Passes every call on to the inner session, once there is one; until then the client counts as not logged in.

    `ended`: nothing more is read, and the connection closes once all output is sent.
    """

    def __init__(self) -> None:
        self.inner: Session | None = None
        self.ended = False

    @property
    def established(self) -> bool:
        """Whether the peer has logged in to the inner session."""
        return self.inner is not None and self.inner.established

    @property
    def receive_timeout(self) -> int:
        """The inner session's."""
        return 0 if self.inner is None else self.inner.receive_timeout

    @property
    def send_interval(self) -> int:
        """The inner session's."""
        return 0 if self.inner is None else self.inner.send_interval

    @property
    def close_expected(self) -> bool:
        """Whether the connection is to be closed once all output is sent."""
        return self.ended or (self.inner is not None and self.inner.close_expected)

    def receive_eof(self) -> None:
        """The peer will send no more."""
        if self.inner is None:
            self.ended = True
        else:
            self.inner.receive_eof()

    def data_to_send(self) -> bytes:
        """Return the output since the last call."""
        return b"" if self.inner is None else self.inner.data_to_send()

    def flushed(self) -> None:
        """The operating system has accepted all output so far."""
        if self.inner is not None:
            self.inner.flushed()

    def write_blocked(self) -> None:
        """The operating system has not accepted all output yet."""
        if self.inner is not None:
            self.inner.write_blocked()

    def send_heartbeat(self) -> None:
        """Send something: the broker has been silent for `send_interval`."""
        if self.inner is not None:
            self.inner.send_heartbeat()

    def timed_out(self) -> None:
        """The peer has been silent for longer than `receive_timeout`."""
        if self.inner is not None:
            self.inner.timed_out()

    def connection_lost(self) -> None:
        """The connection is gone."""
        if self.inner is not None:
            self.inner.connection_lost()

    def fail(self, why: str, *, moved: bool = False) -> None:
        """End the connection because of a fault of the broker."""
        if self.inner is None:
            self.ended = True
        else:
            self.inner.fail(why, moved=moved)

    def shut_down(self, *, moved: bool = False) -> None:
        """End the connection in good order: the broker is stopping."""
        if self.inner is None:
            self.ended = True
        else:
            self.inner.shut_down(moved=moved)
