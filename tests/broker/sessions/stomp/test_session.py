"""CONNECT, heart-beats, receipts, transactions, errors, and the ends of a connection."""

from __future__ import annotations

import pytest

from broker.sessions.stomp.session import StompSession
from tests.broker.sessions.stomp.harness import started
from tests.simulation.world import counts, held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame


def greeted(broker: SimBroker, command: str = "CONNECT", **headers: str) -> SimClient:
    """A client whose first frame is answered, one way or the other."""
    client = SimClient(broker, "1.2", 7)
    client.do(command, headers)
    return client


# -- CONNECT -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize(
    ("accepted", "version"),
    [(None, "1.0"), ("1.0", "1.0"), ("1.1,1.0", "1.1"), ("1.0,1.1,1.2", "1.2"), ("3,1.1", "1.1")],
)
def test_versions(command: str, accepted: str | None, version: str) -> None:
    if command == "STOMP" and accepted is None:
        return
    headers = {} if accepted is None else {"accept-version": accepted}
    (connected,) = greeted(SimBroker(small()), command, host="h", **headers).take("CONNECTED")
    assert connected.headers["version"] == version
    assert connected.headers["server"].startswith("bartleby/")
    assert connected.headers["session"]
    assert connected.headers["heart-beat"] == "0,0"
    assert connected.body == b""


def test_a_version_that_nobody_speaks() -> None:
    client = greeted(SimBroker(small()), **{"accept-version": "9.9", "host": "h"})
    (error,) = client.take("ERROR")
    assert error.headers["version"] == "1.0,1.1,1.2"
    assert client.closed


def test_request_id() -> None:
    client = greeted(SimBroker(small()), **{"request-id": "r1", "accept-version": "1.2", "host": "h"})
    assert client.take("CONNECTED")[0].headers["response-id"] == "r1"


@pytest.mark.parametrize(
    ("beat", "answer", "receive", "send"),
    [
        (None, "0,0", 60_000, 0),
        ("0,0", "0,0", 60_000, 0),
        ("1000,0", "0,1000", 2000, 0),
        ("10000,10000", "500,10000", 20_000, 10_000),
        ("100,100", "500,500", 1000, 500),
        ("0,700", "500,0", 60_000, 700),
    ],
)
def test_heart_beats(beat: str | None, answer: str, receive: int, send: int) -> None:
    headers = {} if beat is None else {"heart-beat": beat}
    client = greeted(SimBroker(small()), **{"accept-version": "1.2", "host": "h", **headers})
    (connected,) = client.take("CONNECTED")
    assert connected.headers["heart-beat"] == answer
    assert (client.session.receive_timeout, client.session.send_interval) == (receive, send)
    client.session.send_heartbeat()
    assert client.session.data_to_send() == b"\n"


def test_the_acceptor_bounds_the_time_to_live() -> None:
    shipped = small()
    bounds = {"connection_ttl_max": 5000, "connection_ttl": -1, "heart_beat_to_connection_ttl_modifier": 3.0}
    acceptor = shipped.acceptors["stomp"].model_copy(update=bounds)
    broker = SimBroker(shipped.model_copy(update={"acceptors": {"stomp": acceptor}}))
    fast = greeted(broker, **{"accept-version": "1.2", "host": "h", "heart-beat": "1000,0"})
    assert fast.session.receive_timeout == 3000
    slow = greeted(broker, **{"accept-version": "1.2", "host": "h", "heart-beat": "9000,0"})
    assert slow.session.receive_timeout == 5000
    assert slow.take("CONNECTED")[0].headers["heart-beat"] == "0,1666"
    assert greeted(broker, **{"accept-version": "1.2", "host": "h"}).session.receive_timeout == 0


@pytest.mark.parametrize("beat", ["", "5", "1,2,3", "a,b", "-1,0"])
def test_heart_beats_that_cannot_be(beat: str) -> None:
    client = greeted(SimBroker(small()), **{"accept-version": "1.2", "host": "h", "heart-beat": beat})
    assert client.take("ERROR")[0].headers["message"] == "invalid heart-beat"
    assert client.closed


