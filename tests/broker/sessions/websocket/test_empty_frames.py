"""Frames that carry nothing, control frames and empty fragments: what a stranger may send, and what a read may cost."""

from __future__ import annotations

import pytest
from websockets.frames import Opcode

from protocols.mqtt.encode import encode
from protocols.mqtt.packets import Subscribe
from tests.support.mqtt_client import greeting, publishes, wish
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_browser import Browser

#: What each protocol's clients offer.
OFFERS = {"stomp": "v12.stomp", "mqtt": "mqtt", "amqp": "amqp"}

#: limits.connect-bytes-max.
MOST = 8 << 10


class SlowBroker(SimBroker):
    """A tick has the budget for little."""

    small_steps = True


def bare(opcode: Opcode, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A frame of a client, with a mask of zeros."""
    return bytes((fin << 7 | opcode, 0x80 | len(payload))) + bytes(4) + payload


PING = bare(Opcode.PING)


def browser(acceptor: str, kind: type[SimBroker] = SimBroker) -> Browser:
    shipped = configured().acceptors
    web = shipped[acceptor].model_copy(update={"websocket": True})
    return Browser(kind(configured(acceptors={**shipped, acceptor: web})), acceptor, OFFERS[acceptor])


def logged_in(kind: type[SimBroker]) -> Browser:
    """A client of MQTT."""
    client = browser("mqtt", kind)
    client.say(encode(greeting("web"), 5), text=False)
    assert client.session.established
    return client


def pongs(client: Browser) -> int:
    return sum(frame.opcode is Opcode.PONG for frame in client.events)


@pytest.mark.parametrize("acceptor", OFFERS)
@pytest.mark.parametrize(
    ("first", "each"),
    [
        (b"", bare(Opcode.PING, b"12")),
        (b"", bare(Opcode.PONG, b"12")),
        (bare(Opcode.BINARY, fin=False), bare(Opcode.CONT, fin=False)),
    ],
    ids=["pings", "pongs", "fragments"],
)
def test_before_the_login_they_count(acceptor: str, first: bytes, each: bytes) -> None:
    """As much as connect-bytes-max; one more ends the connection, and the log says why, as for a login too large."""
    client = browser(acceptor)
    fit = (MOST - len(first)) // len(each)
    client.raw(first)
    for _ in range(fit - 1):
        client.raw(each)
    client.raw(each)
    assert (client.closed, client.broker.reported("login.too_large")) == (False, [])
    client.raw(each)
    assert (client.closed, client.session.close_expected) == (True, True)
    [report] = client.broker.reported("login.too_large")
    assert str(MOST) in " ".join(map(str, report.values()))


@pytest.mark.parametrize(("acceptor", "told"), [("stomp", b"message:frame too large"), ("mqtt", b"")])
def test_the_client_is_told(acceptor: str, told: bytes) -> None:
    client = browser(acceptor)
    client.raw(PING * 40_000)
    assert client.closed
    assert pongs(client) < MOST // len(PING) + 200
    said = b"".join(bytes(each.data) for each in client.events if each.opcode in (Opcode.TEXT, Opcode.BINARY))
    assert told in said
    assert len(client.broker.reported("login.too_large")) == 1


def test_after_the_login_they_do_not_count() -> None:
    client = logged_in(SimBroker)
    client.raw(PING * 4_000)
    assert pongs(client) == 4_000
    assert not client.closed


def test_a_read_of_many_frames_is_handled_in_parts() -> None:
    """And nothing is read meanwhile."""
    client = logged_in(SlowBroker)
    seen: list[tuple[int, bool]] = []
    client.broker.after_tick = lambda: seen.append((pongs(client), client.reading))
    client.raw(PING * 1_000)
    assert pongs(client) == 1_000
    assert client.reading
    counts = [count for count, _ in seen]
    assert max(after - before for before, after in zip([0, *counts], counts, strict=False)) < 300
    assert all(reading is (count == 1_000) for count, reading in seen)


@pytest.mark.parametrize("end", ["lost", "eof"])
def test_frames_before_the_end_are_handled(end: str) -> None:
    client = logged_in(SlowBroker)
    broker = client.broker
    reader = Browser(broker, "mqtt", "mqtt")
    reader.say(encode(greeting("reader"), 5), text=False)
    reader.say(encode(Subscribe(1, [wish("a")]), 5), text=False)
    reader.events.clear()
    broker.enter()
    client.session.receive_data(PING * 1_000 + bare(Opcode.BINARY, publishes([("a", b"last words")], 0)))
    assert not client.reading
    if end == "lost":
        client.drop()
    else:
        client.session.receive_eof()
        broker.run()
    assert [frame.data[-10:] for frame in reader.events] == [b"last words"]
    assert client.closed
    assert "web" not in {each.access.client_id for each in broker.engine.connections.by_id.values()}


def test_frames_that_arrive_meanwhile_wait_behind_the_rest() -> None:
    """TLS may hand over more after reading has stopped."""
    client = logged_in(SlowBroker)
    client.broker.enter()
    client.session.receive_data(PING * 1_000)
    client.session.receive_data(bare(Opcode.PING, b"last"))
    client.broker.tick.touch(client)
    client.broker.run()
    assert pongs(client) == 1_001
    assert client.events[-1].data == b"last"
