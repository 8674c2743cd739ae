"""SUBSCRIBE, MESSAGE, UNSUBSCRIBE, durable subscriptions."""

from __future__ import annotations

import errno

import pytest

from tests.broker.engine.queues.paging.backlogs import PAGING
from tests.broker.sessions.stomp.harness import error, filled, started
from tests.simulation.world import held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_files import refusing
from tests.support.stomp_client import frame

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
        "content-length": "1",
    }


def test_the_message_id_is_unique_for_each_subscription(client: SimClient) -> None:
    for id in ("1", "2"):
        client.subscribe("/topic/a", id=id)
    client.send("/topic/a", b"x")
    ids = [m.headers["message-id"] for m in client.messages()]
    assert len(set(ids)) == 2
    assert ids[0].partition(",")[2] == ids[1].partition(",")[2], "one message, two deliveries"


def test_redelivered(broker: SimBroker, client: SimClient) -> None:
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
        ({"selector": "colour ="}, "SUBSCRIBE: invalid selector: 'colour ='"),
        ({"selector": "a:b"}, "SUBSCRIBE: invalid selector: 'a:b'"),
        ({"subscription-type": "topic"}, "invalid subscription-type"),
        ({"consumer-window-size": "-2"}, "invalid consumer-window-size"),
        ({"activemq.prefetchSize": "many"}, "invalid activemq.prefetchSize"),
        ({"no-local": "maybe"}, "invalid no-local"),
        ({"durable-subscription-name": "d"}, "client-id missing"),
        ({"destination": ""}, "the address name is empty"),
        ({"destination": "a::b::c"}, "more than one"),
    ],
)
def test_subscriptions_that_cannot_be(client: SimClient, headers: dict[str, str], message: str) -> None:
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
def test_subscription_type(broker: SimBroker, client: SimClient, kind: str) -> None:
    client.subscribe("a", subscription_type=kind)
    client.send("a", b"1", **{"destination-type": kind})
    assert client.bodies() == [b"1"]
    assert ("a" in broker.engine.queues) is (kind == "ANYCAST")


def test_a_selector_on_a_queue_leaves_the_rest_to_others(broker: SimBroker, client: SimClient) -> None:
    client.subscribe("/queue/a", selector="colour = 'red' AND AMQPriority > 4")
    for n, (colour, priority) in enumerate([("red", "9"), ("blue", "9"), ("red", "1")]):
        client.send("/queue/a", b"%d" % n, colour=colour, priority=priority)
    assert client.bodies() == [b"0"]
    other = broker.subscriber("/queue/a")
    assert other.bodies() == [b"1", b"2"]


def test_a_selector_on_a_topic_decides_what_is_kept(broker: SimBroker, client: SimClient) -> None:
    client.subscribe("/topic/a", selector="colour = 'red'")
    client.send("/topic/a", b"1", colour="red")
    client.send("/topic/a", b"2", colour="blue")
    assert client.bodies() == [b"1"]
    assert broker.engine.addresses["a"].unrouted == 1


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_no_local(broker: SimBroker, client: SimClient, header: str, destination: str) -> None:
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
    assert "c.d" not in broker.engine.queues
    assert "c.d" not in broker.restart().engine.queues


def test_the_end_of_a_durable_subscription_in_one_frame() -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    client.do("UNSUBSCRIBE", {"id": "s", "durable-subscription-name": "d"})
    assert "c.d" not in broker.engine.queues


def test_somebody_else_s_subscription_cannot_be_ended_while_it_is_consumed() -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/topic/a", **{"durable-subscription-name": "d"})
    other = broker.connect(**{"client-id": "c"})
    other.do("UNSUBSCRIBE", {"durable-subscription-name": "d"})
    (found,) = other.take("ERROR")
    assert b"has a consumer" in found.body
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


