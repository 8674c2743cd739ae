"""One port, several protocols."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.sessions.detect import DetectingSession, detect
from tests.broker.sessions.inner import EVERYTHING, Inner, tell_everything

AMQP = b"AMQP\x00\x01\x00\x00"
MQTT = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"
STOMP = b"CONNECT\naccept-version:1.2\n\n\0"


def serving(*names: str) -> tuple[DetectingSession, dict[str, Inner]]:
    made: dict[str, Inner] = {}

    def maker(name: str) -> Any:
        return lambda: made.setdefault(name, Inner())

    return DetectingSession({name: maker(name) for name in names}), made


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (AMQP, "amqp"),
        (b"AMQP\x03\x01\x00\x00", "amqp"),
        (MQTT, "mqtt"),
        (STOMP, "stomp"),
        (b"\n\nSTOMP\n", "stomp"),
        (b"ABORT", "stomp"),
        (b"AMQX", "stomp"),
        (b"\x16\x03\x01", "stomp"),
    ],
)
def test_the_first_bytes_tell_at_every_cut(first: bytes, protocol: str) -> None:
    assert detect(first) == protocol
    for cut in range(1, len(first)):
        session, made = serving("amqp", "mqtt", "stomp")
        session.receive_data(first[:cut])
        session.receive_data(first[cut:])
        session.receive_data(b"more")
        assert {name: inner.heard for name, inner in made.items()} == {protocol: first + b"more"}
        assert session.data_to_send() == first + b"more"
        assert (session.established, session.receive_timeout, session.send_interval) == (True, 7, 9)


def test_a_protocol_that_is_not_served_is_hung_up_on() -> None:
    session, made = serving("stomp")
    session.receive_data(AMQP)
    assert session.close_expected
    session.receive_data(STOMP)
    assert (made, session.data_to_send()) == ({}, b"")


def test_before_it_is_known_nothing_is_owed() -> None:
    session, _ = serving("amqp")
    session.receive_data(b"AM")
    assert (session.established, session.receive_timeout, session.send_interval) == (False, 0, 0)
    assert (session.close_expected, session.data_to_send()) == (False, b"")
    tell_everything(cast(Inner, session))
    assert session.close_expected


def test_afterwards_the_inner_session_is_told_everything() -> None:
    session, made = serving("amqp")
    session.receive_data(AMQP)
    tell_everything(cast(Inner, session))
    assert made["amqp"].told == EVERYTHING
    assert not session.close_expected
    session.receive_data(b"bye")
    assert session.close_expected
