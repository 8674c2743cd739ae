"""`bartleby queue create|delete`, `address`, `divert`, `connection` and `consumer` against a running broker."""

from __future__ import annotations

from broker.engine.model.access import UNRESTRICTED
from tests.broker.cli.harness import Operator, says
from tests.broker.management.harness import Inbox, TestBroker


async def test_queues(broker: TestBroker, operator: Operator) -> None:
    missing = await says(operator, "queue", "create", "prices", status=1)
    assert missing == "bartleby: address prices does not exist: create it first, or ask for it with make-address"
    made = await says(operator, "queue", "create", "prices", "--make-address", "--type", "anycast", "ring-size=5")
    assert made == "queue prices was created: anycast, on address prices"
    assert broker.engine.queue("prices").attributes.ring_size == 5
    filtered = ("--address", "prices", "--filter", "region = 'eu'", "--non-durable")
    assert (await operator.json("queue", "create", "eu", *filtered))["filter"] == "region = 'eu'"
    assert not broker.engine.queue("eu").durable
    assert "give ATTRIBUTE=VALUE" in await says(operator, "queue", "create", "x", "ring-size", status=2)
    assert await says(operator, "queue", "delete", "eu") == "queue eu was deleted, with 0 messages"
    await broker.sent("prices", [b"1"])
    assert "has 1 message and 0 consumers" in await says(operator, "queue", "delete", "prices", status=1)
    asked = await operator.run("queue", "delete", "prices", "--force", input="n\n")
    assert (asked.exit_code, "its 1 message for good?" in asked.stderr) == (1, True)
    assert await says(operator, "queue", "delete", "prices", "--force", "--yes") == (
        "queue prices was deleted, with 1 message"
    )


async def test_chosen_messages_are_purged(broker: TestBroker, operator: Operator) -> None:
    for number in range(4):
        broker.send("a", [b"x"], headers=[(b"n", str(number % 2).encode())])
    await broker.settled()
    assert await says(operator, "queue", "purge", "a", "--filter", "n = '1'", "--yes") == "2 messages removed"
    id = (await operator.json("queue", "browse", "a"))["messages"][0]["id"]
    asked = await operator.run("queue", "purge", "a", "--id", str(id), input="y\n")
    assert (asked.exit_code, asked.stdout) == (0, "1 message removed\n")
    assert "Remove 1 of 2 messages for good?" in asked.stderr
    assert "give no --filter" in await says(operator, "queue", "purge", "a", "--id", "1", "--filter", "n = 1", status=2)
    assert broker.engine.queue("a").message_count == 1


async def test_addresses(operator: Operator) -> None:
    assert await says(operator, "address", "create", "news", "--multicast") == "address news was created: multicast"
    both = await operator.json("address", "create", "both", "--multicast", "--anycast")
    assert both["routing_types"] == ["ANYCAST", "MULTICAST"]
    listed = (await says(operator, "address", "list")).splitlines()
    assert [line.split()[0] for line in listed] == ["address", "both", "news"]
    assert [each["name"] for each in await operator.json("address", "list")] == ["both", "news"]
    shown = await says(operator, "address", "show", "news")
    assert "setting dead-letter-address" in shown
    settings = [line.split() for line in (await says(operator, "address", "settings", "to/come")).splitlines()]
    assert settings[:3] == [
        ["setting", "value", "match"],
        ["dead-letter-address", "DLQ", "#"],
        ["management-browse-page-size", "5", "#"],
    ]
    assert ["max-delivery-attempts", "10"] in settings
    assert (await operator.json("address", "settings", "news"))["matches"] == ["#"]
    assert "queue names" in shown
    assert (await operator.json("address", "show", "news"))["queues"] == 0
    await says(operator, "queue", "create", "n", "--address", "news")
    assert "has 1 queue:" in await says(operator, "address", "delete", "news", status=1)
    asked = await operator.run("address", "delete", "news", "--force", input="")
    assert (asked.exit_code, "there is no terminal to ask on" in asked.stderr) == (2, True)
    assert await says(operator, "address", "delete", "news", "--force", "--yes") == (
        "address news was deleted, with 1 queue"
    )


async def test_a_test_message(broker: TestBroker, operator: Operator) -> None:
    broker.queue("a")
    said = await says(operator, "address", "send", "a", "hello", "--property", "k=v=w", "--priority", "9")
    (message,) = (await operator.json("queue", "browse", "a"))["messages"]
    assert said == f"message {message['id']} was sent to a"
    assert (message["body"]["data"], message["properties"], message["priority"]) == ("hello", {"k": "v=w"}, 9)
    await says(operator, "address", "create", "empty")
    nobody = await says(operator, "address", "send", "empty", "x", status=5)
    assert nobody == "bartleby: no queue of address empty took the message"
    assert "give NAME=VALUE" in await says(operator, "address", "send", "a", "x", "--property", "k", status=2)


async def test_diverts(broker: TestBroker, operator: Operator) -> None:
    broker.queue("orders")
    options = ("--filter", "region = 'eu'", "--exclusive", "--type", "anycast")
    headers = ("--add-header", "via:audit", "--add-header", "a:b", "--remove-header", "secret")
    broker.queue("x")
    added = await operator.run("divert", "add", "audit", "orders", "x", "y", *options, *headers)
    assert added.stdout == "divert audit is in force: orders to x, y\n"
    assert added.stderr == "address y has no queue yet: until it has one, its copies are dropped\n"
    (shown,) = await operator.json("divert", "list")
    assert shown["forwarding_addresses"] == ["x", "y"]
    assert (shown["filter"], shown["exclusive"], shown["routing_type"]) == ("region = 'eu'", True, "ANYCAST")
    assert (shown["add_headers"], shown["remove_headers"]) == ({"via": "audit", "a": "b"}, ["secret"])
    assert "audit" in (await says(operator, "divert", "list")).splitlines()[1]
    assert "exists" in await says(operator, "divert", "add", "audit", "orders", "x", status=1)
    assert await says(operator, "divert", "remove", "audit") == "divert audit was removed"
    alone = await operator.run("divert", "add", "alone", "orders", "y", "--exclusive")
    assert alone.stderr == "y: no queue yet; until there is one, messages stay at orders\n"
    assert "was sent" in await says(operator, "address", "send", "orders", "x")
    assert broker.queue("orders").message_count == 1
    assert "audit" in await says(operator, "divert", "remove", "audit", status=1)
    assert await says(operator, "divert", "remove", "", status=2) == "bartleby: the name is empty"


async def test_connections_and_consumers(broker: TestBroker, operator: Operator) -> None:
    said: list[str] = []
    inbox = Inbox()
    broker.queue("a")
    broker.engine.connections.opened("1-a", "AMQP", "10.0.0.7:4711", UNRESTRICTED, said.append)
    broker.read("a", inbox)
    await broker.settled()
    assert "10.0.0.7:4711" in (await says(operator, "connection", "list")).splitlines()[1]
    assert (await operator.json("connection", "list"))[0]["protocol"] == "AMQP"
    closed = await says(operator, "connection", "close", "1-a", "--reason", "it is late")
    assert (closed, said) == ("connection 1-a of 10.0.0.7:4711 was closed", ["closed by an operator: it is late"])
    assert (await operator.json("consumer", "list"))[0]["queue"] == "a"
    assert len((await says(operator, "consumer", "list")).splitlines()) == 2
    assert await says(operator, "consumer", "close", "1") == "consumer 1 of queue a was closed"
    assert inbox.reasons == ["closed by an operator"]
    assert "does not exist" in await says(operator, "consumer", "close", "1", status=1)
