"""Clients of a simulated broker that send bytes of their own: over the bare wire, and in a WebSocket."""

from __future__ import annotations

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.support.sim_broker import SimBroker, SimPeer


def joined(frames: list[Frame]) -> list[bytes]:
    """The messages that arrived in these frames."""
    messages: list[bytes] = []
    for frame in frames:
        if frame.opcode is Opcode.CONT:
            messages[-1] += bytes(frame.data)
        else:
            messages.append(bytes(frame.data))
    return messages


class RawPeer(SimPeer):
    """A client that keeps the bytes that it gets: `got`."""

    def __init__(self, broker: SimBroker, acceptor: str) -> None:
        self.got = b""
        super().__init__(broker, acceptor, broker.number())
        broker.attached(self)

    def heard(self, data: bytes) -> None:
        self.got += data


class Browser(SimPeer):
    """A client that is all WebSocket.  `response`: to its handshake; `events`: the frames that it has got."""

    def __init__(self, broker: SimBroker, acceptor: str, *offers: str) -> None:
        super().__init__(broker, acceptor, broker.number())
        offered = [Subprotocol(offer) for offer in offers] or None
        self.ws = ClientProtocol(parse_uri("ws://here/"), subprotocols=offered, max_size=None)
        self.events: list[Frame] = []
        self.response: Response | None = None
        self.ws.send_request(self.ws.connect())
        self.exchange()

    def heard(self, data: bytes) -> None:
        self.ws.receive_data(data)
        for event in self.ws.events_received():
            if isinstance(event, Response):
                self.response = event
            elif isinstance(event, Frame):
                self.events.append(event)

    def exchange(self) -> None:
        """Send what the client has to say."""
        self.raw(b"".join(self.ws.data_to_send()))

    def say(self, data: bytes, *, text: bool = True) -> list[Frame]:
        """Send one message to the broker; returns what it answers."""
        (self.ws.send_text if text else self.ws.send_binary)(data)
        self.events.clear()
        self.exchange()
        return list(self.events)