@pytest.mark.parametrize("flag", ["durable", "persistent"])
@pytest.mark.parametrize(("client_id", "name"), [("", "news.mine"), ("c", "c.mine")])
@pytest.mark.parametrize("destination", ["/topic/news", "/topic/news?ring-size=9"])
def test_a_durable_subscription_by_its_id(flag: str, client_id: str, name: str, destination: str) -> None:
    """As RabbitMQ has it: whoever comes with the id has it."""
    headers = {"client-id": client_id} if client_id else {}
    broker, client = started(**headers)
    client.subscribe(destination, id="mine", ack="auto", **{flag: "true", "auto-delete": "False"})
    client.do("UNSUBSCRIBE", {"id": "mine"})
    client.confirmed("/topic/news", b"1")
    assert held(broker, name) == [b"1"]
    broker = broker.restart()
    client, other = broker.connect(**headers), broker.connect(**headers)
    for each in (client, other):
        each.subscribe(destination, id="mine", ack="auto", **{flag: "True"})
    assert client.bodies() + other.bodies() == [b"1"]
    client.confirmed("/topic/news", b"2")
    client.confirmed("/topic/news", b"3")
    assert sorted(client.bodies() + other.bodies()) == [b"2", b"3"], "they share it"
    other.do("UNSUBSCRIBE", {"id": "mine"})
    client.do("UNSUBSCRIBE", {"id": "mine", flag: "true", "receipt": "gone"})
    assert client.take("RECEIPT")
    assert name not in broker.engine.queues


def test_the_same_id_on_another_topic_is_another_durable_subscription(broker: SimBroker, client: SimClient) -> None:
    client.subscribe("/topic/a", id="1", durable="true")
    broker.connect().subscribe("/topic/b", id="1", durable="true")
    assert {"a.1", "b.1"} <= broker.engine.queues.keys()


@pytest.mark.parametrize("durable", [{"durable": "true"}, {"durable-subscription-name": "d"}])
def test_durable_means_nothing_on_a_queue(durable: dict[str, str]) -> None:
    broker, client = started(**{"client-id": "c"})
    client.subscribe("/queue/a", id="1", **durable)
    client.do("UNSUBSCRIBE", {"id": "1", "receipt": "r", **durable})
    assert client.take("RECEIPT")
    assert "a" in broker.engine.queues


@pytest.mark.parametrize(
    ("destination", "durable"),
    [
        ("/queue/c.d", {"durable": "true"}),
        ("/queue/c.d", {"durable-subscription-name": "d"}),
        ("/topic/a", {"durable-subscription-name": "d"}),
        ("/topic/c.d", {"durable-subscription-name": "d"}),
        ("", {"durable-subscription-name": "d"}),
    ],
)
def test_a_queue_that_has_the_name_of_a_durable_subscription_is_none(destination: str, durable: dict[str, str]) -> None:
    broker, client = started(**{"client-id": "c"})
    broker.connect().confirmed("/queue/c.d", b"kept")
    if destination:
        client.subscribe(destination, id="d", **durable)
    client.do("UNSUBSCRIBE", {"id": "d", **durable})
    client.drop()
    assert held(broker.restart(), "c.d") == [b"kept"]


def test_a_durable_subscription_needs_an_id_in_stomp_1_0(broker: SimBroker) -> None:
    client = broker.connect("1.0")
    client.do("SUBSCRIBE", {"destination": "/topic/a", "durable": "true"})
    assert error(client) == "missing header"


@pytest.mark.parametrize(
    "headers", [{"id": "nobody"}, {"id": "s", "durable-subscription-name": "d"}, {"durable-subscription-name": "d"}]
)
def test_an_unsubscribe_of_nothing(headers: dict[str, str]) -> None:
    _, client = started(**{"client-id": "c"})
    client.do("UNSUBSCRIBE", headers)
    assert client.take("ERROR")
    assert client.closed


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "DISCONNECT", "drop"])
def test_a_subscription_without_a_name_goes_with_its_client(broker: SimBroker, client: SimClient, end: str) -> None:
    before = set(broker.engine.queues)
    client.subscribe("/topic/a", ack="client")
    client.send("/topic/a", b"x")
    assert set(broker.engine.queues) > before
    if end == "drop":
        client.drop()
    else:
        client.do(end, {"id": "s"} if end == "UNSUBSCRIBE" else {})
    assert set(broker.engine.queues) == before
    assert broker.engine.usage.messages == 0


