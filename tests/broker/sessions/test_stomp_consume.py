"""SUBSCRIBE, MESSAGE, ACK, NACK, UNSUBSCRIBE."""

from __future__ import annotations

import pytest

from tests.simulation.world import counts, held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame


def started(*settings: dict[str, object], version: str = "1.2", **headers: str) -> tuple[SimBroker, SimClient]:
    broker = SimBroker(small(*settings))
    return broker, broker.connect(version, **headers)


def filled(broker: SimBroker, count: int = 3, queue: str = "a") -> None:
    client = broker.connect()
    for n in range(count):
        client.confirmed(f"/queue/{queue}", b"%d" % n)
    client.drop()


def error(client: SimClient) -> str:
    """The message of the ERROR that ended the connection."""
    (found,) = client.take("ERROR")
    assert client.closed
    return found.headers["message"]


# -- MESSAGE -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_the_headers_of_a_message(version: str, ack: str) -> None:
    broker, client = started(version=version)
    client.subscribe("/queue/a", id="my:id" if version != "1.0" else "id", ack=ack)
    client.send("/queue/a", b"x", persistent="true")
    (message,) = client.messages()
    number = message.headers.pop("message-id")
    acked = {"ack": number} if version == "1.2" and ack != "auto" else {}
    assert message.headers == acked | {
        "subscription": "my:id" if version != "1.0" else "id",
        "destination": "/queue/a",
        "redelivered": "false",
        "priority": "4",
        "persistent": "true",
        "timestamp": str(broker.now),
        "expires": "0",
        "destination-type": "ANYCAST",
    }


def test_the_message_id_is_unique_for_each_subscription() -> None:
    _, client = started()
    for id in ("1", "2"):
        client.subscribe("/topic/a", id=id)
    client.send("/topic/a", b"x")
    ids = [m.headers["message-id"] for m in client.messages()]
    assert len(set(ids)) == 2
    assert ids[0].partition(",")[2] == ids[1].partition(",")[2], "one message, two deliveries"


def test_redelivered() -> None:
    broker, client = started()
    filled(broker, 1)
    client.subscribe("/queue/a")
    for n in range(3):
        (message,) = client.messages()
        assert message.headers["redelivered"] == ("true" if n else "false")
        client.nack(message)


# -- SUBSCRIBE ---------------------------------------------------------------------------------------------------------


def test_ids() -> None:
    _, client = started(version="1.0")
    client.do("SUBSCRIBE", {"destination": "/queue/a"})
    client.send("/queue/a", b"x")
    (message,) = client.messages()
    assert message.headers["subscription"] == "subscription//queue/a"
    client.do("UNSUBSCRIBE", {"destination": "/queue/a", "receipt": "r"})
    assert client.take("RECEIPT")
    client.do("SUBSCRIBE", {"destination": "/queue/a"})
    client.do("SUBSCRIBE", {"destination": "/queue/a"})
    assert error(client) == "duplicate subscription"


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"ack": "sometimes"}, "invalid ack"),
        ({"selector": "colour ="}, "selector"),
        ({"subscription-type": "topic"}, "invalid subscription-type"),
        ({"consumer-window-size": "-2"}, "invalid consumer-window-size"),
        ({"activemq.prefetchSize": "many"}, "invalid activemq.prefetchSize"),
        ({"no-local": "maybe"}, "invalid no-local"),
        ({"durable-subscription-name": "d"}, "client-id missing"),
        ({"destination": ""}, "the address name is empty"),
        ({"destination": "a::b::c"}, "more than one"),
    ],
)
def test_subscriptions_that_cannot_be(headers: dict[str, str], message: str) -> None:
    _, client = started()
    client.do("SUBSCRIBE", {"destination": "/queue/a", "id": "s", "receipt": "r", **headers})
    (found,) = client.take("ERROR")
    assert message in found.headers["message"] + found.body.decode()
    assert found.headers["receipt-id"] == "r"
    assert client.closed


def test_there_is_a_limit_to_subscriptions() -> None:
    limits = small().limits.model_copy(update={"subscriptions_per_connection_max": 2})
    broker = SimBroker(small(limits=limits))
    client = broker.connect()
    for id in ("1", "2"):
        client.subscribe("/queue/a", id=id)
    client.subscribe("/queue/a", id="3")
    assert error(client) == "too many subscriptions"


