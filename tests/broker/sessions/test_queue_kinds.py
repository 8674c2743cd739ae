"""Kinds of queues as clients meet them, over STOMP and AMQP, and from one to the other."""

from __future__ import annotations

from broker.config.addresses import AddressSection
from broker.config.addresses import Queue as QueueSection
from protocols.amqp.performatives import Properties, Source
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker, SimClient


def with_queue(address: str, queue: str, routing_type: str = "ANYCAST", **attributes: object) -> SimBroker:
    """A broker with one configured queue."""
    values = {name.replace("_", "-"): value for name, value in attributes.items()}
    section = QueueSection.model_validate({"routing-type": routing_type, **values})
    return SimBroker(small(addresses={address: AddressSection(queues={queue: section})}))


def errors(client: SimClient) -> str:
    """The detail of the ERROR that came."""
    (frame,) = client.take("ERROR")
    return frame.body.decode()


def test_seeds_4_9_5_the_last_stock_price_over_stomp() -> None:
    """The seeds give the price as the value of the key; what they say of it holds for messages with the same one."""
    broker = with_queue("my.address", "prices1", "MULTICAST", last_value_key="stock_ticker")
    client = broker.connect()
    for body in (b"First message with last value property set", b"Second message with last value property set"):
        client.do("SEND", {"destination": "/topic/my.address", "stock_ticker": "RHT"}, body)
    client.subscribe("my.address::prices1")
    assert client.bodies() == [b"Second message with last value property set"]


def test_seeds_4_9_5_the_last_stock_price_over_amqp() -> None:
    broker = with_queue("my.address", "prices1", "MULTICAST", last_value_key="stock_ticker")
    client = AmqpSim(broker)
    link = client.sender("my.address", "topic")
    for body in ("First message with last value property set", "Second message with last value property set"):
        client.send(link, message(body, application={"stock_ticker": "RHT"}))
    client.receiver("my.address::prices1")
    assert client.bodies() == ["Second message with last value property set"]


def test_values_of_both_protocols_replace_each_other() -> None:
    broker = with_queue("prices", "prices", last_value_key="ticker")
    stomp, amqp = broker.connect(), AmqpSim(broker)
    stomp.do("SEND", {"destination": "/queue/prices", "ticker": "RHT"}, b"stomp")
    amqp.send(amqp.sender("prices"), message("amqp", application={"ticker": "RHT"}))
    assert len(held(broker, "prices")) == 1
    amqp.receiver("prices")
    assert amqp.bodies() == ["amqp"]


def test_a_queue_is_made_as_the_destination_asks_over_stomp(broker: SimBroker) -> None:
    client = broker.connect()
    destination = "/queue/my.destination.name?last-value-key=stock_ticker&non-destructive=true"
    client.subscribe(destination)
    for price in (b"36.83", b"37.02"):
        client.do("SEND", {"destination": destination, "stock_ticker": "RHT", "persistent": "true"}, price)
    assert client.bodies() == [b"36.83", b"37.02"]
    attributes = broker.engine.queue("my.destination.name").attributes
    assert (attributes.last_value_key, attributes.non_destructive) == ("stock_ticker", True)
    broker = broker.restart()
    late = broker.subscriber("/queue/my.destination.name")
    (found,) = late.messages()
    assert (found.body, found.headers["destination"]) == (b"37.02", "/queue/my.destination.name")


