"""A session inside a WebSocket, spoken to by the client side of the `websockets` library."""

from __future__ import annotations

from typing import cast

import pytest
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import Event
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from broker.sessions.websocket.pieces import WHOLE_BYTES_MAX
from broker.sessions.websocket.session import REQUEST_BYTES_MAX, SUBPROTOCOLS, WebSocketSession
from tests.broker.sessions.inner import EVERYTHING, Inner, tell_everything
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_browser import Browser


class Peer:
    """A client and the session that it speaks to."""

    def __init__(
        self,
        *offers: str,
        accepts: tuple[str, ...] = ("amqp",),
        origin: str | None = None,
        origins: tuple[str, ...] = (),
    ) -> None:
        self.inners: list[Inner] = []
        self.refused: list[str] = []
        self.foreign: list[str] = []
        made = {name: self._make for name in accepts}
        self.session = WebSocketSession(
            made,
            connect_bytes_max=8 << 10,
            origins=origins,
            refused=self.refused.append,
            foreign=self.foreign.append,
        )
        uri, own = parse_uri("ws://here/"), None if origin is None else Origin(origin)
        self.client = ClientProtocol(uri, origin=own, subprotocols=[Subprotocol(o) for o in offers] or None)
        self.client.send_request(self.client.connect())

    def _make(self) -> Inner:
        self.inners.append(Inner())
        return self.inners[-1]

    @property
    def closed(self) -> int | None:
        """The code with which the session closed the WebSocket."""
        return None if self.client.close_rcvd is None else self.client.close_rcvd.code

    def exchange(self) -> list[Event]:
        """What each has for the other; what the client got."""
        self.session.receive_data(b"".join(self.client.data_to_send()))
        self.client.receive_data(self.session.data_to_send())
        return list(self.client.events_received())


def opened(*, accepts: tuple[str, ...] = ("amqp",)) -> Peer:
    peer = Peer("x", "amqp", accepts=accepts)
    (response,) = peer.exchange()
    assert isinstance(response, Response)
    assert response.status_code == 101
    assert response.headers["Sec-WebSocket-Protocol"] == "amqp"
    return peer


def test_bytes_travel_in_binary_messages_however_they_are_cut() -> None:
    peer = opened()
    peer.client.send_binary(b"one", fin=False)
    peer.client.send_continuation(b"two", fin=True)
    peer.client.send_binary(b"three")
    peer.client.send_ping(b"?")
    events = peer.exchange()
    assert peer.inners[0].heard == b"onetwothree"
    frames = {frame.opcode: frame.data for frame in events if isinstance(frame, Frame)}
    assert frames == {Opcode.PONG: b"?", Opcode.BINARY: b"onetwothree"}


def test_byte_by_byte() -> None:
    peer = Peer("amqp")
    for byte in b"".join(peer.client.data_to_send()):
        peer.session.receive_data(bytes([byte]))
    peer.exchange()
    peer.client.send_binary(b"hello")
    for byte in b"".join(peer.client.data_to_send()):
        peer.session.receive_data(bytes([byte]))
    assert peer.inners[0].heard == b"hello"


def test_the_broker_prefers_in_its_own_order() -> None:
    peer = Peer("mqttv3.1", "mqtt", accepts=("mqtt", "mqttv3.1"))
    (response,) = peer.exchange()
    assert isinstance(response, Response)
    assert response.headers["Sec-WebSocket-Protocol"] == "mqtt"


@pytest.mark.parametrize(("offers", "said"), [((), b"one of the subprotocols amqp"), (("mqtt",), b"amqp")])
def test_without_the_subprotocol_the_handshake_is_refused_and_says_why(offers: tuple[str, ...], said: bytes) -> None:
    peer = Peer(*offers)
    peer.session.receive_data(b"".join(peer.client.data_to_send()))
    answer = peer.session.data_to_send()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert said in answer
    assert peer.session.close_expected
    assert peer.inners == []
    assert peer.foreign == [", ".join(offers)]


APP = "https://app.example.org"


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ((), "https://elsewhere.example.org", 101),
        ((APP,), None, 101),
        ((APP,), APP, 101),
        (("http://localhost:3000", APP), APP, 101),
        ((APP,), "https://elsewhere.example.org", 403),
        ((APP,), "http://app.example.org", 403),
        ((APP,), APP + ":8443", 403),
        ((APP,), APP + ".example.com", 403),
        ((APP,), "null", 403),
    ],
)
def test_pages_of_other_sites_are_refused(origins: tuple[str, ...], origin: str | None, status: int) -> None:
    peer = Peer("amqp", origin=origin, origins=origins)
    (response,) = peer.exchange()
    assert isinstance(response, Response)
    assert response.status_code == status
    assert peer.refused == ([origin] if status == 403 else [])
    assert peer.session.close_expected is (status == 403)
    assert len(peer.inners) == (status == 101)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"AMQP\0\1\0\0\r\n\r\n"]
)
def test_a_request_that_is_no_websocket_is_refused(data: bytes) -> None:
    peer = Peer()
    peer.session.receive_data(data)
    peer.session.data_to_send()
    assert peer.session.close_expected
    assert peer.inners == []


