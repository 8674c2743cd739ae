"""Routes over AMQP between two simulated Bartlebys."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import LinkSection
from broker.config.addresses import AddressSection
from broker.console.deaths import death_of
from broker.engine import DeadLetterGroups, DeadLetterReason
from broker.engine.model.errors import AlreadyInUse
from broker.engine.model.message import RoutingType
from broker.engine.routing.alter import change
from broker.sessions.amqp import terms
from broker.sessions.amqp.session import AmqpSession
from broker.sessions.links.amqp import AmqpLinkSession
from broker.sessions.links.model import State
from broker.sessions.links.routes import LINGER_MS
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.errors import RESOURCE_LIMIT_EXCEEDED, connection_error
from protocols.amqp.events import Attached, Began, Credit, Detached, Ended, Transfers
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    Error,
    Flow,
    Open,
    SaslCode,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.session import Session
from protocols.amqp.types import Described
from tests.broker.sessions import large
from tests.broker.sessions.amqp.harness import SELECTOR
from tests.broker.sessions.links.pairs import SEND, bodies, content, dead_letters, pair, send
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker, SimClient, SimPeer, configured
from tests.support.sim_files import SimFiles
from tests.support.sim_links import SimLinks, linked

ORDERS = {"queue": "orders.out", "address": "orders"}
HOLDING = {"orders": ORDERS | {"in-doubt": "hold"}}
FAST = {"orders": ORDERS | {"non-durable": "fast"}}
RECEIVE = {"receive": {"invoices": {"queue": "invoices", "address": "invoices.in"}}}

#: Addresses there that take one message, and none.
FULL = {"match": "orders", "max-size-bytes": 1, "address-full-policy": "FAIL"}
NOWHERE = {"match": "orders", "auto-create-addresses": False, "auto-create-queues": False}


def send_unanswered(a: SimBroker, links: SimLinks, *bodies: str) -> None:
    """Send messages that arrive at the other end, whose answers do not."""
    links.wires["b"].holding = True
    send(a, "orders.out", *bodies)
    links.wires["b"].deliver_there()


def test_messages_on_the_queue_go_to_the_address_there() -> None:
    a, b, links = pair()
    assert links.link().status is State.RUNNING
    assert links.route("orders").state is State.RUNNING
    send(a, "orders.out", "1", "2", "3")
    links.run()
    assert bodies(b, "orders") == ["1", "2", "3"]
    assert held(a, "orders.out") == []
    assert links.route("orders").passed == 3
    assert links.route("orders").unsettled == 0


def test_waiting_messages_go_when_the_link_is_up() -> None:
    a, b, links = pair({"enabled": False, **SEND})
    send(a, "orders.out", "1")
    links.run()
    assert links.link().state is State.STOPPED
    assert bodies(b, "orders") == []
    links.do(links.links.start, "b")
    links.run()
    assert bodies(b, "orders") == ["1"]


def test_a_queue_there_fills_an_address_here() -> None:
    a, b, links = pair(RECEIVE)
    send(b, "invoices", "1", "2")
    links.run()
    assert bodies(a, "invoices.in") == ["1", "2"]
    assert held(b, "invoices") == []
    assert links.route("invoices").passed == 2


@pytest.mark.parametrize("nbytes", [1_000, 30 * large.LARGE])
@pytest.mark.parametrize("on_demand", [False, True])
def test_a_receiving_route_waits_for_room_on_the_disk_here(nbytes: int, on_demand: bool) -> None:
    """Nothing dies there, nothing is overtaken, and it resumes by itself."""
    config, files = large.config(header_bytes_max=large.LARGE), SimFiles()
    sections = {"acceptors": config.acceptors, "limits": config.limits, "journal": small(retained=False).journal}
    routes = {"invoices": {"queue": "invoices", "address": "invoices.in", "only-with-consumers": on_demand}}
    a = SimBroker(linked(sections=sections, receive=routes), files=files)
    there: dict[str, object] = {"match": "invoices", "dead-letter-address": ""}
    b = SimBroker(configured(there, acceptors=config.acceptors, limits=config.limits))
    links = SimLinks(a, {"b": b})
    links.run()
    files.capacity = files.used() + 50_000
    sent = [str(n).ljust(10 if n % 2 else nbytes) for n in range(100)]
    client = AmqpSim(b, limits=Limits(frame_bytes_max=600))
    client.send(client.sender("invoices", "queue"), *[large.message(each.encode()) for each in sent])
    reader = AmqpSim(a)
    if on_demand:
        receiver = reader.receiver("invoices.in", "queue", credit=50)
    links.run()
    links.advance(60_000)
    route = links.route("invoices")
    assert "this broker: " in route.error
    assert "the disk is full" in route.error
    assert len(a.reported("link.route_waiting")) == 1, "once"
    here = len(held(a, "invoices.in"))
    assert (len(held(b, "invoices")), held(b, "DLQ")) == (len(sent) - here, [])
    files.capacity = None
    links.advance(60_000)
    if not on_demand:
        receiver = reader.receiver("invoices.in", "queue", credit=100)
    taken: list[object] = []
    while len(taken) < len(sent):
        arrived = reader.take()
        assert arrived
        reader.settle(*arrived)
        receiver.send_credit(50)
        reader.say()
        links.advance(2_000)
        taken += [each.body for each in arrived]
    assert taken == [each.encode() for each in sent]
    assert (route.state, route.error, route.passed) == (State.RUNNING, "", len(sent))
    assert held(b, "invoices") == []


def test_a_sending_route_waits_for_room_on_the_disk_there() -> None:
    """Nothing dies here, and it resumes by itself."""
    files, limitless = SimFiles(), configured().broker.model_copy(update={"max_disk_usage": -1})
    a = SimBroker(linked(window=5, send={"orders": ORDERS}))
    b = SimBroker(small(retained=False, broker=limitless), files=files)
    links = SimLinks(a, {"b": b})
    links.run()
    files.capacity = files.used()
    send(a, "orders.out", *[str(n).ljust(1_000) for n in range(100)])
    links.advance(60_000)
    route = links.route("orders")
    assert "the disk is full" in route.error
    assert len(a.reported("link.route_waiting")) == 1
    assert len(held(a, "orders.out")) > 2
    files.capacity = None
    links.advance(60_000)
    assert len(held(b, "orders")) == 100
    assert (held(a, "orders.out"), held(a, "DLQ"), route.state) == ([], [], State.RUNNING)


def test_a_remote_queue_stands_for_one_there() -> None:
    a, b, links = pair({"remote-queues": {"b.orders": {"queue": "orders"}}})
    links.cut(down=True)
    send(a, "b.orders", "1", "2")
    assert bodies(a, "link.b") == ["1", "2"], "they wait on the transmission queue"
    links.mend(5_000)
    assert bodies(b, "orders") == ["1", "2"]


def test_remote_queues_may_share_a_transmission_queue() -> None:
    remote = {name: {"queue": f"{name}.there", "transmission-queue": "outbox"} for name in ("x", "y")}
    a, b, links = pair({"remote-queues": remote})
    send(a, "x", "1", "2")
    send(a, "y", "3")
    links.run()
    assert bodies(b, "x.there") == ["1", "2"]
    assert bodies(b, "y.there") == ["3"]
    assert held(a, "outbox") == []


def test_links_may_share_a_transmission_queue() -> None:
    config = linked()
    sections = {
        name: LinkSection.model_validate(
            {
                "url": f"amqp://{name}:5672",
                "remote-queues": {f"{name}.x": {"queue": "x", "transmission-queue": "outbox"}},
            }
        )
        for name in "bc"
    }
    a, b, c = SimBroker(config.model_copy(update={"links": sections})), SimBroker(configured()), SimBroker(configured())
    links = SimLinks(a, {"b": b, "c": c})
    links.run()
    send(a, "b.x", "1", "2", "3")
    send(a, "c.x", "4", "5", "6")
    links.run()
    assert bodies(b, "x") == ["1", "2", "3"]
    assert bodies(c, "x") == ["4", "5", "6"]


def test_a_lost_connection_is_nobody_s_fault() -> None:
    a, b, links = pair()
    for _ in range(15):
        links.wires["b"].holding = True
        send(a, "orders.out", "1") if not held(a, "orders.out") and not held(b, "orders") else None
        links.cut(down=True)
        links.advance(1_000)
        links.mend(40_000)
    assert bodies(b, "orders") == ["1"]
    assert held(a, "DLQ") == []


def test_a_refused_message_is_a_dead_letter_with_the_other_end_s_words() -> None:
    a, b, links = pair(SEND, there=(FULL,))
    send(a, "orders.out", "1", "2")
    links.run()
    [letter] = dead_letters(a)
    assert content(letter) == b"2"
    notes = letter.header.annotations or {}
    text = str(notes["_AMQ_DL_TEXT"])
    assert "amqp:resource-limit-exceeded" in text
    assert "link b at amqp://b:5672" in text
    assert notes["_AMQ_DL_REASON"] == "queue-full"
    assert (notes["_AMQ_DL_LINK"], notes["_AMQ_DL_REMOTE_ADDRESS"]) == ("b", "orders")
    assert notes["_AMQ_DL_REMOTE_BROKER"] == b.config.broker.name
    assert links.route("orders").refused == 1
    assert links.route("orders").state is State.RUNNING


def test_a_disabled_queue_there_is_why_its_messages_are_dead_letters_here() -> None:
    a, b, links = pair()
    send(a, "orders.out", "1")
    links.run()
    with b.turn():
        change(b.engine._state, b.engine.queue("orders"), {"enabled": False})
    send(a, "orders.out", "2")
    links.run()
    assert bodies(b, "orders") == ["1"]
    [letter] = dead_letters(a)
    notes = letter.header.annotations or {}
    assert notes["_AMQ_DL_REASON"] == "put-disabled"
    assert (notes["_AMQ_DL_LINK"], notes["_AMQ_DL_REMOTE_ADDRESS"]) == ("b", "orders")
    death = death_of(letter)
    assert death is not None
    there = (death.link, death.remote_address, death.remote_broker)
    assert there == ("b", "orders", b.config.broker.name)
    counted = DeadLetterGroups(["DLQ"], ("link", "remote-address", "remote-broker"))
    with a.turn():
        while not counted.complete:
            a.engine.messages.group_step(counted)
    [(group, count)] = counted.groups()
    assert ((group.link, group.remote_address, group.remote_broker), count.count) == (there, 1)


@pytest.mark.parametrize(
    ("condition", "info", "reason"),
    [
        ("amqp:not-found", None, "no-route"),
        ("amqp:unauthorized-access", None, "not-authorised"),
        ("amqp:resource-limit-exceeded", None, "queue-full"),
        ("amqp:link:message-size-exceeded", None, "too-large"),
        ("amqp:decode-error", None, "decode-error"),
        ("bartleby:too-many-hops", None, "link-hops"),
        ("amqp:precondition-failed", None, "rejected"),
        ("amqp:precondition-failed", {"dead-letter-reason": "put-disabled"}, "put-disabled"),
        ("amqp:not-found", {"dead-letter-reason": "unheard of"}, "no-route"),
        ("amqp:not-found", {"dead-letter-reason": 8}, "no-route"),
        ("com.example:closed", {}, "rejected"),
    ],
)
def test_the_reason_of_a_rejected_message(condition: str, info: dict[str, object] | None, reason: str) -> None:
    assert terms.death(Error(condition, "why", info)).word == reason


def test_a_rejection_without_an_error_is_just_that() -> None:
    assert terms.death(None) is DeadLetterReason.REJECTED


def test_without_dead_letters_the_route_waits_and_goes_on() -> None:
    sends = {
        "orders": {"queue": "orders.out", "address": "orders", "use-dead-letter": False},
        "other": {"queue": "q", "address": "q"},
    }
    a, b, links = pair({"send": sends}, there=(FULL,))
    send(a, "orders.out", "1", "2", "3")
    links.run()
    route = links.route("orders")
    assert links.route("orders").state is State.RETRYING
    assert "resource-limit-exceeded" in route.error
    send(a, "q", "other")
    links.run()
    assert bodies(b, "q") == ["other"], "the other routes go on"
    links.advance(30_000)
    assert bodies(a, "orders.out") == ["2", "3"]
    client = AmqpSim(b)
    client.receiver("orders", "queue")
    for _ in range(40):
        client.settle(*client.take())
        links.advance(1_000)
    assert held(a, "orders.out") == []
    assert held(a, "DLQ") == []
    assert route.state is State.RUNNING
    assert route.error == "", "it is well again"
    assert [each["route"] for each in a.reported("link.route_waiting")] == ["orders"]
    assert [each["route"] for each in a.reported("link.route_running")] == ["orders", "other", "orders"]
    client.drop()
    send(a, "orders.out", "4", "5", "6")
    links.run()
    assert len(a.reported("link.route_waiting")) == 2, "it is told again"


def test_an_address_that_is_not_there_costs_attempts() -> None:
    a, _b, links = pair(SEND, there=(NOWHERE,))
    assert links.route("orders").state is State.RETRYING
    assert "amqp:not-found" in links.route("orders").error
    send(a, "orders.out", "1")
    links.advance(5_000)
    assert bodies(a, "orders.out") == ["1"]
    links.advance(10_000)
    assert held(a, "orders.out") == []
    [letter] = dead_letters(a)
    assert "amqp:not-found" in str((letter.header.annotations or {})["_AMQ_DL_TEXT"])


def test_messages_that_failed_for_want_of_an_address_come_before_later_ones() -> None:
    """The address is there now, and an operator starts the link before the failed attempt would be over."""
    a, b, links = pair({"enabled": False, "window": 1, **SEND}, there=(NOWHERE,))
    send(a, "orders.out", "1")
    links.do(links.links.start, "b")
    assert links.route("orders").state is State.RETRYING
    b.tick.enter()
    address = b.engine.configuration.declare("orders", {RoutingType.ANYCAST})
    b.engine.configuration.declare_queue(address, "orders", RoutingType.ANYCAST, durable=True, selector="")
    send(a, "orders.out", "2")
    a.tick.enter()
    links.links.pause("b")
    links.links.start("b")
    for _ in range(20):
        links.wires["b"].carry()
        a.run()
        b.run()
    links.advance(1_000)
    assert [content(each) for each, _ in b.engine.messages.browse(b.engine.queue("orders"))] == [b"1", b"2"]


@pytest.mark.parametrize("durable", [True, False])
def test_without_a_dead_letter_address_durable_messages_wait(durable: bool) -> None:
    a, _b, links = pair(SEND, {"match": "orders.out", "dead-letter-address": ""}, there=(FULL,))
    client = AmqpSim(a)
    client.send(client.sender("orders.out", "queue"), *[message(body, durable=durable) for body in "12"])
    links.run()
    assert bodies(a, "orders.out") == (["2"] if durable else [])
    assert (links.route("orders").state is State.RETRYING) is durable


@interpreted
@pytest.mark.parametrize("kept", [True, False])
def test_a_message_that_is_too_large_waits_where_it_may_not_die(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    sends = {"orders": {"queue": "orders.out", "address": "orders", "use-dead-letter": kept}}
    a, b, links = pair({"send": sends}, {"match": "orders.out", "dead-letter-address": "" if kept else "DLQ"})
    monkeypatch.setattr(Sender, "message_bytes_max", 2_000)
    send(a, "orders.out", "1", "x" * 3_000, "2")
    links.run()
    route = links.route("orders")
    assert [each[:1] for each in bodies(a, "orders.out")] == ["x"]
    assert held(a, "DLQ") == []
    assert route.state is State.RETRYING
    assert "orders: 3" in route.error
    assert "the receiver accepts 2000" in route.error
    send(a, "orders.out", "3")
    links.advance(5_000)
    assert bodies(b, "orders") == ["1", "2"], "what is behind it waits"
    monkeypatch.setattr(Sender, "message_bytes_max", 5_000)
    links.advance(5_000)
    assert [each[:1] for each in bodies(b, "orders")] == ["1", "2", "3", "x"]
    assert links.route("orders").state is State.RUNNING


@interpreted
def test_a_message_that_is_too_large_is_a_dead_letter_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, links = pair()
    monkeypatch.setattr(Sender, "message_bytes_max", 2_000)
    send(a, "orders.out", "1", "x" * 3_000, "2")
    links.run()
    assert bodies(b, "orders") == ["1", "2"]
    [letter] = dead_letters(a)
    annotations = letter.header.annotations or {}
    assert annotations["_AMQ_DL_REASON"] == "too-large"
    assert "link b at amqp://b:5672: orders: " in str(annotations["_AMQ_DL_TEXT"])
    assert links.route("orders").refused == 1
    assert links.route("orders").state is State.RUNNING


def test_fast_messages_leave_at_once() -> None:
    a, b, links = pair({"send": FAST})
    links.wires["b"].holding = True
    client = AmqpSim(a)
    client.send(
        client.sender("orders.out", "queue"), message("1", durable=False), message("2"), message("3", durable=False)
    )
    assert bodies(a, "orders.out") == ["2"], "the durable one waits for its answer"
    links.wires["b"].holding = False
    links.run()
    assert bodies(b, "orders") == ["1", "2", "3"]
    assert held(a, "orders.out") == []


def test_a_large_message_among_fast_ones_is_kept_until_it_is_there() -> None:
    config = large.config(header_bytes_max=large.LARGE)
    sections = {"acceptors": config.acceptors, "limits": config.limits}
    a, b = SimBroker(linked(sections=sections, send=FAST)), SimBroker(configured())
    links = SimLinks(a, {"b": b})
    links.run()
    links.do(links.links.pause, "b")
    client = AmqpSim(a, limits=Limits(frame_bytes_max=600))
    payloads = [large.message(data, durable=False) for data in (b"1", b"x" * 30 * large.LARGE, b"2")]
    client.send(client.sender("orders.out", "queue"), *payloads)
    a.run()
    links.wires["b"].holding = True
    links.do(links.links.start, "b")
    assert [each[:1] for each in bodies(a, "orders.out")] == ["x"]
    links.wires["b"].holding = False
    links.run()
    assert [each[:1] for each in bodies(b, "orders")] == ["1", "2", "x"]
    assert held(a, "orders.out") == []


def test_pause_stop_and_start() -> None:
    a, b, links = pair()
    links.do(links.links.pause, "b")
    assert links.link().status is State.PAUSED
    assert links.route("orders").state is State.PAUSED
    send(a, "orders.out", "1")
    links.run()
    assert bodies(a, "orders.out") == ["1"]
    links.do(links.links.start, "b")
    assert bodies(b, "orders") == ["1"]
    links.do(links.links.stop, "b")
    assert links.link().status is State.STOPPED
    send(a, "orders.out", "2")
    links.advance(60_000)
    assert bodies(a, "orders.out") == ["2"]
    links.do(links.links.start, "b")
    assert bodies(b, "orders") == ["1", "2"]


def test_a_paused_link_stays_paused_when_it_is_connected_again() -> None:
    a, b, links = pair()
    links.do(links.links.pause, "b")
    links.cut()
    links.advance(5_000)
    assert links.link().status is State.PAUSED
    send(a, "orders.out", "1")
    links.advance(5_000)
    assert bodies(a, "orders.out") == ["1"]
    links.do(links.links.start, "b")
    assert bodies(b, "orders") == ["1"]


def test_a_link_that_is_paused_and_started_while_its_route_attaches() -> None:
    a, b, links = pair({"enabled": False, **SEND})
    links.links.start("b")
    links.look()
    for _ in range(20):
        if links.link().state is not State.RUNNING:
            links.wires["b"].carry()
            a.run()
            b.run()
    assert links.route("orders").state is State.STARTING
    a.tick.enter()
    for _ in range(2):
        links.links.pause("b")
        links.links.start("b")
    links.run()
    assert links.route("orders").state is State.RUNNING
    assert len(a.engine.queue("orders.out").consumers) == 1, "it has begun once"
    send(a, "orders.out", "1")
    links.run()
    assert bodies(b, "orders") == ["1"]


def test_back_off_doubles_up_to_its_limit() -> None:
    a, _b, links = pair({"retry-interval": "1s", "retry-interval-max": "8s", **SEND})
    links.cut(down=True)
    waits = []
    for _ in range(5):
        waits.append(links.link().retry_at - a.now)
        attempts = links.link().attempts
        while links.link().attempts == attempts:
            links.advance(250)
    for wait, longest in zip(waits, [1_000, 2_000, 4_000, 8_000, 8_000], strict=True):
        assert longest // 2 <= wait <= longest
    assert (
        len({wait * 8_000 // longest for wait, longest in zip(waits, [1_000, 2_000, 4_000, 8_000, 8_000], strict=True)})
        > 1
    )
    assert links.link().state is State.RETRYING
    assert "connection refused" in links.link().error
    links.mend(9_000)
    assert links.link().status is State.RUNNING


def test_a_clock_that_is_set_back_keeps_no_link_and_no_route_waiting() -> None:
    sends = {"orders": ORDERS | {"use-dead-letter": False}}
    a, b, links = pair({"send": sends}, there=(FULL,))
    send(a, "orders.out", "1", "2")
    links.run()
    assert links.route("orders").state is State.RETRYING
    a.jump(-3_600_000)
    client = AmqpSim(b)
    client.receiver("orders", "queue")
    for _ in range(5):
        client.settle(*client.take())
        links.advance(1_000)
    assert held(a, "orders.out") == []
    assert links.route("orders").error == ""
    links.cut()
    assert links.link().state is State.RETRYING
    a.jump(-3_600_000)
    links.advance(1_000)
    assert links.link().state is State.RUNNING


def test_a_connection_that_ends_at_once_is_a_failure_like_any_other() -> None:
    a, _b, links = pair({"retry-interval": "1s", "retry-interval-max": "8s", **SEND})
    links.advance(1_000)
    waits = []
    for _ in range(5):
        links.cut()
        waits.append(links.link().retry_at - a.now)
        while links.link().status is not State.RUNNING:
            links.advance(250)
        links.advance(500)
    for wait, longest in zip(waits, [1_000, 2_000, 4_000, 8_000, 8_000], strict=True):
        assert longest // 2 <= wait <= longest
    links.advance(1_000)
    links.cut()
    assert 500 <= links.link().retry_at - a.now <= 1_000, "it has lasted"


def test_messages_are_fetched_for_consumers_that_wait() -> None:
    route = {"queue": "orders", "address": "orders", "only-with-consumers": True, "priority": -1}
    a, b, links = pair({"receive": {"orders": route}})
    send(b, "orders", *map(str, range(10)))
    links.advance(1_000)
    assert len(held(b, "orders")) == 10
    client = AmqpSim(a)
    client.receiver("orders", "queue", credit=3)
    links.advance(1_000)
    assert len(client.take()) == 3
    assert len(held(b, "orders")) == 7, "no more than it asked for"
    other = AmqpSim(b)
    other.receiver("orders", "queue", credit=100)
    assert len(other.take()) == 7, "consumers there come first"


def test_brokers_that_fetch_from_each_other_do_not_wait_for_each_other() -> None:
    """Once a consumer has made both ask, nothing moves for the other's asking alone."""
    route = {"queue": "orders", "address": "orders", "only-with-consumers": True, "priority": -1}
    a, b = (SimBroker(linked(name=name, receive={"orders": route})) for name in "ab")
    both = SimLinks(a, {"b": b}), SimLinks(b, {"b": a})
    client = AmqpSim(a)
    client.receiver("orders", "queue", credit=100)
    for links in both * 3:
        links.advance(1_000)
    client.abort()
    for links in both * 3:
        links.advance(1_000)
    send(b, "orders", "1", "2", "3")
    for links in both * 3:
        links.advance(1_000)
    assert bodies(b, "orders") == ["1", "2", "3"], "nobody waits for them at a"
    assert [links.route("orders").passed for links in both] == [0, 0]


