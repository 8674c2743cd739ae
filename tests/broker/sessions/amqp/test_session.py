"""AMQP connections: logging in, opening, closing, errors, and the two ways of a message."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from broker.sessions.amqp.message import APPLICATION_PROPERTIES_MAX
from broker.sessions.read_steps import ReadSteps
from protocols.amqp.events import Attached, Detached, Dispositions
from protocols.amqp.frames import frame as amqp_frame
from protocols.amqp.limits import Limits
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    MESSAGE_ANNOTATIONS,
    encode_annotations,
    encode_section,
)
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Error,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    SenderSettleMode,
    Source,
    Target,
)
from protocols.amqp.types import Described, Symbol, Timestamp, UInt
from tests.broker.engine.queues.paging.backlogs import PAGING
from tests.broker.sessions.amqp.harness import SELECTOR, started
from tests.simulation.world import counts, held, small
from tests.support.amqp_client import AmqpSim, message, rejection
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_files import refusing
from tests.support.stomp_client import frame

# -- coming in and leaving ---------------------------------------------------------------------------------------------


def test_open_says_who_we_are_and_what_we_can(client: AmqpSim) -> None:
    opened = client.open
    assert opened is not None
    assert opened.container_id == "bartleby"
    assert opened.idle_time_out == 30_000
    assert {"ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY"} <= set(opened.offered_capabilities)
    assert opened.properties is not None
    assert opened.properties["product"] == "bartleby"


def test_without_users_nobody_has_to_log_in_and_whoever_does_comes_in(broker: SimBroker) -> None:
    client = AmqpSim(broker, login=("bob", "x"))
    assert (client.offered, client.sasl_code) == (("ANONYMOUS", "PLAIN"), 0)
    assert client.open is not None


def test_users_have_to_log_in() -> None:
    broker = SimBroker(small(), users={"bob": "secret"})
    client = AmqpSim(broker, login=("bob", "secret"))
    assert (client.offered, client.sasl_code) == (("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"), 0)
    assert client.open is not None
    wrong = AmqpSim(broker, login=("bob", "wrong"))
    assert (wrong.sasl_code, wrong.closed, wrong.open) == (1, True, None)
    assert broker.reported("login.refused")[0]["user"] == "bob"
    without = AmqpSim(broker)
    assert (without.closed, without.open) == (True, None)


def test_one_link_too_many_is_refused_and_the_others_go_on() -> None:
    limits = configured().limits.model_copy(update={"subscriptions_per_connection_max": 3})
    broker = SimBroker(configured(limits=limits))
    client = AmqpSim(broker)
    sender = client.sender("a", "queue")
    links = [client.receiver("a", "queue", name=f"{number}", credit=1) for number in range(2)]
    error = client.refused(client.receiver("a", "queue", name="one too many", credit=0))
    assert error.condition == "amqp:resource-limit-exceeded"
    assert error.description == "attach: a connection may have 3 links."
    assert [outcome.settled for outcome in client.send(sender, message("1"), message("2"))] == [True, True]
    assert sorted(str(body) for body in client.bodies()) == ["1", "2"]
    client.detach(links[0])
    assert client.answer(client.receiver("a", "queue", name="in its place", credit=0)).source is not None


@pytest.mark.parametrize(("timeout", "taken"), [(None, True), (0, True), (1, False), (499, False), (500, True)])
def test_an_idle_timeout_that_cannot_be_kept_is_refused(broker: SimBroker, timeout: int | None, taken: bool) -> None:
    """2.4.5: a peer that cannot support a timeout as short as that closes the connection with an error."""
    client = AmqpSim(broker, idle_time_out=timeout)
    assert client.closed != taken
    if not taken:
        error = client.closing
        assert error.condition == "amqp:invalid-field"
        assert error.description == f"open: an idle-time-out is at least 500 ms, not {timeout}."


def firsts(client: AmqpSim) -> list[tuple[object, bool]]:
    return [(each.body, each.message.header.first_acquirer) for each in client.take()]


@pytest.mark.parametrize("state", [Released(), Modified(), Modified(delivery_failed=True), None])
@pytest.mark.parametrize("ttl", [None, 60_000])
def test_the_first_acquirer_is_told_so(
    broker: SimBroker, client: AmqpSim, state: Released | Modified | None, ttl: int | None
) -> None:
    """3.2.1: true only if no other link has had the message."""
    sender = client.sender("a", "queue")
    client.send(sender, *[message(body, header=Header(True, ttl=ttl)) for body in ("1", "2")])
    link = client.receiver("a", "queue", credit=1)
    [delivery] = client.arrived
    assert firsts(client) == [("1", True)]
    if state is None:
        client.detach(link)
    else:
        client.settle(delivery, state=state)
    other = AmqpSim(broker)
    other.receiver("a", "queue")
    deliveries = list(other.arrived)
    assert firsts(other) == [("1", False), ("2", True)]
    other.settle(*deliveries)
    assert held(broker, "a") == []
    assert broker.engine.queue("a").acquired == {}, "nothing is kept of messages that are gone"


def test_after_a_restart_nobody_is_known_to_be_the_first(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("before"))
    again = broker.restart()
    other = AmqpSim(again)
    other.send(other.sender("a", "queue"), message("after"))
    other.receiver("a", "queue")
    assert firsts(other) == [("before", False), ("after", True)]


def test_a_browser_is_never_the_first(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    other = AmqpSim(broker)
    other.receiver("a", "queue", distribution_mode="copy")
    assert firsts(other) == [("1", False)]
    client.receiver("a", "queue")
    assert firsts(client) == [("1", True)], "looking at a message acquires nothing"


def test_messages_that_never_left_have_not_been_acquired() -> None:
    broker = SimBroker(small({"match": "a", "delivery-count-persistence": "strict"}), lazy_disk=True)
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("1"))
    broker.catch_up()
    link = client.receiver("a", "queue")
    client.detach(link)
    broker.catch_up()
    other = AmqpSim(broker)
    other.receiver("a", "queue")
    broker.catch_up()
    assert [first for _, first in firsts(other)] == [True]


def test_close_is_answered_and_deliveries_are_not_held_against_anybody(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a")
    assert client.bodies() == ["1"]
    client.codec.send_close()
    client.say()
    assert client.closed_with is None
    assert client.closed
    assert list(counts(broker, "a").values()) == [0]


def test_a_lost_connection_is_a_failed_delivery_of_everything(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"), message("2"))
    client.receiver("a", credit=2)
    assert client.bodies() == ["1", "2"]
    client.drop()
    other = AmqpSim(broker)
    other.receiver("a")
    assert [d.message.header.delivery_count for d in other.take()] == [1, 1]


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_messages_that_had_left_over_stomp_are_no_first_delivery(
    broker: SimBroker, client: AmqpSim, protocol: str
) -> None:
    """One of the messages sent ahead counts as failed; all of them may have been processed."""
    client.send(client.sender("a", "queue"), message("1"), message("2"), message("3"))
    lost = broker.connect()
    lost.subscribe("/queue/a")
    assert len(lost.messages()) == 3
    lost.drop()
    for _ in range(2):
        if protocol == "amqp":
            other = AmqpSim(broker)
            other.receiver("a")
            assert [d.message.header.delivery_count for d in other.take()] == [1, 1, 1]
            other.codec.send_close()
            other.say()
        else:
            stomp = broker.connect()
            stomp.subscribe("/queue/a")
            assert [m.headers["redelivered"] for m in stomp.messages()] == ["true"] * 3
            stomp.do("UNSUBSCRIBE", {"id": "s"})
        assert list(counts(broker, "a").values()) == [1, 0, 0]
        broker = broker.restart()


def test_messages_without_room_in_the_session_have_not_left(broker: SimBroker) -> None:
    client = AmqpSim(broker, limits=Limits(incoming_window=4))
    for address in ("a", "b"):
        client.receiver(address, "queue", credit=10)
    client.stalled = True
    sends = [frame("SEND", {"destination": f"/queue/{q}"}, b"%d" % n) for q in "ab" for n in range(4)]
    broker.connect().raw(b"".join(sends))
    assert broker.engine.queue("b").delivering == 4
    client.drop()
    assert sorted(counts(broker, "a").values()) + sorted(counts(broker, "b").values()) == [1] * 4 + [0] * 4
    again = broker.connect()
    again.subscribe("/queue/b")
    assert [m.headers["redelivered"] for m in again.messages()] == ["false"] * 4


def test_the_broker_says_goodbye(broker: SimBroker, client: AmqpSim) -> None:
    broker.shut_down()
    assert client.closing.condition == "amqp:connection:forced"


def test_one_connection_a_container_if_that_is_asked_for(broker: SimBroker) -> None:
    first = AmqpSim(broker, desired=("sole-connection-for-container",))
    assert first.open is not None
    assert first.open.properties is not None
    assert first.open.properties["sole-connection-detection-policy"] == 1, "weak"
    second = AmqpSim(broker, desired=("sole-connection-for-container",))
    error = second.closing
    assert (error.condition, error.info) == ("amqp:invalid-field", {"invalid-field": "container-id"})
    assert isinstance(error.info, dict)
    assert isinstance(error.info["invalid-field"], Symbol)
    first.drop()
    assert AmqpSim(broker, desired=("sole-connection-for-container",)).open is not None
    assert AmqpSim(broker).open is not None, "whoever does not ask need not be alone"


def test_other_users_neither_block_a_container_id_nor_learn_that_it_is_in_use() -> None:
    broker = SimBroker(users={"alice": "right", "bob": "wrong"})
    alone: dict[str, Any] = {"container": "c", "desired": ("sole-connection-for-container",)}
    bob = AmqpSim(broker, login=("bob", "wrong"), **alone)
    alice = AmqpSim(broker, login=("alice", "right"), **alone)
    assert alice.open is not None
    assert not alice.closed
    bob.drop()
    assert AmqpSim(broker, login=("alice", "right"), **alone).closing.condition == "amqp:invalid-field"
    assert not alice.closed


def test_bytes_that_are_no_amqp_cost_the_sender_only(broker: SimBroker, client: AmqpSim) -> None:
    other = AmqpSim(broker)
    client.raw(b"\x00\x00\x00\x04\x02\x00\x00\x00")
    assert client.closing.condition == "amqp:connection:framing-error"
    assert client.closed
    assert other.send(other.sender("a", "queue"), message("1"))[0].state == Accepted()


def test_a_silent_peer_is_told_and_dropped(broker: SimBroker, client: AmqpSim) -> None:
    assert client.session.receive_timeout == 60_000
    with broker.turn():
        client.session.timed_out()
    error = client.closing
    assert "60000 ms" in (error.description or "")


# -- messages in -------------------------------------------------------------------------------------------------------


def test_links_that_take_turns() -> None:
    """Each message goes to its link's address, in order, and each has its own answer."""
    _, client = started({"match": "full", "max-size-messages": 1, "address-full-policy": "FAIL"})
    links = [client.sender(name, "queue") for name in ("a", "full", "b")]
    assert client.send(links[1], message("first"))[0].state == Accepted()
    for number in range(30):
        links[number % 3].send([message(str(number))], [number])
    client.say()
    assert sorted(str(outcome.context) for outcome in client.outcomes) == sorted(map(str, range(30)))
    for outcome in client.outcomes:
        assert isinstance(outcome.context, int)
        assert isinstance(outcome.state, Rejected if outcome.context % 3 == 1 else Accepted)
    for name, rest in (("a", 0), ("b", 2)):
        client.receiver(name)
        assert client.bodies() == [str(number) for number in range(rest, 30, 3)]
    assert client.ses.outgoing.count == 0