def test_a_queue_is_made_as_the_address_asks_over_amqp(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    link = client.sender("queue://prices?last-value=true&ring-size=5")
    client.send(link, message("1", application={"_AMQ_LVQ_NAME": "k"}))
    client.send(link, message("2", application={"_AMQ_LVQ_NAME": "k"}))
    receiver = client.receiver("queue://prices?last-value=true&ring-size=5")
    assert client.bodies() == ["2"]
    source = client.answer(receiver).source
    assert isinstance(source, Source)
    assert source.address == "queue://prices?last-value=true&ring-size=5"
    browser = client.receiver("queue://prices?ring-size=5", distribution_mode="copy")
    assert client.bodies() == ["2"]
    assert browser.attach is not None
    relay = client.sender(None)
    client.send(relay, message("x", properties=Properties(to="queue://ring?ring-size=1")))
    client.send(relay, message("y", properties=Properties(to="queue://ring?ring-size=1")))
    assert len(held(broker, "ring")) == 1


def test_a_subscription_is_made_as_the_topic_asks(broker: SimBroker) -> None:
    stomp = broker.subscriber("/topic/prices?ring-size=1&consumers-before-dispatch=2")
    for n in range(3):
        stomp.send("/topic/prices?ring-size=1", b"%d" % n)
    (queue,) = broker.engine.queues_of(broker.engine.addresses["prices"])
    assert [m.body for m, _ in broker.engine.messages.browse(queue)] == [b"2"]
    amqp = AmqpSim(broker)
    amqp.receiver("topic://other?last-value=true")
    (queue,) = broker.engine.queues_of(broker.engine.addresses["other"])
    assert queue.attributes.last_value


def test_settings_make_last_value_queues() -> None:
    broker = SimBroker(small({"match": "lastValueQueue.#", "default-last-value-key": "stock_ticker"}))
    client = broker.connect()
    for price in (b"1", b"2"):
        client.do("SEND", {"destination": "/queue/lastValueQueue.a", "stock_ticker": "x"}, price)
    assert held(broker, "lastValueQueue.a") == [b"2"]


def test_headers_over_stomp(broker: SimBroker) -> None:
    broker.connect().subscribe("/queue/a?max-consumers=1&exclusive=true")
    for destination, wanted in (
        ("/queue/a", "max-consumers (1)"),
        ("/queue/a?exclusive=false", "queue a exists, and its exclusive is true, not false"),
        ("/queue/b?colour=red", "no attribute 'colour'"),
        ("/queue/b?ring-size=0", "ring-size must be a number"),
        ("/queue/b?auto-delete=true", "auto-delete-queues"),
    ):
        client = broker.subscriber(destination)
        assert wanted in errors(client)
    client = broker.connect()
    client.send("/queue/a?ring-size=3", b"")
    assert "ring-size is -1, not 3" in errors(client)
    assert "b" not in broker.engine.queues


def test_annotations_over_amqp(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    client.receiver("queue://a?max-consumers=1")
    error = client.refused(client.receiver("queue://a", name="second"))
    assert (error.condition, "max-consumers (1)" in (error.description or "")) == ("amqp:resource-limit-exceeded", True)
    for address, condition in (
        ("queue://a?exclusive=true", "amqp:precondition-failed"),
        ("queue://b?colour=red", "amqp:invalid-field"),
    ):
        assert client.refused(client.receiver(address)).condition == condition
        assert client.refused(client.sender(address)).condition == condition
    relay = client.sender(None)
    (outcome,) = client.send(relay, message("x", properties=Properties(to="queue://b?colour=red")))
    assert outcome.state is not None
    assert "no attribute" in str(outcome.state)


def test_groups_over_stomp(broker: SimBroker) -> None:
    takers = [broker.connect() for _ in range(2)]
    for taker in takers:
        taker.subscribe("/queue/orders", ack="client-individual")
    sender = broker.connect()
    frames = b""
    for n in range(6):
        frames += b"SEND\ndestination:/queue/orders\npersistent:true\nJMSXGroupID:g%d\nn:%d\n\n%d\0" % (n % 3, n, n)
    sender.raw(frames)
    got = [[(m.headers["JMSXGroupID"], m.body) for m in taker.messages()] for taker in takers]
    assert sorted(got[0] + got[1]) == sorted((f"g{n % 3}", b"%d" % n) for n in range(6))
    assert not {group for group, _ in got[0]} & {group for group, _ in got[1]}
    sender.send("/queue/orders", b"plain", persistent="true")
    sender.send("/queue/orders", b"after", _AMQ_GROUP_ID="g0", persistent="true")
    owner = 0 if any(group == "g0" for group, _ in got[0]) else 1
    assert b"after" in takers[owner].bodies()


def test_grouped_and_other_sends_of_one_read(broker: SimBroker) -> None:
    sender = broker.connect()
    plain = b"SEND\ndestination:/queue/orders\npersistent:true\n\n%d\0"
    grouped = b"SEND\ndestination:/queue/orders\npersistent:true\nJMSXGroupID:%b\n\n%d\0"
    sender.raw(plain % 0 + grouped % (b"a", 1) + grouped % (b"b", 2) + plain % 3 + plain % 4 + grouped % (b"", 5))
    queue = broker.engine.queue("orders")
    found = [(m.body, m.header.group) for m, _ in broker.engine.messages.browse(queue)]
    assert found == [(b"0", ""), (b"1", "a"), (b"2", "b"), (b"3", ""), (b"4", ""), (b"5", "")]
    broker = broker.restart()
    assert [(m.body, m.header.group) for m, _ in broker.engine.messages.browse(broker.engine.queue("orders"))] == found


def test_groups_over_amqp_and_the_end_of_one(broker: SimBroker) -> None:
    takers = [AmqpSim(broker, container=f"t{n}") for n in range(2)]
    links = [taker.receiver("orders", "queue", credit=1) for taker in takers]
    sender = AmqpSim(broker)
    link = sender.sender("orders", "queue")
    sender.send(link, message("1", properties=Properties(group_id="g", group_sequence=1)))
    sender.send(link, message("2", properties=Properties(group_id="g", group_sequence=0xFFFF_FFFF)))
    sender.send(link, message("3", properties=Properties(group_id="g", group_sequence=1)))
    (first,) = takers[0].take()
    assert (first.body, takers[1].bodies()) == ("1", []), "the group is the first one's"
    links[0].send_credit(1)
    takers[0].say()
    assert (takers[0].bodies(), takers[1].bodies()) == (["2"], ["3"]), "which had its last message"


def test_a_group_is_one_for_both_protocols(broker: SimBroker) -> None:
    stomp, amqp = broker.connect(), AmqpSim(broker)
    stomp.subscribe("/queue/orders")
    amqp.receiver("orders", "queue")
    stomp.do("SEND", {"destination": "/queue/orders", "JMSXGroupID": "g"}, b"1")
    amqp.send(amqp.sender("orders", "queue"), message("2", properties=Properties(group_id="g")))
    counts = (len(stomp.messages()), len(amqp.take()))
    assert sorted(counts) == [0, 2]


def test_the_first_of_a_group_over_both() -> None:
    broker = with_queue("orders", "orders", group_first_key="JMSXFirst")
    stomp = broker.subscriber("/queue/orders", ack="auto")
    for n in range(2):
        stomp.do("SEND", {"destination": "/queue/orders", "JMSXGroupID": "g"}, b"%d" % n)
    assert [m.headers.get("JMSXFirst") for m in stomp.messages()] == ["true", None]
    stomp.drop()
    amqp = AmqpSim(broker)
    amqp.receiver("orders")
    link = amqp.sender("orders")
    for n in range(2):
        amqp.send(link, message(str(n), properties=Properties(group_id="g"), application={"a": n}))
    assert [d.message.application_properties for d in amqp.take()] == [{"a": 0, "JMSXFirst": True}, {"a": 1}]
    broker.connect().send("/queue/orders", b"x", JMSXGroupID="h")
    assert [d.message.application_properties for d in amqp.take()] == [{"JMSXFirst": True}], "the broker's: no text"


def test_an_exclusive_queue_over_both() -> None:
    broker = with_queue("orders", "orders1", exclusive=True)
    stomp, amqp = broker.connect(), AmqpSim(broker)
    stomp.subscribe("/queue/orders")
    stomp.send("/queue/orders", b"1")
    amqp.receiver("orders::orders1")
    stomp.send("/queue/orders", b"2")
    assert (stomp.bodies(), amqp.bodies()) == ([b"1", b"2"], [])
    stomp.drop()
    assert len(amqp.take()) == 2


def test_consumer_priority_by_the_destination(broker: SimBroker) -> None:
    low, high, amqp = broker.connect(), broker.connect(), AmqpSim(broker)
    low.subscribe("/queue/q?consumer-priority=-1")
    high.subscribe("/queue/q?consumer-priority=3")
    amqp.receiver("queue://q?consumer-priority=7", credit=1)
    for n in range(3):
        low.send("/queue/q", b"%d" % n)
    assert (low.bodies(), high.bodies(), len(amqp.take())) == ([], [b"1", b"2"], 1)


def test_routing_type_by_the_destination(broker: SimBroker) -> None:
    stomp, amqp = broker.connect(), AmqpSim(broker)
    stomp.send("a?routing-type=ANYCAST", b"1")
    amqp.send(amqp.sender("b?routing-type=ANYCAST"), message("1"))
    assert (len(held(broker, "a")), len(held(broker, "b"))) == (1, 1)


def test_a_queue_that_purges_over_both() -> None:
    broker = with_queue("non.durable.foo", "orders1", "MULTICAST", purge_on_no_consumers=True)
    stomp, amqp = broker.connect(), AmqpSim(broker)
    stomp.send("/topic/non.durable.foo", b"too early")
    receiver = amqp.receiver("non.durable.foo::orders1", credit=1)
    stomp.send("/topic/non.durable.foo", b"1")
    stomp.send("/topic/non.durable.foo", b"2")
    assert len(amqp.take()) == 1
    amqp.detach(receiver)
    stomp.subscribe("non.durable.foo::orders1", ack="auto")
    assert stomp.bodies() == []


def test_dispatch_waits_for_consumers_of_either_protocol() -> None:
    broker = with_queue("orders", "orders", consumers_before_dispatch=2, delay_before_dispatch=60_000)
    stomp, amqp = broker.connect(), AmqpSim(broker)
    for n in range(4):
        stomp.send("/queue/orders", b"%d" % n)
    stomp.subscribe("/queue/orders")
    assert stomp.bodies() == []
    amqp.receiver("orders")
    assert len(stomp.bodies()) + len(amqp.take()) == 4


def test_non_destructive_over_amqp() -> None:
    broker = with_queue("orders", "orders", non_destructive=True)
    clients = [AmqpSim(broker, container=f"c{n}") for n in range(2)]
    links = [client.receiver("orders", credit=2) for client in clients]
    for n in range(4):
        clients[0].send(clients[0].sender("orders"), message(str(n)))
    for client, link in zip(clients, links, strict=True):
        deliveries = client.take()
        assert [d.body for d in deliveries] == ["0", "1"]
        client.settle(*deliveries)
        link.send_credit(2)
        client.say()
        assert client.bodies() == ["2", "3"]
    assert len(held(broker, "orders")) == 4
