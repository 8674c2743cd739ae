"""What a receiving route has under way when its connection is lost: kept for it at a broker whose queue others read."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine import Consumer
from broker.engine.delivery.reservations import RESERVATIONS_MAX
from broker.sessions.amqp.link_id import LINK_CAPABILITY, RESERVE_MS, RESERVE_NAME
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.links.model import State
from protocols.amqp.errors import INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED
from protocols.amqp.performatives import Accepted, Header
from protocols.amqp.receiver import Receiver
from protocols.amqp.types import Described
from store.record import RemovalReason
from tests.broker.sessions import large
from tests.broker.sessions.amqp.harness import SELECTOR
from tests.broker.sessions.links.pairs import bodies, pair, send
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, Delivery, message
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked

ROUTE = {"queue": "invoices", "address": "invoices.in"}
RECEIVE = {"receive": {"invoices": ROUTE}}
ON_DEMAND = {"receive": {"invoices": ROUTE | {"only-with-consumers": True}}}

#: How long a route's messages are kept, unless it says otherwise.
KEPT_MS = 600_000


class Reader:
    """A client that takes what a queue has for it."""

    def __init__(self, broker: SimBroker, queue: str = "invoices", **more: Any) -> None:
        self._client = AmqpSim(broker)
        self._link = self._client.receiver(queue, "queue", credit=100, **more)

    def take(self) -> list[Delivery]:
        """What has come; it is accepted."""
        found = self._client.take()
        if found:
            self._client.settle(*found, state=Accepted())
        return found

    def bodies(self) -> list[str]:
        """The same, as it was sent."""
        return sorted(str(each.message.body()[1][0]) for each in self.take())


def stored_and_unanswered(*numbers: str) -> tuple[SimBroker, SimBroker, SimLinks]:
    """A broker that has fetched messages, and that the other end does not know to have them."""
    a, b, links = pair(RECEIVE)
    fetch_unheard(a, b, links, *numbers)
    assert bodies(a, "invoices.in") == sorted(numbers)
    return a, b, links


def fetch_unheard(a: SimBroker, b: SimBroker, links: SimLinks, *numbers: str, **more: Any) -> None:
    """Send messages to one broker and let the other one fetch and store them; its answers do not arrive."""
    a.hold_disk()
    send(b, "invoices", *numbers, **more)
    links.run()
    links.wires["b"].holding = True
    a.catch_up()
    a.release_disk()


def kept(broker: SimBroker, queue: str = "invoices") -> list[Consumer]:
    """Those that stand in for links which are away."""
    found = broker.engine.queue(queue)
    return [each for each in found.holders() if each.away]


def lose(links: SimLinks) -> None:
    """The link's connection is lost here, and the other end has not noticed."""
    wire = links.wires.pop("b")
    wire.peer = _Silent()
    wire.abort()
    links.broker.run()


class _Silent:
    closed = False

    def raw(self, data: bytes) -> None:
        """Nobody hears it."""

    def abort(self) -> None:
        """Nobody is told."""


def test_messages_that_have_arrived_are_given_to_nobody_else() -> None:
    a, b, links = stored_and_unanswered("1", "2", "3")
    links.cut(down=True)
    reader = Reader(b)
    send(b, "invoices", "4")
    b.advance(KEPT_MS // 2)
    assert reader.bodies() == ["4"], "only what the link has not got"
    assert [len(each.unacked) for each in kept(b)] == [3]
    links.mend(60_000)
    assert bodies(a, "invoices.in") == ["1", "2", "3"]
    assert (held(b, "invoices"), reader.bodies(), kept(b)) == ([], [], [])
    left = b.engine.queue("invoices").left
    assert (left[RemovalReason.FORWARDED], left[RemovalReason.CONSUMED]) == (3, 1)


def test_messages_that_have_not_arrived_come_when_the_link_is_back() -> None:
    a, b, links = pair(RECEIVE)
    links.wires["b"].holding = True
    send(b, "invoices", "1", "2", "3")
    b.run()
    links.cut()
    reader = Reader(b)
    assert reader.bodies() == []
    links.advance(5_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), reader.bodies()) == (["1", "2", "3"], [], [])


