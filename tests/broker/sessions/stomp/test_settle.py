"""ACK and NACK, and credit: what a client does with its messages."""

from __future__ import annotations

import pytest

from tests.broker.sessions.stomp.harness import error, filled, started
from tests.simulation.world import counts, held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_client_acknowledges_all_before_and_client_individual_one(version: str) -> None:
    for mode, left in (("client", [b"2"]), ("client-individual", [b"0", b"2"])):
        broker, client = started(version=version)
        filled(broker)
        client.subscribe("/queue/a", ack=mode)
        client.ack(client.messages()[1], receipt="r")
        assert client.take("RECEIPT")
        assert held(broker.restart(), "a") == left


def ack_run(*ids: str) -> bytes:
    return b"".join(frame("ACK", {"id": id}) for id in ids)


def test_acks_in_a_row_settle_each_its_own(broker: SimBroker, client: SimClient) -> None:
    filled(broker)
    client.subscribe("/queue/a", id="0", ack="client-individual")
    client.subscribe("/queue/b", id="1", ack="client")
    for body in (b"x", b"y"):
        client.send("/queue/b", body, persistent="true")
    ids = [message.headers["ack"] for message in client.messages()]
    assert len(ids) == 5
    client.raw(ack_run(ids[2], ids[4], ids[0]))
    restarted = broker.restart()
    assert held(restarted, "a") == [b"1"]
    assert held(restarted, "b") == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("99,1", "ACK: there is no delivery '99,1' to this connection"),
        ("{},999", "ACK: unknown message: 999 is not waiting for an acknowledgement by this subscription"),
        ("0,0", "ACK: there is no delivery '0,0' to this connection"),
    ],
)
def test_a_bad_ack_in_a_row_is_refused_and_those_before_it_count(
    broker: SimBroker, client: SimClient, bad: str, said: str
) -> None:
    filled(broker)
    client.subscribe("/queue/a", ack="client-individual")
    ids = [message.headers["ack"] for message in client.messages()]
    client.raw(ack_run(ids[0], bad.format(ids[0].partition(",")[0]), ids[1]))
    (refused,) = client.take("ERROR")
    assert (refused.headers["message"], refused.body.decode().strip()) == ("unknown message", said)
    assert held(broker.restart(), "a") == [b"1", b"2"]


def test_acks_in_a_row_for_an_automatic_subscription_are_refused(broker: SimBroker, client: SimClient) -> None:
    filled(broker)
    client.subscribe("/queue/a", ack="auto")
    number = client.messages()[0].headers["message-id"].partition(",")[0]
    client.raw(ack_run(f"{number},1", f"{number},2"))
    assert error(client) == "unexpected acknowledgement"


def test_auto_is_consumed_when_the_wire_has_it_and_not_before(broker: SimBroker, client: SimClient) -> None:
    client.subscribe("/queue/a", ack="auto")
    client.stalled = True
    client.send("/queue/a", b"1", persistent="true")
    assert held(broker, "a") == [b"1"]
    client.unstall()
    assert client.bodies() == [b"1"]
    assert held(broker, "a") == []


def test_auto_gives_back_what_the_wire_did_not_take(broker: SimBroker, client: SimClient) -> None:
    client.subscribe("/queue/a", ack="auto")
    client.stalled = True
    client.send("/queue/a", b"1", persistent="true")
    client.send("/queue/a", b"2", persistent="true")
    client.drop()
    assert held(broker, "a") == [b"1", b"2"]


def test_a_client_that_does_not_read_gets_no_more(broker: SimBroker, client: SimClient) -> None:
    filled(broker, 2)
    client.stalled = True
    client.subscribe("/queue/a", ack="auto")
    other = broker.connect()
    filled(broker, 5)
    assert broker.engine.queue("a").ready == 5
    other.subscribe("/queue/a", ack="auto")
    assert len(other.messages()) == 5
    client.unstall()
    assert len(client.messages()) == 2


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize(
    "id", ["", "x", "1", "1,", ",1", "1,2,3", "99,7", "1,999999", "1,-7", "1,7 ", "9" * 50, "1," + "9" * 30, "1,\u0667"]
)
def test_an_acknowledgement_of_nothing(broker: SimBroker, client: SimClient, command: str, id: str) -> None:
    filled(broker)
    client.subscribe("/queue/a")
    client.do(command, {"id": id, "receipt": "r"})
    (found,) = client.take("ERROR")
    assert found.headers["receipt-id"] == "r"
    assert found.body.startswith(command.encode())
    assert client.closed
    assert len(held(broker, "a")) == 3


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_twice_is_an_error(broker: SimBroker, client: SimClient, mode: str) -> None:
    filled(broker)
    client.subscribe("/queue/a", ack=mode)
    message = client.messages()[0]
    client.ack(message)
    client.ack(message)
    assert client.take("ERROR")
    assert held(broker, "a") == [b"1", b"2"]