ON_DEMAND = {"queue": "orders", "address": "orders", "only-with-consumers": True, "priority": -1}


def selecting(selector: str) -> dict[str, object]:
    """The filter of a source."""
    return {"selector": Described(SELECTOR, selector)}


def coloured(broker: SimBroker, **numbers: int) -> None:
    """Send so many orders of each colour, whose bodies are the colours."""
    for colour, number in numbers.items():
        send(broker, "orders", *[colour] * number, application={"colour": colour})


def test_consumers_with_selectors_are_fetched_what_they_take() -> None:
    a, b, links = pair({"receive": {"orders": ON_DEMAND}})
    red, blue = AmqpSim(a), AmqpSim(a)
    red.receiver("orders", "queue", credit=10, filter=selecting("colour = 'red'"))
    blue.receiver("orders", "queue", credit=2, filter=selecting("colour = 'blue'"))
    links.advance(1_000)
    coloured(b, green=20, red=4, blue=4)
    links.advance(1_000)
    assert [len(each.take()) for each in (red, blue)] == [4, 2]
    assert sorted(set(bodies(b, "orders"))) == ["blue", "green"]
    assert len(held(a, "orders")) == 6, "no more than they asked for"


def test_brokers_whose_consumers_take_no_such_message_leave_it_where_it_is() -> None:
    a, b = (SimBroker(linked(name=name, receive={"orders": ON_DEMAND})) for name in "ab")
    both = SimLinks(a, {"b": b}), SimLinks(b, {"b": a})
    for broker in (a, b):
        AmqpSim(broker).receiver("orders", "queue", credit=10, filter=selecting("colour = 'red'"))
    coloured(b, blue=2)
    for links in both * 3:
        links.advance(1_000)
    assert bodies(b, "orders") == ["blue", "blue"]
    assert [links.route("orders").passed for links in both] == [0, 0]


