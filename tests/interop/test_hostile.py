"""Peers that do wrong, or nothing: they cost themselves, nobody else (promises P5, P6)."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S
from tests.support.stomp_client import CONNECT, StompSocket, frame
from tests.support.stomp_py import DURABLE, connected

MIB = 1 << 20

#: The beginning of settings for the STOMP acceptor.
ACCEPTORS = '[acceptors.http]\nprotocol = "http"\n[acceptors.stomp]\nprotocol = "stomp"\n'

#: What is sent after CONNECT, and what the ERROR frame has to say about it.
BAD = {
    "no such command": (b"EXPLODE\n\n\0", "a first line of 7 bytes is not a command of STOMP"),
    "no destination": (b"SEND\n\nx\0", "destination"),
    "a header without colon": (b"SEND\ndestination\n\nx\0", "SEND"),
    "an undefined escape": (b"SEND\ndestination:/queue/a\\t\n\nx\0", "escape"),
    "a header that is not UTF-8": (b"SEND\ndestination:/queue/\xff\n\nx\0", "UTF-8"),
    "a second CONNECT": (CONNECT, "CONNECT"),
    "a body where none belongs": (b"BEGIN\ntransaction:t\n\nx\0", "BEGIN"),
    "a length that is no number": (b"SEND\ndestination:/queue/a\ncontent-length:many\n\nx\0", "content-length"),
    "a negative length": (b"SEND\ndestination:/queue/a\ncontent-length:-1\n\nx\0", "content-length"),
    "a length that is too short": (b"SEND\ndestination:/queue/a\ncontent-length:1\n\nxyz\0", "content-length"),
    "a body beyond the limit": (b"SEND\ndestination:/queue/a\ncontent-length:99999999999\n\n", "body"),
    "too many headers": (b"SEND\n" + b"".join(b"h%d:x\n" % n for n in range(300)) + b"\n\0", "header"),
    "a header line that does not end": (b"SEND\nh:" + b"x" * 100_000, "header"),
    "a priority beyond nine": (b"SEND\ndestination:/queue/a\npriority:10\n\nx\0", "priority"),
    "an ack mode of its own": (b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:maybe\n\n\0", "ack"),
    "a selector that is none": (b"SUBSCRIBE\nid:1\ndestination:/queue/a\nselector:a = = b\n\n\0", "selector"),
    "an ack out of the blue": (b"ACK\nid:1,2\n\n\0", "1,2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_costs_only_its_sender(broker: DaemonProcess, name: str) -> None:
    data, said = BAD[name]
    with connected(broker.port) as bystander, StompSocket(broker.port) as culprit:
        bystander.subscribe("/queue/bystander")
        culprit.connect()
        culprit.socket.sendall(data)
        *_, error = culprit.rest()
        assert error.command == "ERROR"
        assert said.lower() in (error.headers["message"] + error.body.decode()).lower()
        bystander.put("/queue/bystander", name)
        assert bystander.take().text == name


def test_frames_before_an_error_count(broker: DaemonProcess) -> None:
    good = frame("SEND", {"destination": "/queue/before-error", **DURABLE}, b"good")
    with StompSocket(broker.port) as sender:
        sender.connect().socket.sendall(good + b"EXPLODE\n\n\0" + good)
        assert sender.rest()[-1].command == "ERROR"
    assert broker.queue("before-error")["messages"] == 1


@pytest.mark.parametrize(
    "first",
    [b"SEND\ndestination:/queue/a\n\nx\0", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"\xff" * 20_000],
    ids=["a frame", "another protocol", "noise"],
)
def test_a_client_without_connect_gets_nothing(broker: DaemonProcess, first: bytes) -> None:
    names = broker.queue_names()
    with StompSocket(broker.port) as stranger:
        stranger.socket.sendall(first)
        assert [answer.command for answer in stranger.rest()] == ["ERROR"]
    assert broker.queue_names() == names


def test_versions_that_nobody_speaks(broker: DaemonProcess) -> None:
    with StompSocket(broker.port) as stranger:
        stranger.do("CONNECT", {"accept-version": "2.0", "host": "h"})
        (error,) = stranger.rest()
    assert error.command == "ERROR"
    assert error.headers["version"] == "1.0,1.1,1.2"


def test_a_header_cannot_be_smuggled_through_a_receipt(broker: DaemonProcess) -> None:
    with StompSocket(broker.port) as sender:
        sender.connect()
        sender.do("SEND", {"destination": "/queue/smuggled", "receipt": "1\ninjected:yes"}, b"x")
        receipt = sender.frame()
    assert receipt.headers == {"receipt-id": "1\ninjected:yes"}


def test_half_a_frame_and_a_dead_socket(broker: DaemonProcess) -> None:
    with StompSocket(broker.port) as sender:
        sender.connect().socket.sendall(b"SEND\ndestination:/queue/half\n\nnot all of it")
        sender.socket.shutdown(socket.SHUT_WR)
        assert sender.rest()[-1].command == "ERROR"
    assert "half" not in broker.queue_names()


def test_a_client_that_shuts_its_side_still_gets_its_receipts(broker: DaemonProcess) -> None:
    with StompSocket(broker.port) as sender:
        sender.connect()
        sender.do("SEND", {"destination": "/queue/shut", "receipt": "1", **DURABLE}, b"x")
        sender.socket.shutdown(socket.SHUT_WR)
        assert [answer.command for answer in sender.rest()] == ["RECEIPT"]
    assert broker.queue("shut")["messages"] == 1


def test_a_silent_peer_is_noticed_by_its_heart_beats(broker: DaemonProcess) -> None:
    with connected(broker.port) as other, StompSocket(broker.port) as dead:
        other.put("/queue/beats", "x", DURABLE)
        dead.do("CONNECT", {"accept-version": "1.2", "host": "h", "heart-beat": "500,500"})
        assert dead.frame().headers["heart-beat"] == "500,500"
        begun = time.monotonic()
        dead.do("SUBSCRIBE", {"id": "1", "destination": "/queue/beats", "ack": "client"})
        assert dead.frame().command == "MESSAGE"
        assert dead.rest() == []
        # Twice the interval it promised, and the broker looks four times a second; more where a busy machine waits.
        assert 0.9 < time.monotonic() - begun < PATIENCE_S / 4
        assert dead.reader.heartbeats >= 1
        other.subscribe("/queue/beats")
        message = other.take()
    assert (message.text, message.redelivered) == ("x", True)


def test_slow_strangers_do_not_keep_a_client_waiting(broker: DaemonProcess) -> None:
    with ExitStack() as stack:
        strangers = [stack.enter_context(StompSocket(broker.port)) for _ in range(200)]
        for at in range(0, 40, 10):
            for stranger in strangers:
                stranger.socket.sendall(CONNECT[at : at + 1])
            begun = time.monotonic()
            with connected(broker.port) as client:
                waited = time.monotonic() - begun
                client.put("/queue/prompt", "x", DURABLE)
            assert waited < PATIENCE_S / 4, "to log in; what the disk takes for the message is its own affair"


def test_a_client_that_never_logs_in_is_cut_off(tmp_path: Path) -> None:
    with (
        running(tmp_path, ACCEPTORS + 'handshake-timeout = "300ms"\n') as broker,
        StompSocket(broker.port) as stranger,
    ):
        stranger.socket.sendall(CONNECT[:10])
        assert stranger.rest() == []
        broker.await_log("connection.handshake_timeout")


def test_a_silent_client_without_heart_beats_is_dropped_after_a_while(tmp_path: Path) -> None:
    with running(tmp_path, '[broker]\nconnection-ttl = "1s"\n') as broker, StompSocket(broker.port) as silent:
        begun = time.monotonic()
        silent.connect()
        assert silent.rest() == []
        assert 0.9 < time.monotonic() - begun < PATIENCE_S / 4
        broker.await_log("connection.silent")


LOGINS = {
    "nobody": {},
    "no password": {"login": "alice"},
    "an empty password": {"login": "alice", "passcode": ""},
    "a wrong password": {"login": "alice", "passcode": "secret "},
    "an unknown user": {"login": "bob", "passcode": "secret"},
}


def test_logins(tmp_path: Path) -> None:
    with running(tmp_path, "[security]\nlogin-failure-delay = 0\n", users={"alice": "secret"}) as broker:
        for name, login in LOGINS.items():
            with StompSocket(broker.port) as stranger:
                stranger.do("CONNECT", {"accept-version": "1.2", "host": "h", **login})
                stranger.do("SEND", {"destination": "/queue/a"}, b"x")
                (error,) = stranger.rest()
            assert (error.command, error.headers["message"]) == ("ERROR", "login refused"), name
        with connected(broker.port, login=("alice", "secret")) as client:
            client.put("/queue/b", "x", {**DURABLE, "JMSXUserID": "somebody else"})
            client.subscribe("/queue/b")
            assert client.take().headers["JMSXUserID"] == "alice"
        assert broker.queue_names() == {"DLQ", "ExpiryQueue", "b"}
        assert broker.log.count("login.refused") == len(LOGINS)
        assert "secret" not in broker.log


def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with running(tmp_path, ACCEPTORS + "connections-allowed = 2\n") as broker:
        with StompSocket(broker.port) as one, StompSocket(broker.port) as two:
            one.connect()
            two.connect()
            with StompSocket(broker.port) as three:
                assert three.rest() == []
        broker.await_log("connection.refused")


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_a_client_that_never_reads_stalls_nobody_and_costs_little(broker: DaemonProcess, ack: str) -> None:
    """The backlog of a consumer that does not read is the queue's, stored once; only a window of it is in flight."""
    name = f"unread-{ack}"
    body = b"x" * 65_536
    with StompSocket(broker.port) as deaf, connected(broker.port) as other:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect()
        deaf.do("SUBSCRIBE", {"id": "1", "destination": f"/queue/{name}", "ack": ack})
        other.subscribe("/queue/others")
        before = broker.memory_bytes()
        for number in range(400):
            other.send(f"/queue/{name}", body)
            if number % 50 == 0:
                other.put("/queue/others", str(number))
                assert other.take().text == str(number)
        other.put("/queue/others", "done")
        assert other.take().text == "done"
        stored = 400 * len(body)
        queue = broker.queue(name)
        assert queue["messages"] > 300
        assert queue["delivering"] * len(body) <= 8 * MIB
        assert broker.memory_bytes() - before < stored + 24 * MIB