@pytest.mark.parametrize("kind", ["ANYCAST", "MULTICAST"])
def test_subscription_type(kind: str) -> None:
    broker, client = started()
    client.subscribe("a", subscription_type=kind)
    client.send("a", b"1", **{"destination-type": kind})
    assert client.bodies() == [b"1"]
    assert ("a" in broker.engine.router.queues) is (kind == "ANYCAST")


def test_a_selector_on_a_queue_leaves_the_rest_to_others() -> None:
    broker, client = started()
    client.subscribe("/queue/a", selector="colour = 'red' AND AMQPriority > 4")
    for n, (colour, priority) in enumerate([("red", "9"), ("blue", "9"), ("red", "1")]):
        client.send("/queue/a", b"%d" % n, colour=colour, priority=priority)
    assert client.bodies() == [b"0"]
    other = broker.connect()
    other.subscribe("/queue/a")
    assert other.bodies() == [b"1", b"2"]


def test_a_selector_on_a_topic_decides_what_is_kept() -> None:
    broker, client = started()
    client.subscribe("/topic/a", selector="colour = 'red'")
    client.send("/topic/a", b"1", colour="red")
    client.send("/topic/a", b"2", colour="blue")
    assert client.bodies() == [b"1"]
    assert broker.engine.router.addresses["a"].unrouted == 1


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_no_local(header: str, destination: str) -> None:
    broker, client = started()
    other = broker.connect()
    client.subscribe(destination, **{header: "true"})
    client.send(destination, b"mine")
    other.send(destination, b"other's")
    assert client.bodies() == [b"other's"]


# -- durable subscriptions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName"]
)
@pytest.mark.parametrize("crash", [False, True])
def test_amq_6430_a_durable_subscription_keeps_its_selector_and_no_local(header: str, crash: bool) -> None:
    broker, client = started(**{"client-id": "c"})
    headers = {header: "d", "no-local": "true", "selector": "colour = 'red'"}
    client.subscribe("/topic/a", **headers)
    client.drop()
    broker = broker.restart(crash=crash)
    same, other = broker.connect(**{"client-id": "c"}), broker.connect()
    same.confirmed("/topic/a", b"mine", colour="red")
    other.confirmed("/topic/a", b"red", colour="red")
    other.confirmed("/topic/a", b"blue", colour="blue")
    broker = broker.restart(crash=crash)
    again = broker.connect(**{"client-id": "c"})
    again.subscribe("/topic/a", **headers)
    assert again.bodies() == [b"red"]
    again.send("/topic/a", b"mine", colour="red")
    broker.connect().send("/topic/a", b"red again", colour="red")
    assert again.bodies() == [b"red again"]