def test_a_selector_that_no_consumer_has_any_more_is_not_asked_for() -> None:
    a, b, links = pair({"receive": {"orders": ON_DEMAND | {"selector": "size = 1"}}})
    client = AmqpSim(a)
    client.receiver("orders", "queue", credit=10, filter=selecting("colour = 'red'"))
    links.advance(1_000)
    there = b.engine.queue("orders")
    assert [each.selector for each in there.consumers] == ["size = 1", "(size = 1) AND (colour = 'red')"]
    client.abort()
    links.advance(1_000)
    assert [each.credit for each in there.consumers] == [0, 0]
    links.advance(LINGER_MS)
    assert [each.selector for each in there.consumers] == ["size = 1"]
    assert links.route("orders").state is State.RUNNING


def test_a_selector_that_the_other_end_refuses_is_no_trouble_of_the_route() -> None:
    most = {"match": "orders", "default-max-consumers": 1}
    a, b, links = pair({"receive": {"orders": ON_DEMAND}}, there=(most,))
    first, second = AmqpSim(a), AmqpSim(a)
    first.receiver("orders", "queue", credit=10, filter=selecting("colour = 'red'"))
    second.receiver("orders", "queue", credit=10)
    links.advance(1_000)
    coloured(b, blue=1)
    links.advance(1_000)
    assert len(second.take()) == 1
    assert (links.route("orders").state, links.route("orders").error) == (State.RUNNING, "")