@pytest.mark.parametrize("times", [1, 3])
def test_a_crash_there_changes_nothing(times: int) -> None:
    a, b, links = stored_and_unanswered("1", "2", "3")
    links.cut(down=True)
    for _ in range(times):
        b = b.restart()
    reader = Reader(b)
    send(b, "invoices", "4")
    assert reader.bodies() == ["4"]
    links.others["b"] = b
    links.mend(60_000)
    assert bodies(a, "invoices.in") == ["1", "2", "3"]
    assert (held(b, "invoices"), reader.bodies()) == ([], [])
    b = b.restart()
    assert (held(b, "invoices"), b.engine.sessions.all()[1:]) == ([], []), "the link's own is all there is"


def test_a_crash_here_changes_nothing() -> None:
    a, b, links = stored_and_unanswered("1", "2", "3")
    links.cut()
    reader = Reader(b)
    a = a.restart()
    links = SimLinks(a, {"b": b})
    links.advance(1_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), reader.bodies()) == (["1", "2", "3"], [], [])


def test_a_crash_of_both_while_they_come_again() -> None:
    a, b, links = stored_and_unanswered(*map(str, range(100, 120)))
    links.cut()
    a.advance(1_000)
    links.look()
    assert "b" in links.wires
    for _ in range(6):
        b.run()
        a.run()
        links.wires["b"].carry()
    links.wires["b"].holding = True
    b.run()
    links.cut()
    a, b = a.restart(), b.restart()
    reader = Reader(b)
    links = SimLinks(a, {"b": b})
    links.advance(1_000)
    assert len(bodies(a, "invoices.in")) == 20
    assert (held(b, "invoices"), reader.bodies()) == ([], [])


def test_messages_that_never_left_are_for_others_at_once() -> None:
    _a, b, links = pair(RECEIVE)
    b.hold_disk()
    send(b, "invoices", "1")
    b.step()  # it is stored, and about to leave
    links.cut()
    reader = Reader(b)
    b.release_disk()
    assert reader.bodies() == ["1"]


def test_after_its_time_others_get_it_and_are_told() -> None:
    a, b, links = stored_and_unanswered("1", "2")
    links.cut(down=True)
    reader = Reader(b)
    b.advance(KEPT_MS)
    found = reader.take()
    assert [each.message.header.first_acquirer for each in found] == [False, False], "they may have been processed"
    (said,) = b.reported("link.unreserved")
    assert (said["queue"], said["messages"]) == ("invoices", 2)
    assert (held(b, "invoices"), kept(b), b.engine.sessions.all()) == ([], [], [])
    links.mend(60_000)
    assert len(bodies(a, "invoices.in")) == 2, "at least once"


def test_the_time_begins_anew_with_a_restart() -> None:
    _a, b, links = stored_and_unanswered("1")
    links.cut()
    b.advance(KEPT_MS - 1)
    b = b.restart()
    reader = Reader(b)
    b.advance(KEPT_MS - 1)
    assert reader.bodies() == []
    b.advance(1)
    assert reader.bodies() == ["1"]


def test_a_route_says_for_how_long() -> None:
    _a, b, links = pair({"receive": {"invoices": ROUTE | {"reserve": "1s"}}})
    links.wires["b"].holding = True
    send(b, "invoices", "1")
    links.cut(down=True)
    reader = Reader(b)
    b.advance(999)
    assert reader.bodies() == []
    b.advance(1)
    assert reader.bodies() == ["1"]


def test_a_route_may_do_without() -> None:
    _a, b, links = pair({"receive": {"invoices": ROUTE | {"reserve": 0}}})
    links.wires["b"].holding = True
    send(b, "invoices", "1")
    links.cut(down=True)
    assert Reader(b).bodies() == ["1"]


def test_an_operator_sees_and_releases_it() -> None:
    _a, b, links = stored_and_unanswered("1", "2")
    links.cut(down=True)
    reader = Reader(b)
    (stand_in,) = kept(b)
    assert "a.b.invoices" in stand_in.client_id
    assert len(stand_in.unacked) == 2
    b.tick.enter()
    b.engine.consumers.dismiss(stand_in, "it does not come back")
    b.run()
    assert (reader.bodies(), kept(b)) == (["1", "2"], [])
    assert b.reported("link.unreserved")


