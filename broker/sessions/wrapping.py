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
        return self.inner is not None and self.inner.established

    @property
    def receive_timeout(self) -> int:
        return 0 if self.inner is None else self.inner.receive_timeout

    @property
    def send_interval(self) -> int:
        return 0 if self.inner is None else self.inner.send_interval

    @property
    def close_expected(self) -> bool:
        return self.ended or (self.inner is not None and self.inner.close_expected)

    def receive_eof(self) -> None:
        if self.inner is None:
            self.ended = True
        else:
            self.inner.receive_eof()

    def data_to_send(self) -> bytes:
        return b"" if self.inner is None else self.inner.data_to_send()

    def flushed(self) -> None:
        if self.inner is not None:
            self.inner.flushed()

    def write_blocked(self) -> None:
        if self.inner is not None:
            self.inner.write_blocked()

    def send_heartbeat(self) -> None:
        if self.inner is not None:
            self.inner.send_heartbeat()

    def timed_out(self) -> None:
        if self.inner is not None:
            self.inner.timed_out()

    def connection_lost(self) -> None:
        if self.inner is not None:
            self.inner.connection_lost()

    def fail(self, why: str, *, moved: bool = False) -> None:
        if self.inner is None:
            self.ended = True
        else:
            self.inner.fail(why, moved=moved)

    def shut_down(self, *, moved: bool = False) -> None:
        if self.inner is None:
            self.ended = True
        else:
            self.inner.shut_down(moved=moved)