def test_nothing_is_fetched_for_a_queue_that_is_paused() -> None:
    a, b, links = pair({"receive": {"orders": ON_DEMAND}})
    AmqpSim(a).receiver("orders", "queue", credit=10)
    links.do(a.engine.operators.pause, a.engine.queue("orders"), paused=True)
    send(b, "orders", "1")
    links.advance(1_000)
    assert bodies(b, "orders") == ["1"]


def test_a_window_in_bytes_is_for_as_many_messages_as_fit() -> None:
    a, b, links = pair({"receive": {"orders": ON_DEMAND}})
    SimClient(a, "1.2", a.number()).connect().subscribe("orders", subscription_type="ANYCAST")
    links.advance(1_000)
    send(b, "orders", *["x" * 100_000] * 200)
    links.advance(1_000)
    assert len(held(a, "orders")) < 80, "1 MiB is ten of them"


def test_a_pause_breaks_nothing_that_is_on_its_way() -> None:
    a, b, links = pair(RECEIVE)
    links.wires["b"].holding = True
    send(b, "invoices", "1", "2")
    b.run()
    links.do(links.links.pause, "b")
    links.wires["b"].holding = False
    links.run()
    assert bodies(a, "invoices.in") == ["1", "2"]
    assert (links.route("invoices").state, links.route("invoices").error) == (State.PAUSED, "")