@pytest.mark.parametrize("changed", [{"selector": "x = 'y'"}, {"no-local": "true"}])
def test_a_durable_subscription_is_not_changed_behind_its_back(changed: dict[str, str]) -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    client.drop()
    client = broker.connect(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d", **changed})
    (found,) = client.take("ERROR")
    assert b"unsubscribe it first" in found.body


def test_a_durable_subscription_is_on_one_address() -> None:
    _, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    client.subscribe("/topic/b", id="2", **{"durable-subscription-name": "d"})
    (found,) = client.take("ERROR")
    assert b"c.d is on a" in found.body


def test_the_end_of_a_durable_subscription() -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    client.do("UNSUBSCRIBE", {"id": "s"})
    client.confirmed("/topic/a", b"kept")
    assert held(broker, "c.d") == [b"kept"]
    client.do("UNSUBSCRIBE", {"durable-subscription-name": "d", "receipt": "r"})
    assert client.take("RECEIPT")
    assert "c.d" not in broker.engine.router.queues
    assert "c.d" not in broker.restart().engine.router.queues


def test_the_end_of_a_durable_subscription_in_one_frame() -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    client.do("UNSUBSCRIBE", {"id": "s", "durable-subscription-name": "d"})
    assert "c.d" not in broker.engine.router.queues


def test_somebody_else_s_subscription_cannot_be_ended_while_it_is_consumed() -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    other = broker.connect(**{"client-id": "c"})
    other.do("UNSUBSCRIBE", {"durable-subscription-name": "d"})
    (found,) = other.take("ERROR")
    assert b"being consumed" in found.body
    client.send("/topic/a", b"x")
    assert client.bodies() == [b"x"]


def test_a_send_to_a_subscription_that_ends_in_the_same_read() -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    client.do("UNSUBSCRIBE", {"id": "s"})
    client.raw(
        frame("SEND", {"destination": "a::c.d", "persistent": "true"}, b"x")
        + frame("UNSUBSCRIBE", {"durable-subscription-name": "d"})
        + frame("SEND", {"destination": "/queue/b", "persistent": "true", "receipt": "r"}, b"y")
    )
    assert client.take("RECEIPT")
    assert held(broker.restart(), "b") == [b"y"]


@pytest.mark.parametrize(
    "headers", [{"id": "nobody"}, {"id": "s", "durable-subscription-name": "d"}, {"durable-subscription-name": "d"}]
)
def test_an_unsubscribe_of_nothing(headers: dict[str, str]) -> None:
    _, client = started(**{"client-id": "c"})
    client.do("UNSUBSCRIBE", headers)
    assert client.take("ERROR")
    assert client.closed


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "DISCONNECT", "drop"])
def test_a_subscription_without_a_name_goes_with_its_client(end: str) -> None:
    broker, client = started()
    before = set(broker.engine.router.queues)
    client.subscribe("/topic/a", ack="client")
    client.send("/topic/a", b"x")
    assert set(broker.engine.router.queues) > before
    if end == "drop":
        client.drop()
    else:
        client.do(end, {"id": "s"} if end == "UNSUBSCRIBE" else {})
    assert set(broker.engine.router.queues) == before
    assert broker.engine.core.usage.messages == 0


# -- ACK and NACK ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_client_acknowledges_all_before_and_client_individual_one(version: str) -> None:
    for mode, left in (("client", [b"2"]), ("client-individual", [b"0", b"2"])):
        broker, client = started(version=version)
        filled(broker)
        client.subscribe("/queue/a", ack=mode)
        client.ack(client.messages()[1], receipt="r")
        assert client.take("RECEIPT")
        assert held(broker.restart(), "a") == left


def test_auto_is_consumed_when_the_wire_has_it_and_not_before() -> None:
    broker, client = started()
    client.subscribe("/queue/a", ack="auto")
    client.stalled = True
    client.send("/queue/a", b"1", persistent="true")
    assert held(broker, "a") == [b"1"]
    client.unstall()
    assert client.bodies() == [b"1"]
    assert held(broker, "a") == []


def test_auto_gives_back_what_the_wire_did_not_take() -> None:
    broker, client = started()
    client.subscribe("/queue/a", ack="auto")
    client.stalled = True
    client.send("/queue/a", b"1", persistent="true")
    client.send("/queue/a", b"2", persistent="true")
    client.drop()
    assert held(broker, "a") == [b"1", b"2"]


def test_a_client_that_does_not_read_gets_no_more() -> None:
    broker, client = started()
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
def test_an_acknowledgement_of_nothing(command: str, id: str) -> None:
    broker, client = started()
    filled(broker)
    client.subscribe("/queue/a")
    client.do(command, {"id": id, "receipt": "r"})
    (found,) = client.take("ERROR")
    assert found.headers["receipt-id"] == "r"
    assert found.body.startswith(command.encode())
    assert client.closed
    assert len(held(broker, "a")) == 3


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_twice_is_an_error(mode: str) -> None:
    broker, client = started()
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


def test_nobody_acknowledges_for_somebody_else() -> None:
    broker, client = started()
    filled(broker, 1)
    client.subscribe("/queue/a")
    (message,) = client.messages()
    thief = broker.connect()
    thief.subscribe("/queue/b")
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


def test_nack_without_requeue_is_a_dead_letter_at_once() -> None:
    broker, client = started()
    filled(broker, 1)
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="false", reason="no\nthanks")
    client.subscribe("/queue/DLQ", id="d")
    (letter,) = client.messages()
    assert (letter.headers["_AMQ_DL_REASON"], letter.headers["_AMQ_DL_ATTEMPTS"]) == ("rejected", "1")


