"""`bartleby link` against a running broker."""

from __future__ import annotations

from broker.cli.failure import CHECK_FAILED, USAGE
from broker.sessions.links.model import Kind, LinkSettings, RouteSettings
from tests.broker.cli.harness import Operator, says
from tests.broker.management.harness import TestBroker
from tests.broker.management.linked import PARIS, Session, linked


async def test_links_are_listed(broker: TestBroker, operator: Operator) -> None:
    linked(broker)
    await broker.sent("orders.out", [b"1", b"2"])
    Session(broker).open()
    heading, paris, rome = (await says(operator, "link", "list")).splitlines()
    assert " ".join(heading.split()) == "link state since broker routes depth passed refused in_doubt error"
    at = "2023-11-14 22:13:20"
    assert paris.split() == f"paris running {at} amqp://paris:5672 2 of 2 2 0 0 0".split()
    assert rome.split() == f"rome stopped {at} amqps://rome:5671 0 of 0 0 0 0 0".split()
    assert [each["name"] for each in await operator.json("link", "list")] == ["paris", "rome"]
    status = (await says(operator, "status")).splitlines()
    assert [line.split() for line in status if line.startswith("link")] == [
        ["link", "paris", "running"],
        ["link", "rome", "stopped"],
    ]


async def test_a_shared_queue_is_counted_once(broker: TestBroker, operator: Operator) -> None:
    routes = tuple(RouteSettings(name, Kind.REMOTE_QUEUE, "link.paris", name, origin=name) for name in "ab")
    linked(broker, LinkSettings("paris", PARIS.urls, routes))
    await broker.sent("link.paris", [b"1", b"2"])
    line = (await says(operator, "link", "list")).splitlines()[1]
    assert line.split()[5:9] == ["0", "of", "2", "2"]


async def test_a_link_is_shown(broker: TestBroker, operator: Operator) -> None:
    linked(broker)
    session = Session(broker)
    session.lose("connection refused")
    shown = await says(operator, "link", "show", "paris")
    fields = {line[:17].strip(): line[17:].strip() for line in shown.partition("\n\n")[0].splitlines()}
    assert fields.pop("next attempt") in ("2023-11-14 22:13:20", "2023-11-14 22:13:21"), "shortened at random"
    assert fields == {
        "link": "paris",
        "state": "retrying",
        "since": "2023-11-14 22:13:20",
        "urls": "amqp://paris:5672, amqp://paris-2:5672",
        "enabled": "yes",
        "failed attempts": "1",
        "error": "connection refused",
        "last error at": "2023-11-14 22:13:20",
    }
    routes = [line.split() for line in shown.partition("\n\n")[2].splitlines()]
    assert routes[1] == ["orders", "send", "stopped", "orders.out", "orders", "0", "0s", "0", "0", "0", "0"]
    assert routes[2] == ["invoices", "receive", "stopped", "invoices.in", "invoices", "0", "0", "0", "0"]
    assert await says(operator, "link", "show", "oslo", status=CHECK_FAILED) == "bartleby: there is no link oslo"


async def test_a_link_is_steered(broker: TestBroker, operator: Operator) -> None:
    linked(broker)
    paused = await says(operator, "link", "pause", "paris")
    assert paused == "link paris is starting, and will be paused once it connects"
    assert await says(operator, "link", "start", "paris") == "link paris is starting"
    Session(broker).open()
    assert await says(operator, "link", "pause", "paris") == "link paris is paused"
    again = await says(operator, "link", "pause", "paris", status=CHECK_FAILED)
    assert again == "bartleby: link paris is paused"
    assert await says(operator, "link", "start", "paris") == "link paris is running"
    assert await says(operator, "link", "stop", "paris") == "link paris is stopped"
    assert (await operator.json("link", "start", "rome"))["state"] == "starting"
    assert [each["operator"] != "" for each in broker.reported("link.operated")] == [True] * 6


async def test_doubts_are_resolved(broker: TestBroker, operator: Operator) -> None:
    linked(broker)
    await broker.sent("orders.out", [b"1"])
    queue = broker.engine.queue("orders.out")
    [(message, _)] = broker.engine.messages.browse(queue)
    session = Session(broker).open()
    session.doubt(message.id)
    asked = await says(operator, "link", "resolve", "paris", "orders", status=USAGE)
    assert asked == "bartleby: give --resend or --discard: only the other broker's queues show which is right"
    resent = await says(operator, "link", "resolve", "paris", "orders", "--resend")
    assert resent == "route orders of link paris: 1 message is sent again"
    assert queue.message_count == 1
    session.doubt(message.id)
    removed = await says(operator, "link", "resolve", "paris", "--discard")
    assert removed == "route orders of link paris: 1 message was removed"
    assert queue.message_count == 0
    assert await says(operator, "link", "resolve", "paris", "--discard") == "link paris has no route in doubt"
    refused = await says(operator, "link", "resolve", "paris", "orders", "--resend", status=CHECK_FAILED)
    assert refused == "bartleby: route orders of link paris is running, not in doubt"
    session.doubt()
    [answer] = await operator.json("link", "resolve", "paris", "--resend")
    assert (answer["messages"], answer["discarded"]) == (0, False)