def test_messages_on_their_way_to_a_consumer_that_has_left_stay_here() -> None:
    route = {"queue": "orders", "address": "orders", "only-with-consumers": True}
    a, b, links = pair({"receive": {"orders": route}})
    client = AmqpSim(a)
    client.receiver("orders", "queue", credit=3)
    links.advance(1_000)
    links.wires["b"].holding = True
    send(b, "orders", "1", "2", "3", "4")
    b.run()
    client.abort()
    links.advance(1_000)
    links.wires["b"].holding = False
    links.advance(1_000)
    assert (bodies(a, "orders"), bodies(b, "orders")) == (["1", "2", "3"], ["4"])
    assert (links.route("orders").state, links.route("orders").error) == (State.RUNNING, "")


# -- exactly once ------------------------------------------------------------------------------------------------------


def test_an_answer_that_is_lost_doubles_nothing() -> None:
    a, b, links = pair()
    send_unanswered(a, links, *map(str, range(20)))
    assert len(bodies(b, "orders")) == 20, "they have arrived, and nobody here knows"
    assert len(bodies(a, "orders.out")) == 20
    links.cut()
    links.advance(5_000)
    assert len(bodies(b, "orders")) == 20
    assert held(a, "orders.out") == []
    assert links.route("orders").passed == 20


def test_a_crash_of_this_broker_doubles_nothing() -> None:
    a, b, links = pair()
    send_unanswered(a, links, *map(str, range(20)))
    links.cut()
    a = a.restart()
    links = SimLinks(a, {"b": b})
    links.advance(1_000)
    assert len(bodies(b, "orders")) == 20
    assert held(a, "orders.out") == []


def test_a_crash_of_the_other_broker_loses_and_doubles_nothing() -> None:
    a, b, links = pair()
    b.hold_disk()
    send(a, "orders.out", *map(str, range(20)))
    links.run()
    assert len(bodies(a, "orders.out")) == 20, "nothing is accepted before it is on disk there"
    links.cut()
    b = b.restart()
    links.others["b"] = b
    links.advance(5_000)
    assert len(bodies(b, "orders")) == 20
    links.cut()
    b = b.restart()
    links.others["b"] = b
    links.advance(5_000)
    assert len(bodies(b, "orders")) == 20


