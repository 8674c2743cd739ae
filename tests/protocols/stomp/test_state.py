"""The tables, walked exhaustively."""

from __future__ import annotations

from itertools import product

import pytest

from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError
from protocols.stomp.state import BODIES, COMMANDS, REQUIRED, TRANSITIONS, UNSUBSCRIBE_NAMES, State
from tests.protocols.stomp.peer import VERSIONS, connected, failure, maker, sent
from tests.support.stomp_client import frame
from tests.support.wire import check_malformed, feed

#: From the specifications: what a client may send in each version once it is connected.
ONCE_CONNECTED = {
    "1.0": {"SEND", "SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "ACK", "DISCONNECT"},
    "1.1": {"SEND", "SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "ACK", "NACK", "DISCONNECT"},
    "1.2": {"SEND", "SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "ACK", "NACK", "DISCONNECT"},
}
FIRST = {"CONNECT", "STOMP"}
SERVER_COMMANDS = {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}
EVERYTHING = sorted({command for table in ONCE_CONNECTED.values() for command in table} | FIRST | SERVER_COMMANDS)

#: Every header that any frame needs.
ALL_HEADERS = {name: "x" for name in ("destination", "id", "message-id", "subscription", "transaction")}


def in_state(state: State, version: str) -> StompConnection:
    """A connection that has come to a state with a version."""
    connection = StompConnection()
    if state is State.CONNECTING:
        return connection
    if state is State.ANSWERING:
        connection.receive_data(frame("CONNECT"))
        connection.events()
        return connection
    connection = connected(version)
    if state is State.DISCONNECTED:
        connection.receive_data(frame("DISCONNECT"))
        connection.events()
    return connection


def allowed(state: State, version: str) -> set[str]:
    """What the specifications let a client send."""
    if state is State.CONNECTING:
        return FIRST
    return ONCE_CONNECTED[version] if state is State.CONNECTED else set()


@pytest.mark.parametrize(("state", "command", "version"), list(product(State, EVERYTHING, VERSIONS)))
def test_every_command_in_every_state_and_version(state: State, command: str, version: str) -> None:
    connection = in_state(state, version)
    frames = feed(connection, [frame(command, ALL_HEADERS)])
    if command in allowed(state, version):
        assert [received.command for received in frames] == [command]
        assert connection.error is None
        return
    assert frames == []
    reads = state in (State.CONNECTING, State.CONNECTED)
    assert (connection.error is not None) == reads


def test_the_tables_agree() -> None:
    assert set(TRANSITIONS) == set(State)
    for version in VERSIONS:
        assert {command for command in REQUIRED[version] if command not in FIRST} == ONCE_CONNECTED[version]
        assert set(REQUIRED[version]) <= set(COMMANDS.values())
        assert BODIES[version] <= set(REQUIRED[version])
    assert set(REQUIRED) == set(UNSUBSCRIBE_NAMES) == set(BODIES) == set(VERSIONS)


REQUIRED_BY_THE_SPECIFICATIONS = {
    ("1.0", "SEND"): ["destination"],
    ("1.0", "SUBSCRIBE"): ["destination"],
    ("1.0", "ACK"): ["message-id"],
    ("1.1", "SEND"): ["destination"],
    ("1.1", "SUBSCRIBE"): ["destination", "id"],
    ("1.1", "ACK"): ["message-id", "subscription"],
    ("1.1", "NACK"): ["message-id", "subscription"],
    ("1.2", "SEND"): ["destination"],
    ("1.2", "SUBSCRIBE"): ["destination", "id"],
    ("1.2", "ACK"): ["id"],
    ("1.2", "NACK"): ["id"],
    **{(version, command): ["transaction"] for version in VERSIONS for command in ("BEGIN", "COMMIT", "ABORT")},
}


@pytest.mark.parametrize(("version", "command"), REQUIRED_BY_THE_SPECIFICATIONS)
def test_required_headers(version: str, command: str) -> None:
    needed = dict.fromkeys(REQUIRED_BY_THE_SPECIFICATIONS[version, command], "x")
    enough = connected(version)
    assert len(feed(enough, [frame(command, needed)])) == 1
    for name in needed:
        raw = frame(command, {other: "x" for other in ALL_HEADERS if other != name} | {"receipt": "r"})
        error = check_malformed(maker(version), raw, StompError)
        assert error.message == "missing header"
        assert error.detail == f"{command}: the header {name} is missing"
        assert error.receipt == b"r"


@pytest.mark.parametrize("version", VERSIONS)
def test_unsubscribe_names_its_subscription(version: str) -> None:
    durable = ["durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName"]
    for name in ["id", *durable]:
        assert len(feed(connected(version), [frame("UNSUBSCRIBE", {name: "x"})])) == 1
    by_destination = connected(version)
    frames = feed(by_destination, [frame("UNSUBSCRIBE", {"destination": "x"})])
    assert bool(frames) == (version == "1.0")
    assert (by_destination.error is None) == (version == "1.0")


def test_stomp_may_lack_accept_version_like_connect() -> None:
    connection = StompConnection()
    assert [received.command for received in feed(connection, [frame("STOMP")])] == ["STOMP"]


def test_frames_before_connect() -> None:
    error = check_malformed(
        StompConnection, frame("SEND", {"destination": "/queue/a", "receipt": "7"}, b"x"), StompError
    )
    assert (error.message, error.detail) == ("not connected", "'SEND': the first frame must be CONNECT or STOMP")
    assert error.receipt == b"7"


def test_connect_twice() -> None:
    for command in FIRST:
        error = check_malformed(maker(), frame(command, {"accept-version": "1.2"}), StompError)
        assert (error.message, error.detail) == ("already connected", f"'{command}' comes once, as the first frame")


def test_connect_and_send_in_one_read() -> None:
    """What follows CONNECT waits for the answer, and is then read by the rules of its version."""
    connection = StompConnection()
    raw = frame("CONNECT", {"accept-version": "1.0,1.2"}) + frame("SEND", {"destination": "a:b"}, b"body")
    assert [received.command for received in feed(connection, [raw])] == ["CONNECT"]
    assert feed(connection, [b"\n", b"\n"]) == []
    connection.send_connected("1.2", [])
    (send,) = connection.events()
    assert (send.headers, send.body) == ({b"destination": b"a:b"}, b"body")
    assert connection.events() == []


def test_nothing_is_read_after_a_refused_connect() -> None:
    connection = StompConnection()
    raw = frame("CONNECT", {"login": "nobody"}) + frame("SEND", {"destination": "a"})
    assert [received.command for received in feed(connection, [raw])] == ["CONNECT"]
    connection.send_error(StompError("login refused", "CONNECT: the login is wrong"))
    assert connection.close_expected
    assert feed(connection, [b"", frame("SEND", {"destination": "a"})]) == []
    connection.receive_eof()
    assert connection.events() == []
    assert connection.error is None


def test_a_second_connect_before_the_answer_is_refused_with_the_answer() -> None:
    connection = StompConnection()
    assert len(feed(connection, [frame("CONNECT", {"accept-version": "1.2"}) * 2])) == 1
    connection.send_connected("1.2", [])
    assert connection.events() == []
    assert failure(connection) == "already connected"


def test_nothing_is_read_after_disconnect() -> None:
    connection = connected()
    raw = frame("DISCONNECT", {"receipt": "bye"}) + frame("SEND", {"destination": "a"}) + b"rubbish"
    assert [received.command for received in feed(connection, [raw, raw])] == ["DISCONNECT"]
    connection.receive_eof()
    assert connection.events() == []
    assert connection.error is None
    connection.send_receipt(b"bye")
    assert sent(connection)[0].headers == {"receipt-id": "bye"}