def test_accepted_means_on_disk() -> None:
    broker = SimBroker(small(), lazy_disk=True)
    client = AmqpSim(broker)
    link = client.sender("a", "queue")
    broker.step()
    assert client.send(link, message("1"), message("2")) == []
    broker.step()
    assert [(o.context, o.state, o.settled) for o in client.outcomes] == [(0, Accepted(), True), (1, Accepted(), True)]
    assert len(held(broker.restart(), "a")) == 2


def test_detach_is_answered_behind_the_outcomes_that_wait_for_the_disk(broker: SimBroker, client: AmqpSim) -> None:
    """Clients like go-amqp forget the deliveries of a link with its detach, and report them as failed."""
    link = client.sender("a", "queue", name="same")
    broker.hold_disk()
    client.send(link, message("1"))
    client.raw(amqp_frame(0, Detach(link.handle, True).encode()))
    assert client.of(Detached) == []
    broker.step()
    assert [type(event) for event in client.events[-2:]] == [Dispositions, Detached]
    assert client.ses.outgoing.count == 0
    assert client.sender("a", "queue", name="same").credit > 0


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("name", "handle_max"), [("same", 1023), ("another", 0)])
def test_a_link_that_attaches_at_once_takes_the_place_of_the_one_before(
    broker: SimBroker, closed: bool, name: str, handle_max: int
) -> None:
    """Proton looks links up by their names, which are the same for one address; and handles may be few."""
    client = AmqpSim(broker, limits=Limits(handle_max=handle_max))
    link = client.sender("a", "queue", name="same")
    broker.hold_disk()
    client.send(link, message("1"))
    link.send_detach(closed=closed)
    again = client.sender("a", "queue", name=name)
    ends = [(type(event), event.link) for event in client.events if isinstance(event, Attached | Detached)]
    assert ends == [(Attached, link), (Detached, link), (Attached, again)]
    assert [event.closed for event in client.of(Detached)] == [closed]
    broker.step()
    assert again.credit > 0
    assert client.of(Detached) == []


