"""What other brokers note on messages over links: believed where the link says it is one, and from nobody else."""

from __future__ import annotations

from typing import Any, Final

import pytest

from broker.engine.model.message import Message, MessageHeader
from broker.sessions.amqp.format import AmqpFormat
from broker.sessions.amqp.link_encoder import LinkEncoder, Stamp
from broker.sessions.amqp.link_id import (
    HOPS,
    LINK_CAPABILITY,
    LINK_ID,
    LINK_ID_BYTES,
    hop,
    hops_of,
    link_id,
    take_link_id,
)
from broker.sessions.amqp.message import LOOKED_AT, take_apart
from broker.sessions.stomp.format import StompFormat
from protocols.amqp.encode import encode
from protocols.amqp.limits import Limits
from protocols.amqp.message import DATA, MESSAGE_ANNOTATIONS, encode_annotations, encode_section
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import Accepted, Header, Properties
from protocols.amqp.types import Described, Symbol, Timestamp
from store.decode import DuplicateId
from store.record import RecordType, RemovalReason
from tests.broker.sessions.amqp.harness import SELECTOR
from tests.broker.sessions.large import LARGE, body, config, files_of
from tests.simulation.world import check_accounts, journal_directory, reasons, typed_records
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

LINKED: Final[dict[str, Any]] = {"desired_capabilities": (LINK_CAPABILITY,)}
BROKER_ID: Final = b"broker of paris!"


def notes(number: int = 1, *hops: str, **more: object) -> bytes:
    """Message annotations as a broker writes them."""
    id = BROKER_ID + number.to_bytes(8) + bytes(16)
    noted: dict[object, object] = {LINK_ID: id, HOPS: list(hops) or ["paris x 1"]}
    return encode_annotations(MESSAGE_ANNOTATIONS, noted | dict(more))


def noted_on(client: AmqpSim, address: str) -> list[dict[object, object]]:
    """Of the messages on a queue, as an ordinary client sees them."""
    client.receiver(address)
    return [delivery.message.message_annotations for delivery in client.take()]


@pytest.mark.parametrize("relay", [False, True])
def test_a_link_s_message_is_taken_in_once_and_keeps_its_hops(broker: SimBroker, relay: bool) -> None:
    link = AmqpSim(broker, "paris")
    sender = link.sender(None if relay else "a", "queue", **LINKED)
    assert link.answer(sender).offered_capabilities == (LINK_CAPABILITY,)
    payload = message(
        "x",
        properties=Properties(to="a"),
        annotations=notes(1, "lyon y 5", "paris x 7"),
        application={"_AMQ_DUPL_ID": "the producer's"},
    )
    for _ in range(2):
        (outcome,) = link.send(sender, payload)
        assert isinstance(outcome.state, Accepted)
    (found,) = noted_on(AmqpSim(broker), "a")
    assert found == {HOPS: ["lyon y 5", "paris x 7"]}
    files, directory = broker.files, journal_directory(broker.config)
    remembered = [found for kind, found in typed_records(files, directory) if kind == RecordType.DUPLICATE_ID]
    assert [each.id[5:21] for each in remembered if isinstance(each, DuplicateId)] == [BROKER_ID]