def test_messages_fetched_twice_are_taken_once() -> None:
    a, b, links = pair(RECEIVE)
    a.hold_disk()
    send(b, "invoices", *map(str, range(20)))
    links.run()
    links.wires["b"].holding = True
    a.catch_up()
    assert len(bodies(a, "invoices.in")) == 20, "they are here, and nobody there knows"
    links.cut()
    a = a.restart()
    links = SimLinks(a, {"b": b})
    links.advance(1_000)
    assert len(bodies(a, "invoices.in")) == 20
    assert held(b, "invoices") == []


def test_a_broker_that_is_no_bartleby_gets_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.amqp.attach._OFFERED_SENDERS", ())
    a, b, links = pair()
    send_unanswered(a, links, "1", "2")
    links.cut()
    links.advance(5_000)
    assert bodies(b, "orders") == ["1", "1", "2", "2"]


@pytest.mark.parametrize("discard", [True, False])
def test_messages_in_doubt_are_held(monkeypatch: pytest.MonkeyPatch, discard: bool) -> None:
    monkeypatch.setattr("broker.sessions.amqp.attach._OFFERED_SENDERS", ())
    a, b, links = pair({"send": HOLDING})
    send_unanswered(a, links, "1", "2")
    links.cut()
    send(a, "orders.out", "3")
    links.advance(5_000)
    assert links.link().status is State.IN_DOUBT
    assert links.route("orders").in_doubt == 2
    assert bodies(b, "orders") == ["1", "2"]
    assert links.do(links.links.resolve, "b", "orders", discard=discard) == 2
    assert bodies(b, "orders") == ["1", "2", "3"] if discard else ["1", "1", "2", "2", "3"]
    assert links.link().status is State.RUNNING
    assert held(a, "orders.out") == []


def test_messages_in_doubt_are_held_while_the_route_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end has given one back, and says nothing of the others before the connection is lost."""
    monkeypatch.setattr("broker.sessions.amqp.attach._OFFERED_SENDERS", ())
    a, b, links = pair({"send": HOLDING})
    send_unanswered(a, links, "1", "2")
    session = links.links.connections["b"]
    assert isinstance(session, AmqpLinkSession)
    links.do(session.routes["orders"].status.retry_later, "given back")
    links.cut()
    assert links.route("orders").state is State.IN_DOUBT
    links.advance(5_000)
    assert links.route("orders").in_doubt == 2
    assert bodies(b, "orders") == ["1", "2"]


def test_messages_in_doubt_are_held_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.amqp.attach._OFFERED_SENDERS", ())
    strict: dict[str, object] = {"match": "orders.out", "delivery-count-persistence": "strict"}
    a, b, links = pair({"send": HOLDING}, strict)
    send_unanswered(a, links, "1", "2")
    links.cut()
    a = a.restart()
    send(a, "orders.out", "3")
    links = SimLinks(a, {"b": b})
    links.advance(5_000)
    assert links.route("orders").in_doubt == 2
    links.do(links.links.resolve, "b", "orders", discard=True)
    assert bodies(b, "orders") == ["1", "2", "3"]


def test_two_queues_of_one_address_may_fill_one_address_there() -> None:
    """Each queue's copy of a message is a message of its own."""
    kept = AddressSection.model_validate({"queues": {name: {"routing-type": "MULTICAST"} for name in ("x", "y")}})
    routes = {name: {"queue": name, "address": "orders"} for name in ("x", "y")}
    a, b = SimBroker(linked(sections={"addresses": {"news": kept}}, send=routes)), SimBroker(configured())
    links = SimLinks(a, {"b": b})
    client = AmqpSim(a)
    client.send(client.sender("news", "topic"), *[message(body, durable=True) for body in "123"])
    links.run()
    links.wires["b"].holding = True
    client.send(client.sender("news", "topic"), message("4", durable=True))
    links.wires["b"].deliver_there()
    links.cut()
    links.advance(5_000)
    assert bodies(b, "orders") == sorted("1234" * 2), "each copy once"
    assert held(a, "x") == held(a, "y") == []


# -- topics and hops ---------------------------------------------------------------------------------------------------


def test_topics_keep_their_addresses() -> None:
    a, b, links = pair({"topics": {"news": {"address": "news.#"}}})
    sport, all_news = AmqpSim(b), AmqpSim(b)
    sport.receiver("news.sport", "topic")
    all_news.receiver("news.#", "topic")
    client = AmqpSim(a)
    client.send(client.sender("news.sport", "topic"), message("goal"))
    client.send(client.sender("news.weather", "topic"), message("rain"))
    client.send(client.sender("olds", "topic"), message("no"))
    links.run()
    assert len(sport.take()) == 1
    assert len(all_news.take()) == 2
    assert links.route("news").passed == 2


def test_topics_wait_for_the_link() -> None:
    a, b, links = pair({"topics": {"news": {"address": "news.#"}}})
    client = AmqpSim(b)
    client.receiver("news.sport", "topic")
    links.cut(down=True)
    sender = AmqpSim(a)
    sender.send(sender.sender("news.sport", "topic"), message("goal"))
    links.mend(5_000)
    assert len(client.take()) == 1


def test_queues_of_links_keep_what_waits_whatever_the_settings_say() -> None:
    lossy: dict[str, object] = {"default-purge-on-no-consumers": True, "default-ring-size": 1}
    settings = ({"match": "news.#", **lossy}, {"match": "link.b", **lossy})
    routes = {"topics": {"news": {"address": "news.#"}}, "remote-queues": {"far": {"queue": "q"}}}
    a, b, links = pair(routes, *settings)
    links.cut(down=True)
    publisher = AmqpSim(a)
    publisher.send(publisher.sender("news.eu", "topic"), message("1"), message("2"))
    send(a, "far", "3", "4")
    assert bodies(a, "link.b.news") == ["1", "2"]
    assert bodies(a, "link.b") == ["3", "4"]
    links.mend(5_000)
    assert bodies(b, "q") == ["3", "4"]


