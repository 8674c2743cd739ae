"""Bodies in files of their own, over AMQP and between the protocols."""

from __future__ import annotations

from typing import Any

import pytest

from broker.sessions.convert import CONVERTED_BYTES_MAX
from protocols.amqp.encode import encode
from protocols.amqp.limits import Limits
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    Message,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.performatives import Accepted, Header, Rejected, Released
from tests.broker.sessions.large import LARGE, body, config, data_of, files_of, message, value_of
from tests.support.amqp_client import AmqpSim, rejection
from tests.support.sim_broker import SimBroker

#: Frames so small that a large message needs many.
FRAMES = Limits(frame_bytes_max=600)


@pytest.fixture
def broker() -> SimBroker:
    """A broker with a low limit for bodies in memory."""
    return SimBroker(config(header_bytes_max=LARGE))


@pytest.fixture
def client(broker: SimBroker) -> AmqpSim:
    """A client with small frames."""
    return AmqpSim(broker, limits=FRAMES)


def started(*settings: dict[str, object], **limits: Any) -> tuple[SimBroker, AmqpSim]:
    """A broker and a client with small frames."""
    broker = SimBroker(config(*settings, **{"header_bytes_max": LARGE, **limits}))
    return broker, AmqpSim(broker, limits=FRAMES)


