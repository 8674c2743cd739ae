"""A session that remembers what it was told, to be wrapped."""

from __future__ import annotations

from broker.engine import Engine
from broker.sessions.reading import Reading
from broker.sessions.tick import Transport


class Inner:
    """Says back what it hears, and ends at the word `bye`.  What it hears in one read is never much."""

    engine: Engine
    reading: Reading
    transport: Transport

    def __init__(self) -> None:
        self.lost = False
        self.established = True
        self.receive_timeout = 7
        self.send_interval = 9
        self.close_expected = False
        self.heard = b""
        self.told: list[str] = []
        self._out = b""

    def receive_data(self, data: bytes) -> None:
        self.heard += data
        self._out += data
        self.close_expected = b"bye" in self.heard

    def receive_eof(self) -> None:
        self.told.append("eof")

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def flushed(self) -> None:
        self.told.append("flushed")

    def write_blocked(self) -> None:
        self.told.append("write_blocked")

    def send_heartbeat(self) -> None:
        self.told.append("heartbeat")

    def timed_out(self) -> None:
        self.told.append("timed_out")

    def connection_lost(self) -> None:
        self.told.append("connection_lost")

    def fail(self, why: str, *, moved: bool = False) -> None:
        self.told.append(why)

    def touch(self) -> None:
        self.told.append("touch")

    def process(self) -> None:
        self.told.append("process")

    def refuse_before_login(self, nbytes: int, most: int) -> None:
        self.told.append(f"{nbytes} > {most}")

    def shut_down(self, *, moved: bool = False) -> None:
        self.told.append("shut_down")


def tell_everything(session: Inner) -> None:
    """Everything that the network tells a session."""
    session.flushed()
    session.write_blocked()
    session.send_heartbeat()
    session.timed_out()
    session.receive_eof()
    session.connection_lost()
    session.fail("fault")
    session.shut_down()


EVERYTHING = ["flushed", "write_blocked", "heartbeat", "timed_out", "eof", "connection_lost", "fault", "shut_down"]