def test_topics_both_ways_do_not_go_round() -> None:
    topics = {"news": {"address": "news.#"}}
    a = SimBroker(linked(topics=topics))
    b = SimBroker(linked(name="b", url="amqp://a:5672", topics=topics))
    there, back = SimLinks(a, {"b": b}), SimLinks(b, {"b": a})
    here, other = AmqpSim(a), AmqpSim(b)
    here.receiver("news.#", "topic")
    other.receiver("news.#", "topic")
    there.run()
    back.run()
    here.send(here.sender("news.sport", "topic"), message("goal"))
    other.send(other.sender("news.weather", "topic"), message("rain"))
    for _ in range(6):
        there.run()
        back.run()
    assert len(here.take()) == len(other.take()) == 2
    assert held(a, "DLQ") == held(b, "DLQ") == []


@pytest.mark.parametrize("kind", ["send", "receive"])
def test_a_loop_ends_as_a_dead_letter(kind: str) -> None:
    routes: dict[str, Any] = {kind: {"round": {"queue": "q", "address": "q"}}}
    a, b = SimBroker(linked(**routes)), SimBroker(linked(name="b", url="amqp://a:5672", **routes))
    there, back = SimLinks(a, {"b": b}), SimLinks(b, {"b": a})
    send(a, "q", "round")
    for _ in range(40):
        there.run()
        back.run()
    letters = [*dead_letters(a), *dead_letters(b)]
    assert len(letters) == 1
    said = letters[0].header.annotations or {}
    assert said["_AMQ_DL_REASON"] == "link-hops"
    assert "max-hops is 4" in str(said["_AMQ_DL_TEXT"])
    assert letters[0].hops == 4
    assert held(a, "q") == held(b, "q") == []


@pytest.mark.parametrize("address", ["", "DLQ"])
def test_a_message_that_goes_round_waits_if_nothing_keeps_dead_letters(address: str) -> None:
    a = SimBroker(linked(send=SEND["send"]))
    sends = {"back": {"queue": "orders", "address": "orders", "use-dead-letter": False}}
    link: dict[str, Any] = {"max-hops": 1, "send": sends}
    kept: dict[str, object] = {"match": "orders", "dead-letter-address": address}
    b = SimBroker(linked(kept, name="b", **link))
    there, back = SimLinks(a, {"b": b}), SimLinks(b, {"b": a})
    send(a, "orders.out", "1")
    there.run()
    back.run()
    assert bodies(b, "orders") == ([] if address else ["1"])
    assert bodies(b, "DLQ") == (["1"] if address else [])
    assert back.route("back").state is (State.RUNNING if address else State.RETRYING)
    assert back.route("back").error == ("" if address else "it has passed 1 brokers, and max-hops is 1")


@interpreted
def test_a_message_that_ends_the_amqp_link_dies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end detaches for it and answers nothing: what was under way is sent one by one, until it is found."""
    monkeypatch.setattr(Sender, "message_bytes_max", None)  # some brokers do not say how large one may be
    small = configured().limits.model_copy(update={"body_bytes_max": 2_000, "large_body_bytes_max": 0})
    a = SimBroker(linked({"match": "orders.out", "max-delivery-attempts": 3}, send=SEND["send"]))
    b = SimBroker(configured(limits=small))
    links = SimLinks(a, {"b": b})
    good = [f"{number:03}" for number in range(40)]
    send(a, "orders.out", *good[:20], "x" * 200_000, *good[20:])
    links.run()
    for _ in range(60):
        links.advance(1_000)
    assert bodies(b, "orders") == good
    assert [each[:1] for each in bodies(a, "DLQ")] == ["x"]
    [letter] = dead_letters(a)
    assert "amqp:link:message-size-exceeded" in str((letter.header.annotations or {})["_AMQ_DL_TEXT"])
    assert held(a, "orders.out") == []
    assert links.route("orders").state is State.RUNNING
    assert links.route("orders").suspects == 0


# -- other ends that do something else ---------------------------------------------------------------------------------


@interpreted
def test_without_an_anonymous_relay_a_topics_route_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.amqp.session.OFFERED", ())
    a, b, links = pair({**SEND, "topics": {"news": {"address": "news.#"}}})
    assert "no anonymous relay" in links.route("news").error
    for _ in range(5):
        links.advance(1_000)
        assert links.route("news").state is State.RETRYING
    peer = links.wires["b"].peer
    assert isinstance(peer, SimPeer)
    assert isinstance(peer.session, AmqpSession)
    assert len(peer.session.codec.sessions) == 1, "what the route had begun has ended"
    send(a, "orders.out", "1")
    links.run()
    assert bodies(b, "orders") == ["1"], "the other routes go on"


class Other:
    """A broker that lets every connection in and begins and attaches what it is asked for; others do more `on` events.

    `ends`: the errors of what ended.
    """

    LIMITS = Limits()

    def __init__(self) -> None:
        self.ends: list[object] = []

    def accept(self, remote: str, heard: list[bytes]) -> OtherEnd:
        return OtherEnd(self, heard)

    def run(self) -> None:
        """It does all at once."""

    def advance(self, ms: int) -> None:
        """It has no clock."""

    def on(self, codec: AmqpConnection, event: object) -> None:
        if isinstance(event, SaslInit):
            codec.send_sasl(SaslOutcome(SaslCode.OK))
        elif isinstance(event, Open):
            codec.send_open()
        elif isinstance(event, Began) and event.begin.remote_channel is None:
            event.session.send_begin()
        elif isinstance(event, Attached):
            event.link.send_attach(source=event.attach.source, target=event.attach.target)
        elif isinstance(event, Detached | Ended):
            self.ends.append(event.error)


class OtherEnd:
    """One connection to it."""

    def __init__(self, other: Other, heard: list[bytes]) -> None:
        self.closed = False
        self._other = other
        self._heard = heard
        self._codec = AmqpConnection(other.LIMITS, container_id="other", mechanisms=("ANONYMOUS",))

    def raw(self, data: bytes) -> None:
        codec = self._codec
        codec.receive_data(data)
        while events := codec.events():
            for event in events:
                self._other.on(codec, event)
        if data := codec.data_to_send():
            self._heard.append(data)

    def abort(self) -> None:
        self.closed = True


class Attaching(Other):
    """A broker that treats the link as its own: it begins a session, and attaches links on the link's."""

    def on(self, codec: AmqpConnection, event: object) -> None:
        if isinstance(event, Attached) and event.link.name == "mine":
            return
        super().on(codec, event)
        if isinstance(event, Open):
            codec.new_session().send_begin()
        elif isinstance(event, Attached):
            [session] = [each for each in codec.sessions if each is event.link.session]
            session.new_sender("mine").send_attach(source=Source("x"), target=Target("orders.out"))