@pytest.mark.parametrize(("more", "ends"), [(0, False), (1, True)])
def test_a_request_has_a_limit(more: int, ends: bool) -> None:
    peer = Peer()
    head = b"GET / HTTP/1.1\r\n"
    line = b"a: " + b"x" * 1000 + b"\r\n"
    data = head + line * 20
    peer.session.receive_data(data[: REQUEST_BYTES_MAX + more])
    assert peer.session.close_expected == ends


def test_a_message_has_no_limit_and_is_not_kept() -> None:
    """What a stranger may send, or anybody, is for the inner session to say, who hears what comes (CVE-2022-23913)."""
    peer = opened()
    peer.client.send_binary(bytes(50_000))
    raw = b"".join(peer.client.data_to_send())
    for at in range(0, len(raw) - 10, 1_000):
        peer.session.receive_data(raw[at : min(at + 1_000, len(raw) - 10)])
        assert at - WHOLE_BYTES_MAX < len(peer.inners[0].heard) <= at + 1_000
    peer.session.receive_data(raw[-10:])
    assert peer.inners[0].heard == bytes(50_000)
    assert not peer.session.close_expected


def test_messages_behind_the_request() -> None:
    """A client need not wait for the answer to its request, if it knows what will be spoken."""
    peer = Peer("amqp")
    request = b"".join(peer.client.data_to_send())
    peer.session.receive_data(request + b"\x82\x83\0\0\0\0one" + b"\x82\xff" + (1 << 30).to_bytes(8, "big") + bytes(4))
    peer.session.receive_data(b"more")
    assert peer.inners[0].heard == b"onemore"


def test_text_is_refused() -> None:
    peer = opened()
    peer.client.send_text(b"hello")
    peer.exchange()
    assert peer.closed == CloseCode.UNSUPPORTED_DATA
    assert (peer.inners[0].heard, peer.inners[0].told) == (b"", ["eof"])
    assert peer.session.close_expected


def test_when_the_inner_session_ends_the_websocket_does_after_its_last_words() -> None:
    peer = opened()
    peer.client.send_binary(b"bye")
    events = peer.exchange()
    assert [frame.data for frame in events if isinstance(frame, Frame) and frame.opcode is Opcode.BINARY] == [b"bye"]
    assert peer.closed == CloseCode.NORMAL_CLOSURE
    assert peer.session.close_expected
    peer.session.receive_data(b"ignored")
    assert peer.session.data_to_send() == b""


def test_when_the_peer_closes_the_inner_session_sees_the_end() -> None:
    peer = opened()
    peer.client.send_close(CloseCode.NORMAL_CLOSURE)
    peer.exchange()
    assert peer.inners[0].told == ["eof"]
    assert peer.session.close_expected
    assert peer.closed == CloseCode.NORMAL_CLOSURE


@pytest.mark.parametrize("said", [b"", b"bye"])
def test_an_end_without_a_goodbye(said: bytes) -> None:
    """The socket ends and the WebSocket did not: nothing more can be said, whatever the inner session has to say."""
    peer = opened()
    if said:
        peer.client.send_binary(said)
        peer.session.receive_data(b"".join(peer.client.data_to_send()))
    peer.session.receive_eof()
    assert peer.inners[0].told == ["eof"]
    peer.inners[0].receive_data(b"bye")
    assert peer.session.close_expected
    assert peer.session.data_to_send() == b""


def test_the_inner_session_is_told_everything() -> None:
    peer = opened()
    tell_everything(cast(Inner, peer.session))
    assert peer.inners[0].told == EVERYTHING
    assert (peer.session.established, peer.session.receive_timeout, peer.session.send_interval) == (True, 7, 9)


def test_before_the_handshake_nothing_is_owed() -> None:
    peer = Peer("amqp")
    assert (peer.session.established, peer.session.receive_timeout, peer.session.send_interval) == (False, 0, 0)
    tell_everything(cast(Inner, peer.session))
    assert peer.session.close_expected
    assert peer.session.data_to_send() == b""


@pytest.mark.parametrize(("acceptor", "offer"), [(a, o) for a, offers in SUBPROTOCOLS.items() for o in offers])
def test_each_subprotocol_alone_is_accepted(acceptor: str, offer: str) -> None:
    """Also `mqttv3.1`, all that some clients of MQTT 3.1 ask for."""
    shipped = configured().acceptors
    web = shipped[acceptor].model_copy(update={"websocket": True})
    browser = Browser(SimBroker(configured(acceptors={**shipped, acceptor: web})), acceptor, offer)
    assert browser.response is not None
    assert browser.response.status_code == 101
    assert browser.response.headers["Sec-WebSocket-Protocol"] == offer


def test_a_token_among_the_subprotocols_is_not_told() -> None:
    peer = Peer("mqtt", "bearer.hunter2", accepts=("amqp",))
    peer.session.receive_data(b"".join(peer.client.data_to_send()))
    assert peer.foreign == ["mqtt, 1 other"]
    assert b"hunter2" not in peer.session.data_to_send()