def test_a_topic_subscriber_that_never_reads(broker: DaemonProcess) -> None:
    with StompSocket(broker.port) as deaf, connected(broker.port) as reader:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect()
        deaf.do("SUBSCRIBE", {"id": "1", "destination": "/topic/loud"})
        reader.subscribe("/topic/loud")
        for number in range(300):
            reader.send("/topic/loud", b"%d " % number + b"x" * 20_000)
        assert [int(reader.take().body.split()[0]) for _ in range(300)] == list(range(300))


def test_a_full_address_stops_its_producer_and_releases_it(broker: DaemonProcess) -> None:
    """BLOCK: the broker does not read from the producer, whose socket then fills up, and goes on when there is room."""
    messages = frame("SEND", {"destination": "/queue/narrow.q", **DURABLE}, b"x" * 50_000) * 400
    with connected(broker.port) as consumer, StompSocket(broker.port) as producer:
        producer.connect()
        producer.socket.settimeout(None)  # the consumer decides how long all of it takes
        sending = threading.Thread(target=producer.socket.sendall, args=(messages,))
        sending.start()
        broker.await_log("address.full.blocking")
        sending.join(0.2)
        assert sending.is_alive(), "the producer was not stopped"
        assert broker.queue("narrow.q")["messages"] < 200
        consumer.put("/queue/elsewhere", "others go on", DURABLE)
        consumer.subscribe("/queue/narrow.q", "client-individual")
        for _ in range(400):
            consumer.ack(consumer.take())
        sending.join(PATIENCE_S)
        assert not sending.is_alive()
    assert broker.queue("narrow.q")["messages"] == 0


def test_a_client_that_reads_no_answers_is_not_read_from(broker: DaemonProcess) -> None:
    """What it is owed is bounded (net.connection.OUTPUT_BYTES_MAX), and it gets all of it when it reads again."""
    receipt = "r" * 1_000
    run = frame("BEGIN", {"transaction": "t", "receipt": receipt}) + frame("ABORT", {"transaction": "t"})
    run *= 100
    with connected(broker.port) as bystander, StompSocket(broker.port) as culprit:
        culprit.connect()
        culprit.socket.setblocking(False)
        sent = 0
        rest = memoryview(run)
        while select.select([], [culprit.socket], [], 1.0)[1]:
            taken = culprit.socket.send(rest)
            sent += taken
            rest = rest[taken:] or memoryview(run)
            assert sent < 64 * MIB, "the broker takes all that comes"
        bystander.put("/queue/beside-the-flood", "still served")
        culprit.socket.settimeout(PATIENCE_S)
        writer = threading.Thread(target=culprit.socket.sendall, args=(rest,))
        writer.start()
        wanted = (sent + len(rest)) // len(run) * 100
        assert all(culprit.frame().headers["receipt-id"] == receipt for _ in range(wanted))
        writer.join()