class Breaking(Other):
    """A broker that breaks a rule of the link's session the first time."""

    def on(self, codec: AmqpConnection, event: object) -> None:
        super().on(codec, event)
        if isinstance(event, Attached):
            assert isinstance(event.link, Receiver)
            if self.ends:
                event.link.send_credit(10)
            else:
                event.link.session.send(Flow(0, 100, 0, 100, handle=77))
        elif isinstance(event, Transfers):
            self.ends += event.payloads
            event.link.session.send_disposition(RECEIVER, event.ids[0], event.ids[-1], state=Accepted())


def test_a_route_whose_session_the_other_end_breaks_begins_anew() -> None:
    a = SimBroker(linked(send=SEND["send"]))
    other = Breaking()
    links = SimLinks(a, {"b": other})
    links.run()
    [error] = other.ends
    assert isinstance(error, Error)
    assert error.condition == "amqp:session:unattached-handle"
    assert links.route("orders").state is State.RETRYING
    send(a, "orders.out", "1")
    links.advance(5_000)
    assert links.route("orders").state is State.RUNNING
    assert held(a, "orders.out") == []
    assert len(other.ends) == 2, "the message has come"


class Narrow(Other):
    """A broker that takes only the smallest frames."""

    LIMITS = Limits(frame_bytes_max=512)

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def on(self, codec: AmqpConnection, event: object) -> None:
        super().on(codec, event)
        if isinstance(event, Attached):
            self.names.append(event.link.name)


def test_a_selector_too_long_for_the_other_end_keeps_no_link_from_its_work() -> None:
    a = SimBroker(linked(receive={"orders": ON_DEMAND}))
    other = Narrow()
    links = SimLinks(a, {"b": other})
    links.run()
    long, short = AmqpSim(a), AmqpSim(a)
    long.receiver("orders", "queue", credit=10, filter=selecting(f"colour = '{'r' * 400}'"))
    short.receiver("orders", "queue", credit=10, filter=selecting("colour = 'red'"))
    for _ in range(4):
        links.advance(1_000)
    assert other.names == ["a.b.orders", "a.b.orders.1"]
    assert other.ends == []
    long.abort()
    links.advance(LINGER_MS + 1_000)
    assert (links.route("orders").state, links.route("orders").error) == (State.RUNNING, "")


def test_a_route_whose_names_are_too_long_for_the_other_end_waits_alone() -> None:
    sends = {"orders": {"queue": "orders.out", "address": "o" * 400}, "other": {"queue": "q", "address": "q"}}
    links = SimLinks(SimBroker(linked(send=sends)), {"b": Narrow()})
    links.run()
    assert "the peer takes 512" in links.route("orders").error
    assert [links.route(name).state for name in ("orders", "other")] == [State.RETRYING, State.RUNNING]


class Enlisting(Other):
    """A broker that sends in a transaction, which a link has none of."""

    def on(self, codec: AmqpConnection, event: object) -> None:
        super().on(codec, event)
        if isinstance(event, Credit):
            event.link.send([message("1")], [1], state=TransactionalState(b"x"))


def test_the_reason_that_ends_a_route_s_link_is_reported() -> None:
    a = SimBroker(linked(receive={"invoices": {"queue": "invoices", "address": "invoices.in"}}))
    other = Enlisting()
    links = SimLinks(a, {"b": other})
    links.run()
    assert [error.condition for error in other.ends if isinstance(error, Error)] == ["amqp:not-allowed"]
    assert links.route("invoices").state is State.RETRYING
    assert links.route("invoices").error == "amqp:not-allowed: a link has no transactions"


@interpreted
def test_a_route_waits_while_the_other_end_has_no_session_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_free(_: AmqpConnection) -> Session:
        raise connection_error(RESOURCE_LIMIT_EXCEEDED, "no channel is free")

    with monkeypatch.context() as patch:
        patch.setattr(AmqpConnection, "new_session", none_free)
        a, b, links = pair()
    assert links.link().state is State.RUNNING
    assert links.route("orders").state is State.RETRYING
    assert links.route("orders").error == "no channel is free"
    send(a, "orders.out", "1")
    links.advance(5_000)
    assert bodies(b, "orders") == ["1"]


def test_another_broker_has_no_use_of_a_link_s_connection() -> None:
    a = SimBroker(linked(send=SEND["send"]))
    other = Attaching()
    links = SimLinks(a, {"b": other})
    links.run()
    end, refusal = other.ends
    assert end is None, "its session is answered, and ended"
    assert isinstance(refusal, Error)
    assert refusal.condition == "amqp:not-allowed"
    assert links.route("orders").state is State.RUNNING


def test_routes_that_share_a_queue_hold_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.amqp.attach._OFFERED_SENDERS", ())
    remote = {n: {"queue": f"{n}.there", "transmission-queue": "outbox", "in-doubt": "hold"} for n in ("x", "y")}
    a, b, links = pair({"remote-queues": remote}, {"match": "outbox", "delivery-count-persistence": "strict"})
    links.wires["b"].holding = True
    send(a, "x", "1", "2")
    send(a, "y", "3")
    links.wires["b"].deliver_there()
    links.cut()
    a = a.restart()
    links = SimLinks(a, {"b": b})
    links.advance(1_000)
    assert (links.route("x").in_doubt, links.route("y").in_doubt) == (2, 1)
    links.do(links.links.resolve, "b", "x", discard=True)
    assert bodies(a, "outbox") == ["3"], "what the other route holds is its own"


def test_another_address_under_a_topics_route_s_name_is_refused() -> None:
    a = SimBroker(linked(topics={"news": {"address": "news.#"}}))
    a.shut_down()
    with pytest.raises(AlreadyInUse, match=r"link\.b\.news exists with address news\.#, not olds\.#"):
        SimBroker(linked(topics={"news": {"address": "olds.#"}}), files=a.files)