def test_settled_ones_are_taken_without_a_word_and_non_durable_ones_are_gone_after_a_restart(
    broker: SimBroker, client: AmqpSim
) -> None:
    link = client.sender("a", "queue")
    assert client.send(link, message("1"), settled=True) == []
    assert client.send(link, message("2", durable=False))[0].state == Accepted()
    assert len(held(broker, "a")) == 2
    assert len(held(broker.restart(), "a")) == 1


@pytest.mark.parametrize(
    ("address", "capabilities", "kind"),
    [
        ("a", ("queue",), "ANYCAST"),
        ("a", ("topic",), "MULTICAST"),
        ("queue://a", (), "ANYCAST"),
        ("topic://a", (), "MULTICAST"),
        ("a", (), "MULTICAST"),
    ],
)
def test_the_routing_type_of_what_is_made(
    broker: SimBroker, client: AmqpSim, address: str, capabilities: tuple[str, ...], kind: str
) -> None:
    client.sender(address, *capabilities)
    assert [t.name for t in broker.engine.addresses["a"].routing_types] == [kind]


def test_the_bare_message_goes_out_as_it_came_in(client: AmqpSim) -> None:
    sent = message(
        {"deep": [1, 2.5, None, b"x"]},
        header=Header(True, 7, 60_000, True, 3),
        properties=Properties("id", b"bob", "elsewhere", "s", "r", "c", "t/x", "gzip", None, 5, "g", 1, "rg"),
        application={"n": 1, "text": "t"},
    )
    client.send(client.sender("a", "queue"), sent)
    client.receiver("a")
    [delivery] = client.take()
    assert delivery.message.bare == sent[sent.index(b"\x00\x53\x73") :]
    header = delivery.message.header
    assert (header.durable, header.priority, header.delivery_count) == (True, 7, 0)
    assert header.ttl is not None
    assert 0 < header.ttl <= 60_000