def test_auto_is_not_acknowledged() -> None:
    _, client = started(version="1.1")
    client.subscribe("/queue/a", ack="auto")
    client.send("/queue/a", b"")
    client.ack(client.messages()[0])
    assert error(client) == "unexpected acknowledgement"


def test_the_subscription_must_be_the_right_one() -> None:
    broker, client = started(version="1.1")
    filled(broker, 1)
    client.subscribe("/queue/a", id="1")
    client.subscribe("/queue/b", id="2")
    (message,) = client.messages()
    client.do("ACK", {"message-id": message.headers["message-id"], "subscription": "2"})
    assert error(client) == "unknown message"


def test_nobody_acknowledges_for_somebody_else(broker: SimBroker, client: SimClient) -> None:
    filled(broker, 1)
    client.subscribe("/queue/a")
    (message,) = client.messages()
    thief = broker.subscriber("/queue/b")
    thief.ack(message)
    assert error(thief) == "unknown message"
    assert held(broker, "a") == [b"0"]


def test_nack_is_a_failed_delivery_with_a_delay() -> None:
    broker, client = started({"match": "a", "redelivery-delay": 5000, "max-delivery-attempts": 2})
    filled(broker, 2)
    client.subscribe("/queue/a")
    first, second = client.messages()
    client.nack(first)
    client.ack(second)
    assert counts(broker, "a") == {b"0": 1}
    broker.advance(4999)
    assert client.messages() == []
    broker.advance(1)
    (again,) = client.messages()
    client.nack(again, reason="it is broken: again")
    assert held(broker, "DLQ") == [b"0"]
    client.subscribe("/queue/DLQ", id="d")
    (letter,) = client.messages()
    assert letter.headers["_AMQ_DL_ATTEMPTS"] == "2"
    assert letter.headers["_AMQ_DL_TEXT"].endswith("it is broken: again")


def test_nack_without_requeue_is_a_dead_letter_at_once(broker: SimBroker, client: SimClient) -> None:
    filled(broker, 1)
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="false", reason="no\nthanks")
    client.subscribe("/queue/DLQ", id="d")
    (letter,) = client.messages()
    assert (letter.headers["_AMQ_DL_REASON"], letter.headers["_AMQ_DL_ATTEMPTS"]) == ("rejected", "1")


def test_a_long_reason_is_cut(broker: SimBroker, client: SimClient) -> None:
    filled(broker, 1)
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="false", reason="\u20ac\n" * 3000)
    client.subscribe("/queue/DLQ", id="d")
    (letter,) = client.messages()
    text = letter.headers["_AMQ_DL_TEXT"]
    assert 900 < len(text.encode()) <= 1024
    assert "\n" not in text


def test_nack_requeue_is_true_or_false(broker: SimBroker, client: SimClient) -> None:
    filled(broker, 1)
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="perhaps")
    assert error(client) == "invalid requeue"
    assert held(broker, "a") == [b"0"]


@pytest.mark.parametrize(
    ("end", "failed", "delayed"),
    [("UNSUBSCRIBE", 0, False), ("DISCONNECT", 1, True), ("drop", 1, True), ("silent", 1, True)],
)
def test_the_end_of_a_connection_and_its_deliveries(end: str, failed: int, delayed: bool) -> None:
    """A client that falls silent is a client that is lost: what was sent ahead to it must not die for that."""
    broker, client = started({"match": "a", "redelivery-delay": 1000})
    filled(broker)
    client.subscribe("/queue/a")
    if end == "drop":
        client.drop()
    elif end == "silent":
        with broker.turn():
            client.session.timed_out()
    else:
        client.do(end, {"id": "s"} if end == "UNSUBSCRIBE" else {})
    assert list(counts(broker, "a").values()) == [1] * failed + [0] * (3 - failed)
    other = broker.subscriber("/queue/a", ack="auto")
    assert len(other.messages()) == (0 if delayed else 3)
    broker.advance(1000)
    assert len(other.messages()) == (3 if delayed else 0)