def test_a_link_that_comes_back_before_its_loss_is_noticed_takes_its_own_place() -> None:
    a, b, links = stored_and_unanswered("1", "2")
    lose(links)
    reader = Reader(b)
    links.advance(5_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), reader.bodies()) == (["1", "2"], [], [])
    assert len(b.engine.queue("invoices").consumers) == 2


def test_another_broker_of_the_same_name_is_another() -> None:
    a, b, links = stored_and_unanswered("1", "2")
    links.cut(down=True)
    other = SimBroker(linked(receive={"invoices": ROUTE}), seed=99)
    assert other.engine.journal.broker_id != a.engine.journal.broker_id
    others = SimLinks(other, {"b": b})
    others.run()
    send(b, "invoices", "3")
    others.run()
    assert bodies(other, "invoices.in") == ["3"]
    assert [len(each.unacked) for each in kept(b)] == [2]


def test_messages_refused_here_are_dead_there() -> None:
    """An answer is an answer: nothing is kept."""
    full = {"match": "invoices.in", "max-size-messages": 0, "address-full-policy": "FAIL"}
    a, b, links = pair(RECEIVE, full)
    links.wires["b"].holding = True
    send(b, "invoices", "1")
    b.run()
    links.cut()
    links.advance(5_000)
    assert (held(a, "invoices.in"), held(b, "invoices")) == ([], [])
    assert len(held(b, "DLQ")) == 1
    assert b.engine.queue("invoices").reserved == {}


def test_messages_that_expire_while_reserved_expire_when_they_are_given_back() -> None:
    _a, b, links = pair(RECEIVE)
    links.wires["b"].holding = True
    client = AmqpSim(b)
    client.send(client.sender("invoices", "queue"), message("1", header=Header(True, ttl=1_000)))
    links.cut(down=True)
    reader = Reader(b)
    b.advance(KEPT_MS - 1)
    assert len(held(b, "invoices")) == 1
    b.advance(30_001)
    assert (reader.bodies(), held(b, "invoices")) == ([], [])
    assert b.engine.queue("invoices").left[RemovalReason.EXPIRED] == 1


def test_a_queue_that_is_deleted_takes_it_along() -> None:
    _a, b, links = stored_and_unanswered("1", "2")
    links.cut(down=True)
    b.tick.enter()
    b.engine.delete_queue(b.engine.queue("invoices"))
    b.run()
    assert b.engine.sessions.all() == []
    b = b.restart()
    assert "invoices" not in b.engine.queues
    assert b.engine.sessions.all() == []


def test_a_link_that_reads_another_queue_has_given_up_the_first() -> None:
    a, b, links = stored_and_unanswered("1", "2")
    links.cut()
    a.files.crash()
    a = SimBroker(linked(receive={"invoices": ROUTE | {"queue": "others"}}), files=a.files, now=a.now)
    send(b, "others", "3")
    links = SimLinks(a, {"b": b})
    links.run()
    assert bodies(a, "invoices.in") == ["1", "2", "3"]
    assert Reader(b).bodies() == ["1", "2"], "it will not ask for them"


def test_messages_that_a_route_fetched_for_consumers_are_settled_when_these_have_gone() -> None:
    a, b, links = pair(ON_DEMAND)
    client = AmqpSim(a)
    client.receiver("invoices.in", "queue", credit=3)
    links.advance(1_000)
    fetch_unheard(a, b, links, "1", "2", "3", "4")
    client.abort()
    links.cut()
    reader = Reader(b)
    assert reader.bodies() == ["4"]
    links.advance(5_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), kept(b)) == (["1", "2", "3"], [], [])
    send(b, "invoices", "5")
    links.advance(1_000)
    assert reader.bodies() == ["5"], "nobody waits for it here"


def test_messages_that_a_part_of_a_route_had_come_by_the_whole() -> None:
    a, b, links = pair(ON_DEMAND)
    selecting = {"selector": Described(SELECTOR, "colour = 'red'")}
    client = AmqpSim(a)
    client.receiver("invoices.in", "queue", credit=3, filter=selecting)
    links.advance(1_000)
    fetch_unheard(a, b, links, "1", "2", application={"colour": "red"})
    client.abort()
    links.cut()
    reader = Reader(b)
    assert [len(each.unacked) for each in kept(b)] == [2]
    links.advance(5_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), reader.bodies()) == (["1", "2"], [], [])
    assert links.route("invoices").state is State.RUNNING