@pytest.mark.parametrize("first", ["name", "_AMQ_DUPL_ID"])
@pytest.mark.parametrize("properties", [None, Properties("id")])
def test_application_properties_up_to_the_limit(client: AmqpSim, properties: Properties | None, first: str) -> None:
    names = [first, *map(str, range(APPLICATION_PROPERTIES_MAX))]
    most, over = (dict.fromkeys(names[:count], "v") for count in (APPLICATION_PROPERTIES_MAX, len(names)))
    link = client.sender("a", "queue")
    [taken] = client.send(link, message("1", properties=properties, application=dict(most)))
    assert isinstance(taken.state, Accepted)
    [outcome] = client.send(link, message("2", properties=properties, application=dict(over)))
    refusal = rejection(outcome.state)
    assert refusal.condition == "amqp:link:message-size-exceeded"
    assert refusal.description == "A message has at most 1024 application properties, this one 1025."
    client.send(link, message("3"))
    client.receiver("a")
    assert client.bodies() == ["1", "3"], "the link goes on"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (encode_section(AMQP_VALUE, [None] * 8192), "values"),
        (encode_section(AMQP_VALUE, {f"{n}": None for n in range(4096)}), "values"),
        (encode_section(AMQP_SEQUENCE, [None] * 4096) * 2, "values"),
        (encode_section(DATA, b"") * 1025, "sections"),
    ],
)
def test_bodies_that_cannot_be_converted_in_time_go_on_as_they_are(client: AmqpSim, body: bytes, why: str) -> None:
    """Only who gets them in another protocol misses them, as a dead letter that says why."""
    link, stomp = client.sender("t", "topic"), client.broker.connect()
    client.receiver("t", "topic")
    stomp.subscribe("/topic/t", ack="auto")
    [taken] = client.send(link, body)
    assert isinstance(taken.state, Accepted)
    [arrived] = client.take()
    assert arrived.payload.endswith(body)
    assert stomp.messages() == []
    [(dead, _)] = client.broker.engine.messages.browse(client.broker.engine.queue("DLQ"))
    found = dead.header.annotations or {}
    assert found["_AMQ_DL_REASON"] == "too-large"
    assert why in str(found["_AMQ_DL_TEXT"])
    client.send(link, encode_section(AMQP_VALUE, "next"))
    assert (client.bodies(), stomp.bodies()) == (["next"], [b"next"])