def test_from_others_they_are_dropped(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    sender = client.sender("a", "queue")
    assert client.answer(sender).offered_capabilities == ()
    client.send(sender, message("x", annotations=notes(mine="x")), message("y", annotations=notes(mine="x")))
    client.receiver("a")
    found = client.take()
    assert [delivery.body for delivery in found] == ["x", "y"]
    assert [delivery.message.message_annotations for delivery in found] == [{"mine": "x"}] * 2


def test_names_of_the_broker_s_own_are_dropped_from_links_too(broker: SimBroker) -> None:
    link = AmqpSim(broker)
    note = notes(1, "paris x 1", **{"x-opt-ORIG-ADDRESS": "payroll", "x-opt-mine": 1})
    link.send(link.sender("a", "queue", **LINKED), message("x", annotations=note, application={"_AMQ_DL_TEXT": "x"}))
    (found,) = noted_on(link, "a")
    assert found == {HOPS: ["paris x 1"], "x-opt-mine": 1}


def test_a_large_message_of_a_link_is_taken_in_once_and_passed_on() -> None:
    broker = SimBroker(config(header_bytes_max=LARGE))
    link = AmqpSim(broker, limits=Limits(frame_bytes_max=600))
    sender = link.sender("a", "queue", **LINKED)
    payload = encode(Header(True)) + notes() + encode_section(DATA, body(3 * LARGE))
    for _ in range(2):
        assert all(isinstance(each.state, Accepted) for each in link.send(sender, payload))
    assert len(files_of(broker)) == 1
    (held,) = [each for each, _ in broker.engine.messages.browse(broker.engine.queue("a"))]
    link.receiver("a", name="north", **LINKED)
    (found,) = link.take()
    assert found.message.bare == Encoded(payload).bare
    noted = found.message.message_annotations
    assert noted[LINK_ID] == link_id(broker.engine.journal.broker_id, held, broker.engine.queue("a").id)
    assert noted[HOPS] == ["paris x 1", hop(broker.config.broker.name, "north", broker.now)]


def test_a_link_that_receives_gets_a_link_id_and_a_hop_with_each_message(broker: SimBroker) -> None:
    sender = broker.connect()
    sender.confirmed("/queue/a", b"stomp")
    client = AmqpSim(broker)
    client.send(
        client.sender("a", "queue"),
        message("plain"),
        message("noted", annotations=encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-mine": 1})),
    )
    messages = [each for each, _ in broker.engine.messages.browse(broker.engine.queue("a"))]
    link = AmqpSim(broker, "lyon")
    receiver = link.receiver("a", name="lyon.invoices", **LINKED)
    assert link.answer(receiver).offered_capabilities == (LINK_CAPABILITY,)
    found = link.take()
    assert len(found) == 3
    for delivery, each in zip(found, messages, strict=True):
        noted = delivery.message.message_annotations
        assert noted[LINK_ID] == link_id(broker.engine.journal.broker_id, each, broker.engine.queue("a").id)
        assert noted[HOPS] == [hop(broker.config.broker.name, "lyon.invoices", broker.now)]
        assert delivery.payload.startswith(delivery.message.section(0x70) + b"\x00\x53\x72")
    assert found[2].message.message_annotations["x-opt-mine"] == 1
    link.settle(*found)
    left = broker.engine.queue("a").left
    assert (left[RemovalReason.FORWARDED], left[RemovalReason.CONSUMED]) == (3, 0)
    assert reasons(check_accounts(broker)["a"]) == {RemovalReason.FORWARDED: 3}


def test_messages_sent_settled_are_consumed(broker: SimBroker) -> None:
    """Nobody has said that the other broker has it."""
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("x"))
    link = AmqpSim(broker)
    link.receiver("a", snd_settle_mode=1, **LINKED)
    assert link.bodies() == ["x"]
    assert broker.engine.queue("a").left[RemovalReason.CONSUMED] == 1


def test_selectors_ask_for_hops(broker: SimBroker) -> None:
    link = AmqpSim(broker)
    sender = link.sender("a", "topic", **LINKED)
    client = AmqpSim(broker)
    stomp = broker.connect()
    for number, selector in enumerate(["AMQHops = 0", "AMQHops > 1"]):
        client.receiver("a", "topic", name=str(number), filter={Symbol("s"): Described(SELECTOR, selector)})
    link.send(sender, message("one", annotations=notes(1, "paris x 1")))
    link.send(sender, message("two", annotations=notes(2, "lyon y 1", "paris x 1")))
    client.send(client.sender("a", "topic"), message("here"))
    stomp.send("/topic/a", b"stomp", AMQHops="7")
    found: dict[int, list[object]] = {0: [], 1: []}
    for delivery in client.take():
        found[int(delivery.link.name)].append(delivery.body)
    assert found == {0: ["here", "stomp"], 1: ["two"]}


# -- bytes -------------------------------------------------------------------------------------------------------------

STAMP: Final = Stamp("the london broker", "to-paris", BROKER_ID)
FORMAT: Final = AmqpFormat()


def queued(payload: bytes, **more: object) -> Message:
    """A message as the engine holds it."""
    _, head, body, _ = take_apart(payload, linked=True)
    made = Message(MessageHeader("a", FORMAT, durable=True, timestamp=1_234, **more), head, body)  # type: ignore[arg-type]
    made.id = 77
    return made


def sent(held: Message, stamp: Stamp = STAMP) -> bytes:
    """How it leaves over a link."""
    payloads, refused, _ = LinkEncoder(("", ""), stamp).encode([held], LOOKED_AT, 5_678, None)
    assert not refused
    return payloads[0]


BODIES: Final = {
    "nothing": message("x"),
    "application properties": message("x", application={"n": 1}),
    "properties": message("x", properties=Properties("m", to="a", subject="s"), application={"n": 1}),
    "expiry": message("x", properties=Properties("m", absolute_expiry_time=Timestamp(99_999_999_999_999))),
    "annotations": message("x", annotations=encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-mine": "x" * 300})),
    "hops": message("x", annotations=notes(9, "paris x 1", "lyon y 2")),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("bartleby", [True, False])
def test_the_bare_message_passes_byte_for_byte(kind: str, bartleby: bool) -> None:
    held = queued(BODIES[kind])
    stamp = STAMP if bartleby else STAMP._replace(broker_id=b"")
    payload = sent(held, stamp)
    encoded = Encoded(payload)
    assert encoded.bare == Encoded(BODIES[kind]).bare
    noted = encoded.message_annotations
    assert noted.get(LINK_ID) == (link_id(BROKER_ID, held, 0) if bartleby else None)
    assert noted[HOPS] == [*hops_of(held.head), "the-london-broker to-paris 5678"]
    _, head, body, _ = take_apart(payload, linked=True)
    id, head = take_link_id(head)
    assert id == noted.get(LINK_ID)
    assert LINK_ID not in Encoded(head).message_annotations
    assert (hops_of(head), body) == (noted[HOPS], held.body)
    assert Encoded(head + body).bare == encoded.bare


def test_a_message_that_a_divert_brought_loses_what_the_other_broker_would_drop() -> None:
    """An expiry time that its new address has changed goes along."""
    own = {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_MESSAGE_ID": 5, "x-note": "seen"}
    for kind, expected in (("properties", None), ("expiry", 42)):
        held = queued(BODIES[kind], annotations=own, expiration=42)
        encoded = Encoded(sent(held))
        assert encoded.message_annotations.keys() == {LINK_ID, HOPS, "x-note"}
        assert encoded.properties.absolute_expiry_time == expected
    foreign = Encoded(sent(queued(BODIES["nothing"], annotations=own), STAMP._replace(broker_id=b"")))
    assert foreign.message_annotations["x-opt-ORIG-ADDRESS"] == "orders"


def test_a_message_of_another_protocol_is_converted_and_stamped() -> None:
    held = Message(MessageHeader("a", StompFormat(), durable=True, timestamp=1_234), b"colour:red\n", b"x")
    encoded = Encoded(sent(held))
    assert encoded.message_annotations.keys() == {LINK_ID, HOPS}
    assert encoded.application_properties == {"colour": "red"}


@pytest.mark.parametrize("id", [b"", b"short", b"x" * (LINK_ID_BYTES + 1), "x" * LINK_ID_BYTES, 7])
def test_a_link_id_that_is_none_is_dropped(id: object) -> None:
    head = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-a": 1, LINK_ID: id})
    assert take_link_id(head) == (None, encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-a": 1}))


def test_a_link_id_may_stand_anywhere_and_alone() -> None:
    id = bytes(range(LINK_ID_BYTES))
    kinds: list[dict[object, object]] = [
        {LINK_ID: id},
        {"x-opt-a": 1, LINK_ID: id},
        {LINK_ID: id, "x-opt-a": "x" * 300},
    ]
    behind = Encoded(message("x", application={"n": 1})).bare
    for noted in kinds:
        head = encode_annotations(MESSAGE_ANNOTATIONS, noted) + behind
        left: dict[object, object] = {name: value for name, value in noted.items() if name != LINK_ID}
        assert take_link_id(head) == (id, encode_annotations(MESSAGE_ANNOTATIONS, left) + behind)


@pytest.mark.parametrize("wrong", ["paris x 1", 7, {"paris": 1}])
def test_hops_that_are_none(wrong: object) -> None:
    assert hops_of(encode_annotations(MESSAGE_ANNOTATIONS, {HOPS: wrong})) == []


def test_limits_of_the_receiver_count_what_is_noted(broker: SimBroker) -> None:
    """A message that is too large with its link id only is not sent, and is a dead letter with that reason."""
    payload = message("x" * 400)
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), payload)
    link = AmqpSim(broker)
    link.receiver("a", max_message_size=len(payload) + 10, **LINKED)
    assert link.take() == []
    assert broker.engine.queue("DLQ").message_count == 1


# -- deliveries elsewhere ----------------------------------------------------------------------------------------------


def counted(count: int, *, first: bool = False) -> bytes:
    """A message that another broker has delivered in vain."""
    return message("x", header=Header(True, first_acquirer=first, delivery_count=count), annotations=notes(count))


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_failed_deliveries_elsewhere_go_on_counting(broker: SimBroker, restart: bool, count: int) -> None:
    link = AmqpSim(broker)
    link.send(link.sender("a", "queue", **LINKED), counted(count))
    if restart:
        broker = broker.restart()
    queue = broker.engine.queue("a")
    ((message, _),) = broker.engine.messages.browse(queue)
    assert (queue.delivery_count(message.id), message.id in queue.states) == (count, True)
    stomp = broker.connect()
    stomp.subscribe("/queue/a")
    (frame,) = stomp.messages()
    assert frame.headers["redelivered"] == "true"
    stomp.drop()
    client = AmqpSim(broker)
    client.receiver("a")
    (delivery,) = client.take()
    header = delivery.message.header
    assert (header.first_acquirer, header.delivery_count) == (False, count + 1)


def test_the_last_attempt_may_be_here(broker: SimBroker) -> None:
    limit = broker.engine.operators.settings("a").max_delivery_attempts
    link = AmqpSim(broker)
    link.send(link.sender("a", "queue", **LINKED), counted(limit - 1))
    stomp = broker.connect()
    stomp.subscribe("/queue/a")
    stomp.nack(stomp.messages()[0])
    assert broker.engine.queue("DLQ").message_count == 1


@pytest.mark.parametrize("linked", [True, False])
def test_a_message_that_nobody_had_is_new_and_clients_cannot_say_otherwise(broker: SimBroker, linked: bool) -> None:
    client = AmqpSim(broker)
    sender = client.sender("a", "queue", **LINKED if linked else {})
    client.send(sender, counted(0, first=True) if linked else counted(3))
    client.receiver("a")
    (delivery,) = client.take()
    header = delivery.message.header
    assert (header.first_acquirer, header.delivery_count) == (True, 0)
    assert not broker.engine.queue("a").states


@pytest.mark.parametrize("failed", [0, 1])
def test_a_link_that_is_lost_fails_nothing_and_tells_of_failures_only(broker: SimBroker, failed: int) -> None:
    """The next broker takes in once what is sent again, so that nobody has had it."""
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("x"))
    if failed:
        stomp = broker.connect()
        stomp.subscribe("/queue/a")
        stomp.drop()
    for _ in range(3):
        link = AmqpSim(broker)
        link.receiver("a", **LINKED)
        (delivery,) = link.take()
        header = delivery.message.header
        assert (header.first_acquirer, header.delivery_count) == (not failed, failed)
        link.drop()


def test_deliveries_that_have_not_failed_may_have_been_processed(broker: SimBroker) -> None:
    """It is redelivered here and there, and no delivery has failed."""
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("x"), message("y"))
    stomp = broker.connect()
    stomp.subscribe("/queue/a")
    assert len(stomp.messages()) == 2
    stomp.drop()
    link = AmqpSim(broker)
    link.receiver("a", **LINKED)
    headers = [delivery.message.header for delivery in link.take()]
    assert [(header.first_acquirer, header.delivery_count) for header in headers] == [(False, 1), (False, 0)]