def test_a_part_that_ends_leaves_what_it_had_to_the_whole() -> None:
    a, b, links = pair(ON_DEMAND)
    selecting = {"selector": Described(SELECTOR, "colour = 'red'")}
    client = AmqpSim(a)
    client.receiver("invoices.in", "queue", credit=3, filter=selecting)
    links.advance(1_000)
    client.abort()
    links.wires["b"].holding = True
    send(b, "invoices", "1", "2", application={"colour": "red"})
    links.advance(10_000)  # the part ends here, while these are on their way to it
    links.wires["b"].holding = False
    links.advance(10_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices")) == (["1", "2"], [])
    assert links.route("invoices").state is State.RUNNING


def test_a_strict_queue_keeps_it_too() -> None:
    a = SimBroker(linked(receive={"invoices": ROUTE}))
    b = SimBroker(configured({"match": "invoices", "delivery-count-persistence": "strict"}))
    links = SimLinks(a, {"b": b})
    links.run()
    fetch_unheard(a, b, links, "1", "2")
    links.cut()
    b = b.restart()
    reader = Reader(b)
    links.others["b"] = b
    links.advance(5_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), reader.bodies()) == (["1", "2"], [], [])


def test_it_is_kept_when_its_segment_is_cleaned() -> None:
    a, b, links = stored_and_unanswered("1", "2")
    links.cut(down=True)
    before = b.engine.journal.segment
    send(b, "elsewhere", *["x" * 60_000] * 80)
    assert b.engine.journal.segment > before
    b.tick.enter()
    assert b.engine.cleaner.whole(before) >= 2
    b.run()
    b = b.restart()
    reader = Reader(b)
    assert reader.bodies() == []
    links.others["b"] = b
    links.mend(60_000)
    assert (bodies(a, "invoices.in"), held(b, "invoices"), reader.bodies()) == (["1", "2"], [], [])


@interpreted
def test_a_broker_that_is_no_bartleby_is_told_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.amqp.session.PRODUCT", "another")
    _a, b, links = pair(RECEIVE)
    (consumer,) = b.engine.queue("invoices").consumers
    assert isinstance(consumer.sink, OutgoingLink)
    assert consumer.sink.link.attach is not None
    assert consumer.sink.link.attach.properties is None
    links.wires["b"].holding = True
    send(b, "invoices", "1")
    links.cut(down=True)
    assert Reader(b).bodies() == ["1"]


@pytest.mark.parametrize(
    "properties",
    [
        {RESERVE_NAME: "a", RESERVE_MS: 0},
        {RESERVE_NAME: "a", RESERVE_MS: "long"},
        {RESERVE_NAME: "a"},
        {RESERVE_NAME: 7, RESERVE_MS: 1_000},
        {RESERVE_NAME: "a" * 1_025, RESERVE_MS: 1_000},
    ],
)
def test_nonsense_is_refused(properties: dict[str, object]) -> None:
    b = SimBroker(configured())
    client = AmqpSim(b)
    link = client.receiver("invoices", "queue", desired_capabilities=(LINK_CAPABILITY,), properties=properties)
    assert client.refused(link).condition == INVALID_FIELD
    assert b.engine.sessions.all() == []


def test_a_link_may_not_have_messages_kept_for_longer_than_a_day() -> None:
    b = SimBroker(configured())
    asked = {RESERVE_NAME: "a", RESERVE_MS: 1 << 62}
    AmqpSim(b).receiver("invoices", "queue", desired_capabilities=(LINK_CAPABILITY,), properties=asked)
    (session,) = b.engine.sessions.all()
    assert session.definition == {"reserved": "invoices", "kept_ms": 86_400_000}


def test_links_of_two_users_that_call_themselves_the_same_are_two() -> None:
    b = SimBroker(configured(), users={"ann": "1", "bob": "2"})
    asked = {RESERVE_NAME: "a", RESERVE_MS: 1_000}
    for login in (("ann", "1"), ("bob", "2")):
        AmqpSim(b, login=login).receiver("invoices", "queue", desired_capabilities=(LINK_CAPABILITY,), properties=asked)
    assert [session.name for session in b.engine.sessions.all()] == ["$link/in/ann/a", "$link/in/bob/a"]


