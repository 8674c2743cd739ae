"""STOMP in a WebSocket, spoken to by the client side of the `websockets` library."""

from __future__ import annotations

import pytest
from websockets.frames import CloseCode, Opcode

from broker.config import Config, load
from broker.config.acceptors import StompAcceptor
from broker.sessions.stomp.delivery import COPY_BYTES_MAX
from tests.support.sim_broker import SimBroker
from tests.support.sim_browser import Browser, joined
from tests.support.stomp_client import frame


def config() -> Config:
    """STOMP over WebSocket and nothing else."""
    acceptor = StompAcceptor.model_validate({"protocol": "stomp", "websocket": True})
    return load(None).model_copy(update={"acceptors": {"stomp": acceptor}})


def connected(*offers: str) -> Browser:
    """A client that has got CONNECTED, in a message of its own."""
    browser = Browser(SimBroker(config()), "stomp", *offers)
    (answer,) = browser.say(frame("CONNECT", {"accept-version": "1.2", "host": "h"}))
    assert answer.opcode is Opcode.TEXT
    assert bytes(answer.data).startswith(b"CONNECTED\n")
    return browser


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (("v10.stomp", "v11.stomp", "v12.stomp"), "v12.stomp"),
        (("v11.stomp", "v10.stomp"), "v11.stomp"),
        (("v10.stomp",), "v10.stomp"),
        ((), None),
    ],
)
def test_subprotocols(offers: tuple[str, ...], chosen: str | None) -> None:
    """The best one that is offered; none, for those who know none."""
    browser = connected(*offers)
    assert browser.response is not None
    assert browser.response.status_code == 101
    assert browser.response.headers.get("Sec-WebSocket-Protocol") == chosen


def test_another_subprotocol_is_refused() -> None:
    browser = Browser(SimBroker(config()), "stomp", "mqtt")
    assert browser.response is not None
    assert browser.response.status_code == 400
    assert browser.closed


def test_a_message_is_a_frame() -> None:
    browser = connected("v12.stomp")
    browser.say(frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1"}))
    bodies = [b"one", b"", b"x" * (COPY_BYTES_MAX + 1) + b"\0\n", "grüße".encode()]
    sends = [
        frame("SEND", {"destination": "/queue/a"}, body, content_length=True)
        + (frame("SEND", {"destination": "/queue/nobody", "receipt": "r"}) if body == b"one" else b"")
        for body in bodies
    ]
    answers = browser.say(b"".join(sends))
    assert {answer.opcode for answer in answers} == {Opcode.TEXT}
    assert [bytes(answer.data).partition(b"\n")[0] for answer in answers].count(b"RECEIPT") == 1
    messages = [bytes(answer.data) for answer in answers if bytes(answer.data).startswith(b"MESSAGE")]
    assert [message.partition(b"\n\n")[2] for message in messages] == [body + b"\0\n" for body in bodies]


def test_a_frame_with_a_large_body_is_one_message_too() -> None:
    browser = connected("v12.stomp")
    bodies = [b"x" * 700_000, b"small", b"y" * 200_000]
    browser.say(frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1"}))
    answers = browser.say(b"".join(frame("SEND", {"destination": "/queue/a"}, body) for body in bodies))
    messages = joined(answers)
    assert [message.partition(b"\n\n")[2] for message in messages] == [body + b"\0\n" for body in bodies]
    assert [answer.opcode for answer in answers] == [Opcode.BINARY, Opcode.CONT, Opcode.CONT, Opcode.TEXT, Opcode.TEXT]
    assert [answer.fin for answer in answers] == [False, False, True, True, True]


def test_a_body_that_is_no_text_comes_as_bytes() -> None:
    browser = connected("v12.stomp")
    browser.say(frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1"}))
    (answer,) = browser.say(frame("SEND", {"destination": "/queue/a"}, b"\xff\0\xfe"), text=False)
    assert answer.opcode is Opcode.BINARY
    assert bytes(answer.data).endswith(b"\n\n\xff\0\xfe\0\n")


def test_a_frame_may_be_cut_anywhere() -> None:
    browser = connected("v12.stomp")
    browser.say(frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1"}))
    raw = frame("SEND", {"destination": "/queue/a"}, b"hello")
    assert [browser.say(raw[at : at + 7], text=at % 2 == 0) for at in range(0, len(raw) - 7, 7)] == [[]] * (
        (len(raw) - 1) // 7
    )
    (answer,) = browser.say(raw[(len(raw) - 1) // 7 * 7 :])
    assert bytes(answer.data).endswith(b"\n\nhello\0\n")


def test_a_heart_beat_is_a_message() -> None:
    browser = connected("v12.stomp")
    browser.events.clear()
    browser.session.send_heartbeat()
    browser.exchange()
    assert [(event.opcode, bytes(event.data)) for event in browser.events] == [(Opcode.TEXT, b"\n")]


def test_an_error_comes_before_the_goodbye() -> None:
    browser = connected("v12.stomp")
    browser.say(b"NONSENSE\n\n\0")
    error, goodbye = browser.events
    assert bytes(error.data).startswith(b"ERROR\n")
    assert goodbye.opcode is Opcode.CLOSE
    assert browser.ws.close_rcvd is not None
    assert browser.ws.close_rcvd.code == CloseCode.NORMAL_CLOSURE
    assert browser.closed