# -- credit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("consumer-window-size", "0"),
        ("activemq.prefetchSize", "0"),
        ("activemq.prefetchSize", "1"),
        ("prefetch-count", "1"),
    ],
)
def test_a_window_of_nothing_is_one_message_at_a_time(
    broker: SimBroker, client: SimClient, header: str, value: str
) -> None:
    filled(broker)
    client.subscribe("/queue/a", **{header: value})
    for n in range(3):
        (message,) = client.messages()
        assert message.body == b"%d" % n
        client.ack(message)


def test_a_window_is_in_bytes_and_comes_back_with_the_acknowledgement(broker: SimBroker, client: SimClient) -> None:
    sender = broker.connect()
    for n in range(10):
        sender.confirmed("/queue/a", b"%d" % n * 1000)
    client.subscribe("/queue/a", ack="client", consumer_window_size="3500")
    first = client.messages()
    assert len(first) == 3
    client.ack(first[1])
    assert len(client.messages()) == 2


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("header", ["activemq.prefetchSize", "prefetch-count"])
def test_a_window_may_be_in_messages(broker: SimBroker, client: SimClient, header: str, ack: str) -> None:
    filled(broker, 7)
    client.subscribe("/queue/a", ack=ack, **{header: "3"})
    first = client.messages()
    assert len(first) == 3
    client.ack(first[1])
    back = 2 if ack == "client" else 1
    assert len(client.messages()) == back
    client.nack(first[2])
    assert len(client.messages()) == 1


@pytest.mark.parametrize("header", ["activemq.prefetchSize", "prefetch-count"])
def test_a_window_in_messages_without_acknowledgement(broker: SimBroker, client: SimClient, header: str) -> None:
    """The messages count until the operating system has taken them."""
    filled(broker, 7)
    client.stalled = True
    client.subscribe("/queue/a", ack="auto", **{header: "2"})
    assert client.messages() == []
    client.unstall()
    assert len(client.messages()) == 7


@pytest.mark.parametrize(("header", "value"), [("activemq.prefetchSize", "-1"), ("prefetch-count", "0")])
def test_a_window_without_limit(broker: SimBroker, client: SimClient, header: str, value: str) -> None:
    for n in range(5):
        broker.connect().confirmed("/queue/a", b"%d" % n * 500_000)
    client.subscribe("/queue/a", ack="client", **{header: value})
    assert len(client.messages()) == 5


def test_the_window_of_the_acceptor_is_for_those_who_acknowledge() -> None:
    shipped = small()
    acceptor = shipped.acceptors["stomp"].model_copy(update={"stomp_consumer_window_size": 0})
    broker = SimBroker(shipped.model_copy(update={"acceptors": {"stomp": acceptor}}))
    filled(broker, 4)
    client = broker.subscriber("/queue/a")
    assert client.bodies() == [b"0"]
    client.do("UNSUBSCRIBE", {"id": "s"})
    client.subscribe("/queue/a", ack="auto")
    assert len(client.messages()) == 4


def test_several_consumers_take_turns(broker: SimBroker, client: SimClient) -> None:
    other = broker.connect()
    for each in (client, other):
        each.subscribe("/queue/a", ack="auto")
    filled(broker, 10)
    assert (len(client.messages()), len(other.messages())) == (5, 5)


def test_an_operator_deletes_a_queue_under_its_consumers(broker: SimBroker, client: SimClient) -> None:
    filled(broker)
    client.subscribe("/queue/a", id="1", consumer_window_size="0")
    client.subscribe("/queue/a", id="2", consumer_window_size="0")
    client.do("BEGIN", {"transaction": "t"})
    client.ack(client.messages()[0], transaction="t")
    with broker.turn():
        broker.engine.delete_queue(broker.engine.queue("a"))
    assert error(client) == "subscription closed"
    assert broker.engine.usage.messages == 0
    assert "a" not in broker.restart().engine.queues


def test_more_than_may_wait_for_the_wire_at_once_comes_in_several_writes(broker: SimBroker, client: SimClient) -> None:
    sender = broker.connect()
    for queue in "abcde":
        sender.send(f"/queue/{queue}", queue.encode() * 1_200_000)
    subscriptions = [{"destination": f"/queue/{queue}", "id": queue, "ack": "auto"} for queue in "abcde"]
    client.raw(b"".join(frame("SUBSCRIBE", headers) for headers in subscriptions))
    assert sorted(body[:1] for body in client.bodies()) == [b"a", b"b", b"c", b"d", b"e"]
    assert broker.engine.usage.messages == 0