@pytest.mark.parametrize("other", ["ann/a", "ann%2Fa", "ann%252Fa"])
def test_a_name_with_a_slash_is_not_that_of_another_users_link(other: str) -> None:
    b = SimBroker(configured(), users={"ann": "1", other: "2"})
    for login, name in ((("ann", "1"), f"{other[4:]}/b"), ((other, "2"), "b")):
        asked = {RESERVE_NAME: name, RESERVE_MS: 1_000}
        AmqpSim(b, login=login).receiver("invoices", "queue", desired_capabilities=(LINK_CAPABILITY,), properties=asked)
    assert len(b.engine.sessions.all()) == 2
    assert len(b.engine.queue("invoices").consumers) == 2, "both are attached"


def test_a_user_has_a_thousand_links_with_reservations() -> None:
    b = SimBroker(configured(), users={"ann": "1", "bob": "2"})

    def reserve(client: AmqpSim, number: int) -> Receiver:
        asked = {RESERVE_NAME: f"{number}", RESERVE_MS: 1_000}
        return client.receiver("invoices", "queue", credit=0, desired_capabilities=(LINK_CAPABILITY,), properties=asked)

    ann, again, bob = (AmqpSim(b, login=login) for login in (("ann", "1"), ("ann", "1"), ("bob", "2")))
    links = [reserve(ann, number) for number in range(RESERVATIONS_MAX)]
    error = again.refused(reserve(again, RESERVATIONS_MAX))
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert error.description is not None
    assert "user ann has 1000 links with reservations, the most: end one" in error.description
    reserve(bob, 0)
    ann.detach(links[0])
    reserve(again, RESERVATIONS_MAX)
    reserve(again, 1)  # takes the place of the same link
    assert len(b.engine.sessions.all()) == RESERVATIONS_MAX + 1


SEND = {"send": {"orders": {"queue": "orders.out", "address": "orders", "reserve": "1min"}}}


@pytest.mark.parametrize("crash", [False, True])
def test_a_sending_route_has_it_kept_if_it_is_to(crash: bool) -> None:
    a, b, links = pair(SEND)
    links.wires["b"].holding = True
    send(a, "orders.out", "1", "2", "3")
    links.wires["b"].deliver_there()
    links.cut(down=True)
    if crash:
        a = a.restart()
        links = SimLinks(a, {"b": b})
        links.down.add("b")
    reader = Reader(a, "orders.out")
    send(a, "orders.out", "4")
    assert reader.bodies() == ["4"]
    links.advance(1_000)
    links.mend(30_000)
    assert (bodies(b, "orders"), held(a, "orders.out"), reader.bodies()) == (["1", "2", "3"], [], [])


def test_a_sending_route_whose_broker_stays_away_gives_up() -> None:
    a, _b, links = pair(SEND)
    links.wires["b"].holding = True
    send(a, "orders.out", "1")
    links.cut(down=True)
    reader = Reader(a, "orders.out")
    a.advance(59_999)
    assert reader.bodies() == []
    a.advance(1)
    assert reader.bodies() == ["1"]


def test_a_large_message_is_kept_and_comes_again() -> None:
    limits = configured().limits.model_copy(update={"header_bytes_max": large.LARGE})
    a = SimBroker(linked(receive={"invoices": ROUTE}, sections={"limits": limits}))
    b = SimBroker(large.config(header_bytes_max=large.LARGE))
    links = SimLinks(a, {"b": b})
    links.run()
    links.wires["b"].holding = True
    client = AmqpSim(b)
    client.send(client.sender("invoices", "queue"), large.message(large.body(30 * large.LARGE)))
    links.cut(down=True)
    b = b.restart()
    reader = Reader(b)
    assert (reader.take(), len(held(b, "invoices"))) == ([], 1)
    links.others["b"] = b
    links.mend(60_000)
    (content,) = held(a, "invoices.in")
    assert large.body(30 * large.LARGE) in content
    assert (held(b, "invoices"), reader.take()) == ([], [])