class TestLogin:
    """With users, everybody needs a name and its password."""

    def broker(self) -> SimBroker:
        return SimBroker(small(), users={"alice": "s3cret"})

    def test_right(self) -> None:
        broker = self.broker()
        client = broker.connect(login="alice", passcode="s3cret")
        client.subscribe("/queue/a", ack="auto")
        client.send("/queue/a", b"", JMSXUserID="root")
        assert client.messages()[0].headers["JMSXUserID"] == "alice"

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"login": "alice"},
            {"login": "alice", "passcode": ""},
            {"login": "alice", "passcode": "wrong"},
            {"login": "bob", "passcode": "s3cret"},
            {"login": "bob", "passcode": ""},
            {"login": "", "passcode": "s3cret"},
        ],
    )
    def test_wrong(self, headers: dict[str, str]) -> None:
        broker = self.broker()
        client = greeted(broker, **{"accept-version": "1.2", "host": "h", **headers})
        (error,) = client.take("ERROR")
        assert error.headers["message"] == "login refused"
        assert b"s3cret" not in error.body
        assert client.closed
        assert not client.session.established
        assert len(broker.reported("login.refused")) == 1
        client.session.receive_data(frame("SEND", {"destination": "/queue/a"}, b"x"))
        broker.run()
        assert "a" not in broker.engine.queues


@pytest.mark.parametrize(
    "first",
    [b"SEND\ndestination:/queue/a\n\nx\0", b"GET / HTTP/1.1\r\n\r\n", b"CONNECTED\n\n\0", b"\x16\x03\x01\n\n\0"],
)
def test_nothing_goes_before_connect(broker: SimBroker, first: bytes) -> None:
    client = SimClient(broker, "1.2", 1)
    client.raw(first)
    assert client.take("ERROR")
    assert client.closed
    assert "a" not in broker.engine.queues


def test_frames_that_came_with_connect_are_read_by_its_version() -> None:
    client = SimClient(SimBroker(small()), "1.2", 1)
    client.raw(
        frame("CONNECT", {"accept-version": "1.2", "host": "h"})
        + frame("SUBSCRIBE", {"destination": "/queue/a", "id": "s"})
        + frame("SEND", {"destination": "/queue/a", "x": "a:b"}, b"1")
    )
    assert client.take("CONNECTED")
    assert client.messages()[0].headers["x"] == "a:b"


# -- transactions ------------------------------------------------------------------------------------------------------


def transacted() -> tuple[SimBroker, SimClient]:
    broker, client = started({"match": "a", "redelivery-delay": 1000})
    for n in range(3):
        client.confirmed("/queue/a", b"%d" % n)
    client.subscribe("/queue/a")
    client.do("BEGIN", {"transaction": "t"})
    return broker, client