@pytest.mark.parametrize("values", [8_191, 8_192])
def test_a_body_that_is_wrong_behind_what_is_checked_is_found_when_it_is_converted(
    client: AmqpSim, values: int
) -> None:
    link, stomp = client.sender("t", "topic"), client.broker.connect()
    client.receiver("t", "topic")
    stomp.subscribe("/topic/t", ack="auto")
    body = encode_section(AMQP_VALUE, [None] * (values - 1) + [""])[:-1] + b"\xff"
    [outcome] = client.send(link, body)
    if values == 8_191:
        assert rejection(outcome.state).condition == "amqp:decode-error"
        assert client.take() == []
    else:
        assert isinstance(outcome.state, Accepted)
        [arrived] = client.take()
        assert arrived.payload.endswith(body)
        assert stomp.messages() == []
        assert client.broker.engine.queue("DLQ").message_count == 1


def test_messages_with_many_values_are_taken_in_several_ticks(client: AmqpSim, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget of a tick is asked for after each 16 KiB of messages of one read."""
    asked: list[int] = []

    def pauses(steps: object, session: object, frames: object, at: int) -> bool:
        asked.append(at)
        return False

    monkeypatch.setattr(ReadSteps, "pauses", pauses)
    link = client.sender("a", "queue")
    body = encode_section(AMQP_VALUE, [None] * 8191)
    link.send([body] * 20, list(range(20)))
    client.say()
    assert max(asked) >= 20 // 4 - 1
    assert {type(outcome.state) for outcome in client.outcomes} == {Accepted}


def test_messages_that_come_together_are_taken_up_to_the_limit() -> None:
    _, client = started({"match": "f", "max-size-messages": 3, "address-full-policy": "FAIL"})
    client.sender("f", "queue").send([message(str(number)) for number in range(8)], list(range(8)))
    client.say()
    outcomes = {outcome.context: type(outcome.state) for outcome in client.outcomes}
    assert outcomes == {number: Accepted if number < 3 else Rejected for number in range(8)}
    client.receiver("f")
    assert client.bodies() == ["0", "1", "2"]


def test_a_full_address_rejects() -> None:
    _, client = started({"match": "f", "max-size-messages": 1, "address-full-policy": "FAIL"})
    link = client.sender("f", "queue")
    client.send(link, message("1"))
    [outcome] = client.send(link, message("2"))
    assert rejection(outcome.state).condition == "amqp:resource-limit-exceeded"


def test_a_stopped_sender_gets_its_credit_as_soon_as_somebody_else_makes_room() -> None:
    """The credit lay with the broker until it had something else to say to this client."""
    broker, client = started({"match": "b", "max-size-messages": 1, "address-full-policy": "BLOCK"})
    link = client.sender("b", "queue")
    for n in range(link.credit):
        client.send(link, message(str(n)))
    assert link.credit == 0
    gone = AmqpSim(broker)
    assert gone.sender("b", "queue").credit == 0
    blocked = broker.engine.addresses["b"].blocked
    assert len(blocked) == 2
    gone.drop()
    assert len(blocked) == 1
    consumer = AmqpSim(broker)
    consumer.receiver("b", credit=2000)
    consumer.settle(*consumer.take())
    assert link.credit > 0


def test_a_message_that_is_none_is_rejected_and_the_others_count(broker: SimBroker, client: AmqpSim) -> None:
    outcomes = client.send(client.sender("a", "queue"), message("1"), b"\x00nonsense", message("2"))
    assert {o.context: type(o.state) for o in outcomes} == {0: Accepted, 1: Rejected, 2: Accepted}
    assert len(held(broker, "a")) == 2


def test_scheduled_and_expiring(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender("a", "queue")
    delay = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-delivery-delay": 100})
    later = message("later", annotations=delay)
    client.send(link, later, message("now"), message("brief", header=Header(True, 4, 50)))
    client.receiver("a")
    assert client.bodies() == ["now", "brief"]
    broker.advance(100)
    [delivery] = client.take()
    assert (delivery.body, delivery.message.message_annotations) == ("later", {})


@pytest.mark.parametrize(
    "selector",
    [
        "JMSTimestamp = 1700000000001",
        "JMSExpiration = 1900000000002",
        "AMQExpiration > 1900000000001",
        "JMSXGroupSeq = 3",
        "JMSXGroupID = 'g'",
        "_AMQ_CONTENT_TYPE = 'text/plain'",
        "JMS_AMQP_ContentEncoding = 'gzip'",
        "JMS_AMQP_ReplyToGroupID = 'answers'",
        "JMSType = 'letter'",
    ],
)
def test_a_selector_compares_what_the_sender_has_said(client: AmqpSim, selector: str) -> None:
    """The codec's types of numbers and texts are types of their own, which selectors do not know."""
    said = Properties(
        subject="letter",
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=Timestamp(1_900_000_000_002),
        creation_time=Timestamp(1_700_000_000_001),
        group_id="g",
        group_sequence=UInt(3),
        reply_to_group_id="answers",
    )
    client.send(client.sender("a", "queue"), message("1"), message("2", properties=said))
    client.receiver("a", filter={"sel": Described(Symbol(SELECTOR), selector)})
    assert client.bodies() == ["2"]


def test_when_a_message_was_to_be_delivered_is_told_to_its_receiver(broker: SimBroker, client: AmqpSim) -> None:
    """JMS 2.0, 3.4.13: the receiver reads the time that the sender has set."""
    time = broker.engine.now + 100
    annotations: dict[object, object] = {"x-opt-delivery-time": time, "x-opt-delivery-delay": 50, "x-opt-other": 1}
    client.send(
        client.sender("a", "queue"), message("later", annotations=encode_annotations(MESSAGE_ANNOTATIONS, annotations))
    )
    client.receiver("a")
    assert client.take() == []
    broker.advance(100)
    [delivery] = client.take()
    assert delivery.message.message_annotations == {"x-opt-delivery-time": time, "x-opt-other": 1}


@pytest.mark.parametrize("name", ["x-opt-delivery-cron", "x-opt-delivery-period", "x-opt-delivery-repeat"])
def test_a_schedule_that_repeats_is_rejected(client: AmqpSim, name: str) -> None:
    """ActiveMQ Classic's; once is what this broker does."""
    repeated = encode_annotations(MESSAGE_ANNOTATIONS, {name: 5, "x-opt-delivery-delay": 100})
    once = encode_annotations(MESSAGE_ANNOTATIONS, {name: 0})
    link = client.sender("a", "queue")
    outcomes = client.send(link, message("again", annotations=repeated), message("once", annotations=once))
    states = {o.context: o.state for o in outcomes}
    assert isinstance(states[1], Accepted)
    error = rejection(states[0])
    assert error.condition == "amqp:not-implemented"
    assert name in (error.description or "")
    client.receiver("a")
    [delivery] = client.take()
    assert (delivery.body, delivery.message.message_annotations) == ("once", {})


# -- messages out ------------------------------------------------------------------------------------------------------


def test_credit_is_kept_to_and_comes_from_the_receiver(client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), *[message(str(n)) for n in range(5)])
    link = client.receiver("a", credit=2)
    first = client.take()
    assert [d.body for d in first] == ["0", "1"]
    client.settle(*first)
    assert client.bodies() == [], "settling gives none"
    link.send_credit(1)
    client.say()
    assert client.bodies() == ["2"]