@pytest.mark.parametrize("nbytes", [LARGE // 2, 3 * LARGE, 700_000])
@pytest.mark.parametrize("settled", [True, False])
def test_in_and_out_byte_for_byte(broker: SimBroker, client: AmqpSim, nbytes: int, settled: bool) -> None:
    sent = message(body(nbytes))
    outcomes = client.send(client.sender("q", "queue"), sent, settled=settled)
    assert [type(outcome.state) for outcome in outcomes] == ([] if settled else [Accepted])
    assert len(files_of(broker)) == (nbytes > LARGE)
    client.receiver("q")
    (delivery,) = client.take()
    assert Message(delivery.payload).bare == Message(sent).bare
    client.settle(delivery)
    assert not files_of(broker)


@pytest.mark.parametrize("last", [False, True])
def test_sections_before_the_body_must_fit_into_the_beginning(broker: SimBroker, client: AmqpSim, last: bool) -> None:
    """A message of several frames; one that ends within its properties is cut off, and is told so."""
    link = client.sender("q", "queue")
    sent = encode(Header(True)) + encode_application_properties({"a": "x" * 10 * LARGE}) + encode_section(DATA, b"b")
    [outcome] = client.send(link, sent[: LARGE + 1] if last else sent)
    error = rejection(outcome.state)
    if last:
        assert (error.condition, "bytes are needed" in str(error.description)) == ("amqp:decode-error", True)
    else:
        text = f"What comes before the body of a large message may have {LARGE} bytes, here it has more."
        assert (error.condition, error.description) == ("amqp:link:message-size-exceeded", text)
    client.send(link, message(body(3 * LARGE)))
    client.receiver("q")
    assert len(client.take()) == 1


def test_order_and_credit(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender("q", "queue")
    sent = [message(body(n)) for n in (100, 3000, 200, 4000, 5000, 300)]
    assert len(client.send(link, *sent)) == len(sent)
    receiver = client.receiver("q", credit=2)
    first = client.take()
    receiver.send_credit(10)
    client.say()
    second = client.take()
    assert [len(data_of(delivery.payload)) for delivery in first] == [100, 3000]
    assert [len(data_of(delivery.payload)) for delivery in second] == [200, 4000, 5000, 300]
    client.settle(*first, *second)
    assert not files_of(broker)


def test_two_links_send_and_receive_in_turns(broker: SimBroker, client: AmqpSim) -> None:
    links = [client.sender(name, "queue") for name in ("a", "b")]
    for link in links:
        client.send(link, message(body(100_000)), message(body(10)))
    readers = [client.receiver(name) for name in ("a", "b")]
    found = client.take()
    for reader in readers:
        assert [len(data_of(each.payload)) for each in found if each.link is reader] == [100_000, 10]
    client.settle(*found)
    assert not files_of(broker)


@pytest.mark.parametrize("crash", [True, False])
def test_is_there_after_a_restart(broker: SimBroker, client: AmqpSim, crash: bool) -> None:
    link = client.sender("q", "queue")
    client.send(link, message(body()), message(body(5000), durable=False))
    assert len(files_of(broker)) == 2
    broker = broker.restart(crash=crash)
    assert len(files_of(broker)) == 1
    client = AmqpSim(broker, limits=FRAMES)
    client.receiver("q")
    (delivery,) = client.take()
    assert data_of(delivery.payload) == body()


@pytest.mark.parametrize("end", ["abort", "drop", "detach", "end", "shut down"])
def test_an_upload_that_breaks_off_leaves_nothing(broker: SimBroker, client: AmqpSim, end: str) -> None:
    link = client.sender("q", "queue")
    streaming = link.stream(None)
    streaming.send(message(body()), last=False)
    if end == "abort":
        streaming.abort()
    client.say()
    assert len(files_of(broker)) == (end != "abort")
    if end == "drop":
        client.drop()
    elif end == "detach":
        client.detach(link)
    elif end == "end":
        client.ses.send_end()
        client.say()
    elif end == "shut down":
        broker.shut_down()
    broker.run()
    assert not files_of(broker)
    if end == "abort":
        assert [type(outcome.state) for outcome in client.send(link, message(b"small"))] == [Accepted]


def test_a_message_that_is_too_large() -> None:
    broker, client = started(large_body_bytes_max=4000)
    link = client.sender("q", "queue")
    assert client.answer(link).max_message_size == 10 * (1 << 20) + LARGE
    client.send(link, message(body(6000)))
    assert client.refused(link).condition == "amqp:link:message-size-exceeded"
    assert not files_of(broker)


def test_one_that_is_refused_is_read_to_its_end(client: AmqpSim) -> None:
    queue, relay = client.sender("q", "queue"), client.sender(None)
    nowhere = encode(Header(True)) + encode_section(DATA, body())
    refused, taken = client.send(relay, nowhere, message(body(4000)))
    assert isinstance(refused.state, Rejected)
    assert isinstance(taken.state, Accepted)
    (outcome,) = client.send(queue, message(body(5000)))
    assert isinstance(outcome.state, Accepted)
    client.receiver("q")
    assert [len(data_of(delivery.payload)) for delivery in client.take()][-1] == 5000


@pytest.mark.parametrize("how", ["transaction", "relay"])
def test_one_whose_two_frames_end_their_link_is_all_that_is_lost(broker: SimBroker, how: str) -> None:
    """An unknown transaction, or a refusal that the relay's sender does not hear."""
    client = AmqpSim(broker, limits=Limits(frame_bytes_max=2 * LARGE))
    other = client.sender("p", "queue")
    if how == "relay":
        link = client.sender(None)
        client.send(link, encode(Header(True)) + encode_section(DATA, body()), settled=True)
    else:
        link = client.sender("q", "queue")
        client.send(link, message(body()), tx=b"none")
    assert client.refused(link).condition == ("amqp:invalid-field" if how == "relay" else "amqp:transaction:unknown-id")
    (outcome,) = client.send(other, message(b"small"))
    assert outcome.state == Accepted(), "the connection is read on"


def test_no_room_on_the_disk(broker: SimBroker, client: AmqpSim) -> None:
    broker.files.capacity = broker.files.used() + (1 << 20) + 4000
    link = client.sender("q", "queue")
    (outcome,) = client.send(link, message(body(9 << 20)))
    assert isinstance(outcome.state, Rejected)
    assert not files_of(broker)
    broker.files.capacity = None
    (outcome,) = client.send(link, message(body(2 << 20)))
    assert isinstance(outcome.state, Accepted)


@pytest.mark.parametrize("fail", [True, False])
def test_transactions(broker: SimBroker, client: AmqpSim, fail: bool) -> None:
    link, coordinator = client.sender("q", "queue"), client.coordinator()
    tx = client.declare(coordinator)
    client.send(link, message(body()), tx=tx)
    assert len(files_of(broker)) == 1
    client.discharge(coordinator, tx, fail=fail)
    assert len(files_of(broker)) == (not fail)
    client.receiver("q")
    assert [data_of(delivery.payload) for delivery in client.take()] == ([] if fail else [body()])


def test_redelivery_and_dead_letter_keep_the_bytes() -> None:
    broker, client = started({"match": "q", "max-delivery-attempts": 2})
    sent = message(body())
    client.send(client.sender("q", "queue"), sent)
    client.receiver("q")
    for outcome in (Released(), Rejected()):
        (delivery,) = client.take()
        client.settle(delivery, state=outcome)
    dead = AmqpSim(broker, limits=FRAMES)
    dead.receiver("DLQ")
    (delivery,) = dead.take()
    assert Message(delivery.payload).bare == Message(sent).bare
    assert "x-opt-ORIG-ADDRESS" in Message(delivery.payload).message_annotations
    assert len(files_of(broker)) == 1


def test_the_session_window_is_kept() -> None:
    broker = SimBroker(config(header_bytes_max=LARGE))
    client = AmqpSim(broker, limits=Limits(frame_bytes_max=600, incoming_window=4))
    client.send(client.sender("q", "queue"), message(body(50_000)))
    client.receiver("q")
    for _ in range(100):
        client.say()
    (delivery,) = client.take()
    assert data_of(delivery.payload) == body(50_000)


def test_a_receiver_that_takes_less_leaves_a_dead_letter(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("q", "queue"), message(body(50_000)))
    client.receiver("q", max_message_size=20_000)
    assert not client.take()
    ((dead, _),) = broker.engine.messages.browse(broker.engine.queue("DLQ"))
    assert (dead.header.annotations or {})["_AMQ_DL_REASON"] == "too-large"
    assert len(files_of(broker)) == 1


def test_browsing(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("q", "queue"), message(body()), message(body(10)), message(body(4000)))
    client.receiver("q", distribution_mode="copy")
    assert [len(data_of(delivery.payload)) for delivery in client.take()] == [3000, 10, 4000]
    assert len(files_of(broker)) == 2


@pytest.mark.parametrize("damage", [body(300_000), body(400_000)[:-1] + b"?"])
def test_a_body_that_cannot_be_read_is_aborted(damage: bytes) -> None:
    broker, client = started({"match": "q", "max-delivery-attempts": 1})
    link = client.sender("q", "queue")
    client.send(link, message(body(400_000)), message(body(10)))
    (path,) = files_of(broker)
    broker.files.put(path, encode_section(DATA, damage))
    client.receiver("q")
    (delivery,) = client.take()
    assert data_of(delivery.payload) == body(10)
    assert broker.engine.queue("DLQ").ready == 1
    assert len(broker.reported("body.unreadable")) == 1


def test_from_stomp_to_amqp_and_back(broker: SimBroker, client: AmqpSim) -> None:
    stomp = broker.connect()
    stomp.confirmed("/queue/a", body(300_000), color="red")
    client.receiver("a")
    (delivery,) = client.take()
    assert data_of(delivery.payload) == body(300_000)
    assert Message(delivery.payload).application_properties == {"color": "red"}
    client.settle(delivery)
    client.send(client.sender("b", "queue"), message(body(300_000)))
    stomp.subscribe("/queue/b")
    (received,) = stomp.messages()
    assert (received.body, received.headers["color"]) == (body(300_000), "red")


@pytest.mark.parametrize("kind", [0xB0, 0xB1])
def test_values_and_several_sections_above_what_is_converted_in_memory(broker: SimBroker, kind: int) -> None:
    client, stomp = AmqpSim(broker), broker.connect()
    link = client.sender("q", "queue")
    stomp.subscribe("/queue/q", ack="auto")
    most = CONVERTED_BYTES_MAX
    text = b"text " * (most // 5 + 1)
    several = encode(Header(True)) + b"".join(encode_section(DATA, body(n)) for n in (most, 100, 0, 3001))
    sequence = encode(Header(True)) + encode_section(AMQP_SEQUENCE, [body(1 << 20)] * 11)
    client.send(link, value_of(text, kind), several, sequence, message(body(most + 1)))
    found = stomp.messages()
    assert [each.body for each in found] == [text, body(most) + body(100) + body(3001), body(most + 1)]
    assert [int(each.headers["content-length"]) for each in found] == [len(each.body) for each in found]
    ((dead, _),) = broker.engine.messages.browse(broker.engine.queue("DLQ"))
    assert (dead.header.annotations or {})["_AMQ_DL_REASON"] == "too-large"


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("lead", "section", "why"),
    [
        (b"", encode_section(DATA, b"x" * 500), "1024 sections"),
        (encode_section(DATA, b"x" * 400_000), encode_section(DATA, b""), "1024 sections"),
        (encode_section(AMQP_SEQUENCE, ["x" * 50] * 8_000), encode_section(AMQP_SEQUENCE, []), "too many values"),
    ],
)
def test_large_bodies_with_too_many_sections_or_values(
    broker: SimBroker, durable: bool, lead: bytes, section: bytes, why: str
) -> None:
    """Receivers of AMQP get them; for others they die."""
    client, stomp = AmqpSim(broker), broker.connect()
    link = client.sender("t", "topic")
    client.receiver("t", "topic", credit=10)
    stomp.subscribe("/topic/t", ack="auto")
    sections = lead + section * (1_025 if why == "1024 sections" else 300)
    [outcome] = client.send(link, encode(Header(durable)) + sections)
    assert isinstance(outcome.state, Accepted)
    assert [each.payload[-len(sections) :] for each in client.take()] == [sections]
    assert stomp.messages() == []
    [(dead, _)] = broker.engine.messages.browse(broker.engine.queue("DLQ"))
    found = dead.header.annotations or {}
    assert found["_AMQ_DL_REASON"] == "too-large"
    assert why in str(found["_AMQ_DL_TEXT"])


def test_values_in_values_of_a_large_body_are_found_by_its_conversion(broker: SimBroker) -> None:
    client, stomp = AmqpSim(broker), broker.connect()
    value = encode(Header(True)) + encode_section(AMQP_VALUE, [["x" * 150] * 2000] * 5)
    [taken] = client.send(client.sender("q", "queue"), value)
    assert isinstance(taken.state, Accepted)
    stomp.subscribe("/queue/q", ack="auto")
    assert stomp.messages() == []
    ((dead, _),) = broker.engine.messages.browse(broker.engine.queue("DLQ"))
    assert (dead.header.annotations or {})["_AMQ_DL_REASON"] == "too-large"