def test_commit_does_it_all_at_once() -> None:
    broker, client = transacted()
    zero, one, two = client.messages()
    client.send("/queue/b", b"sent", persistent="true", transaction="t")
    client.ack(zero, transaction="t")
    client.nack(one, transaction="t")
    client.nack(two, transaction="t", requeue="false")
    assert "b" not in broker.engine.queues or held(broker, "b") == []
    assert len(held(broker, "a")) == 0, "settled: neither with the consumer nor gone"
    assert held(broker.restart(), "a") == [b"0", b"1", b"2"]
    broker, client = transacted()
    zero, one, two = client.messages()
    client.send("/queue/b", b"sent", persistent="true", transaction="t")
    client.ack(zero, transaction="t")
    client.nack(one, transaction="t")
    client.nack(two, transaction="t", requeue="false")
    client.do("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.take("RECEIPT")
    broker = broker.restart()
    assert (held(broker, "a"), held(broker, "b"), held(broker, "DLQ")) == ([b"1"], [b"sent"], [b"2"])
    assert counts(broker, "a") == {b"1": 1}


@pytest.mark.parametrize("end", ["ABORT", "DISCONNECT", "drop", "timeout"])
def test_abort_is_a_failed_delivery_of_what_was_acknowledged_and_of_nothing_else(end: str) -> None:
    broker, client = transacted()
    zero, _, two = client.messages()
    client.send("/queue/b", b"sent", persistent="true", transaction="t")
    client.ack(zero, transaction="t")
    client.ack(two, transaction="t")
    if end == "drop":
        client.drop()
    elif end == "timeout":
        broker.advance(300_000)
    else:
        client.do(end, {"transaction": "t"} if end == "ABORT" else {})
    held_by_others = {"ABORT": 0, "timeout": 0}.get(end, 1)  # the connection's end counts the oldest that it held
    assert counts(broker, "a") == {b"0": 1, b"1": held_by_others, b"2": 1}
    assert "b" not in broker.engine.queues or held(broker, "b") == []


def test_a_transaction_that_took_too_long_is_over() -> None:
    broker, client = transacted()
    broker.advance(300_000)
    assert broker.reported("transaction.timed_out")
    client.send("/queue/b", b"late", transaction="t", receipt="r")
    (error,) = client.take("ERROR")
    assert b"transaction-timeout" in error.body
    assert error.headers["receipt-id"] == "r"


def test_a_transaction_s_queue_may_be_deleted_before_its_commit() -> None:
    """The commit makes it again, and loses nothing."""
    broker = SimBroker(small())
    client = broker.subscriber("/queue/b", id="b", ack="auto")
    client.do("UNSUBSCRIBE", {"id": "b"})
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/b", b"1", persistent="true", transaction="t")
    client.send("b::other", b"2", persistent="true", transaction="t")
    broker.enter().operators.delete_address(broker.engine.addresses["b"], with_queues=True)
    broker.run()
    assert "b" not in broker.engine.addresses
    client.do("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.take("RECEIPT")
    broker = broker.restart()
    assert (held(broker, "b"), held(broker, "other")) == ([b"1"], [b"2"])


@pytest.mark.parametrize("policy", ["FAIL", "DROP"])
def test_messages_that_come_together_are_taken_up_to_the_limit(policy: str) -> None:
    broker, client = started({"match": "a", "max-size-messages": 3, "address-full-policy": policy})
    frame = "SEND\ndestination:/queue/a\npersistent:true\nreceipt:%d\n\n%d\0"
    client.raw("".join(frame % (n, n) for n in range(8)).encode())
    if policy == "FAIL":
        (error,) = client.take("ERROR")
        assert (error.headers["message"], error.headers["receipt-id"]) == ("address a is full", "3")
    else:
        assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == list("01234567")
    assert held(broker.restart(), "a") == [b"0", b"1", b"2"]


def test_a_commit_that_is_refused_does_nothing() -> None:
    """The first send alone would fit; the second is what makes the address full."""
    broker, client = started({"match": "a", "max-size-messages": 1, "address-full-policy": "FAIL"})
    client.confirmed("/queue/a", b"0")
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/b", b"1", persistent="true", transaction="t")
    client.send("/queue/a", b"2", persistent="true", transaction="t")
    client.do("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.take("ERROR")[0].headers["receipt-id"] == "r"
    broker = broker.restart()
    assert (held(broker, "a"), held(broker, "b")) == ([b"0"], [])


def test_a_commit_that_fills_the_address_is_done_as_a_whole() -> None:
    broker, client = started({"match": "a", "max-size-messages": 1, "address-full-policy": "FAIL"})
    client.do("BEGIN", {"transaction": "t"})
    for n in range(3):
        client.send("/queue/a", b"%d" % n, persistent="true", priority=str(n), transaction="t")
    client.do("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.take("RECEIPT")
    assert sorted(held(broker.restart(), "a")) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("command", ["COMMIT", "ABORT", "SEND", "ACK", "NACK"])
def test_a_transaction_that_has_not_begun(command: str) -> None:
    broker, client = transacted()
    message = client.messages()[0]
    headers = {"transaction": "x", "destination": "/queue/b", "id": message.headers["ack"]}
    client.do(command, headers)
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "unknown transaction"
    assert "b" not in broker.engine.queues


def test_a_name_begins_once_and_may_begin_again_after_its_end() -> None:
    _, client = transacted()
    for end in ("COMMIT", "ABORT"):
        client.do(end, {"transaction": "t"})
        client.do("BEGIN", {"transaction": "t", "receipt": "r"})
        assert client.take("RECEIPT")
    client.do("BEGIN", {"transaction": "t"})
    assert client.take("ERROR")[0].headers["message"] == "duplicate transaction"


def test_limits_of_transactions() -> None:
    limits = small().limits.model_copy(update={"transactions_per_connection_max": 1, "transaction_bytes_max": 3000})
    broker = SimBroker(small(limits=limits))
    client = broker.connect()
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/a", bytes(2000), transaction="t", receipt="r")
    assert client.take("RECEIPT")
    client.send("/queue/a", bytes(2000), transaction="t")
    assert client.take("ERROR")
    client = broker.connect()
    client.do("BEGIN", {"transaction": "t"})
    client.do("BEGIN", {"transaction": "u"})
    assert client.take("ERROR")[0].headers["message"] == "too many transactions"


def test_a_transaction_that_acknowledges_too_much_ends_the_connection_and_says_why() -> None:
    limits = small().limits.model_copy(update={"open_transactions_bytes_max": 1024})
    broker = SimBroker(small(limits=limits))
    client = broker.connect()
    for _ in range(5):
        client.confirmed("/queue/a", bytes(300))
    client.do("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "client-individual"})
    client.do("BEGIN", {"transaction": "t"})
    for delivery in client.take("MESSAGE"):
        client.do("ACK", {"id": delivery.headers["ack"], "transaction": "t"})
    [error] = client.take("ERROR")
    assert "the open transactions of this connection would hold more than 1024 bytes" in str(error)
    assert broker.engine.queue("a").message_count == 5


def test_the_transactions_of_a_connection_send_up_to_one_limit() -> None:
    limits = small().limits.model_copy(update={"open_transactions_bytes_max": 10_000})
    broker = SimBroker(small(limits=limits))
    client, other = broker.connect(), broker.connect()
    for n in range(10):
        client.do("BEGIN", {"transaction": f"{n}"})
        client.send("/queue/a", bytes(2000), transaction=f"{n}", receipt=f"{n}")
    assert len(client.take("RECEIPT")) == 4
    [error] = client.take("ERROR")
    assert error.headers["receipt-id"] == "4"
    assert "the open transactions of this connection would hold more than 10000 bytes" in str(error)
    assert broker.engine.usage.bytes == broker.engine.transactions.bytes == 0, "the connection has ended"
    other.do("BEGIN", {"transaction": "t"})
    other.send("/queue/a", bytes(2000), transaction="t")
    assert broker.engine.addresses["a"].size_messages == broker.engine.usage.messages == 1
    other.do("COMMIT", {"transaction": "t", "receipt": "c"})
    assert other.take("RECEIPT")
    assert (broker.engine.transactions.bytes, broker.engine.usage.messages) == (0, 1)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_after_an_error_nothing_is_heard(client: SimClient, broker: SimBroker) -> None:
    client.raw(b"NONSENSE\n\n\0" + frame("SEND", {"destination": "/queue/a", "persistent": "true"}, b"x"))
    client.session.receive_data(frame("SEND", {"destination": "/queue/a", "persistent": "true"}, b"y"))
    broker.run()
    assert len(client.take("ERROR")) == 1
    assert "a" not in broker.engine.queues


def test_frames_before_an_error_count(client: SimClient, broker: SimBroker) -> None:
    client.raw(frame("SEND", {"destination": "/queue/a", "persistent": "true"}, b"x") + b"NONSENSE\n\n\0")
    assert client.take("ERROR")
    assert held(broker, "a") == [b"x"]


def test_nothing_after_disconnect_counts(client: SimClient, broker: SimBroker) -> None:
    client.raw(frame("DISCONNECT", {"receipt": "r"}) + frame("SEND", {"destination": "/queue/a"}, b"x"))
    assert client.take("RECEIPT")
    assert client.closed
    assert "a" not in broker.engine.queues


def test_half_a_frame_at_the_end_does_not_count_and_whole_ones_do(client: SimClient, broker: SimBroker) -> None:
    whole = frame("SEND", {"destination": "/queue/a", "persistent": "true"}, b"x")
    client.raw(whole + b"SEND\ndestination:/queue/a\n\ny")
    with broker.turn():
        client.session.receive_eof()
        client.broker.parts.tick.touch(client)
    assert held(broker, "a") == [b"x"]
    assert client.closed


def test_an_error_of_one_is_nobody_else_s(broker: SimBroker) -> None:
    good, bad = broker.connect(), broker.connect()
    good.subscribe("/queue/a", ack="auto")
    bad.raw(b"\xff\xfe\n\n\0")
    assert bad.closed
    broker.connect().send("/queue/a", b"1")
    assert good.bodies() == [b"1"]
    assert not good.take("ERROR")


def test_goodbye_when_the_broker_stops(client: SimClient, broker: SimBroker) -> None:
    client.confirmed("/queue/a", b"1")
    client.subscribe("/queue/a")
    broker.shut_down()
    (error,) = client.take("ERROR")
    assert error.headers["message"] == "broker shutting down"
    again = SimBroker(broker.config, files=broker.files)
    assert again.verdict.closed
    assert counts(again, "a") == {b"1": 0}, "nobody's fault"


@pytest.mark.parametrize("end", ["drop", "timed_out", "shut_down", "receive_eof"])
def test_every_end_may_come_twice_and_in_any_order(client: SimClient, broker: SimBroker, end: str) -> None:
    client.subscribe("/queue/a")
    client.do("BEGIN", {"transaction": "t"})
    for _ in range(2):
        broker.parts.tick.enter()
        if end == "drop":
            client.session.connection_lost()
        else:
            getattr(client.session, end)()
        client.session.connection_lost()
        client.session.flushed()
        assert isinstance(client.session, StompSession)
        client.session.sends.unblock()
        broker.run()
    assert not broker.engine.queue("a").consumers
    assert len(broker.engine.transactions) == 0