@pytest.mark.parametrize(
    ("state", "left", "count"),
    [
        (Accepted(), 0, 0),
        (Released(), 1, 0),
        (Modified(), 1, 0),
        (Modified(delivery_failed=True), 1, 1),
        (Rejected(Error("app:bad", "cannot read it")), 0, 0),
        (None, 1, 0),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_outcomes(broker: SimBroker, client: AmqpSim, state: object, left: int, count: int, settled: bool) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    link = client.receiver("a", credit=1)
    [delivery] = client.take()
    if state is None:
        if not settled:
            return
        client.ses.send_disposition(True, delivery.id, delivery.id, settled=True)
        client.say()
    else:
        client.settle(delivery, state=state, settled=settled)  # type: ignore[arg-type]
    assert len(held(broker, "a")) == left
    if not settled:
        assert [(o.state, o.settled) for o in client.outcomes] == [(state, True)]
    client.detach(link)
    client.receiver("a")
    assert [d.message.header.delivery_count for d in client.take()] == [count] * left
    if isinstance(state, Rejected):
        client.receiver("DLQ")
        [letter] = client.take()
        annotations = letter.message.message_annotations
        assert annotations["x-opt-ORIG-ADDRESS"] == "a"
        assert annotations["x-opt-DL-REASON"] == "rejected"
        assert str(annotations["x-opt-DL-TEXT"]).endswith("app:bad: cannot read it")


def test_undeliverable_here_goes_to_others(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a")
    [delivery] = client.take()
    client.settle(delivery, state=Modified(True, True, {"x-opt-note": "n"}))
    assert client.take() == []
    other = AmqpSim(broker)
    other.receiver("a")
    [again] = other.take()
    assert again.message.message_annotations == {"x-opt-note": "n"}


def test_annotations_of_modified_last_until_the_restart_and_for_good_on_a_dead_letter(
    broker: SimBroker, client: AmqpSim
) -> None:
    client.send(client.sender("a", "queue"), message("kept"), message("dead"))
    client.receiver("a")
    for delivery in client.take():
        client.settle(delivery, state=Modified(message_annotations={"x-opt-note": delivery.body}))
    [dead] = [delivery for delivery in client.take() if delivery.body == "dead"]
    client.settle(dead, state=Rejected(Error("app:bad")))
    client = AmqpSim(broker.restart())
    noted = {}
    for address in ("a", "DLQ"):
        client.receiver(address, "queue")
        [delivery] = client.take()
        noted[delivery.body] = delivery.message.message_annotations.get("x-opt-note")
    assert noted == {"kept": None, "dead": "dead"}


def test_annotations_of_modified_are_not_for_other_subscribers(client: AmqpSim) -> None:
    client.receiver("news", "topic")
    client.receiver("news", "topic")
    client.send(client.sender("news", "topic"), message("1"))
    noted = []
    for delivery in client.take():
        client.settle(delivery, state=Modified(message_annotations={"x-opt-note": "n"}))
        [again] = client.take()
        noted.append(again.message.message_annotations)
        client.settle(again)
    assert noted == [{}, {"x-opt-note": "n"}], "the second one's queue alone has the message then"


@pytest.mark.parametrize("asked", SenderSettleMode)
def test_a_receiver_gets_the_settle_mode_that_it_asks_for(client: AmqpSim, asked: SenderSettleMode) -> None:
    """go-amqp refuses a link with another one."""
    assert client.answer(client.receiver("a", snd_settle_mode=asked)).snd_settle_mode == asked


def test_settled_deliveries_are_consumed_once_they_are_on_their_way(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a", snd_settle_mode=SenderSettleMode.SETTLED)
    [delivery] = client.take()
    assert delivery.settled
    assert held(broker, "a") == []


def test_a_selector_is_echoed_and_others_are_not(client: AmqpSim) -> None:
    link = client.sender("a", "queue")
    client.send(link, *[message(str(n), application={"n": n}) for n in range(4)])
    wanted = Described(Symbol(SELECTOR), "n > 1 AND JMSPriority = 4")
    unknown = Described(Symbol("example:filter"), "x")
    receiver = client.receiver("a", filter={"sel": wanted, "other": unknown})
    assert client.bodies() == ["2", "3"]
    answer = client.answer(receiver).source
    assert isinstance(answer, Source)
    assert answer.filter is not None
    assert list(answer.filter) == ["sel"]
    bad = client.receiver("a", filter={"sel": Described(Symbol(SELECTOR), "n >")})
    assert client.refused(bad).condition == "amqp:invalid-field"


def test_dead_letters_are_selected_by_their_annotations(client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    client.receiver("a")
    client.settle(*client.take(), state=Rejected())
    none = Described(Symbol(SELECTOR), "\"m.x-opt-ORIG-ADDRESS\" = 'b'")
    some = Described(Symbol(SELECTOR), "\"m.x-opt-ORIG-ADDRESS\" = 'a'")
    client.receiver("DLQ", filter={"s": none})
    assert client.bodies() == []
    client.receiver("DLQ", filter={"s": some})
    assert client.bodies() == ["1"]


def test_a_detach_by_the_broker_is_over_when_the_broker_says_so(broker: SimBroker, client: AmqpSim) -> None:
    """JMS clients drop a message whose absolute-expiry-time is past: they could not read an expiry queue."""
    link = client.sender("a", "queue")
    expires = Timestamp(broker.engine.now + 50)
    properties = Properties("id", subject="s", absolute_expiry_time=expires)
    sent = message("1", properties=properties, application={"n": 1})
    client.send(link, sent, sent)
    client.receiver("a", credit=1)
    [delivery] = client.take()
    assert delivery.message.properties == properties
    client.settle(delivery, state=Rejected())
    broker.advance(60)
    client.receiver("DLQ")
    client.receiver("ExpiryQueue")
    moved_ones = client.take()
    assert len(moved_ones) == 2
    for moved in moved_ones:
        assert moved.message.properties == Properties("id", subject="s")
        assert moved.message.application_properties == {"n": 1}
        assert moved.body == "1"
        assert moved.message.message_annotations["x-opt-DL-ORIG-EXPIRATION"] == expires


def test_a_browser_takes_nothing_away(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"), message("2"))
    link = client.receiver("a", credit=0, distribution_mode="copy")
    link.send_credit(10, drain=True)
    client.say()
    assert (client.bodies(), link.credit) == (["1", "2"], 0)
    assert len(held(broker, "a")) == 2
    client.receiver("t", "topic", distribution_mode="copy")
    client.send(client.sender("t"), message("3"))
    assert client.bodies() == ["3"], "on a topic everybody gets copies"


def test_a_message_too_large_for_its_receiver_is_a_dead_letter(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("x" * 1000), message("2"))
    client.receiver("a", max_message_size=500)
    [delivery] = client.take()
    assert delivery.body == "2"
    assert len(held(broker, "DLQ")) == 1


def test_a_queue_that_is_deleted_ends_its_links(broker: SimBroker, client: AmqpSim) -> None:
    link = client.receiver("a", "queue")
    with broker.turn():
        broker.engine.delete_queue(broker.engine.queue("a"))
    assert client.refused(link).condition == "amqp:resource-deleted"


def test_priorities_of_consumers(client: AmqpSim) -> None:
    low, high = client.receiver("a", "queue"), client.receiver("a", properties={"priority": 5})
    client.send(client.sender("a"), message("1"), message("2"))
    assert {d.link for d in client.take()} == {high}
    assert low is not high


@pytest.mark.parametrize("what", ["session", "socket"])
def test_a_browser_whose_messages_cannot_be_read_ends_alone(what: str) -> None:
    """The disk fails when there is room again for what a browser and others send."""
    broker = SimBroker(small(PAGING))
    publisher = AmqpSim(broker)
    sender = publisher.sender("q", "queue")
    for _ in range(30):
        publisher.send(sender, message("1"))
    client = AmqpSim(broker, limits=Limits(incoming_window=4) if what == "session" else None)
    client.receiver("other", "queue")
    browser = client.receiver("q", "queue", distribution_mode="copy", credit=0)
    browser.send_credit(50)
    client.stalled = True
    publisher.send(publisher.sender("other", "queue"), message("2"))
    client.say()
    with refusing(broker.files, errno.EMFILE):
        client.unstall()
        client.say()
    assert client.refused(browser).condition == "amqp:precondition-failed"
    publisher.send(publisher.sender("other", "queue"), message("3"))
    assert client.bodies()[-1] == "3"


def test_messages_before_an_attach_that_cannot_be_answered_are_published_by_their_link() -> None:
    """The client takes one handle; a link that is gone must not wait for room."""
    broker = SimBroker(small({"match": "a", "max-size-messages": 1, "address-full-policy": "BLOCK"}))
    client = AmqpSim(broker, limits=Limits(handle_max=0))
    link = client.sender("a", "queue")
    link.send([message("1"), message("2")], [1, 2])
    second = Attach("second", 5, SENDER, source=Source("me"), target=Target("a"), initial_delivery_count=0)
    client.raw(client.codec.data_to_send() + amqp_frame(0, second.encode()))
    assert client.ended() == Error("amqp:not-allowed", "attach: the peer takes handles up to 0.")
    assert len(held(broker, "a")) == 2
    assert broker.engine.addresses["a"].blocked == {}


@pytest.mark.parametrize("last", [0, 2])
def test_an_outcome_is_not_taken_for_a_later_delivery_of_the_message(last: int) -> None:
    """The message was given back, and is sent anew before our answer, which waits for the disk."""
    broker = SimBroker()
    client = AmqpSim(broker)
    link = client.sender("q", "queue")
    client.put(link, message("1"), message("2"))
    client.receiver("q", "queue")
    first, _ = client.take(2)
    broker.hold_disk()
    client.send(link, message("3"))
    client.settle(first, state=Released(), settled=False)
    [again] = client.take()
    assert (again.id, again.body) == (2, "1")
    client.ses.send_disposition(RECEIVER, first.id, last, settled=True, state=Released())
    client.say()
    assert not client.closed
    assert client.bodies() == (["1", "2"] if last else [])
    broker.release_disk()
    assert len(held(broker, "q")) == 3