# -- browsing ----------------------------------------------------------------------------------------------------------


def test_a_browser_gets_everything_and_takes_nothing(broker: SimBroker, client: SimClient) -> None:
    filled(broker)
    client.send("/queue/a", b"later", AMQ_SCHEDULED_DELAY="60000")
    client.subscribe("/queue/a", id="look", ack="auto", browser="true")
    *shown, end = client.messages()
    assert [message.body for message in shown] == [b"0", b"1", b"2"]
    assert {message.headers["subscription"] for message in shown} == {"look"}
    assert (end.headers["browser"], end.headers["subscription"], end.body) == ("end", "look", b"")
    assert end.headers["destination"] == "/queue/a"
    client.send("/queue/a", b"new")
    assert client.messages() == []
    client.do("UNSUBSCRIBE", {"id": "look"})
    client.subscribe("/queue/a", id="look")
    assert client.bodies() == [b"0", b"1", b"2", b"new"]


def test_a_browser_of_nothing(client: SimClient) -> None:
    client.subscribe("/queue/a", ack="auto", browser="true")
    (end,) = client.messages()
    assert end.headers["browser"] == "end"


def test_a_browser_sees_what_others_have_and_with_a_selector_what_fits(broker: SimBroker, client: SimClient) -> None:
    for n, colour in enumerate(["red", "blue", "red"]):
        client.confirmed("/queue/a", b"%d" % n, colour=colour)
    broker.connect().subscribe("/queue/a")
    client.subscribe("/queue/a", ack="auto", browser="true", selector="colour = 'red'")
    assert client.bodies() == [b"0", b"2", b""]


def test_messages_that_a_browser_acknowledges_stay(broker: SimBroker, client: SimClient) -> None:
    filled(broker)
    client.subscribe("/queue/a", ack="client", browser="true")
    shown = client.messages()
    client.ack(shown[0])
    client.nack(shown[1])
    client.do("ACK", {"id": shown[2].headers["ack"], "receipt": "r"})
    assert client.take("RECEIPT")
    assert held(broker, "a") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_client_may_acknowledge_all_that_a_browser_gets(broker: SimBroker, version: str, ack: str) -> None:
    filled(broker)
    client = broker.connect(version)
    client.subscribe("/queue/a", ack=ack, browser="true")
    shown = client.messages()
    assert ["ack" in message.headers for message in shown] == [version == "1.2" and ack != "auto"] * 4
    if ack != "auto":
        for message in shown:
            client.ack(message)
    assert not client.closed
    assert held(broker, "a") == [b"0", b"1", b"2"]


def test_a_browser_waits_for_a_client_that_does_not_read(broker: SimBroker, client: SimClient) -> None:
    sender = broker.connect()
    for n in range(5):
        sender.confirmed("/queue/a", b"%d" % n * 700_000)
    client.stalled = True
    client.subscribe("/queue/a", id="1", ack="auto", browser="true")
    client.subscribe("/queue/a", id="2", ack="auto", browser="true")
    client.do("UNSUBSCRIBE", {"id": "2"})
    client.unstall()
    *shown, end = client.messages()
    assert [message.body[:1] for message in shown] == [b"0", b"1", b"2", b"3", b"4"]
    assert (end.headers["browser"], end.headers["subscription"]) == ("end", "1")


def test_a_browser_reads_what_is_on_disk_when_it_is_next() -> None:
    broker, client = started(PAGING)
    filled(broker, 10, "q")
    with refusing(broker.files, errno.EMFILE):
        client.subscribe("/queue/q", ack="auto", browser="true")
    assert client.bodies() == [b"0", b"1"]
    assert "Too many open files" in str(client.take("ERROR"))


def test_a_topic_cannot_be_browsed(client: SimClient) -> None:
    client.subscribe("/topic/a", browser="true")
    assert error(client) == "invalid browser"