def test_a_long_reason_is_cut() -> None:
    broker, client = started()
    filled(broker, 1)
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="false", reason="\u20ac\n" * 3000)
    client.subscribe("/queue/DLQ", id="d")
    (letter,) = client.messages()
    text = letter.headers["_AMQ_DL_TEXT"]
    assert 900 < len(text.encode()) <= 1024
    assert "\n" not in text


def test_nack_requeue_is_true_or_false() -> None:
    broker, client = started()
    filled(broker, 1)
    client.subscribe("/queue/a")
    client.nack(client.messages()[0], requeue="perhaps")
    assert error(client) == "invalid requeue"
    assert held(broker, "a") == [b"0"]


def test_nack_is_unknown_to_1_0() -> None:
    _, client = started(version="1.0")
    client.do("NACK", {"message-id": "1,1"})
    assert error(client) == "unknown command"


@pytest.mark.parametrize(
    ("end", "failed", "delayed"),
    [("UNSUBSCRIBE", 0, False), ("DISCONNECT", 1, True), ("drop", 1, True), ("silent", 3, False)],
)
def test_what_an_end_does_to_deliveries(end: str, failed: int, delayed: bool) -> None:
    """artemis-semantics 3.3."""
    broker, client = started({"match": "a", "redelivery-delay": 1000})
    filled(broker)
    client.subscribe("/queue/a")
    if end == "drop":
        client.drop()
    elif end == "silent":
        broker.parts.turn.enter()
        client.session.timed_out()
        broker.run()
    else:
        client.do(end, {"id": "s"} if end == "UNSUBSCRIBE" else {})
    assert list(counts(broker, "a").values()) == [1] * failed + [0] * (3 - failed)
    other = broker.connect()
    other.subscribe("/queue/a", ack="auto")
    assert len(other.messages()) == (0 if delayed else 3)
    broker.advance(1000)
    assert len(other.messages()) == (3 if delayed else 0)


# -- credit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["consumer-window-size", "activemq.prefetchSize"])
def test_a_window_of_nothing_is_one_message_at_a_time(header: str) -> None:
    broker, client = started()
    filled(broker)
    client.subscribe("/queue/a", **{header: "0"})
    for n in range(3):
        (message,) = client.messages()
        assert message.body == b"%d" % n
        client.ack(message)


def test_a_window_is_in_bytes_and_comes_back_with_the_acknowledgement() -> None:
    broker, client = started()
    sender = broker.connect()
    for n in range(10):
        sender.confirmed("/queue/a", b"%d" % n * 1000)
    client.subscribe("/queue/a", ack="client", consumer_window_size="3500")
    first = client.messages()
    assert len(first) == 3
    client.ack(first[1])
    assert len(client.messages()) == 2


def test_the_window_of_the_acceptor_is_for_those_who_acknowledge() -> None:
    shipped = small()
    acceptor = shipped.acceptors["stomp"].model_copy(update={"stomp_consumer_window_size": 0})
    broker = SimBroker(shipped.model_copy(update={"acceptors": {"stomp": acceptor}}))
    filled(broker, 4)
    client = broker.connect()
    client.subscribe("/queue/a")
    assert client.bodies() == [b"0"]
    client.do("UNSUBSCRIBE", {"id": "s"})
    client.subscribe("/queue/a", ack="auto")
    assert len(client.messages()) == 4


def test_several_consumers_take_turns() -> None:
    broker, client = started()
    other = broker.connect()
    for each in (client, other):
        each.subscribe("/queue/a", ack="auto")
    filled(broker, 10)
    assert (len(client.messages()), len(other.messages())) == (5, 5)


def test_an_operator_deletes_a_queue_under_its_consumers() -> None:
    broker, client = started()
    filled(broker)
    client.subscribe("/queue/a", id="1", consumer_window_size="0")
    client.subscribe("/queue/a", id="2", consumer_window_size="0")
    client.do("BEGIN", {"transaction": "t"})
    client.ack(client.messages()[0], transaction="t")
    broker.parts.turn.enter()
    broker.engine.delete_queue(broker.engine.queue("a"))
    broker.run()
    assert error(client) == "subscription closed"
    assert broker.engine.core.usage.messages == 0
    assert "a" not in broker.restart().engine.router.queues
